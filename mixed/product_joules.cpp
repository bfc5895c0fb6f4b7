#include "mixed/product_joules.h"

#include <algorithm>

#include "base/gpu_meter.h"
#include "gpt2/cuda/device_buffer.h"
#include "mixed/step_graph.h"

namespace mixed {
namespace {

constexpr double kHeat_s = 0.3, kWindow_s = 0.7;
// Launches that are queued together: so many that the host, which waits for one such unit while the next one runs, comes back in time.
constexpr double kUnit_us = 5000;
constexpr int kMostInUnit = 256;
// The host takes some microseconds for a product. Shorter ones than this are launched as a graph, as the step launches them: else the GPU
// would idle between them, and its idle power would be counted as theirs.
constexpr double kShort_us = 100;

std::string bus_id_of_device() {
  int device = 0;
  STEPSCOPE_CUDA_CHECK(cudaGetDevice(&device));
  char bus_id[32] = "";
  STEPSCOPE_CUDA_CHECK(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, device));
  return bus_id;
}

double joules_of_launch(energy::GpuMeter& meter, double time_us, cudaStream_t stream, const std::function<void()>& launch) {
  const int launches = std::clamp(static_cast<int>(kUnit_us / time_us), 1, kMostInUnit);
  const auto queue_all = [&] {
    for (int i = 0; i < launches; ++i) launch();
  };
  StepGraph graph;
  gpt2::cuda::Event ends[2];
  size_t queued = 0, finished = 0;
  // A counter that fails leaves a unit running, which must not outlive graph and events.
  const struct Drain {
    cudaStream_t stream;
    ~Drain() { STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaStreamSynchronize(stream)); }
  } drain{stream};
  const energy::Repeated work{[&] {
                                if (time_us < kShort_us)
                                  graph.launch(stream, GraphEdges::full, 0, queue_all);
                                else
                                  queue_all();
                                ends[queued++ % 2].record(stream);
                              },
                              [&] { ends[finished++ % 2].wait(); }};
  return meter.measure(work, kHeat_s, kWindow_s).joules_per_step() / launches;
}

}  // namespace

std::optional<std::string> why_no_energy_counter() { return energy::why_no_counter(bus_id_of_device()); }

std::vector<std::vector<double>> weigh_algorithms(std::span<const size_t> order, std::span<const double> times_us, cudaStream_t stream,
                                                  const std::function<void(size_t)>& launch) {
  energy::GpuMeter meter(bus_id_of_device());
  std::vector<std::vector<double>> joules(times_us.size());
  const auto weigh = [&](size_t i) { joules[i].push_back(joules_of_launch(meter, times_us[i], stream, [&] { launch(i); })); };
  for (const size_t i : order) weigh(i);
  if (!order.empty()) weigh(order.front());
  return joules;
}

}  // namespace mixed

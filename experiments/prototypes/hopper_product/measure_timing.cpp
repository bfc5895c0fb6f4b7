#include "experiments/prototypes/hopper_product/measure_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>

#include "base/gpu_meter.h"
#include "base/nvml.h"
#include "experiments/prototypes/hopper_product/cublaslt_rival.h"
#include "experiments/prototypes/hopper_product/cutlass_rival.h"
#include "experiments/prototypes/hopper_product/measure_cases.h"
#include "gpt2/cuda/check.h"

namespace hopper {
namespace {

using Clock = std::chrono::steady_clock;
using Launch = std::function<void(cudaStream_t)>;

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

// Several launches as one graph, so that the host's time to launch is in none of the results.
class Burst {
 public:
  Burst(std::string name, const Launch& launch, int launches, cudaStream_t stream)
      : name_(std::move(name)), launches_(launches), stream_(stream) {
    STEPSCOPE_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < launches; ++i) launch(stream);
    cudaGraph_t graph{};
    STEPSCOPE_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    STEPSCOPE_CUDA_CHECK(cudaGraphInstantiate(&graph_, graph, 0));
    cudaGraphDestroy(graph);
    STEPSCOPE_CUDA_CHECK(cudaEventCreate(&begin_));
    STEPSCOPE_CUDA_CHECK(cudaEventCreate(&end_));
  }
  ~Burst() {
    cudaGraphExecDestroy(graph_);
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Burst(const Burst&) = delete;
  Burst& operator=(const Burst&) = delete;

  // Milliseconds of one launch, kept.
  double run() {
    STEPSCOPE_CUDA_CHECK(cudaEventRecord(begin_, stream_));
    STEPSCOPE_CUDA_CHECK(cudaGraphLaunch(graph_, stream_));
    STEPSCOPE_CUDA_CHECK(cudaEventRecord(end_, stream_));
    STEPSCOPE_CUDA_CHECK(cudaEventSynchronize(end_));
    float ms = 0;
    STEPSCOPE_CUDA_CHECK(cudaEventElapsedTime(&ms, begin_, end_));
    times_.push_back(ms / static_cast<float>(launches_));
    return times_.back();
  }
  void queue() { STEPSCOPE_CUDA_CHECK(cudaGraphLaunch(graph_, stream_)); }
  double median() const {
    auto sorted = times_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  void forget() { times_.clear(); }
  size_t runs() const { return times_.size(); }
  int launches() const { return launches_; }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  int launches_;
  cudaStream_t stream_;
  cudaGraphExec_t graph_{};
  cudaEvent_t begin_{}, end_{};
  std::vector<double> times_;
};

// Back to back for `seconds`: what the power limit leaves.
void time_alone(const Case& c, Burst& burst, double seconds, cudaStream_t stream) {
  std::string absent;
  const auto device = stepscope::nvml::Device::open(absent);
  const auto energy = [&] { return device ? static_cast<double>(device->energy_mj().value_or(0)) * 1e-3 : 0.0; };
  const auto warm = Clock::now();
  for (; seconds_since(warm) < seconds / 3;) burst.run();
  int64_t launches = 0;
  const auto begin = Clock::now();
  const double before = energy();
  while (seconds_since(begin) < seconds) {
    for (int i = 0; i < 4; ++i) burst.queue();
    STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(stream));
    launches += 4 * burst.launches();
  }
  const double s = seconds_since(begin) / static_cast<double>(launches), joules = (energy() - before) / static_cast<double>(launches);
  const double clock = device ? device->sm_clock_mhz().value_or(0) : 0;
  fmt::print("alone,\"{}\",{},{},{},{},{:.5f},,{:.0f},{:.4f} J at {:.0f} MHz\n", c.name, c.m, c.n, c.k, burst.name(), s * 1e3,
             2e-12 * c.m * c.n * c.k / s, joules, clock);
  std::fflush(stdout);
}

struct Named {
  std::string name;
  Launch launch;
};

class Comparison {
 public:
  Comparison(const Case& c, const std::vector<Way>& ways, cudaStream_t stream)
      : case_(c), stream_(stream), buffers_(c, 128), workspace_(static_cast<int64_t>(kRivalWorkspaceBytes)) {
    const Problem& p = buffers_.problem;
    const double flop = 2.0 * c.m * c.n * c.k;
    launches_ = std::clamp(static_cast<int>(1.2e12 / flop), 1, 100);
    rival_ = std::make_unique<CublasLtRival>(p, c.tail, workspace_.data());
    add({"cuBLASLt", [this](cudaStream_t s) { rival_->run(s); }});
    if (c.tail != Tail::plain && c.tail != Tail::exponential) {
      plain_rival_ = std::make_unique<CublasLtRival>(p, Tail::plain, workspace_.data());
      add({"cuBLASLt-without-tail", [this](cudaStream_t s) { plain_rival_->run(s); }});
    }
    for (auto& [name, launch] : cutlass_launches(p, c.tail)) add({name, launch});
    for (const Way& way : ways) {
      if (why_not(p, c.tail, way.cut)) continue;
      try {
        const auto product = std::make_shared<Product>(p, c.tail, way.cut);
        add({way.name, [product](cudaStream_t s) { product->run(s); }});
      } catch (const std::exception&) {
        // No kernel of this width for this layout.
      }
    }
  }

  void run(double seconds) {
    const auto begin = Clock::now();
    for (int i = 0; i < 3; ++i)
      for (auto& burst : bursts_) burst->run();
    drop_slow();
    for (auto& burst : bursts_) burst->forget();
    do {
      for (auto& burst : bursts_) burst->run();
    } while (seconds_since(begin) < seconds * 0.6 && bursts_.front()->runs() < 200);
    print();
    Burst* best = nullptr;
    for (auto& burst : bursts_)
      if (burst->name().rfind("cuBLASLt", 0) != 0 && (best == nullptr || burst->median() < best->median())) best = burst.get();
    time_alone(case_, *bursts_.front(), seconds * 0.15, stream_);
    if (best != nullptr) time_alone(case_, *best, seconds * 0.15, stream_);
  }

 private:
  void add(const Named& candidate) {
    try {
      candidate.launch(stream_);
      STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(stream_));
      bursts_.push_back(std::make_unique<Burst>(candidate.name, candidate.launch, launches_, stream_));
    } catch (const std::exception& e) {
      fmt::print(stderr, "{} at {}: {}\n", candidate.name, case_.name, e.what());
    }
  }
  // Ways more than an eighth behind the best of them are told once and then left out.
  void drop_slow() {
    double best = 1e9;
    for (const auto& burst : bursts_)
      if (burst->name().rfind("cuBLASLt", 0) != 0) best = std::min(best, burst->median());
    for (const auto& burst : bursts_)
      if (slow(*burst, best)) line("quick", *burst);
    bursts_.erase(std::remove_if(bursts_.begin(), bursts_.end(), [&](const auto& burst) { return slow(*burst, best); }), bursts_.end());
  }
  static bool slow(const Burst& burst, double best) { return burst.name().rfind("cuBLASLt", 0) != 0 && burst.median() > best * 1.125; }
  void print() const {
    for (const auto& burst : bursts_) line("turns", *burst);
    std::fflush(stdout);
  }
  void line(const char* how, const Burst& burst) const {
    const double ms = burst.median();
    fmt::print("{},\"{}\",{},{},{},{},{:.5f},{:.4f},{:.0f},{}\n", how, case_.name, case_.m, case_.n, case_.k, burst.name(), ms,
               ms / bursts_.front()->median(), 2e-9 * case_.m * case_.n * case_.k / ms, burst.runs());
  }

  Case case_;
  cudaStream_t stream_;
  Buffers buffers_;
  DeviceBuffer<unsigned char> workspace_;
  int launches_ = 1;
  std::unique_ptr<CublasLtRival> rival_, plain_rival_;
  std::vector<std::unique_ptr<Burst>> bursts_;
};

std::vector<Way> named_ways(const std::vector<std::string>& names) {
  std::vector<Way> chosen;
  for (const Way& way : ways())
    if (std::find(names.begin(), names.end(), way.name) != names.end()) chosen.push_back(way);
  return chosen;
}

// Bursts of 20 ms, two of them queued at any time.
energy::Window joules_of(energy::GpuMeter& meter, const Launch& launch, double flop, cudaStream_t stream) {
  const int launches = std::clamp(static_cast<int>(1e13 / flop), 1, 1000);
  Burst burst("", launch, launches, stream);
  gpt2::cuda::Event ends[2];
  size_t queued = 0, finished = 0;
  const energy::Repeated work{[&] {
                                burst.queue();
                                ends[queued++ % 2].record(stream);
                              },
                              [&] { ends[finished++ % 2].wait(); }};
  energy::Window window = meter.measure(work, 0.4, 1.0);
  window.steps *= launches;
  return window;
}

}  // namespace

void joules_all(int rows, const std::string& product, const std::vector<std::string>& names) {
  char bus_id[32] = "";
  STEPSCOPE_CUDA_CHECK(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, 0));
  energy::GpuMeter meter(bus_id);
  cudaStream_t stream{};
  STEPSCOPE_CUDA_CHECK(cudaStreamCreate(&stream));
  DeviceBuffer<unsigned char> workspace(static_cast<int64_t>(kRivalWorkspaceBytes));
  fmt::print("product,m,n,k,way,us,mJ,W,MHz\n");
  for (const Case& c : block_cases(rows)) {
    if (c.name.find(product) == std::string::npos) continue;
    const Buffers buffers(c, 128);
    const double flop = 2.0 * c.m * c.n * c.k;
    const auto line = [&](const std::string& name, const Launch& launch) {
      try {
        const energy::Window w = joules_of(meter, launch, flop, stream);
        fmt::print("{},{},{},{},{},{:.2f},{:.3f},{:.0f},{:.0f}\n", c.name, c.m, c.n, c.k, name, w.seconds_per_step() * 1e6,
                   w.joules_per_step() * 1e3, w.power_w(), w.sm_clock_mhz.value_or(0));
      } catch (const std::exception& e) {
        fmt::print("{},{},{},{},{},{}\n", c.name, c.m, c.n, c.k, name, e.what());
      }
      std::fflush(stdout);
    };
    CublasLtRival rival(buffers.problem, c.tail, workspace.data());
    line("cuBLASLt", [&](cudaStream_t s) { rival.run(s); });
    for (const Way& way : named_ways(names)) {
      if (why_not(buffers.problem, c.tail, way.cut)) continue;
      std::unique_ptr<Product> product;
      try {
        product = std::make_unique<Product>(buffers.problem, c.tail, way.cut);
      } catch (const std::exception&) {
        continue;  // no kernel of this width for this layout
      }
      line(way.name, [&](cudaStream_t s) { product->run(s); });
    }
  }
  STEPSCOPE_CUDA_CHECK(cudaStreamDestroy(stream));
}

void time_all(double seconds, size_t products, const std::vector<std::string>& names) {
  const auto begin = Clock::now();
  const std::vector<Way> chosen = named_ways(names);
  cudaStream_t stream{};
  STEPSCOPE_CUDA_CHECK(cudaStreamCreate(&stream));
  fmt::print("how,product,m,n,k,way,ms,ratio,tflops,runs or joules\n");
  auto cases = timed_cases();
  cases.resize(std::min(cases.size(), products));
  for (size_t i = 0; i < cases.size(); ++i) {
    const double left = seconds - seconds_since(begin);
    if (left < 2) break;
    // The first products get more than the last.
    const double share = std::clamp(left / static_cast<double>(cases.size() - i) * (i < 4 ? 1.6 : 1.0), 2.0, 15.0);
    try {
      Comparison comparison(cases[i], chosen, stream);
      comparison.run(share);
    } catch (const std::exception& e) {
      fmt::print("failed,\"{}\",{},{},{},{}\n", cases[i].name, cases[i].m, cases[i].n, cases[i].k, e.what());
    }
  }
  STEPSCOPE_CUDA_CHECK(cudaStreamDestroy(stream));
}

}  // namespace hopper

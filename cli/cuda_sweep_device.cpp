#include "cli/cuda_sweep_device.h"

#include <cuda_runtime.h>

#include <utility>
#include <vector>

#include "base/statistics.h"
#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_buffer.h"

namespace cli {
namespace {

// What `enqueue` queues, as a graph that is launched at once.
class Captured {
 public:
  Captured(cudaStream_t stream, const std::function<void()>& enqueue, int64_t times) {
    cudaGraph_t graph = nullptr;
    STEPSCOPE_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int64_t i = 0; i < times; ++i) enqueue();
    STEPSCOPE_CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
    const cudaError_t made = cudaGraphInstantiate(&exec_, graph, 0);
    STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaGraphDestroy(graph));
    STEPSCOPE_CUDA_CHECK(made);
  }
  ~Captured() { STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaGraphExecDestroy(exec_)); }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  cudaGraphExec_t get() const { return exec_; }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

class CudaSweepDevice final : public SweepDevice {
 public:
  explicit CudaSweepDevice(int64_t bytes) : memory_(bytes), stream_(gpt2::cuda::Stream::highest_priority()) {
    STEPSCOPE_CUDA_CHECK(
        cudaMemset(memory_.data(), 0, static_cast<size_t>(bytes)));  // a sum of zeros stays finite however often it is made
    STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
  }
  void* memory() override { return memory_.data(); }
  void* stream() override { return stream_.get(); }

  double time_ns(const std::function<void()>& enqueue, int64_t times, int samples) override {
    enqueue();  // NCCL connects at the first use, which cannot be captured
    stream_.synchronize();
    const Captured graph(stream_.get(), enqueue, times);
    const gpt2::cuda::Event begin, end;
    std::vector<double> all;
    for (int s = -1; s < samples; ++s) {
      begin.record(stream_.get());
      STEPSCOPE_CUDA_CHECK(cudaGraphLaunch(graph.get(), stream_.get()));
      end.record(stream_.get());
      end.wait();
      if (s >= 0) all.push_back(gpt2::cuda::elapsed_ns(begin, end) / static_cast<double>(times));
    }
    return stepscope::median(std::move(all));
  }

 private:
  gpt2::cuda::DeviceBuffer<unsigned char> memory_;
  gpt2::cuda::Stream stream_;
};

}  // namespace

std::unique_ptr<SweepDevice> make_cuda_sweep_device(int64_t bytes) { return std::make_unique<CudaSweepDevice>(bytes); }

}  // namespace cli

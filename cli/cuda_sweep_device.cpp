#include "cli/cuda_sweep_device.h"

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "base/statistics.h"
#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/ops/elementwise.cuh"

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

using gpt2::cuda::DeviceBuffer;
using gpt2::ops::bf16;

// What a step does beside its collectives, on a stream of the step's priority: the two products of a layer's MLP of d12, by cuBLAS, or an
// elementwise op on arrays that no cache holds. Sums of zeros: power is that of light data, which a product of a real step exceeds. "random
// product" multiplies normal numbers, at the power of a step.
class StepWork {
 public:
  static constexpr int64_t kFewRows = 4096, kManyRows = 32768;  // B=4 and B=32 of T=1024

  StepWork()
      : narrow_(kManyRows * kChannels),
        wide_(kManyRows * 4 * kChannels),
        up_(4 * kChannels * kChannels),
        down_(4 * kChannels * kChannels),
        workspace_(kWorkspaceBytes),
        in_(kElements),
        out_(kElements),
        random_(kManyRows * kChannels),
        random_out_(kManyRows * 4 * kChannels) {
    for (const auto* b : {&narrow_, &wide_, &up_, &down_, &in_, &out_})
      STEPSCOPE_CUDA_CHECK(cudaMemset(b->data(), 0, static_cast<size_t>(b->bytes())));
    fill_with_normals(random_);
    STEPSCOPE_CUDA_CHECK(cublasCreate(&handle_));
    STEPSCOPE_CUDA_CHECK(cublasSetStream(handle_, stream_.get()));
    // Its own workspace would be allocated while a graph is captured.
    STEPSCOPE_CUDA_CHECK(cublasSetWorkspace(handle_, workspace_.data(), static_cast<size_t>(workspace_.bytes())));
    STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
  }
  ~StepWork() { STEPSCOPE_CUDA_CHECK_NOEXCEPT(cublasDestroy(handle_)); }
  StepWork(const StepWork&) = delete;
  StepWork& operator=(const StepWork&) = delete;

  cudaStream_t stream() const { return stream_.get(); }
  void enqueue(const SweepWork& w) const {
    if (w.work == "memory") return gpt2::ops::gelu_forward<bf16>(out_.data(), in_.data(), kElements, stream_.get());
    // The weights are the first rows of what they multiply.
    if (w.work == "random product") return product(random_out_.data(), random_.data(), random_.data(), w.rows, 4 * kChannels, kChannels);
    product(wide_.data(), up_.data(), narrow_.data(), w.rows, 4 * kChannels, kChannels);
    product(narrow_.data(), down_.data(), wide_.data(), w.rows, kChannels, 4 * kChannels);
  }

 private:
  static constexpr int64_t kChannels = 768, kElements = int64_t{1} << 26, kWorkspaceBytes = int64_t{32} << 20;

  // out (rows, n) = in (rows, k) times weight (n, k) transposed, row by row.
  void product(bf16* out, const bf16* weight, const bf16* in, int64_t rows, int64_t n, int64_t k) const {
    const float one = 1, zero = 0;
    STEPSCOPE_CUDA_CHECK(cublasGemmEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, static_cast<int>(n), static_cast<int>(rows), static_cast<int>(k),
                                      &one, weight, CUDA_R_16BF, static_cast<int>(k), in, CUDA_R_16BF, static_cast<int>(k), &zero, out,
                                      CUDA_R_16BF, static_cast<int>(n), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  }

  static void fill_with_normals(DeviceBuffer<bf16>& to) {
    std::mt19937 engine(7);
    std::normal_distribution<float> normal(0, 0.1f);
    std::vector<bf16> some(size_t{1} << 20);
    for (bf16& x : some) x = __float2bfloat16(normal(engine));
    for (int64_t at = 0; at < to.size(); at += std::ssize(some))
      STEPSCOPE_CUDA_CHECK(cudaMemcpy(to.data() + at, some.data(),
                                      static_cast<size_t>(std::min<int64_t>(std::ssize(some), to.size() - at)) * sizeof(bf16),
                                      cudaMemcpyHostToDevice));
  }

  DeviceBuffer<bf16> narrow_, wide_, up_, down_;
  DeviceBuffer<unsigned char> workspace_;
  DeviceBuffer<bf16> in_, out_, random_, random_out_;
  gpt2::cuda::Stream stream_;
  cublasHandle_t handle_ = nullptr;
};

// An event that a graph records whenever it is launched.
void record_in_graph(const gpt2::cuda::Event& event, cudaStream_t stream) {
  STEPSCOPE_CUDA_CHECK(cudaEventRecordWithFlags(event.get(), stream, cudaEventRecordExternal));
}

// A stretch of work, with or without collectives beside it, behind a collective in which the ranks wait for each other.
class Stretch {
 public:
  struct Times {
    double work_ns = 0, collectives_ns = 0, left_ns = 0;  // left: from the end of the collectives to that of the work
  };
  Stretch(cudaStream_t collectives, const StepWork& step, const SweepWork& work, int64_t repeats, const std::function<void()>& meet,
          const std::function<void()>* enqueue)
      : stream_(collectives),
        with_(enqueue != nullptr),
        graph_(
            collectives, [&] { capture(step, work, repeats, meet, enqueue); }, 1) {}

  Times run() const {
    STEPSCOPE_CUDA_CHECK(cudaGraphLaunch(graph_.get(), stream_));
    STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(stream_));
    Times t;
    t.work_ns = gpt2::cuda::elapsed_ns(begin_, work_end_);
    if (!with_) return t;
    t.collectives_ns = gpt2::cuda::elapsed_ns(first_, last_);
    t.left_ns = gpt2::cuda::elapsed_ns(begin_, work_end_) - gpt2::cuda::elapsed_ns(begin_, last_);
    return t;
  }

 private:
  void capture(const StepWork& step, const SweepWork& work, int64_t repeats, const std::function<void()>& meet,
               const std::function<void()>* enqueue) {
    meet();
    record_in_graph(begin_, stream_);
    forked_.order(stream_, step.stream());
    for (int64_t i = 0; i < repeats; ++i) step.enqueue(work);
    record_in_graph(work_end_, step.stream());
    if (enqueue) {
      record_in_graph(first_, stream_);
      for (int64_t i = 0; i < SweepDevice::kBeside; ++i) (*enqueue)();
      record_in_graph(last_, stream_);
    }
    joined_.order(step.stream(), stream_);
  }

  cudaStream_t stream_;
  bool with_;
  gpt2::cuda::Event begin_, work_end_, first_, last_;
  gpt2::cuda::Fence forked_, joined_;
  Captured graph_;  // last: what it records into stands above
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

  std::vector<SweepWork> works() override { return {{"product", StepWork::kFewRows}, {"product", StepWork::kManyRows}, {"memory", 0}}; }

  std::optional<BesideTimes> beside(const SweepWork& work, const std::function<void()>& enqueue, const std::function<void()>& meet,
                                    double alone_ns, int samples) override {
    const double one_ns = work_ns(work);
    // Collectives beside work take up to twice their time, and the work must go on behind them.
    const auto repeats = static_cast<int64_t>(std::ceil(2.5 * static_cast<double>(kBeside) * alone_ns / one_ns)) + 2;
    meet();  // NCCL connects at the first use, which cannot be captured
    enqueue();
    stream_.synchronize();
    const Stretch without(stream_.get(), step_, work, repeats, meet, nullptr), with(stream_.get(), step_, work, repeats, meet, &enqueue);
    std::vector<double> alone, slowed, collectives, left;
    for (int s = -1; s < samples; ++s) {
      const Stretch::Times a = without.run(), b = with.run();
      if (s < 0) continue;
      alone.push_back(a.work_ns);
      slowed.push_back(b.work_ns);
      collectives.push_back(b.collectives_ns);
      left.push_back(b.left_ns);
    }
    if (stepscope::median(left) < 0) return std::nullopt;
    const auto n = static_cast<double>(kBeside);
    return BesideTimes{stepscope::median(collectives) / n, (stepscope::median(slowed) - stepscope::median(alone)) / n};
  }

  std::optional<AwakeTimes> awake(const std::function<void()>& touch, const std::function<void()>& meet_on_host) override {
    // A stretch takes 20 to 30 ms at the power limit of an H200: links that are touched before each do not sleep.
    constexpr int64_t kProducts = 96;
    constexpr int kStretches = 120, kNotCounted = kStretches / 3;
    const SweepWork random{"random product", StepWork::kManyRows};
    touch();  // NCCL connects at the first use, which cannot be captured
    stream_.synchronize();
    const Stretch without(
        stream_.get(), step_, random, kProducts, [] {}, nullptr),
        with(stream_.get(), step_, random, kProducts, touch, nullptr);
    AwakeTimes sum;
    for (const auto& [stretch, ns] : {std::pair(&without, &sum.asleep_ns), std::pair(&with, &sum.awake_ns), std::pair(&with, &sum.awake_ns),
                                      std::pair(&without, &sum.asleep_ns)})
      for (int i = 0; i < kStretches; ++i) {
        meet_on_host();
        const double took = stretch->run().work_ns;
        if (i >= kNotCounted) *ns += took;
      }
    const double counted = 2.0 * (kStretches - kNotCounted);
    return AwakeTimes{sum.asleep_ns / counted, sum.awake_ns / counted};
  }

 private:
  // One repeat of it, of many in a row.
  double work_ns(const SweepWork& work) {
    constexpr int kRepeats = 20;
    const gpt2::cuda::Event begin, end;
    for (int i = 0; i < 3; ++i) step_.enqueue(work);
    begin.record(step_.stream());
    for (int i = 0; i < kRepeats; ++i) step_.enqueue(work);
    end.record(step_.stream());
    end.wait();
    return gpt2::cuda::elapsed_ns(begin, end) / kRepeats;
  }

  gpt2::cuda::DeviceBuffer<unsigned char> memory_;
  gpt2::cuda::Stream stream_;
  StepWork step_;
};

}  // namespace

std::unique_ptr<SweepDevice> make_cuda_sweep_device(int64_t bytes) { return std::make_unique<CudaSweepDevice>(bytes); }

}  // namespace cli

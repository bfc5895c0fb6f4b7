#include "experiments/gate/op_hog.h"

#include "experiments/gate/random.h"
#include "gpt2/cuda/check.h"
#include "gpt2/cuda/launch.cuh"

namespace gate {
namespace {

constexpr int64_t kFar = int64_t{32} << 20;  // floats; more than an L2 holds
constexpr unsigned kSchedulers = 4;          // of a multiprocessor; the warps of a block take them in turn

__device__ int64_t now() { return clock64(); }

// How long a block goes on: for so many cycles, or until it finds itself ended.
class Until {
 public:
  __device__ Until(int64_t cycles, int32_t number, const volatile int32_t* ended)
      : begin_(now()), cycles_(cycles), number_(number), ended_(ended) {}
  __device__ bool over() {
    const int64_t turned = now() - begin_;
    if (turned >= cycles_) return true;
    if (turned < look_) return false;
    look_ = turned + kLook;
    return *ended_ == number_;
  }

 private:
  static constexpr int64_t kLook = 4096;  // cycles between two looks: the op should meet its threads, not its reads
  int64_t begin_, cycles_, look_ = kLook;
  int32_t number_;
  const volatile int32_t* ended_;
};

// Some of `cycles`, by the block's number.
__device__ int64_t share_of(int64_t cycles, uint32_t seed) {
  const uint32_t mixed = (blockIdx.x + 1) * 0x9e3779b9u ^ seed;
  return cycles * ((mixed ^ mixed >> 15) % 16 + 1) / 16;
}

__global__ void hold_kernel(uint32_t seed, int64_t cycles, int32_t number, const volatile int32_t* ended) {
  Until until(share_of(cycles, seed), number, ended);
  while (!until.over()) {
  }
}

__device__ bool on_scheduler(uint32_t seed) { return threadIdx.x / 32 % kSchedulers == seed % kSchedulers; }

__global__ void __launch_bounds__(1024) read_shared_kernel(uint32_t seed, int64_t cycles, int32_t number, const volatile int32_t* ended) {
  __shared__ uint32_t words[32];
  if (!on_scheduler(seed)) return;
  const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(words + threadIdx.x % 32));
  Until until(cycles, number, ended);
  while (!until.over())
#pragma unroll 4
    for (int i = 0; i < 128; ++i) {
      [[maybe_unused]] uint32_t word;
      asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(word) : "r"(at));
    }
}

// A value that nobody has is what it writes, so that the reads stay.
__global__ void __launch_bounds__(1024)
    read_far_kernel(uint32_t seed, int64_t cycles, int32_t number, const volatile int32_t* ended, float* far) {
  if (blockDim.x > 256 && !on_scheduler(seed)) return;
  uint32_t at = (blockIdx.x * 1024 + threadIdx.x) * 0x9e3779b9u + seed;
  float sum = 0;
  Until until(cycles, number, ended);
  while (!until.over())
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      at = at * 1664525u + 1013904223u;
      sum += __ldcg(far + (static_cast<uint64_t>(at) * kFar >> 32));
    }
  if (sum > 0) *far = 0;
}

__global__ void end_hog_kernel(int32_t number, int32_t* ended) { *ended = number; }

// A multiprocessor divides its memory between L1 and shared memory anew only when it is empty. With the division that a kernel of little shared
// memory gets, no block of an op that needs much would come beside it: the op would wait for the hog's end.
template <class Kernel>
void leave_shared_memory(Kernel* kernel) {
  STEPSCOPE_CUDA_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, static_cast<int>(cudaSharedmemCarveoutMaxShared)));
}

}  // namespace

Hog::Hog() : far_(kFar) {
  STEPSCOPE_CUDA_CHECK(cudaMemset(ended_.data(), 0, static_cast<size_t>(ended_.bytes())));
  STEPSCOPE_CUDA_CHECK(cudaMemset(far_.data(), 0, static_cast<size_t>(far_.bytes())));
  int device = 0;
  STEPSCOPE_CUDA_CHECK(cudaGetDevice(&device));
  STEPSCOPE_CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, device));
  leave_shared_memory(hold_kernel);
  leave_shared_memory(read_shared_kernel);
  leave_shared_memory(read_far_kernel);
}

void Hog::start(uint64_t seed) {
  Random random(seed);
  const auto bits = static_cast<uint32_t>(random.bits());
  const bool large = random.below(2) == 1;
  const auto each = static_cast<unsigned>(multiprocessors_);  // a block on each
  const int64_t cycles = 20'000 + random.below(4'000'000);
  switch (++number_ % 3) {
    case 0: {
      constexpr int64_t kSharedBytes[] = {0, 8 << 10, 24 << 10, 48 << 10};
      const unsigned threads = 32u << random.below(5);
      hold_kernel<<<static_cast<unsigned>(32 + random.below(480)), threads, static_cast<size_t>(kSharedBytes[random.below(4)]),
                    stream_.get()>>>(bits, cycles / 4, number_, ended_.data());
      break;
    }
    case 1:
      read_shared_kernel<<<each, large ? 1024 : 512, 0, stream_.get()>>>(bits, cycles, number_, ended_.data());
      break;
    default:
      read_far_kernel<<<each, large ? 1024 : 256, 0, stream_.get()>>>(bits, cycles, number_, ended_.data(), far_.data());
  }
  STEPSCOPE_CHECK_LAUNCH();
}

void Hog::end_behind(const gpt2::cuda::Stream& stream) {
  end_hog_kernel<<<1, 1, 0, stream.get()>>>(number_, ended_.data());
  STEPSCOPE_CHECK_LAUNCH();
}

}  // namespace gate

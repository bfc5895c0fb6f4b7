#include "experiments/gate/op_hog.h"

#include "experiments/gate/random.h"
#include "gpt2/cuda/check.h"
#include "gpt2/cuda/launch.cuh"

namespace gate {
namespace {

// Each block turns for some of `cycles`, by its number, or until it finds itself ended. Writes nothing.
__global__ void hog_kernel(uint32_t seed, int64_t cycles, int32_t number, const volatile int32_t* ended) {
  const uint32_t mixed = (blockIdx.x + 1) * 0x9e3779b9u ^ seed;
  const int64_t mine = cycles * ((mixed ^ mixed >> 15) % 16 + 1) / 16;
  const int64_t begin = clock64();
  constexpr int64_t kLook = 4096;  // cycles between two looks: the op should meet its threads, not its reads
  int64_t look = kLook;
  for (int64_t turned = 0; turned < mine; turned = clock64() - begin)
    if (turned >= look) {
      if (*ended == number) return;
      look = turned + kLook;
    }
}

__global__ void end_hog_kernel(int32_t number, int32_t* ended) { *ended = number; }

}  // namespace

Hog::Hog() { STEPSCOPE_CUDA_CHECK(cudaMemset(ended_.data(), 0, static_cast<size_t>(ended_.bytes()))); }

void Hog::start(uint64_t seed) {
  Random random(seed);
  constexpr int64_t kSharedBytes[] = {0, 8 << 10, 24 << 10, 48 << 10};
  const unsigned threads = 32u << random.below(5);
  hog_kernel<<<static_cast<unsigned>(32 + random.below(480)), threads, static_cast<size_t>(kSharedBytes[random.below(4)]), stream_.get()>>>(
      static_cast<uint32_t>(random.bits()), 20'000 + random.below(1'000'000), ++number_, ended_.data());
  STEPSCOPE_CHECK_LAUNCH();
}

void Hog::end_behind(const gpt2::cuda::Stream& stream) {
  end_hog_kernel<<<1, 1, 0, stream.get()>>>(number_, ended_.data());
  STEPSCOPE_CHECK_LAUNCH();
}

}  // namespace gate

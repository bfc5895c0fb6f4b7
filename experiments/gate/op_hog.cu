#include "experiments/gate/op_hog.h"

#include "experiments/gate/random.h"
#include "gpt2/cuda/launch.cuh"

namespace gate {
namespace {

// Each block turns for some of `cycles`, by its number. Reads and writes nothing.
__global__ void hog_kernel(uint32_t seed, int64_t cycles) {
  const uint32_t mixed = (blockIdx.x + 1) * 0x9e3779b9u ^ seed;
  const int64_t mine = cycles * ((mixed ^ mixed >> 15) % 16 + 1) / 16;
  const int64_t begin = clock64();
  while (clock64() - begin < mine) {
  }
}

}  // namespace

void Hog::start(uint64_t seed) {
  Random random(seed);
  constexpr int64_t kSharedBytes[] = {0, 8 << 10, 24 << 10, 48 << 10};
  const unsigned threads = 32u << random.below(5);
  hog_kernel<<<static_cast<unsigned>(32 + random.below(480)), threads, static_cast<size_t>(kSharedBytes[random.below(4)]), stream_.get()>>>(
      static_cast<uint32_t>(random.bits()), 20'000 + random.below(1'000'000));
  STEPSCOPE_CHECK_LAUNCH();
}

}  // namespace gate

// The random bits that an update rounds with: functions of the step's seed and of the element, so that a run repeats and resumes bit for bit,
// whatever kernel makes the update.
#pragma once
#include <cstdint>

#include "gpt2/ops/host_device.h"
#include "gpt2/ops/split_value.cuh"

namespace gpt2::ops {

// Of the i-th of something: the finalizer of MurmurHash3 (Appleby) over seed and index.
STEPSCOPE_HOST_DEVICE uint32_t random_word(uint32_t seed, int64_t i) {
  uint32_t x = static_cast<uint32_t>(i) ^ (static_cast<uint32_t>(i >> 32) * 0x9e3779b9u) ^ (seed * 0x85ebca6bu + 0x7f4a7c15u);
  x ^= x >> 16;
  x *= 0x85ebca6bu;
  x ^= x >> 13;
  x *= 0xc2b2ae35u;
  x ^= x >> 16;
  return x;
}
// Sixteen bits for the weight of element i.
STEPSCOPE_HOST_DEVICE uint32_t random_bits(uint32_t seed, int64_t i) { return random_word(seed, i) & 0xffffu; }

// A byte each for both moments of eight elements, 8 i to 8 i + 7: one hash and three products make them all. Odd factors keep every byte
// evenly spread. What the eight have in common is gone in the next step, so no sum over steps sees it. The seed is none of a weight's.
class MomentBytes {
 public:
  STEPSCOPE_HOST_DEVICE MomentBytes(uint32_t rounding_seed, int64_t eight) : word_(random_word(~rounding_seed, eight)) {}
  // Of element k of the eight.
  STEPSCOPE_HOST_DEVICE uint32_t of_m(int k) const { return pick_bytes(of_pair(k / 2), 0, k % 2 == 0 ? 0x4440 : 0x4441); }
  STEPSCOPE_HOST_DEVICE uint32_t of_v(int k) const { return pick_bytes(of_pair(k / 2), 0, k % 2 == 0 ? 0x4442 : 0x4443); }

 private:
  // Lowest byte first: m of elements 2 pair and 2 pair + 1, then v of both.
  STEPSCOPE_HOST_DEVICE uint32_t of_pair(int pair) const {
    return word_ * (pair == 0 ? 1u : pair == 1 ? 0x9e3779b1u : pair == 2 ? 0x85ebca77u : 0xc2b2ae3du);
  }
  uint32_t word_;
};

// As MomentBytes, but sixteen bits each, of a product for each element. The lowest bits of all eight of v follow from each other; they decide
// one draw of 32 thousand.
class MomentHalfWords {
 public:
  STEPSCOPE_HOST_DEVICE MomentHalfWords(uint32_t rounding_seed, int64_t eight) : word_(random_word(~rounding_seed, eight)) {}
  STEPSCOPE_HOST_DEVICE uint32_t of_m(int k) const { return of_both(k) >> 16; }
  STEPSCOPE_HOST_DEVICE uint32_t of_v(int k) const { return of_both(k) & 0xffffu; }

 private:
  STEPSCOPE_HOST_DEVICE uint32_t of_both(int k) const {
    return word_ * (k == 0   ? 1u
                    : k == 1 ? 0x9e3779b1u
                    : k == 2 ? 0x85ebca77u
                    : k == 3 ? 0xc2b2ae3du
                    : k == 4 ? 0x27d4eb2fu
                    : k == 5 ? 0x165667b1u
                    : k == 6 ? 0xd3a2646du
                             : 0xfd7046c5u);
  }
  uint32_t word_;
};

}  // namespace gpt2::ops

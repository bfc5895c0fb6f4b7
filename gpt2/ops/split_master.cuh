// An fp32 master weight as the bf16 weight beside it and what the weight lacks: the lower 16 bits of the master, and one bit that says
// whether the weight was rounded up.
//
// 16 bits alone cannot do: of all masters that round to the nearest even bf16 number, both the one half a step below and the one half a
// step above round to an even number, so an even weight has 2^16 + 1 masters. The bit also makes the pair independent of how the weight
// was rounded: nothing has to be drawn again to read it.
#pragma once
#include <cstdint>

#include "gpt2/ops/host_device.h"

namespace gpt2::ops {

struct SplitMaster {
  uint16_t weight = 0;  // bits of the bf16 weight
  uint16_t low = 0;     // lower bits of the master
  bool up = false;      // the weight is the number above the master's upper half
};

// Bits of an infinity or a NaN. What is below the upper half of a NaN is dropped, or the weight could become an infinity: a NaN stays a
// NaN, not the same one.
STEPSCOPE_HOST_DEVICE SplitMaster split_not_finite(uint32_t master) {
  const bool nan = (master & 0x007fffffu) != 0;
  return {static_cast<uint16_t>(nan ? 0x7fffu : master >> 16), 0, false};
}
STEPSCOPE_HOST_DEVICE bool is_finite(uint32_t master) { return (master & 0x7f800000u) != 0x7f800000u; }

// The weight is the bf16 number nearest to the master, to the even one of two that are equally near. A finite master above the largest
// bf16 number becomes an infinity, as in __float2bfloat16_rn, and the master is still read back.
STEPSCOPE_HOST_DEVICE SplitMaster split_nearest(uint32_t master) {
  if (!is_finite(master)) return split_not_finite(master);
  const uint32_t high = master >> 16, low = master & 0xffffu;
  const bool up = low > 0x8000u || (low == 0x8000u && (high & 1u) != 0);
  return {static_cast<uint16_t>(high + (up ? 1u : 0u)), static_cast<uint16_t>(low), up};
}

// The weight is above the master's upper half where low + random carries: with the probability of what is cut off. random < 2^16.
STEPSCOPE_HOST_DEVICE SplitMaster split_randomly(uint32_t master, uint32_t random) {
  if (!is_finite(master)) return split_not_finite(master);
  const uint32_t high = master >> 16, low = master & 0xffffu;
  const bool up = low + random > 0xffffu;
  return {static_cast<uint16_t>(high + (up ? 1u : 0u)), static_cast<uint16_t>(low), up};
}

// Bits of the master.
STEPSCOPE_HOST_DEVICE uint32_t join(const SplitMaster& s) {
  return static_cast<uint32_t>(static_cast<uint16_t>(s.weight - (s.up ? 1u : 0u))) << 16 | s.low;
}

}  // namespace gpt2::ops

// AdamW's moments in 16 bits each: m as the bf16 number that its upper half is, v, which has no sign, as the 16 bits below the sign:
// 8 of the exponent and 8 of the fraction, so 8 and 9 significant bits.
#pragma once
#include <bit>
#include <cstdint>

#include "gpt2/ops/host_device.h"

namespace gpt2::ops {

// x before its lower half is cut off: bits 31 to 16 are what is stored, rounded at random, away from zero with the probability of the part
// that is cut off. random: 16 bits, each value equally likely. What has so few bits already stays what it is. Infinities stay themselves and
// NaN stays one, lowered so that the sum holds it; but a NaN with a sign and a fraction above 0x7f0000 gets lost: it exists in memory alone.
STEPSCOPE_HOST_DEVICE uint32_t short_m_bits(float x, uint32_t random) {
  constexpr int32_t kMost = 0x7fff0000;
  const auto bits = std::bit_cast<int32_t>(x);
  return static_cast<uint32_t>(bits < kMost ? bits : kMost) + random;
}
STEPSCOPE_HOST_DEVICE float value_of_short_m(uint32_t bits) { return std::bit_cast<float>(bits & 0xffff0000u); }

// The same of v >= 0 (of a negative one the sign is lost).
STEPSCOPE_HOST_DEVICE uint32_t short_v_bits(float x, uint32_t random) {
  constexpr uint32_t kMost = 0xffff0000u;
  const uint32_t bits = std::bit_cast<uint32_t>(x) << 1;
  return (bits < kMost ? bits : kMost) + random;
}
STEPSCOPE_HOST_DEVICE float value_of_short_v(uint32_t bits) { return std::bit_cast<float>((bits & 0xffff0000u) >> 1); }

// "random" of the functions above that rounds to nearest, ties away from zero.
inline constexpr uint32_t kShortToNearest = 0x8000;

}  // namespace gpt2::ops

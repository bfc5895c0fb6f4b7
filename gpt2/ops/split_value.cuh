// A value in three bytes: an upper half, which is the value rounded to bf16 and which others read too, and a lower byte with what that left.
//
// Both are integers made from the float's bits. These are rounded to 24 of 32 (sign, exponent, 15 bits of fraction: 16 significant bits),
// ties away from zero. Then
//   upper = (bits + 0x8000) >> 16    the nearest bf16 number, ties away from zero
//   lower = (bits >> 8) & 0xff       with its sign: it lies in [-128, 128), and (upper << 16) + (lower << 8) are the bits again
// Ties to even would not do: the value half a step above an even upper half would need a lower byte of +128.
// A finite value that bf16 rounds to infinity has an infinite upper half, and a lower byte below zero that brings it back, or zero where 16
// bits round it to infinity too. Infinities stay themselves, and a NaN stays one.
#pragma once
#include <bit>
#include <cstdint>

#include "gpt2/ops/host_device.h"

namespace gpt2::ops {

// Both parts of x before they are taken apart: bits 31 to 16 are the upper half, bits 15 to 8 the lower byte with its highest bit flipped,
// the rest is of no use. One sum does it: 0x80 rounds to 24 bits; 0x8000 rounds these to 16, and where it carries, the lower byte is negative.
// x is a result of arithmetic. The device's NaN, 0x7fffffff, would become -0 in that sum, so a NaN above what the sum can hold is lowered
// first. No other NaN gets lost but those with a sign and a fraction above 0x7f7f7f, or with one below 0x8000: they exist in memory alone.
STEPSCOPE_HOST_DEVICE uint32_t split_bits(float x) {
  constexpr int32_t kMost = 0x7fff7f7f;
  const auto bits = std::bit_cast<int32_t>(x);
  return static_cast<uint32_t>(bits < kMost ? bits : kMost) + 0x8080u;
}

// As split_bits, but rounded to the 24 bits at random: away from zero with the probability of the part that is cut off, so that sums over
// many roundings come out right. random: a byte, each value equally likely. What has 24 bits already stays what it is. A NaN above what
// this sum can hold is lowered to a smaller one.
STEPSCOPE_HOST_DEVICE uint32_t split_bits_randomly(float x, uint32_t random) {
  constexpr int32_t kMost = 0x7fff7f00;
  const auto bits = std::bit_cast<int32_t>(x);
  return static_cast<uint32_t>(bits < kMost ? bits : kMost) + (0x8000u + random);
}

// The value that the parts hold, and that of the upper half alone.
STEPSCOPE_HOST_DEVICE float value_of_split(uint32_t split) { return std::bit_cast<float>((split - 0x8000u) & 0xffffff00u); }
STEPSCOPE_HOST_DEVICE float upper_of_split(uint32_t split) { return std::bit_cast<float>(split & 0xffff0000u); }

struct SplitValue {
  uint16_t upper = 0;
  int8_t lower = 0;
};
// `split`: of split_bits or split_bits_randomly.
STEPSCOPE_HOST_DEVICE SplitValue parts_of_split(uint32_t split) {
  return {static_cast<uint16_t>(split >> 16), static_cast<int8_t>((split >> 8 & 0xffu) ^ 0x80u)};
}
STEPSCOPE_HOST_DEVICE SplitValue split_value(float x) { return parts_of_split(split_bits(x)); }
STEPSCOPE_HOST_DEVICE float join_value(SplitValue v) {
  return std::bit_cast<float>((static_cast<uint32_t>(v.upper) << 16) + (static_cast<uint32_t>(v.lower) << 8));
}

// Four bytes of the eight of `low` (0 to 3) and `high` (4 to 7). `which` has a hexadecimal digit for each, that of the lowest byte last.
STEPSCOPE_HOST_DEVICE uint32_t pick_bytes(uint32_t low, uint32_t high, uint32_t which) {
#ifdef __CUDA_ARCH__
  return __byte_perm(low, high, which);
#else
  const uint64_t all = static_cast<uint64_t>(high) << 32 | low;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) out |= static_cast<uint32_t>(all >> 8 * (which >> 4 * i & 7) & 0xff) << 8 * i;
  return out;
#endif
}

// Eight values as they lie in memory: 16 bytes of upper halves, 8 lower bytes.
struct SplitPack {
  uint32_t upper[4];
  uint32_t lower[2];
};
// `split`: eight of split_bits.
STEPSCOPE_HOST_DEVICE SplitPack pack_split(const uint32_t* split) {
  SplitPack out;
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int half = 0; half < 2; ++half) {
    const uint32_t* s = split + 4 * half;
    out.upper[2 * half] = pick_bytes(s[0], s[1], 0x7632);
    out.upper[2 * half + 1] = pick_bytes(s[2], s[3], 0x7632);
    out.lower[half] = pick_bytes(pick_bytes(s[0], s[1], 0x51), pick_bytes(s[2], s[3], 0x51), 0x5410) ^ 0x80808080u;
  }
  return out;
}
// The eight values.
STEPSCOPE_HOST_DEVICE void unpack_split(const SplitPack& packed, float* values) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
  for (int pair = 0; pair < 4; ++pair) {
    // Zeros below each of two lower bytes. Flipped, they are counted from -128, which is 0x8000 in the sum.
    const uint32_t lower = pick_bytes(packed.lower[pair / 2] ^ 0x80808080u, 0, pair % 2 == 0 ? 0x1404 : 0x3424);
    values[2 * pair] = std::bit_cast<float>(pick_bytes(packed.upper[pair], lower, 0x1054) - 0x8000u);
    values[2 * pair + 1] = std::bit_cast<float>(pick_bytes(packed.upper[pair], lower, 0x3276) - 0x8000u);
  }
}

}  // namespace gpt2::ops

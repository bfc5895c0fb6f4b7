// Random numbers as a pure function of (key, counter): nothing to save but the position, and any element can
// be had without the ones before it. The mix is SplitMix64's finalizer (Steele, Lea & Flood 2014). Integer
// arithmetic only up to the last conversion, so that every platform draws the same numbers.
#pragma once
#include <bit>
#include <cstdint>

namespace gpt2 {

constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}
// Order matters: combine(a, b) != combine(b, a).
constexpr uint64_t combine(uint64_t a, uint64_t b) { return mix64(mix64(a) + b); }
constexpr double unit_interval(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1.0p-53; }  // [0, 1)

class CounterRng {
 public:
  constexpr explicit CounterRng(uint64_t key, uint64_t counter = 0) : key_(mix64(key)), counter_(counter) {}
  constexpr uint64_t bits() { return mix64(key_ + 0x9e3779b97f4a7c15ull * counter_++); }
  constexpr double uniform() { return unit_interval(bits()); }

 private:
  uint64_t key_, counter_;
};

// A permutation of 0 … n-1 without a table: a four-round Feistel cipher over the next even number of bits,
// walked until it falls below n (Black & Rogaway 2002, cycle walking; at most 4 rounds of walking on
// average). n must be > 0.
class TablelessPermutation {
 public:
  constexpr TablelessPermutation(uint64_t n, uint64_t key)
      : n_(n), key_(key), half_bits_(n <= 1 ? 1 : (static_cast<unsigned>(std::bit_width(n - 1)) + 1) / 2) {}
  constexpr uint64_t operator()(uint64_t i) const {
    if (n_ <= 1) return 0;
    do i = encrypt(i);
    while (i >= n_);
    return i;
  }

 private:
  constexpr uint64_t encrypt(uint64_t x) const {
    const uint64_t mask = half_bits_ == 32 ? 0xffffffffull : (uint64_t{1} << half_bits_) - 1;
    uint64_t left = x >> half_bits_, right = x & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t next = left ^ (combine(key_ + round, right) & mask);
      left = right;
      right = next;
    }
    return left << half_bits_ | right;
  }
  uint64_t n_, key_;
  unsigned half_bits_;
};

}  // namespace gpt2

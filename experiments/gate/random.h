// The gate's own numbers: the same for a seed on every platform, and not those of the trainers'
// initialization, so that a trainer cannot have been tuned to them. SplitMix64 (Steele, Lea & Flood 2014),
// one stream per purpose.
#pragma once
#include <cmath>
#include <cstdint>
#include <numbers>

namespace gate {

class Random {
 public:
  explicit Random(uint64_t seed, uint64_t stream = 0) : state_(seed ^ (stream * 0xd1342543de82ef95ull)) { bits(); }
  uint64_t bits() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  // [0, 1)
  int64_t below(int64_t n) { return static_cast<int64_t>(uniform() * static_cast<double>(n)); }
  float normal(double deviation = 1) {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return static_cast<float>(deviation * radius * std::cos(2 * std::numbers::pi * uniform()));
  }

 private:
  uint64_t state_;
};

}  // namespace gate

#include "experiments/gate/op_inputs.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "experiments/gate/op_each.cuh"
#include "experiments/gate/random.h"

namespace gate {
namespace {

// SplitMix64 (Steele, Lea & Flood 2014) of seed and index.
GATE_ANYWHERE uint64_t bits_at(uint64_t seed, int64_t i) {
  uint64_t z = seed * 0xd1342543de82ef95ull + (static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

GATE_ANYWHERE double normal_at(uint64_t seed, int64_t i) {
  const uint64_t bits = bits_at(seed, i);
  const double u = (static_cast<double>(bits >> 32) + 1) * 0x1p-32;  // (0, 1]
  const double angle = static_cast<double>(bits & 0xffffffffu) * 0x1p-32 * 6.283185307179586;
  return sqrt(-2 * log(u)) * cos(angle);
}

struct FillValues {
  void* data;
  Element element;
  int64_t count;
  Values v;
  GATE_ANYWHERE double at(int64_t i) const {
    if (i >= v.hidden_from) return v.hidden;
    for (const Values::Spike& s : v.spikes)
      if (s.index == i) return s.value;
    double deviation = v.deviation, mean = v.mean;
    const int64_t row = i / v.columns;
    for (const Values::Row& r : v.rows)
      if (r.row == row) deviation = r.deviation, mean = r.mean;
    double x = deviation == 0 ? mean : mean + deviation * normal_at(v.seed, i);
    if (x > v.limit) x = v.limit;
    if (x < -v.limit) x = -v.limit;
    if (v.positive && x < 0) x = -x;
    return i % 5 == 0 ? x * v.every_fifth : x;
  }
  GATE_ANYWHERE void operator()(int64_t i) const { store_value(data, element, i, at(i), count); }
};

struct FillLogits {
  void* data;
  Element element;
  Logits l;
  GATE_ANYWHERE double at(int64_t row, int64_t column, int64_t i) const {
    if (column >= l.V) return 1e4;
    const double x = normal_at(l.seed, i);
    if (!l.hurt) return 2 * x;
    switch (row % 5) {
      case 0:
        return x - 120;
      case 1:
        return column == row * 7919 % l.V ? 80 : x;
      case 2:
        return 1.5;
      case 3:
        return fmin(fmax(40 * x, -80.0), 80.0);
      default:
        return 2 * x;
    }
  }
  GATE_ANYWHERE void operator()(int64_t i) const { store_value(data, element, i, at(i / l.Vp, i % l.Vp, i)); }
};

struct FillQkv {
  void* data;
  Element element;
  Qkv q;
  GATE_ANYWHERE double at(int64_t t, int64_t column, int64_t i) const {
    const double x = normal_at(q.seed, i);
    const int64_t part = column / q.C;  // query, key, value
    if (part == 2) return x;
    if (q.low) return part == 0 ? 256 : (x > 0.5 ? -83 : x < -0.5 ? -85 : -84) / 128.0;
    if (!q.hurt) return x;
    const double root = sqrt(static_cast<double>(q.HS));
    // Queries near 256: a key of constant k scores about 256 k sqrt(HS). Large queries and small keys, not
    // the other way round: the gradient of a query is a sum of score gradients times keys that all but
    // cancels where neighbouring keys are alike, and what rounding the score gradients costs there grows with
    // the keys.
    // The gradient of a key is a sum of score gradients times queries, and no sum may be all of a row or a column of it: by chance it all but
    // cancels, and rounding is then much of what is left. With queries of 256 throughout a row was one sum, and with one first key that takes
    // all of the attention a column was: 71 of 1,500 seeds missed a budget of bf16. So queries vary, and the first 24 keys share.
    constexpr int64_t kShare = 24;
    const auto along = [&](int64_t at) { return q.T > 1 ? 2 * static_cast<double>(at) / static_cast<double>(q.T - 1) - 1 : 0; };
    const double query = 256 * (1 + fmin(fmax(x, -3.0), 3.0) / 4);
    switch (column % q.C / q.HS % 5) {
      case 0:
        return part == 0 ? query : (150 + 0.5 * x) / (256 * root);
      case 1:
        return part == 0 ? query : along(t) * 200 / (256 * root);
      case 2:
        return part == 0 ? query : -along(t < kShare ? 0 : t) * 200 / (256 * root);
      case 3:
        return part == 0 ? 0 : x;
      default:
        return 3.5 * x;
    }
  }
  GATE_ANYWHERE void operator()(int64_t i) const { store_value(data, element, i, at(i / (3 * q.C) % q.T, i % (3 * q.C), i)); }
};

struct Convert {
  void* to;
  Element element;
  int64_t count;
  View from;
  GATE_ANYWHERE void operator()(int64_t i) const { store_value(to, element, i, from[i], count); }
};

struct RoundToBf16 {
  float* values;
  GATE_ANYWHERE void operator()(int64_t i) const { values[i] = std::bit_cast<float>(static_cast<uint32_t>(bf16_bits(values[i])) << 16); }
};

struct FillGarbage {
  uint32_t* words;
  uint64_t seed;
  GATE_ANYWHERE void operator()(int64_t i) const {
    const uint32_t half = bf16_bits(static_cast<float>(100 * normal_at(seed, i)));
    words[i] = half << 16 | half;
  }
};

int64_t count(const Memory& memory, Element element) { return memory.bytes() / bytes_of_element(element); }

}  // namespace

void fill(const Memory& memory, Element element, const Values& values) {
  for_each_index(memory.space(), count(memory, element), FillValues{memory.data(), element, count(memory, element), values});
}
void fill(const Memory& memory, Element element, const Logits& logits) {
  for_each_index(memory.space(), count(memory, element), FillLogits{memory.data(), element, logits});
}
void fill(const Memory& memory, Element element, const Qkv& qkv) {
  for_each_index(memory.space(), count(memory, element), FillQkv{memory.data(), element, qkv});
}

void convert(const Memory& to, Element element, View from, int64_t n) {
  for_each_index(to.space(), n, Convert{to.data(), element, count(to, element), from});
}

void round_to_bf16(const Memory& floats, int64_t first, int64_t count) {
  for_each_index(floats.space(), count, RoundToBf16{floats.as<float>() + first});
}

std::vector<int32_t> tokens_of(TokenKind kind, int64_t n, int64_t V, uint64_t seed) {
  if (kind == TokenKind::different && n > V) throw std::logic_error("tokens_of: more tokens than words");
  Random random(seed);
  std::vector<int32_t> out(static_cast<size_t>(n));
  // A step that shares no factor with V visits every word once.
  int64_t step = V * 5 / 8 + 1;
  while (std::gcd(step, V) != 1) ++step;
  for (size_t i = 0; i < out.size(); ++i) {
    switch (kind) {
      case TokenKind::repeated:
        out[i] = static_cast<int32_t>(random.below(V));
        break;
      case TokenKind::one:
        out[i] = static_cast<int32_t>(V - 1);
        break;
      case TokenKind::different:
        out[i] = static_cast<int32_t>(static_cast<int64_t>(i) * step % V);
        break;
      case TokenKind::skewed:
        out[i] = static_cast<int32_t>(std::pow(random.uniform(), 6) * static_cast<double>(V));
        break;
    }
  }
  if (kind == TokenKind::repeated || kind == TokenKind::skewed) {
    out.back() = static_cast<int32_t>(V - 1);
    if (n > 2) out[0] = 0;
  }
  if (kind == TokenKind::repeated)
    for (size_t i = 0; i + 1 < out.size(); i += 3) out[i] = out[0];
  return out;
}

void fill_garbage(void* data, Space space, int64_t bytes, uint64_t seed) {
  for_each_index(space, bytes / 4, FillGarbage{static_cast<uint32_t*>(data), seed});
  const int64_t rest = bytes % 4;
  if (rest > 0) set_bytes(static_cast<std::byte*>(data) + bytes - rest, space, std::byte{0x42}, rest);
}

}  // namespace gate

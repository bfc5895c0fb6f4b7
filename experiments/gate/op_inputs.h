// The inputs of the op cases: values that are a function of a seed and an index, so that host and device make
// the same, and values that are chosen to hurt.
#pragma once
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "experiments/gate/op_memory.h"

namespace gate {

// mean + deviation * normal, with exceptions.
struct Values {
  uint64_t seed = 0;
  double deviation = 1, mean = 0;
  double limit = std::numeric_limits<double>::infinity();  // of the magnitude
  bool positive = false;
  double every_fifth = 1;  // a factor on elements 0, 5, 10, …

  // Rows of `columns` that are drawn otherwise.
  int64_t columns = 1;
  struct Row {
    int64_t row = -1;
    double deviation = 1, mean = 0;
  };
  std::array<Row, 6> rows{};
  // Single elements.
  struct Spike {
    int64_t index = -1;
    double value = 0;
  };
  std::array<Spike, 6> spikes{};
  // All elements from here on: rows that no one may see.
  int64_t hidden_from = std::numeric_limits<int64_t>::max();
  double hidden = 0;
};
void fill(const Memory& memory, Element element, const Values& values);

// (rows, Vp). Columns from V on hold 1e4, which may not take part. When `hurt`, rows take turns: all below
// -100; one logit of 80 among small ones; all equal; spread over -80 to 80; ordinary.
struct Logits {
  uint64_t seed = 0;
  int64_t V = 1, Vp = 1;
  bool hurt = false;
};
void fill(const Memory& memory, Element element, const Logits& logits);

// (B, T, 3C): queries, keys and values of NH heads of HS. Scores are q.k / sqrt(HS). When `hurt`, heads take
// turns:
//   scores near 150 for every key · rising from -200 to 200 along the keys · falling likewise · all zero
//   (flat) · of deviation 12 (sharp)
// When `low`, every score of heads of 64 lies near -1,344, before scaling near -10,752, exactly in any precision: a mask must lie lower still.
struct Qkv {
  uint64_t seed = 0;
  int64_t T = 1, C = 1, HS = 1;
  bool hurt = false, low = false;
};
void fill(const Memory& memory, Element element, const Qkv& qkv);

enum class TokenKind {
  repeated,   // every third is the first one; 0 and V - 1 are among them
  one,        // all V - 1
  different,  // no token twice (needs n <= V)
  skewed,     // as in text: few tokens make most of it
};
std::vector<int32_t> tokens_of(TokenKind kind, int64_t n, int64_t V, uint64_t seed);

// `from` as `element` stores it.
void convert(const Memory& to, Element element, View from, int64_t n);

// Elements [first, first + count) of fp32 numbers, each to the nearest bf16 number.
void round_to_bf16(const Memory& floats, int64_t first, int64_t count);

// Finite floats of all signs and sizes, valid as double and as pairs of bf16 too.
void fill_garbage(void* data, Space space, int64_t bytes, uint64_t seed);

}  // namespace gate

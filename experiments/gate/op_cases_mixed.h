// What the case files of the mixed trainer share: inputs drawn and rounded as the trainer stores them, and
// the types that results have.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "experiments/gate/op_case.h"
#include "experiments/gate/op_oracle.h"
#include "experiments/gate/random.h"
#include "mixed/op_api.h"

namespace gate::mixed_cases {

namespace op = mixed::op;
using Floats = std::vector<float>;
using oracle::Doubles;
using Pointers = std::span<void* const>;

inline constexpr Rounding kOnce{.count = 1};
inline constexpr Element kBf16 = Element::bf16;

inline Floats to_floats(const Doubles& values) { return Floats(values.begin(), values.end()); }
inline Floats to_bf16(Floats values) {
  for (float& v : values) v = gate::to_bf16(v);
  return values;
}
inline Doubles exactly(const Floats& values) { return Doubles(values.begin(), values.end()); }

inline op::Bf16* h(void* p) { return static_cast<op::Bf16*>(p); }
inline float* f(void* p) { return static_cast<float*>(p); }
inline double* d(void* p) { return static_cast<double*>(p); }
inline int* i32(void* p) { return static_cast<int*>(p); }

// Storage of the residual stream or of its gradient.
template <class R>
constexpr bool kWide = std::is_same_v<R, float>;
template <class R>
constexpr Element kStored = kWide<R> ? Element::f32 : kBf16;
template <class R>
constexpr const char* kStoredName = kWide<R> ? "fp32" : "bf16";
template <class R>
Rounding once_if_bf16() {
  return kWide<R> ? Rounding{} : kOnce;
}
template <class R>
Floats stored(Floats values) {
  return kWide<R> ? values : to_bf16(std::move(values));
}

using Use = std::function<void(const OpCase&)>;

// Draws the inputs of the cases that it hands to `use`.
class Inputs {
 public:
  Inputs(uint64_t seed, uint64_t stream, const Use& use) : random_(seed, stream), use_(use) {}

 protected:
  Floats normal(int64_t n, double deviation = 1, double mean = 0) {
    Floats x(static_cast<size_t>(n));
    for (float& v : x) v = static_cast<float>(mean) + random_.normal(deviation);
    return x;
  }
  Floats halves(int64_t n, double deviation = 1, double mean = 0) {
    return to_bf16(normal(n, deviation, mean));
  }
  std::vector<int32_t> below(int64_t n, int64_t limit) {
    std::vector<int32_t> x(static_cast<size_t>(n));
    for (int32_t& v : x) v = static_cast<int32_t>(random_.below(limit));
    return x;
  }
  // A tensor written over, or added to random content when `accumulate`.
  OpTensor gradient(const std::string& name, int64_t rows, int64_t columns, Doubles want, bool accumulate,
                    Element element = Element::f32, Rounding rounding = {}) {
    if (!accumulate) return output_tensor(name, rows, columns, std::move(want), element, rounding);
    const Floats before = element == kBf16 ? halves(rows * columns) : normal(rows * columns);
    for (size_t i = 0; i < want.size(); ++i) want[i] += static_cast<double>(before[i]);
    return update_tensor(name, rows, columns, before, std::move(want), element, rounding);
  }
  static const char* adds(bool accumulate) { return accumulate ? ", adds" : ""; }
  // Gradients are written over, or zeroed first and added to: what the slot zero_grad chooses.
  static std::pair<std::string, std::string> zero_grad(bool accumulate) {
    return {"zero_grad", accumulate ? "memset" : "overwrite"};
  }

  Random random_;
  const Use& use_;
};

// Products and attention: op_cases_mixed_products.cpp.
void for_each_product(uint64_t seed, const Use& use);

}  // namespace gate::mixed_cases

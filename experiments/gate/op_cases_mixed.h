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

#include "experiments/gate/op_inputs.h"
#include "mixed/op_api.h"

namespace gate::mixed_cases {

namespace op = mixed::op;
using Floats = std::vector<float>;
using oracle::Doubles;
using Pointers = std::span<void* const>;

inline constexpr Rounding kOnce{.count = 1};
inline constexpr Element kBf16 = Element::bf16;

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

using Use = OpInputs::Use;

class Inputs : protected OpInputs {
 public:
  using OpInputs::OpInputs;

 protected:
  // Gradients are written over, or zeroed first and added to: what the slot zero_grad chooses.
  static std::pair<std::string, std::string> zero_grad(bool accumulate) {
    return {"zero_grad", accumulate ? "memset" : "overwrite"};
  }
};

// Products and attention: op_cases_mixed_products.cpp.
void for_each_product(uint64_t seed, const Use& use);

}  // namespace gate::mixed_cases

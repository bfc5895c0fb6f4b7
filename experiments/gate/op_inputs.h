// What the case files of both trainers draw: random inputs, gradients that are written over or added to.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "experiments/gate/op_case.h"
#include "experiments/gate/op_oracle.h"
#include "experiments/gate/random.h"

namespace gate {

inline std::vector<float> to_floats(const oracle::Doubles& values) {
  return std::vector<float>(values.begin(), values.end());
}
inline std::vector<float> to_bf16(std::vector<float> values) {
  for (float& v : values) v = gate::to_bf16(v);
  return values;
}

// Hands its cases to `use`, which must outlive it.
class OpInputs {
 public:
  using Floats = std::vector<float>;
  using Doubles = oracle::Doubles;
  using Use = std::function<void(const OpCase&)>;
  OpInputs(uint64_t seed, uint64_t stream, const Use& use) : random_(seed, stream), use_(use) {}

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
    const Floats before = element == Element::bf16 ? halves(rows * columns) : normal(rows * columns);
    for (size_t i = 0; i < want.size(); ++i) want[i] += static_cast<double>(before[i]);
    return update_tensor(name, rows, columns, before, std::move(want), element, rounding);
  }
  // A sum in double, written over or added to `before`.
  static OpTensor one_double(const std::string& name, double want, bool add, double before) {
    OpTensor t{name, add ? Role::update : Role::output, Element::f64, 1, 1, {}, {want + (add ? before : 0)}};
    if (add) t.bytes = bytes_of_values(std::vector<double>{before});
    return t;
  }
  static const char* adds(bool accumulate) { return accumulate ? ", adds" : ""; }

  Random random_;
  const Use& use_;
};

}  // namespace gate

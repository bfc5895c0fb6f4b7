// What the kernel cases of both trainers share: a model's places, inputs that are quickly drawn, and how a checked and a
// timed case become one.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "experiments/gate/random.h"
#include "experiments/kernels/kernel_cases.h"

namespace experiments {

class ModelShapes {
 protected:
  // Multiply-adds of the plain loops that a check may take: some seconds.
  static constexpr double kOracleWork = 4e9;

  // `model` outlives it.
  ModelShapes(const gpt2::ModelConfig& model, int64_t B, int64_t T, uint64_t seed, uint64_t stream)
      : m_(model), B_(B), T_(T), random_(seed, stream) {}

  int64_t rows() const { return B_ * T_; }
  // Rows of a check whose oracle does so much work for each.
  int64_t few(double work_per_row) const {
    return std::clamp<int64_t>(static_cast<int64_t>(kOracleWork / work_per_row), 1, rows());
  }

  // The linear layers of a step.
  struct Place {
    const char* name;
    int64_t in, out;
    bool bias;
    double work() const { return static_cast<double>(in) * static_cast<double>(out); }  // of a row
  };
  std::array<Place, 5> places() const {
    const int64_t C = m_.channels;
    return {Place{"qkv", C, 3 * C, true}, Place{"attproj", C, C, true}, Place{"mlp_up", C, 4 * C, true},
            Place{"mlp_down", 4 * C, C, true}, Place{"lm_head", C, m_.padded_vocab, false}};
  }
  // Causal: half of the T x T products. Forward two of them, backward five.
  double attention_flops(bool forward) const {
    return (forward ? 2 : 5) * (static_cast<double>(B_) * static_cast<double>(T_) * static_cast<double>(T_) *
                                static_cast<double>(m_.channels));
  }

  // make(rows, check) -> OpCase, for the check and for the clock.
  template <class Make>
  static KernelCase both(const Make& make, int64_t check_rows, int64_t timed_rows, double flops) {
    KernelCase k;
    k.check = make(check_rows, true);
    k.timed = make(timed_rows, false);
    k.flops = flops;
    return k;
  }

  // Normal values are drawn once and used again and again: half a billion of them would take longer than the
  // measurement. A prime length, so that rows differ.
  std::vector<float> normal(int64_t n, double deviation = 1) {
    constexpr size_t kDrawn = 1'000'003;
    if (drawn_.empty())
      for (size_t i = 0; i < kDrawn; ++i) drawn_.push_back(random_.normal());
    std::vector<float> x(static_cast<size_t>(n));
    size_t at = static_cast<size_t>(random_.below(static_cast<int64_t>(kDrawn)));
    for (float& v : x) {
      v = static_cast<float>(deviation) * drawn_[at];
      if (++at == kDrawn) at = 0;
    }
    return x;
  }

  const gpt2::ModelConfig& m_;
  int64_t B_, T_;
  gate::Random random_;

 private:
  std::vector<float> drawn_;
};

}  // namespace experiments

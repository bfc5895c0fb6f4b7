// A small model with odd sizes, tokens for it, and a fixture that skips where there is no device.
#pragma once
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "fp32/trainer.h"
#include "gpt2/cuda/device_info.h"
#include "tests/reference/reference_support.h"

namespace fp32 {

// 16-channel heads, a vocabulary that fills no whole pack, more positions than any test uses (their gradient
// must be zeroed).
inline gpt2::TrainerOptions small_options(int64_t B, int64_t T) {
  gpt2::TrainerOptions o;
  o.model = {
      .max_seq_len = 128, .vocab_size = 509, .padded_vocab = 512, .layers = 2, .heads = 4, .channels = 64};
  o.batch_size = B;
  o.seq_len = T;
  return o;
}

inline size_t parameter_count(const gpt2::TrainerOptions& o) {
  return static_cast<size_t>(gpt2::tensor_layout(o.model).total);
}

// Parameters that hide no term of a gradient (see lively_parameters); moments zero.
inline std::unique_ptr<gpt2::Trainer> lively_trainer(const gpt2::TrainerOptions& o) {
  std::unique_ptr<gpt2::Trainer> trainer = make_fp32_trainer(o);
  trainer->write(gpt2::State::parameters, reference_test::lively_parameters(o.model, 3));
  return trainer;
}

inline reference_test::Tokens tokens_of(const gpt2::TrainerOptions& o, uint32_t seed) {
  return reference_test::random_tokens(o.batch_size * o.seq_len, o.model.vocab_size, seed);
}

inline std::vector<float> read_state(gpt2::Trainer& trainer, gpt2::State which) {
  std::vector<float> values(parameter_count(trainer.options()));
  trainer.read(which, values);
  return values;
}

// Not operator==: it calls NaN different from itself and -0 equal to 0.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class OnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = gpt2::cuda::why_no_device()) GTEST_SKIP() << *why;
  }
};

}  // namespace fp32

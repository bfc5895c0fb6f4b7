// What the tests of both GPU trainers start from: which trainers there are and what each promises, a small model with odd sizes, tokens
// for it, and a fixture that skips where there is no device.
#pragma once
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "experiments/gate/model_gate.h"
#include "fp32/trainer.h"
#include "gpt2/cuda/device_info.h"
#include "mixed/trainer.h"
#include "tests/reference/reference_support.h"

namespace trainers {

struct Kind {
  std::string name;
  std::function<std::unique_ptr<gpt2::Trainer>(const gpt2::TrainerOptions&)> make;
  std::function<std::vector<gpt2::VariantInfo>()> variants;
  std::function<std::vector<gpt2::VariantFacts>()> facts;
  std::vector<std::string> rates;  // of --matmul; the first is the exact one
  double gradient_error;           // rel-L2 of a gradient tensor against the oracle, at the first rate
  double loss_error;               // relative
  double reshaped_error;           // rel-L2 between gradients of the same tokens cut into other batches
};
inline void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

inline Kind fp32_kind() {
  return {"fp32", fp32::make_fp32_trainer, fp32::fp32_variants, fp32::fp32_variant_facts, {"fp32", "tf32"}, 2e-6, 2e-6, 2e-6};
}
// bf16 keeps 8 bits: 2^-9 a rounding, and a gradient passes through a few dozen.
inline Kind mixed_kind() {
  return {"mixed", mixed::make_mixed_trainer, mixed::mixed_variants, mixed::mixed_variant_facts, {"bf16"}, 3e-2, 2e-3, 3e-2};
}

// 16-channel heads, a vocabulary that fills no whole pack, more positions than any test uses (their gradient
// must be zeroed).
inline gpt2::TrainerOptions small_options(const Kind& kind, int64_t B, int64_t T) {
  gpt2::TrainerOptions o;
  o.model = {.max_seq_len = 128, .vocab_size = 509, .padded_vocab = 512, .layers = 2, .heads = 4, .channels = 64};
  o.batch_size = B;
  o.seq_len = T;
  o.matmul = kind.rates.front();
  o.deterministic = true;
  return o;
}

// What a deterministic trainer refuses.
inline bool repeats(const std::string& slot, const std::string& variant) {
  return !(slot == "attention_backward" && variant == "cudnn") && !(slot == "matmul_algorithm" && variant != "heuristic") &&
         !(slot == "attention_plan" && variant == "measured");
}

inline size_t parameter_count(const gpt2::TrainerOptions& o) { return static_cast<size_t>(gpt2::tensor_layout(o.model).total); }

// Runs `use` with a choice of variants, unless the trainer refuses it; then it says so. A variant whose row refuses nothing must run.
template <class Use>
void unless_refused(const std::vector<gpt2::VariantFacts>& table, const std::string& slot, const std::string& name, const Use& use) {
  for (const gpt2::VariantFacts& v : table) {
    if (v.slot != slot || v.name != name) continue;
    try {
      use(v.choice);
    } catch (const std::runtime_error& refused) {
      if (!gate::refuses_a_variant(refused)) throw;  // it broke, which is no refusal
      EXPECT_FALSE(v.refused.empty()) << refused.what();
      std::printf("%s=%s is refused here: %s\n", slot.c_str(), name.c_str(), refused.what());
    }
  }
}

// Parameters that hide no term of a gradient (see lively_parameters); moments zero.
inline std::unique_ptr<gpt2::Trainer> lively_trainer(const Kind& kind, const gpt2::TrainerOptions& o) {
  std::unique_ptr<gpt2::Trainer> trainer = kind.make(o);
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

// A test of every trainer.
class OnDevice : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (const auto why = gpt2::cuda::why_no_device()) GTEST_SKIP() << *why;
  }
  const Kind& kind() const { return GetParam(); }
  gpt2::TrainerOptions small(int64_t B, int64_t T) const { return small_options(kind(), B, T); }
};

inline std::string name_of(const ::testing::TestParamInfo<Kind>& info) { return info.param.name; }

}  // namespace trainers

#define STEPSCOPE_FOR_EVERY_TRAINER(suite) \
  INSTANTIATE_TEST_SUITE_P(Every, suite, ::testing::Values(trainers::fp32_kind(), trainers::mixed_kind()), trainers::name_of)

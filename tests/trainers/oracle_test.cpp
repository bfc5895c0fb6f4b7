// The trainer against ReferenceModel<double>: loss, logits and every gradient tensor, at shapes that end in
// the middle of a tile, a warp and a pack, for every mix of attention variants. The gate (experiments/gate)
// asks more; this names the broken variant fast.
#include <gtest/gtest.h>

#include <map>
#include <span>
#include <string>

#include "tests/trainers/device_fixture.h"

namespace trainers {
namespace {

using Variants = std::map<std::string, std::string>;

class Oracle : public OnDevice {
 protected:
  static bool of_hopper(const Variants& variants) {
    const auto is = [&](const char* slot) { return variants.contains(slot) && variants.at(slot) == "hopper"; };
    return is("attention_forward") || is("attention_backward");
  }
  void expect_gradients_of_the_oracle(int64_t B, int64_t T, const Variants& variants) const {
    SCOPED_TRACE("B=" + std::to_string(B) + " T=" + std::to_string(T));
    for (const auto& [slot, name] : variants) SCOPED_TRACE(slot + "=" + name);
    gpt2::TrainerOptions o = small(B, T);
    o.variants = variants;
    if (of_hopper(variants)) o.model.heads = 1;  // of 64 channels, which is what it takes
    for (const auto& [slot, name] : variants)
      if (!repeats(slot, name)) o.deterministic = false;
    const reference_test::Tokens tokens = tokens_of(o, 11);
    const int64_t V = o.model.vocab_size;
    const int64_t Vp = o.model.padded_vocab;

    auto model = reference_test::lively_model<double>(o.model, B, T);
    std::vector<double> logits;
    const double loss = model.forward_backward(tokens.batch(), 1, false, [&] {
      for (int64_t row = 0; row < B * T; ++row)
        for (int64_t c = 0; c < V; ++c) logits.push_back(model.logits()[static_cast<size_t>(row * Vp + c)]);
    });

    const auto trainer = lively_trainer(kind(), o);
    std::vector<float> found_logits(logits.size());
    EXPECT_NEAR(trainer->forward_backward(tokens.batch(), found_logits), loss, kind().loss_error * loss);
    EXPECT_LE(reference_test::relative_l2(std::span<const float>(found_logits), std::span<const double>(logits)), kind().gradient_error);
    const std::vector<float> gradients = read_state(*trainer, gpt2::State::gradients);
    const gpt2::TensorLayout layout = gpt2::tensor_layout(o.model);
    for (const gpt2::TensorRow& row : gpt2::kTensorTable)
      EXPECT_LE(reference_test::relative_l2(reference_test::part(std::span<const float>(gradients), layout[row.id]),
                                            reference_test::part(std::span<const double>(model.gradients()), layout[row.id])),
                kind().gradient_error)
          << row.name;
  }
};

TEST_P(Oracle, AgreesAtOddShapes) {
  for (const auto& [B, T] : {std::pair<int64_t, int64_t>{1, 1}, {3, 63}, {3, 64}, {2, 65}, {1, 127}, {3, 128}})
    expect_gradients_of_the_oracle(B, T, {});
}

TEST_P(Oracle, AgreesForEveryMixOfAttentionVariants) {
  std::map<std::string, std::vector<std::string>> names;
  for (const gpt2::VariantInfo& slot : kind().variants()) names[slot.slot] = slot.names;
  for (const std::string& forward : names.at("attention_forward"))
    for (const std::string& backward : names.at("attention_backward"))
      for (const int64_t T : {1, 65, 128}) {
        // cuDNN has no kernel for sequences of one token; the default leaves it there, which AgreesAtOddShapes covers.
        if (T == 1 && (forward.starts_with("cudnn") || backward.starts_with("cudnn"))) continue;
        const Variants mix{{"attention_forward", forward}, {"attention_backward", backward}};
        if (of_hopper(mix))
          unless_refused(kind().facts(), forward == "hopper" ? "attention_forward" : "attention_backward", "hopper",
                         [&](const Variants&) { expect_gradients_of_the_oracle(2, T, mix); });
        else
          expect_gradients_of_the_oracle(2, T, mix);
      }
}

TEST_P(Oracle, AgreesForEveryOtherVariant) {
  for (const gpt2::VariantInfo& slot : kind().variants())
    for (size_t i = 1; i < slot.names.size(); ++i)
      unless_refused(kind().facts(), slot.slot, slot.names[i],
                     [&](const Variants& choice) { expect_gradients_of_the_oracle(3, 65, choice); });
}

// All rows of one token end in one segment that spans many chunks of the sorted order; the other tokens' rows
// of dwte hold only the classifier's part.
TEST_P(Oracle, TheEmbeddingGradientOfOneRepeatedTokenIsTheSumOfAllRows) {
  const gpt2::TrainerOptions o = small(4, 127);
  reference_test::Tokens tokens = tokens_of(o, 12);
  for (size_t i = 0; i < tokens.inputs.size(); ++i) tokens.inputs[i] = i == 200 ? 508 : 7;
  auto model = reference_test::lively_model<double>(o.model, o.batch_size, o.seq_len);
  model.forward_backward(tokens.batch());
  const auto trainer = lively_trainer(kind(), o);
  trainer->forward_backward(tokens.batch());
  const std::vector<float> gradients = read_state(*trainer, gpt2::State::gradients);
  for (const gpt2::Tensor id : {gpt2::Tensor::wte, gpt2::Tensor::wpe}) {
    const gpt2::TensorSpan span = gpt2::tensor_layout(o.model)[id];
    EXPECT_LE(reference_test::relative_l2(reference_test::part(std::span<const float>(gradients), span),
                                          reference_test::part(std::span<const double>(model.gradients()), span)),
              kind().gradient_error);
  }
}

STEPSCOPE_FOR_EVERY_TRAINER(Oracle);

}  // namespace
}  // namespace trainers

// Steps that are wrong by as much as the precision of a trainer would hide, on weights, tokens and at times that other
// checks do not have: each must be caught by the check that is there for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "experiments/gate/known_model.h"
#include "experiments/gate/model_gate.h"
#include "experiments/gate/model_parts.h"
#include "experiments/gate/moment_bits.h"
#include "experiments/gate/step_judge.h"
#include "tests/gate/broken_trainer.h"
#include "tests/gate/rounded_trainer.h"
#include "tests/gate/shared_answers.h"

namespace gate {
namespace {

using gate_test::broken;
using gate_test::Defect;
using gate_test::rounded;
using gate_test::RoundingMistake;
using gpt2::Batch;

ModelGateOptions only_main(const std::string& trainer) {
  ModelGateOptions o;
  o.trainer = trainer;
  o.matmul = trainer == "mixed" ? "bf16" : "fp32";
  o.seed = 7;
  o.trajectory_steps = 5;
  o.with_small_cases = o.with_steps = o.with_loop = o.with_timed_steps = false;
  o.small_answers = &gate_test::shared_answers();
  o.without = {"between steps", "not finite"};  // as many steps as all others; model_gate_test has them
  return o;
}
// Only the steps of all shapes, or only the small cases: everything else is really not run.
ModelGateOptions only(const std::string& prefix) {
  ModelGateOptions o = only_main("reference");
  o.with_small_cases = o.with_steps = true;
  for (const ModelCheck& c : model_checks())
    if (!c.name.starts_with(prefix)) o.without.insert(c.name);
  return o;
}

// Without the oracle, which what follows does not need.
ModelGateOptions arithmetic(ModelGateOptions o) {
  for (const char* name : {"steps loss", "steps grad norm", "steps gradients", "optimizer", "step gradients", "forward", "gradients",
                           "trajectory", "accumulation", "fresh inputs", "repeatability", "causality", "padding"})
    o.without.insert(name);
  return o;
}

std::set<std::string> failing_kinds(const GateReport& report) {
  std::set<std::string> names;
  for (const CheckResult& r : report.results)
    if (!r.passed) names.insert(r.name.substr(0, r.name.find(" t=")));
  return names;
}
std::set<std::string> failing_with(const Defect& d, const ModelGateOptions& o) {
  const GateReport report = check_model(broken(d), o);
  EXPECT_FALSE(report.results.empty());
  return failing_kinds(report);
}

// ---- the norm ------------------------------------------------------------------------------------------------------

TEST(Wiring, ATensorLeftOutOfTheNormIsCaught) {
  for (const char* left_out : {"lnfb", "fcprojb", "qkvb"}) {
    const Defect d{.norm = [left_out](std::span<const float> g, const gpt2::TrainerOptions& o) {
      double sum = 0;
      for (const KnownTensor& t : known_tensors(o.model))
        for (int64_t k = t.offset; k < t.offset + t.size() && t.name != left_out; ++k)
          sum += static_cast<double>(g[static_cast<size_t>(k)]) * static_cast<double>(g[static_cast<size_t>(k)]);
      return std::sqrt(sum);
    }};
    const auto names = failing_with(d, arithmetic(only("steps")));
    EXPECT_TRUE(names.contains("steps norm")) << left_out;
    EXPECT_TRUE(failing_with(d, arithmetic(only_main("reference"))).contains("grad norm")) << left_out;
  }
}

// ---- the update ----------------------------------------------------------------------------------------------------

TEST(Wiring, OneVectorThatDecaysIsCaught) {
  const Defect d{
      .parameters = [](std::span<float> after, std::span<const float> before, const gpt2::StepPlan& plan, const gpt2::TrainerOptions& o) {
        for (const KnownTensor& t : known_tensors(o.model))
          for (int64_t k = t.offset; t.name == "lnfw" && k < t.offset + t.size(); ++k)
            after[static_cast<size_t>(k)] -= plan.adamw.learning_rate * plan.adamw.weight_decay * before[static_cast<size_t>(k)];
      }};
  EXPECT_EQ(failing_with(d, arithmetic(only("steps"))), (std::set<std::string>{"steps update"}));
}

TEST(Wiring, AnEmbeddingThatDoesNotDecayIsCaught) {
  const Defect d{
      .parameters = [](std::span<float> after, std::span<const float> before, const gpt2::StepPlan& plan, const gpt2::TrainerOptions& o) {
        for (const KnownTensor& t : known_tensors(o.model))
          for (int64_t k = t.offset; t.name == "wpe" && k < t.offset + t.size(); ++k)
            after[static_cast<size_t>(k)] += plan.adamw.learning_rate * plan.adamw.weight_decay * before[static_cast<size_t>(k)];
      }};
  EXPECT_EQ(failing_with(d, arithmetic(only("steps"))), (std::set<std::string>{"steps update"}));
}

TEST(Wiring, ACorrectionThatStopsAtStepAThousandIsCaught) {
  const Defect d{.plan = [](gpt2::StepPlan& p) { p.step = std::min<int64_t>(p.step, 1000); }};
  EXPECT_EQ(failing_with(d, arithmetic(only("steps"))), (std::set<std::string>{"steps update"}));
  EXPECT_TRUE(failing_with(d, arithmetic(only_main("reference"))).empty()) << "steps 1 to 5 do not see it";
}

TEST(Wiring, OneElementOffByAThousandthOfAnUpdateIsCaught) {
  const Defect d{.parameters = [](std::span<float> after, std::span<const float> before, const gpt2::StepPlan&,
                                  const gpt2::TrainerOptions&) { after[12345] += 1e-3f * (after[12345] - before[12345]); }};
  EXPECT_TRUE(failing_with(d, arithmetic(only("steps"))).contains("steps update"));
}

// Settings that a trainer has by heart are right as long as nobody asks for others.
TEST(Wiring, SettingsOfAdamWThatAreNotReadAreCaught) {
  const std::pair<const char*, std::function<void(gpt2::AdamW&)>> all[] = {
      {"steps m", [](gpt2::AdamW& a) { a.beta1 = gpt2::AdamW().beta1; }},
      {"steps v", [](gpt2::AdamW& a) { a.beta2 = gpt2::AdamW().beta2; }},
      {"steps update", [](gpt2::AdamW& a) { a.eps = gpt2::AdamW().eps; }}};
  for (const auto& [check, forget] : all) {
    const Defect d{.plan = [forget = forget](gpt2::StepPlan& p) { forget(p.adamw); }};
    EXPECT_TRUE(failing_with(d, arithmetic(only("steps"))).contains(check)) << check;
  }
}

// Nor what is taken for "not given".
TEST(Wiring, SettingsOfAdamWAtTheEndsOfTheirFlagsAreRead) {
  const std::pair<const char*, std::function<void(gpt2::AdamW&)>> all[] = {
      {"steps m", [](gpt2::AdamW& a) { a.beta1 = a.beta1 == 0 ? 0.9f : a.beta1; }},
      {"steps v", [](gpt2::AdamW& a) { a.beta2 = a.beta2 == 0 ? 0.999f : a.beta2; }},
      {"steps update", [](gpt2::AdamW& a) { a.weight_decay = a.weight_decay == 0 ? 0.1f : a.weight_decay; }},
      {"steps update", [](gpt2::AdamW& a) { a.learning_rate = a.learning_rate == 0 ? 1e-3f : a.learning_rate; }},
      {"steps m", [](gpt2::AdamW& a) { a.clip = a.clip < 0 ? 1e-3f : a.clip; }}};
  for (const auto& [check, forget] : all) {
    const Defect d{.plan = [forget = forget](gpt2::StepPlan& p) { forget(p.adamw); }};
    EXPECT_TRUE(failing_with(d, arithmetic(only("steps"))).contains(check)) << check;
  }
}

// With the usual betas nothing is left to correct in a late step.
TEST(Wiring, ACorrectionThatEndsWhereThatOfTheUsualBetasDoesIsCaught) {
  const Defect d{.plan = [](gpt2::StepPlan& p) {
    if (p.step > 16'636) p.step = int64_t{1} << 40;
  }};
  EXPECT_EQ(failing_with(d, arithmetic(only("steps"))), (std::set<std::string>{"steps update"}));
}

// Heads of 64 channels have kernels of their own: steps of several micro-batches are taken with them too.
TEST(Wiring, WhatIsWrongWithHeadsOf64AndSeveralMicroBatchesAloneIsCaught) {
  const Defect d{
      .parameters = [](std::span<float> after, std::span<const float> before, const gpt2::StepPlan& plan, const gpt2::TrainerOptions& o) {
        if (o.model.channels / o.model.heads != 64 || plan.micro_batches.size() == 1) return;
        for (const KnownTensor& t : known_tensors(o.model))
          if (t.name == "qkvb") after[static_cast<size_t>(t.offset)] = before[static_cast<size_t>(t.offset)];
      }};
  EXPECT_EQ(failing_with(d, arithmetic(only("steps"))), (std::set<std::string>{"steps update"}));
}

// ---- micro-batches -------------------------------------------------------------------------------------------------

TEST(Wiring, AMicroBatchThatIsDroppedOnlyOfThreeIsCaught) {
  const Defect d{.plan = [](gpt2::StepPlan& p) {
    if (p.micro_batches.size() == 3) p.micro_batches = p.micro_batches.last(2);
  }};
  const auto names = failing_with(d, only("steps"));
  EXPECT_TRUE(names.contains("steps loss"));
  EXPECT_TRUE(names.contains("steps gradients"));
  EXPECT_TRUE(failing_with(d, only_main("reference")).empty()) << "one and two micro-batches do not see it";
}

TEST(Wiring, TheFifthMicroBatchTwiceIsCaught) {
  const Defect d{.plan = [](gpt2::StepPlan& p) {
    static std::vector<Batch> batches;
    if (p.micro_batches.size() != 5) return;
    batches.assign(p.micro_batches.begin(), p.micro_batches.end());
    batches[4] = batches[3];
    p.micro_batches = batches;
  }};
  EXPECT_TRUE(failing_with(d, only("steps")).contains("steps gradients"));
}

// ---- forward -------------------------------------------------------------------------------------------------------

TEST(Wiring, ALossThatIsNotThatOfTheLogitsIsCaught) {
  const Defect d{.forward = [](std::span<float>, double& loss, const Batch&, const gpt2::TrainerOptions&, float) { loss += 1e-4; }};
  EXPECT_TRUE(failing_with(d, only_main("reference")).contains("loss of logits"));
}

// What goes wrong with certain values only, and the small case that has them.
// A head that makes its loss in fp32 and has logits in bf16 only for who asks: as far apart as rounding takes them, and no further.
TEST(Wiring, ALossOfLogitsBeforeTheyAreRoundedIsGrantedTheirRoundingAndNoMore) {
  constexpr int64_t kTokens = 256, kVocabulary = 61;
  std::vector<float> logits(kTokens * kVocabulary), rounded;
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = 5 * std::sin(static_cast<float>(i * i % 1009));
  for (const float x : logits) rounded.push_back(nearest_bf16(x));
  std::vector<int32_t> targets(kTokens);
  double loss = 0;
  for (size_t t = 0; t < targets.size(); ++t) {
    targets[t] = static_cast<int32_t>(7 * t % kVocabulary);
    double sum = 0;
    for (size_t v = 0; v < kVocabulary; ++v) sum += std::exp(static_cast<double>(logits[t * kVocabulary + v]));
    loss += (std::log(sum) - static_cast<double>(logits[t * kVocabulary + static_cast<size_t>(targets[t])])) / kTokens;
  }
  const auto passes = [&](double x, double granted) {
    return loss_of_own_logits("loss of logits", "loss", x, rounded, targets, kVocabulary, granted).passed;
  };
  EXPECT_TRUE(loss_of_own_logits("loss of logits", "loss", loss, logits, targets, kVocabulary).passed);
  EXPECT_FALSE(passes(loss, 0));
  EXPECT_TRUE(passes(loss, 0x1p-8));
  EXPECT_FALSE(passes(loss * 1.02, 0x1p-8));
  EXPECT_FALSE(passes(loss * 1.02, 1.0)) << "no trainer is granted more than bf16's";
}

TEST(Wiring, EachHurtingValueIsSeenByItsCase) {
  const auto scaled_if = [](auto applies) {
    return Defect{.forward_of = [applies](std::span<float> logits, std::span<const float> p, const gpt2::TrainerOptions& o) {
      if (!logits.empty() && applies(logits, p, o))
        for (float& x : logits) x = x * 1.01f + 1e-3f;
    }};
  };
  const auto tensor = [](std::span<const float> p, const gpt2::TrainerOptions& o, gpt2::Tensor t) {
    return p.subspan(static_cast<size_t>(gpt2::tensor_layout(o.model)[t].offset));
  };
  using Logits = std::span<float>;
  using Params = std::span<const float>;
  using Options = const gpt2::TrainerOptions&;
  const std::vector<std::pair<std::string, Defect>> all{
      {"far mean", scaled_if([&](Logits, Params p, Options o) { return tensor(p, o, gpt2::Tensor::wpe)[0] == 300; })},
      {"low logits", scaled_if([](Logits z, Params, Options) { return *std::max_element(z.begin(), z.end()) < -100; })},
      {"one high logit", scaled_if([](Logits z, Params, Options) { return std::abs(z[7] - 80) < 1; })},
      {"equal logits", scaled_if([](Logits z, Params, Options) { return z[0] == 0 && z[1] == 0; })},
      {"flat attention", scaled_if([&](Logits, Params p, Options o) { return tensor(p, o, gpt2::Tensor::qkvw)[0] == 0; })},
      {"denormals",
       scaled_if([&](Logits, Params p, Options o) { return std::fpclassify(tensor(p, o, gpt2::Tensor::fcb)[0]) == FP_SUBNORMAL; })}};
  for (const auto& [name, defect] : all) {
    ModelGateOptions o = only("");
    o.with_steps = false;
    o.without.clear();
    for (const ModelCheck& c : model_checks())
      if (std::ranges::none_of(small_cases(), [&](const Case& s) { return s.name == c.name; })) o.without.insert(c.name);
    EXPECT_EQ(failing_with(defect, o), std::set<std::string>{name});
  }
}

TEST(Wiring, TokensThatAreAllEqualAndAllDifferentAreSeenByTheirCases) {
  const auto gradient_off_if = [](auto applies) {
    return Defect{.gradients = [applies](std::span<float> g, const gpt2::TrainerOptions& o, const Batch& b) {
      if (!applies(b, o)) return;
      for (float& x : g.subspan(static_cast<size_t>(b.inputs[0] * o.model.channels), 8)) x *= 1.01f;
    }};
  };
  ModelGateOptions o = only("");
  o.with_steps = false;
  o.without.clear();
  for (const ModelCheck& c : model_checks())
    if (std::ranges::none_of(small_cases(), [&](const Case& s) { return s.name == c.name; })) o.without.insert(c.name);
  EXPECT_EQ(failing_with(gradient_off_if([](const Batch& b, const gpt2::TrainerOptions&) {
                           return b.inputs.size() > 1 && std::set(b.inputs.begin(), b.inputs.end()).size() == 1;
                         }),
                         o),
            std::set<std::string>{"equal tokens"});
  EXPECT_EQ(failing_with(gradient_off_if([](const Batch& b, const gpt2::TrainerOptions& t) {
                           const std::set<int32_t> ids(b.inputs.begin(), b.inputs.end());
                           return b.inputs.size() > 1 && ids.size() == b.inputs.size() && *ids.rbegin() == t.model.vocab_size - 1;
                         }),
                         o),
            std::set<std::string>{"distinct tokens"});
}

// ---- rounded weights -----------------------------------------------------------------------------------------------

GateReport judge_rounded(RoundingMistake mistake, const std::string& rounding, bool everything = false) {
  ModelGateOptions o = only_main("mixed");
  o.weight_rounding = rounding;
  o.with_small_cases = o.with_steps = everything;
  if (everything) o.without.clear();
  return check_model(rounded(mistake), o);
}

TEST(Wiring, ARightTrainerThatRoundsPasses) {
  for (const std::string rounding : {"nearest", "stochastic"}) {
    const GateReport report = judge_rounded(RoundingMistake::none, rounding, true);
    EXPECT_TRUE(report.passed()) << rounding << "\n" << to_table(report, false);
  }
}

TEST(Wiring, MistakesOfRoundingAreCaught) {
  using M = RoundingMistake;
  EXPECT_TRUE(failing_kinds(judge_rounded(M::weights_cut_off, "nearest")).contains("weights"));
  EXPECT_TRUE(failing_kinds(judge_rounded(M::weights_from_old_masters, "nearest")).contains("weights"));
  EXPECT_TRUE(failing_kinds(judge_rounded(M::weights_from_old_masters, "stochastic")).contains("weights"));
  EXPECT_TRUE(failing_kinds(judge_rounded(M::always_up, "stochastic")).contains("weights"));
  EXPECT_TRUE(failing_kinds(judge_rounded(M::two_steps_off, "stochastic")).contains("weights"));
  EXPECT_TRUE(failing_kinds(judge_rounded(M::scale_from_last_norm, "nearest")).contains("adam m"));
  const auto coarse = failing_kinds(judge_rounded(M::activations_in_5_bits, "nearest"));
  EXPECT_TRUE(coarse.contains("forward"));
  EXPECT_TRUE(coarse.contains("gradients"));
}

// Where nothing moves only the random bits are new, and a run that is resumed there has them.
TEST(Wiring, WeightsThatAStepLeftOutDoesNotRoundAnewAreCaught) {
  constexpr auto kMistake = RoundingMistake::left_out_keeps_weights;
  EXPECT_EQ(failing_kinds(judge_rounded(kMistake, "stochastic")), std::set<std::string>{"skipped update"});
  EXPECT_EQ(failing_kinds(judge_rounded(kMistake, "nearest")), std::set<std::string>{});
  ModelGateOptions o = only_main("mixed");
  o.weight_rounding = "stochastic";
  o.with_loop = true;
  for (const ModelCheck& c : model_checks())
    if (c.name != "resume") o.without.insert(c.name);
  EXPECT_EQ(failing_kinds(check_model(rounded(kMistake), o)), std::set<std::string>{"resume"});
  EXPECT_TRUE(check_model(rounded(), o).passed());
}

TEST(Wiring, AGradientOfTheStreamThatLosesWhatNearlyCancelsIsCaught) {
  ModelGateOptions o = only_main("mixed");
  o.with_small_cases = true;
  for (const ModelCheck& c : model_checks())
    if (c.name != "offset gradient") o.without.insert(c.name);
  EXPECT_TRUE(check_model(rounded(), o).passed());
  const GateReport report = check_model(rounded(RoundingMistake::gradient_stream_8_bits), o);
  EXPECT_EQ(failing_kinds(report), std::set<std::string>{"offset gradient"}) << to_table(report, false);
  EXPECT_EQ(report.results.size(), 1u) << "the gradient of wpe, and nothing else";
}

// The default of the mixed trainer, which ARightTrainerThatRoundsPasses has. What is stored in fp32 is held to fp32.
TEST(Wiring, MistakesInMomentsOf16BitsAreCaught) {
  using M = RoundingMistake;
  const auto kinds = [](M mistake) { return failing_kinds(judge_rounded(mistake, "nearest")); };
  for (const M mistake : {M::moments_cut_off, M::moments_to_nearest}) {
    const auto failing = kinds(mistake);
    EXPECT_TRUE(failing.contains("adam m") && failing.contains("adam v")) << static_cast<int>(mistake);
    EXPECT_FALSE(failing.contains("update")) << static_cast<int>(mistake);
  }
  const auto lost = kinds(M::low_byte_of_v_lost);
  EXPECT_TRUE(lost.contains("adam v"));
  EXPECT_FALSE(lost.contains("adam m"));
  EXPECT_TRUE(kinds(M::bytes_swapped_at_the_end).contains("adam v"));
  EXPECT_TRUE(kinds(M::update_of_unrounded).contains("update"));
}

// Each element is right on average, and so are all sums over elements: only what eight have together tells.
TEST(Wiring, MomentsThatShareTheirRandomBitsAreCaught) {
  const GateReport report = judge_rounded(RoundingMistake::eight_moments_one_byte, "nearest");
  const auto failed = [&](const std::string& check) {
    return std::ranges::any_of(
        report.results, [&](const CheckResult& r) { return !r.passed && r.tensor == "eight together" && r.name.starts_with(check); });
  };
  EXPECT_TRUE(failed("adam m") && failed("adam v")) << to_table(report, false);
}

TEST(Wiring, MistakesOfRoundingThatEachWeightHidesAreCaught) {
  const GateReport report = judge_rounded(RoundingMistake::two_weights_one_draw, "stochastic");
  EXPECT_EQ(failing_kinds(report), std::set<std::string>{"weights"}) << to_table(report, false);
  for (const CheckResult& r : report.results)
    if (!r.passed) {
      EXPECT_EQ(r.tensor, "eight together");
    }
}

TEST(Wiring, MomentsAreGrantedTheBitsOfTheirStorageAlone) {
  EXPECT_TRUE(moment_bits_of("mixed", {}) == (MomentBits{16, 16})) << "the default is split";
  EXPECT_TRUE(moment_bits_of("mixed", {{"moments", "split"}}) == (MomentBits{16, 16}));
  EXPECT_TRUE(moment_bits_of("mixed", {{"moments", "16_bits"}}) == (MomentBits{8, 9}));
  EXPECT_TRUE(moment_bits_of("mixed", {{"moments", "fp32"}}) == (MomentBits{24, 24}));
  EXPECT_TRUE(moment_bits_of("fp32", {}) == (MomentBits{24, 24}));
  for (const std::string moments : {"fp32", "split", "16_bits"}) {
    ModelGateOptions o = only_main("mixed");
    o.variants = {{"moments", moments}};
    EXPECT_TRUE(check_model(rounded(), o).passed()) << moments;
    const bool caught = failing_kinds(check_model(rounded(RoundingMistake::split_although_fp32), o)).contains("adam m");
    EXPECT_EQ(caught, moments != "split") << moments;
    for (const RoundingMistake mistake : {RoundingMistake::moments_cut_off, RoundingMistake::moments_to_nearest}) {
      const auto failing = failing_kinds(check_model(rounded(mistake), o));
      EXPECT_EQ(failing.contains("adam m") && failing.contains("adam v"), moments != "fp32") << moments;
    }
  }
}

GateReport judge_gradients(const std::map<std::string, std::string>& variants, RoundingMistake mistake, bool everything = false) {
  ModelGateOptions o = only_main("mixed");
  o.variants = variants;
  o.with_small_cases = o.with_steps = o.with_loop = everything;
  return check_model(rounded(mistake), o);
}

bool asked(const GateReport& report, const std::string& check, const std::string& detail = "") {
  return std::ranges::any_of(report.results,
                             [&](const CheckResult& r) { return r.name.starts_with(check) && r.detail.find(detail) != std::string::npos; });
}
bool noted(const GateReport& report, const std::string& part) {
  return std::ranges::any_of(report.notes, [&](const std::string& n) { return n.find(part) != std::string::npos; });
}

// Asked for by name it refuses steps of several micro-batches, which the gate then does not ask for, and says so.
TEST(Wiring, ARightTrainerWithGradientsInBf16Passes) {
  const GateReport report = judge_gradients({{"weight_gradients", "bf16"}}, RoundingMistake::none, true);
  EXPECT_TRUE(report.passed()) << to_table(report, false);
  EXPECT_FALSE(asked(report, "accumulation"));
  EXPECT_FALSE(asked(report, "steps update", " x5 "));
  EXPECT_TRUE(asked(report, "steps update", " x1 "));
  EXPECT_TRUE(noted(report, "steps of several micro-batches: not checked: --variant weight_gradients=bf16"));
}

// A right trainer whose variant knows heads of 64 channels alone.
TrainerFactory for_heads_of_64(std::set<int64_t>* heads_seen) {
  return [heads_seen, make = rounded()](const gpt2::TrainerOptions& o) {
    if (o.model.channels / o.model.heads != 64)
      throw stepscope::InputError("--variant attention_backward=hopper cannot run at C=" + std::to_string(o.model.channels) + ": heads");
    heads_seen->insert(o.model.heads);
    return make(o);
  };
}

// The gate's own models have four heads of 16. A variant for heads of 64, asked for by name, is checked with one, and with two where a model has
// 128 channels.
TEST(Wiring, AVariantForHeadsOf64ChannelsIsChecked) {
  ModelGateOptions o = only_main("mixed");
  o.variants = {{"attention_backward", "hopper"}};
  o.with_small_cases = o.with_steps = o.with_loop = true;
  std::set<int64_t> heads;
  const GateReport report = check_model(for_heads_of_64(&heads), o);
  EXPECT_TRUE(report.passed()) << to_table(report, false);
  EXPECT_EQ(heads, (std::set<int64_t>{1, 2}));
  EXPECT_TRUE(noted(report, "models of the gate have heads of 64 channels: --variant attention_backward=hopper cannot run at C=64"));
  for (const char* check : {"gradients", "accumulation", "sharp attention", "steps update", "loader"})
    EXPECT_TRUE(asked(report, check)) << check;
  EXPECT_TRUE(noted(report, "shape C=208 NH=13: not checked: --variant attention_backward=hopper")) << "no such heads there";
}

// Defaults that know heads of 64 channels alone give way elsewhere, so nothing would check them in most cases.
TEST(Wiring, TheGatesOwnModelsHaveHeadsOf64ChannelsWhereThatIsAsked) {
  ModelGateOptions o = only_main("mixed");
  o.with_small_cases = true;
  o.heads_of_64 = true;
  std::map<int64_t, std::set<int64_t>> channels_by_size;  // of a head
  const auto seen = [&, make = rounded()](const gpt2::TrainerOptions& t) {
    channels_by_size[t.model.channels / t.model.heads].insert(t.model.channels);
    return make(t);
  };
  const GateReport report = check_model(seen, o);
  EXPECT_TRUE(report.passed()) << to_table(report, false);
  EXPECT_TRUE(report.workload.ends_with("heads of 64 channels")) << report.workload;
  EXPECT_TRUE(channels_by_size[64].contains(gate_model().channels));
  for (const auto& [size, channels] : channels_by_size)
    for (const int64_t c : channels) EXPECT_TRUE(size == 64 || c % 64 != 0) << c << " channels in heads of " << size;
}

// A model that the user has chosen stays what it is.
TEST(Wiring, AVariantThatRefusesTheModelAskedForIsRefused) {
  ModelGateOptions o = only_main("mixed");
  o.variants = {{"attention_backward", "hopper"}};
  o.config.layers = 1;
  std::set<int64_t> heads;
  EXPECT_THROW(check_model(for_heads_of_64(&heads), o), stepscope::InputError);
  EXPECT_TRUE(heads.empty());
}

// As a default it gives way in a trainer for several micro-batches, and their steps are checked.
TEST(Wiring, StepsOfSeveralMicroBatchesAreCheckedWhereADefaultGivesWay) {
  ModelGateOptions o = only_main("mixed");
  o.with_steps = o.with_loop = true;
  const GateReport report = check_model(rounded(), o);
  EXPECT_TRUE(report.passed()) << to_table(report, false);
  EXPECT_TRUE(asked(report, "accumulation"));
  for (const char* count : {" x1 ", " x2 ", " x3 ", " x5 "}) EXPECT_TRUE(asked(report, "steps update", count)) << count;
  EXPECT_TRUE(std::ranges::any_of(report.results, [](const CheckResult& r) { return r.name == "loader" && r.tensor == "in order x3"; }));
  EXPECT_FALSE(noted(report, "not checked"));
  EXPECT_TRUE(noted(report, "main, steps of several micro-batches: weight_gradients=fp32 runs"));
  EXPECT_TRUE(failing_kinds(judge_gradients({}, RoundingMistake::first_micro_batch_lost)).contains("accumulation"));
}

// Steps far apart, of which the lowest bits are alike.
TEST(Rounding, WithASeedThatComesBackAfter256StepsIsCaught) {
  using M = RoundingMistake;
  const auto failing = [](M mistake, const char* weight_rounding, const char* moments, size_t results) {
    ModelGateOptions o = only_main("mixed");
    o.weight_rounding = weight_rounding;
    o.variants = {{"moments", moments}};
    for (const ModelCheck& c : model_checks())
      if (c.name != "rounding") o.without.insert(c.name);
    const GateReport report = check_model(rounded(mistake), o);
    EXPECT_EQ(report.results.size(), results) << weight_rounding << " " << moments;
    std::set<std::string> tensors;
    for (const CheckResult& r : report.results)
      if (!r.passed) tensors.insert(r.tensor);
    return tensors;
  };
  using Failing = std::set<std::string>;
  EXPECT_EQ(failing(M::none, "stochastic", "split", 1), Failing{});
  EXPECT_EQ(failing(M::seed_of_8_bits, "stochastic", "split", 1), Failing{"logits"});
  EXPECT_EQ(failing(M::none, "nearest", "split", 1), Failing{});
  EXPECT_EQ(failing(M::moment_seed_of_8_bits, "nearest", "split", 1), Failing{"m,v"});
  EXPECT_EQ(failing(M::none, "nearest", "fp32", 0), Failing{});
}

TEST(Rounding, ThatAResumedRunMakesAnotherWayIsCaught) {
  for (const RoundingMistake mistake : {RoundingMistake::none, RoundingMistake::written_is_to_nearest}) {
    ModelGateOptions o = only_main("mixed");
    o.weight_rounding = "stochastic";
    o.with_loop = true;
    for (const ModelCheck& c : model_checks())
      if (c.name != "resume") o.without.insert(c.name);
    EXPECT_EQ(check_model(rounded(mistake), o).passed(), mistake == RoundingMistake::none);
  }
}

// All but the first micro-batch of a step wait in memory that steps share, as bug 142 has it.
class OneMemoryOfLaterTokens final : public gate_test::BrokenTrainer {
 public:
  OneMemoryOfLaterTokens(const gpt2::TrainerOptions& o, bool shares) : BrokenTrainer(o, {}), shares_(shares) {}
  void enqueue_step(const gpt2::StepPlan& plan) override {
    std::vector<Tokens> tokens;
    for (const Batch& b : plan.micro_batches) tokens.push_back({{b.inputs.begin(), b.inputs.end()}, {b.targets.begin(), b.targets.end()}});
    later_ = {tokens.begin() + 1, tokens.end()};
    steps_.push_back({plan, std::move(tokens)});
  }
  gpt2::StepOutcome finish_step() override {
    auto [plan, tokens] = steps_.front();
    steps_.pop_front();
    if (shares_) std::copy(later_.begin(), later_.end(), tokens.begin() + 1);
    std::vector<Batch> batches;
    for (const Tokens& t : tokens) batches.push_back(t.batch());
    plan.micro_batches = batches;
    BrokenTrainer::enqueue_step(plan);
    return BrokenTrainer::finish_step();
  }

 private:
  bool shares_;
  std::deque<std::pair<gpt2::StepPlan, std::vector<Tokens>>> steps_;
  std::vector<Tokens> later_;
};
TEST(Queued, MicroBatchesWhoseTokensTheNextStepOverwritesAreCaught) {
  const Case c{"main", gate_model(), 2, 16};
  gpt2::TrainerOptions o;
  o.model = c.config, o.batch_size = c.batch_size, o.seq_len = c.seq_len;
  const std::vector<float> parameters = trained_like_parameters(c, 3);
  for (const bool shares : {false, true}) {
    OneMemoryOfLaterTokens trainer(o, shares);
    const std::vector<CheckResult> results = check_queued_micro_batches(trainer, c, 3, parameters, {.learning_rate = 1e-3f});
    ASSERT_EQ(results.size(), 2u);
    for (const CheckResult& r : results) EXPECT_EQ(r.passed, !shares) << r.tensor;
  }
}

TEST(Wiring, TheStreamIsRoundedToTheBitsOfItsStorage) {
  const auto bits = [](const std::map<std::string, std::string>& variants) { return storage_of("mixed", "bf16", variants).stream_bits; };
  EXPECT_EQ(bits({}), 16) << "the default is split";
  EXPECT_EQ(bits({{"residual_stream", "split"}}), 16);
  EXPECT_EQ(bits({{"residual_stream", "fp32"}}), 23);
  EXPECT_EQ(bits({{"residual_stream", "bf16"}}), 8);
}

// Seed 3 of `one high logit` refused a right trainer whose products are stored in bf16 before their bias is added, 1.06 times its budget.
TEST(Wiring, TwoRoundingsOfAProductHaveTwiceTheVarianceOfOne) {
  const auto of = [](const std::map<std::string, std::string>& variants) { return storage_of("mixed", "bf16", variants); };
  EXPECT_EQ(of({}).roundings, 1);
  EXPECT_EQ(of({{"linear_forward", "bias_epilogue"}}).roundings, 1);
  EXPECT_EQ(of({{"linear_forward", "bias_kernel"}}).roundings, 2);
  EXPECT_EQ(storage_of("fp32", "fp32", {{"linear_forward", "bias_kernel"}}).roundings, 1);
  const Case c{"main", gate_model(), 2, 16};
  const std::vector<float> weights = trained_like_parameters(c, 3);
  const std::vector<Tokens> tokens{random_tokens(c, 3, 0)};
  const Expected once = expect(c, weights, tokens, of({}), 2, true),
                 twice = expect(c, weights, tokens, of({{"linear_forward", "bias_kernel"}}), 2, true);
  EXPECT_EQ(twice.loss, once.loss);
  EXPECT_DOUBLE_EQ(twice.token_loss_noise, std::sqrt(2) * once.token_loss_noise);
  EXPECT_DOUBLE_EQ(twice.logits_noise.row, std::sqrt(2) * once.logits_noise.row);
  for (size_t i = 0; i < once.gradients_noise.size(); ++i)
    EXPECT_DOUBLE_EQ(twice.gradients_noise[i].norm, std::sqrt(2) * once.gradients_noise[i].norm);
}

// The budget of a gradient in bf16 has the noise of that rounding beside the noise that it had, and no other tensor's budget changes. A draw
// to either neighbour is off by at most a step of bf16, 2^-7 of the power of two below, and by 0.41 of it in the mean square.
TEST(Wiring, ARoundingToBf16WidensTheBudgetsOfWhatIsStoredSoByItselfAlone) {
  const Case c{"main", gate_model(), 2, 16};
  const std::vector<float> weights = trained_like_parameters(c, 3);
  const std::vector<Tokens> tokens{random_tokens(c, 3, 0)};
  const Storage plain = storage_of("mixed", "bf16", {{"weight_gradients", "fp32"}}), narrow = storage_of("mixed", "bf16", {});
  const Expected a = expect(c, weights, tokens, plain, 2, true), b = expect(c, weights, tokens, narrow, 2, true);
  const std::vector<KnownTensor> tensors = known_tensors(c.config);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string& name = tensors[i].name;
    const double before = a.gradients_noise[i].norm, after = b.gradients_noise[i].norm;
    if (name == "wte" || name == "qkvw" || name == "attprojw" || name == "fcw" || name == "fcprojw") {
      const double added = std::sqrt(after * after - before * before);
      EXPECT_GT(added, 0.41 * 0x1p-8) << name;
      EXPECT_LT(added, 0.41 * 0x1p-7) << name;
    } else {
      EXPECT_EQ(after, before) << name;
    }
  }
}

TEST(Wiring, WtesGradientIsInBf16WhereItsVariantAndTheBlocksAre) {
  const auto bits = [](const std::map<std::string, std::string>& variants) {
    return storage_of("mixed", "bf16", variants).wte_gradient_bits;
  };
  EXPECT_EQ(bits({}), 8);
  EXPECT_EQ(bits({{"wte_gradient", "fp32"}}), 0);
  EXPECT_EQ(bits({{"weight_gradients", "fp32"}}), 0);
}

TEST(Wiring, ANormWithoutTheGradientsInBf16IsCaught) {
  const auto names = failing_kinds(judge_gradients({}, RoundingMistake::bf16_arena_not_normed));
  EXPECT_TRUE(names.contains("grad norm"));
}

TEST(Wiring, GradientsInFewerBitsThanBf16HasAreCaught) {
  EXPECT_TRUE(failing_kinds(judge_gradients({}, RoundingMistake::gradients_in_3_bits)).contains("gradients"));
}

TEST(Wiring, NeighboursInBf16) {
  EXPECT_EQ(nearest_bf16(1.0f), 1.0f);
  EXPECT_EQ(nearest_bf16(1.00390625f), 1.0f);       // half way, to even
  EXPECT_EQ(nearest_bf16(1.01171875f), 1.015625f);  // half way, to even: up
  EXPECT_TRUE(is_bf16_neighbour(1.0f, 1.0f));
  EXPECT_FALSE(is_bf16_neighbour(1.0078125f, 1.0f));  // exact values have no second neighbour
  EXPECT_TRUE(is_bf16_neighbour(1.0078125f, 1.001f));
  EXPECT_TRUE(is_bf16_neighbour(-1.0f, -1.001f));
  EXPECT_FALSE(is_bf16_neighbour(-0.99609375f, -1.001f));
}

}  // namespace
}  // namespace gate

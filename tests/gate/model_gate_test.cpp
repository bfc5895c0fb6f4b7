// The gate against trainers that are wrong in one way each: every defect must be named by the check that is
// there for it.
#include "experiments/gate/model_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/cache_folder.h"
#include "base/errors.h"
#include "base/read_file.h"
#include "base/temporary_folder.h"
#include "experiments/gate/budgets.h"
#include "tests/gate/broken_trainer.h"
#include "tests/gate/shared_answers.h"

namespace gate {
namespace {

using gate_test::broken;
using gate_test::Defect;
using gpt2::Batch;
using gpt2::Tensor;

ModelGateOptions one_layer(bool small, uint64_t seed) {
  ModelGateOptions o;
  o.trainer = "reference";
  o.seed = seed;
  o.config.layers = 1;
  o.batch_size = 2;
  o.seq_len = 32;
  o.trajectory_steps = 5;
  o.with_small_cases = small;
  o.with_steps = o.with_loop = false;
  return o;
}

GateReport judge(const Defect& defect, bool small = false, uint64_t seed = 7) {
  ModelGateOptions o = one_layer(small, seed);
  o.small_answers = &gate_test::shared_answers();
  return check_model(broken(defect), o);
}

std::set<std::string> failing(const GateReport& report) {
  std::set<std::string> names;
  for (const CheckResult& r : report.results)
    if (!r.passed) names.insert(r.name);
  return names;
}

// Some check whose name begins so must fail; the report is printed when not.
void expect_caught(const Defect& defect, const std::string& check, bool small = false) {
  const GateReport report = judge(defect, small);
  const auto names = failing(report);
  EXPECT_FALSE(report.passed());
  EXPECT_TRUE(std::any_of(names.begin(), names.end(), [&](const auto& n) { return n.starts_with(check); }))
      << "expected `" << check << "` to fail\n"
      << to_table(report, false);
}

std::span<float> tensor(std::span<float> all, const gpt2::TrainerOptions& o, Tensor t) {
  const auto span = gpt2::tensor_layout(o.model)[t];
  return all.subspan(static_cast<size_t>(span.offset), static_cast<size_t>(span.size));
}

TEST(ModelGate, SaysHowLongEachPartTook) {
  const auto begin = std::chrono::steady_clock::now();
  const GateReport report = judge({});
  const double all_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  double told_s = 0;
  std::set<std::string> parts;
  for (const PartTime& t : report.part_times) {
    EXPECT_TRUE(parts.insert(t.part).second) << t.part << " twice";
    EXPECT_GE(t.checks_s, 0) << t.part;
    told_s += t.checks_s;
  }
  for (const char* part : {"optimizer", "trajectory of 5 steps", "judging", "timed steps"}) EXPECT_TRUE(parts.contains(part)) << part;
  EXPECT_LE(told_s, all_s);
  EXPECT_GT(told_s, all_s / 2);
}

// A run begins with moments that nobody writes.
TEST(ModelGate, MomentsOfANewTrainerAreZero) { expect_caught({.new_moments = 1e-6f}, "fresh model"); }

TEST(ModelGate, AStepThatIsAnotherWithoutAGraphIsCaught) {
  const Defect d{.plan = [](gpt2::StepPlan& p) {
    if (!p.graph_allowed) p.adamw.learning_rate *= 1.001f;
  }};
  expect_caught(d, "repeatability");
}

// Algorithms by their times, say.
TEST(ModelGate, ATrainerThatRepeatsByWhatItMeasuredIsCaught) {
  const Defect d{.plan = [](gpt2::StepPlan&) { std::ofstream(stepscope::cache_folder() / "choices.json") << "{}"; }};
  expect_caught(d, "repeatability");
}

TEST(ModelGate, ALossOfTheLogitsOfTheCallBeforeIsCaught) {
  double of_call_before = 0;
  const Defect d{.evaluate_only = [&](std::span<float> logits, double& loss) {
    if (logits.empty()) loss = of_call_before;
    of_call_before = loss;
  }};
  expect_caught(d, "evaluate");
}

TEST(ModelGate, ARightTrainerPasses) {
  ModelGateOptions o;
  o.trainer = "reference";
  o.seed = 1;  // FalseAlarms asks with others
  const GateReport report = check_model(broken({}), o);
  EXPECT_TRUE(report.passed()) << to_table(report, false);
  EXPECT_GT(report.results.size(), 300u);
}

Defect off_by_a_twentieth_of_a_percent(Tensor t) {
  return {.gradients = [t](std::span<float> g, const gpt2::TrainerOptions& o, const Batch&) {
    for (float& x : tensor(g, o, t)) x *= 1.0005f;
  }};
}

std::vector<double> values(const GateReport& report) {
  std::vector<double> out;
  for (const CheckResult& r : report.results)
    for (const Measure& m : r.measures) {
      out.push_back(m.error);
      out.push_back(m.budget);
    }
  return out;
}

// Answers kept from a check of a right trainer serve the check of another: what it says is what it says alone.
TEST(ModelGate, SharedAnswersChangeNoVerdict) {
  const Defect wrong = off_by_a_twentieth_of_a_percent(Tensor::fcw);
  ExpectedCache answers;
  ModelGateOptions options = one_layer(true, 7);
  options.with_timed_steps = false;  // no two clocks agree
  const GateReport alone = check_model(broken(wrong), options);
  options.small_answers = &answers;
  check_model(broken({}), options);
  const GateReport with_others = check_model(broken(wrong), options);
  EXPECT_FALSE(with_others.passed());
  EXPECT_EQ(failing(with_others), failing(alone));
  EXPECT_EQ(values(with_others), values(alone));
}

// The same for answers in files, which later gates of a session read; one that was cut off is made again.
TEST(ModelGate, AnswersInFilesChangeNoVerdict) {
  const Defect wrong = off_by_a_twentieth_of_a_percent(Tensor::fcw);
  const stepscope::TemporaryFolder folder;
  ModelGateOptions options = one_layer(true, 7);
  options.with_timed_steps = false;
  const GateReport alone = check_model(broken(wrong), options);
  options.answers = folder.path() / "answers";
  std::filesystem::create_directory(options.answers);
  check_model(broken({}), options);
  const auto times = [&] {
    std::map<std::filesystem::path, std::filesystem::file_time_type> out;
    for (const auto& file : std::filesystem::directory_iterator(options.answers)) out[file.path()] = file.last_write_time();
    return out;
  };
  const auto kept = times();
  ASSERT_GT(kept.size(), 3u);
  EXPECT_EQ(values(check_model(broken(wrong), options)), values(alone));
  auto now = times();  // and those of the weights that wrong gradients led to
  for (const auto& [file, at] : kept) EXPECT_EQ(now[file], at) << "was made again";

  const std::filesystem::path first = kept.begin()->first;
  std::filesystem::resize_file(first, std::filesystem::file_size(first) - 1);
  EXPECT_EQ(values(check_model(broken(wrong), options)), values(alone));
}

// A model of 10 million parameters and few tokens in the place of d12.
ModelGateOptions real_size_only() {
  ModelGateOptions o = one_layer(false, 7);
  for (const ModelCheck& c : model_checks())
    if (!c.name.starts_with("d12 ")) o.without.insert(c.name);
  o.real_size_batch = 2;
  o.real_size_length = 8;
  o.real_size_model = {.max_seq_len = 8, .vocab_size = 50257, .padded_vocab = 50304, .layers = 1, .heads = 4, .channels = 256};
  return o;
}

// Computed ahead, the answer must be the one to the question that the gate then asks: else it costs its time twice.
TEST(ModelGate, WhatIsAskedAheadAtTheRealSizeIsWhatTheGateAsks) {
  const stepscope::TemporaryFolder folder;
  ExpectedCache answers(folder.path());
  const auto kept = [&] { return std::distance(std::filesystem::directory_iterator(folder.path()), {}); };
  ModelGateOptions options = real_size_only();
  options.big_answers = &answers;
  { const RealSizeAhead ahead(options); }
  ASSERT_EQ(kept(), 1);
  const Defect wrong = off_by_a_twentieth_of_a_percent(Tensor::fcw);
  const GateReport with = check_model(broken(wrong), options);
  EXPECT_EQ(kept(), 1);
  options.big_answers = nullptr;
  const GateReport alone = check_model(broken(wrong), options);
  EXPECT_THAT(failing(alone), testing::Contains("d12 gradients"));
  EXPECT_EQ(failing(with), failing(alone));
  EXPECT_EQ(values(with), values(alone));
}

// One layer of `channels` in the place of the wide one.
ModelGateOptions with_wide_layer(int64_t channels) {
  ModelGateOptions o = one_layer(false, 7);
  o.small_answers = &gate_test::shared_answers();
  o.wide = true;
  o.wide_model = {.max_seq_len = 8, .vocab_size = 61, .padded_vocab = 64, .layers = 1, .heads = 2, .channels = channels};
  return o;
}

TEST(ModelGate, WhatIsWrongInWideLayersAloneIsCaught) {
  const auto wide_results = [](const GateReport& r) { return std::ranges::count(r.results, "wide", &CheckResult::name); };
  const Defect gradient{.gradients = [](std::span<float> values, const gpt2::TrainerOptions& o, const Batch&) {
    const std::span<float> fcw = tensor(values, o, Tensor::fcw);
    for (size_t i = 0; i < fcw.size(); ++i)
      if (i % static_cast<size_t>(o.model.channels) >= 100) fcw[i] = 0;
  }};
  const Defect logits{.forward_of = [](std::span<float> values, std::span<const float>, const gpt2::TrainerOptions& o) {
    if (o.model.channels > 100) values.back() += 0.01f;
  }};
  const GateReport right = check_model(broken({}), with_wide_layer(128));
  EXPECT_TRUE(right.passed()) << to_table(right, false);
  EXPECT_EQ(wide_results(right), 2 + gpt2::kTensorCount) << "logits, loss and every gradient";
  for (const Defect& d : {gradient, logits})
    EXPECT_EQ(failing(check_model(broken(d), with_wide_layer(128))), std::set<std::string>{"wide"});
  EXPECT_EQ(wide_results(judge({})), 0) << "it is asked where it was asked for";
}

TEST(ModelGate, TheWideLayerHasTheChannelsAndHeadsOfD48) {
  const gpt2::ModelConfig d48 = gpt2::model_from_name("d48"), wide = wide_layer();
  EXPECT_EQ(wide.channels, d48.channels);
  EXPECT_EQ(wide.heads, d48.heads);
}

TEST(ModelGate, TheWideLayerIsAskedAheadToo) {
  const stepscope::TemporaryFolder folder;
  ExpectedCache answers(folder.path());
  const auto kept = [&] { return std::distance(std::filesystem::directory_iterator(folder.path()), {}); };
  ModelGateOptions options = with_wide_layer(1024);
  for (const ModelCheck& c : model_checks())
    if (c.name != "wide") options.without.insert(c.name);
  options.big_answers = &answers;
  { const RealSizeAhead ahead(options); }
  ASSERT_EQ(kept(), 1);
  EXPECT_TRUE(check_model(broken({}), options).passed());
  EXPECT_EQ(kept(), 1);
}

TEST(ModelGate, NothingIsAskedAheadThatTheGateWillNotAsk) {
  const stepscope::TemporaryFolder folder;
  ExpectedCache answers(folder.path());
  ModelGateOptions no_check = real_size_only(), no_batch = no_check, at_random = no_check;
  for (const ModelCheck& c : model_checks()) no_check.without.insert(c.name);
  no_batch.real_size_batch = 0;
  no_check.wide = true;
  at_random.trainer = "mixed";
  at_random.weight_rounding = "stochastic";
  for (ModelGateOptions* o : {&no_check, &no_batch, &at_random}) {
    o->big_answers = &answers;
    const RealSizeAhead ahead(*o);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// Several threads that ask the same question share one answer, and the one error where there is none.
TEST(Answers, OfOneQuestionAreOneForAllThreads) {
  const stepscope::TemporaryFolder folder;
  Case c{"main", gate_model(), 2, 4};
  const std::vector<float> weights = trained_like_parameters(c, 3);
  const std::vector<Tokens> tokens{random_tokens(c, 3, 0)};
  ExpectedCache answers(folder.path()), nowhere(folder.path() / "absent");
  std::vector<std::shared_ptr<const Expected>> got(4);
  std::vector<int> refused(got.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < got.size(); ++i)
    threads.emplace_back([&, i] {
      got[i] = answers.get(c, weights, tokens, {8, 16}, 1, true);
      try {
        nowhere.get(c, weights, tokens, {8, 16}, 1, true);
      } catch (const stepscope::InputError&) {
        refused[i] = 1;
      }
    });
  for (std::thread& t : threads) t.join();
  for (const auto& answer : got) EXPECT_EQ(answer, got.front());
  EXPECT_THAT(refused, testing::Each(1));
}

// A program that was built again may have another oracle.
TEST(Answers, OfAnotherProgramAreMadeAgain) {
  const stepscope::TemporaryFolder folder;
  Case c{"main", gate_model(), 2, 4};
  const std::vector<float> weights = trained_like_parameters(c, 3);
  const std::vector<Tokens> tokens{random_tokens(c, 3, 0)};
  const auto loss = [&] { return ExpectedCache(folder.path()).get(c, weights, tokens, {8, 16}, 1, false)->loss; };
  const double right = loss();
  const std::filesystem::path kept = std::filesystem::directory_iterator(folder.path())->path();
  const std::string text = stepscope::read_file(kept);
  std::string other = text;
  other[0] = static_cast<char>(other[0] ^ 1);
  std::ofstream(kept, std::ios::binary) << other;
  EXPECT_EQ(loss(), right);
  EXPECT_EQ(stepscope::read_file(kept), text) << "was made again";
}

// What gates share is found by everything that it depends on: one that is kept for other weights or for another storage would be a verdict
// about another trainer.
TEST(Answers, AreThoseOfTheSameQuestion) {
  struct Question {
    Case c{"main", gate_model(), 2, 4};
    std::vector<float> weights;
    std::vector<Tokens> tokens;
    Storage storage{8, 16, 11, 8};
    int draws = 1;
    bool with_gradients = true;
  };
  Question first;
  first.c.config.layers = 1;
  first.weights = trained_like_parameters(first.c, 3);
  first.tokens = {random_tokens(first.c, 3, 0), random_tokens(first.c, 3, 1)};
  ExpectedCache answers;
  const auto ask = [&](const Question& q) { return answers.get(q.c, q.weights, q.tokens, q.storage, q.draws, q.with_gradients); };
  const auto answer = ask(first);
  EXPECT_EQ(ask(first), answer);
  const std::vector<std::function<void(Question&)>> changes{
      [](Question& q) { q.weights.back() += 1; },         [](Question& q) { q.tokens[0].inputs[0] ^= 1; },
      [](Question& q) { q.tokens[1].targets[7] ^= 1; },   [](Question& q) { q.tokens.pop_back(); },
      [](Question& q) { q.storage.activation_bits = 9; }, [](Question& q) { q.storage.stream_bits = 17; },
      [](Question& q) { q.storage.weight_bits = 12; },    [](Question& q) { q.storage.gradient_bits = 9; },
      [](Question& q) { q.storage.roundings = 2; },       [](Question& q) { q.draws = 2; },
      [](Question& q) { q.with_gradients = false; },      [](Question& q) { q.c.batch_size = 4, q.c.seq_len = 2; },
      [](Question& q) { q.c.config.heads = 2; }};
  for (size_t i = 0; i < changes.size(); ++i) {
    Question other = first;
    changes[i](other);
    EXPECT_NE(ask(other), answer) << "change " << i;
  }
}

TEST(ModelGate, EachTensorOffByATwentiethOfAPercentIsNamed) {
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    const GateReport report = judge(off_by_a_twentieth_of_a_percent(row.id));
    std::set<std::string> compared, tensors;
    for (const CheckResult& r : report.results) {
      if (r.passed) continue;
      tensors.insert(r.tensor);
      if (r.name == "gradients" || r.name == "fresh inputs") compared.insert(r.name + " " + r.tensor);
    }
    const std::string name(row.name);
    EXPECT_EQ(compared, (std::set<std::string>{"gradients " + name, "fresh inputs " + name}));
    tensors.erase("own gradients");  // the norm of all
    EXPECT_EQ(tensors, (std::set<std::string>{name}));
  }
}

TEST(ModelGate, OneNotANumberInAGradientIsCaught) {
  expect_caught({.gradients = [](std::span<float> g, const gpt2::TrainerOptions&,
                                 const Batch&) { g[g.size() / 2] = std::numeric_limits<float>::quiet_NaN(); }},
                "gradients");
}

TEST(ModelGate, OneBadRowOfTheEmbeddingGradientIsCaught) {
  expect_caught({.gradients =
                     [](std::span<float> g, const gpt2::TrainerOptions& o, const Batch&) {
                       for (float& x : tensor(g, o, Tensor::wte).subspan(300 * 64, 64)) x *= 1.0001f;
                     }},
                "gradients");
}

TEST(ModelGate, ZeroGradientsAreCaught) {
  expect_caught({.gradients = [](std::span<float> g, const gpt2::TrainerOptions&, const Batch&) { std::fill(g.begin(), g.end(), 0.0f); }},
                "gradients");
}

TEST(ModelGate, LostUpdatesOfRepeatedTokensAreCaught) {
  const Defect d{.gradients = [](std::span<float> g, const gpt2::TrainerOptions& o, const Batch& b) {
    if (std::set(b.inputs.begin(), b.inputs.end()).size() <= 2)
      for (float& x : tensor(g, o, Tensor::wte).subspan(static_cast<size_t>(b.inputs[0] * o.model.channels), 8)) x *= 0.9f;
  }};
  expect_caught(d, "repeated tokens", true);
}

TEST(ModelGate, WrongLogitsAtTheEdgesOfTheVocabularyAreCaught) {
  expect_caught({.forward =
                     [](std::span<float> logits, double&, const Batch&, const gpt2::TrainerOptions& o, float) {
                       for (size_t i = static_cast<size_t>(o.model.vocab_size) - 1; i < logits.size();
                            i += static_cast<size_t>(o.model.vocab_size))
                         logits[i] *= 1.0001f;
                     }},
                "forward");
}

TEST(ModelGate, MissingWeightDecayIsCaught) {
  expect_caught({.plan = [](gpt2::StepPlan& p) { p.adamw.weight_decay = 0; }}, "update");
}

TEST(ModelGate, WeightDecayOnBiasesIsCaught) {
  const Defect d{
      .parameters = [](std::span<float> after, std::span<const float> before, const gpt2::StepPlan& plan, const gpt2::TrainerOptions& o) {
        for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
          const auto span = gpt2::tensor_layout(o.model)[row.id];
          for (int64_t i = span.offset; !row.decayed && i < span.offset + span.size; ++i)
            after[static_cast<size_t>(i)] -= plan.adamw.learning_rate * plan.adamw.weight_decay * before[static_cast<size_t>(i)];
        }
      }};
  expect_caught(d, "update");
}

TEST(ModelGate, BiasCorrectionOffByOneStepIsCaught) {
  expect_caught({.plan = [](gpt2::StepPlan& p) { p.step += 1; }}, "update");
}

TEST(ModelGate, AnotherEpsilonIsCaught) {
  expect_caught({.plan = [](gpt2::StepPlan& p) { p.adamw.eps = 1e-6f; }}, "update");
}

TEST(ModelGate, ClippingThatNeverHappensIsCaught) {
  expect_caught({.plan = [](gpt2::StepPlan& p) { p.adamw.clip = 0; }}, "adam m");
}

TEST(ModelGate, ClippingThatAlwaysHappensIsCaught) {
  expect_caught({.plan = [](gpt2::StepPlan& p) { p.adamw.clip = 0.01f; }}, "adam m t=5");
}

TEST(ModelGate, AnUpdateThatIsNotLeftOutIsCaught) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  expect_caught({.plan = [](gpt2::StepPlan& p) { p.skip_above_loss = kNever; }}, "skipped update");
  expect_caught({.plan = [](gpt2::StepPlan& p) { p.skip_above_grad_norm = kNever; }}, "skipped update");
  expect_caught({.outcome = [](gpt2::StepOutcome& o) { o.skipped = false; }}, "skipped update");
}

TEST(ModelGate, UpdatesThatAreAllLeftOutAreCaught) {
  expect_caught({.plan = [](gpt2::StepPlan& p) { p.skip_above_loss = std::min(p.skip_above_loss, 0.0); }}, "skipped update");
}

TEST(ModelGate, ALimitBelow0ThatClipsIsCaught) {
  const Defect d{.plan = [](gpt2::StepPlan& p) {
    if (p.adamw.clip < 0) p.adamw.clip = 0.01f;
  }};
  expect_caught(d, "adam m t=5");
}

// A flag that evaluation leaves behind, say, and that the next step reads.
TEST(ModelGate, AnEvaluationThatTheNextStepNoticesIsCaught) {
  bool evaluated = false;
  const Defect d{.plan =
                     [&](gpt2::StepPlan& p) {
                       if (evaluated) p.adamw.learning_rate *= 1.001f;
                       evaluated = false;
                     },
                 .evaluate_only = [&](std::span<float>, double&) { evaluated = true; }};
  expect_caught(d, "between steps");
}

TEST(ModelGate, ATimeThatIsNoNumberIsCaughtBetweenSteps) {
  expect_caught({.outcome = [](gpt2::StepOutcome& o) { o.time_ns = NAN; }}, "between steps");
}

// The notes say that these were not run.
TEST(ModelGate, WithManySeedsNoCheckIsRunThatIsLeftOut) {
  ModelGateOptions o = one_layer(true, 7);
  o.small_answers = &gate_test::shared_answers();
  for (const ModelCheck& c : model_checks())
    if (c.name != "forward") o.without.insert(c.name);
  const uint64_t seeds[] = {7};
  const std::vector<GateReport> reports = check_seeds(broken({}), o, seeds);
  std::set<std::string> names;
  for (const CheckResult& r : reports.front().results) names.insert(r.name);
  EXPECT_EQ(names, std::set<std::string>{"forward"});
}

TEST(ModelGate, ALossOrANormThatHidesWhatIsNoNumberIsCaught) {
  expect_caught({.outcome = [](gpt2::StepOutcome& o) { o.loss = std::fmax(o.loss, 0.0); }}, "not finite");
  expect_caught({.outcome = [](gpt2::StepOutcome& o) { o.grad_norm = std::fmax(o.grad_norm, 0.0); }}, "not finite");
}

TEST(ModelGate, AWrongGradientNormIsCaught) {
  expect_caught({.outcome = [](gpt2::StepOutcome& o) { o.grad_norm *= 0.9999; }}, "grad norm");
}

TEST(ModelGate, AMicroBatchThatIsDroppedIsCaughtInLossNormAndEveryGradient) {
  const GateReport report = judge({.plan = [](gpt2::StepPlan& p) { p.micro_batches = p.micro_batches.last(1); }});
  std::set<std::string> tensors;
  for (const CheckResult& r : report.results)
    if (!r.passed && r.name == "accumulation") tensors.insert(r.tensor);
  EXPECT_EQ(tensors.size(), 18u) << to_table(report, false);
}

TEST(ModelGate, ALossThatIgnoresThePaddingMaskIsCaught) {
  expect_caught({.forward = [](std::span<float>, double& loss, const Batch&, const gpt2::TrainerOptions&,
                               float padding) { loss += 1e-12 * static_cast<double>(padding); }},
                "padding");
}

TEST(ModelGate, AParameterThatTheUpdateForgetsIsCaught) {
  const Defect d{.parameters = [](std::span<float> after, std::span<const float> before, const gpt2::StepPlan&,
                                  const gpt2::TrainerOptions&) { after.back() = before.back(); }};
  expect_caught(d, "update");
}

TEST(ModelGate, PaddedRowsThatMoveAreCaught) {
  const Defect d{.parameters = [](std::span<float> after, std::span<const float>, const gpt2::StepPlan&, const gpt2::TrainerOptions& o) {
    after[static_cast<size_t>(o.model.vocab_size * o.model.channels)] = 1e-9f;
  }};
  const GateReport report = judge(d);
  EXPECT_TRUE(std::any_of(report.results.begin(), report.results.end(),
                          [](const CheckResult& r) { return !r.passed && r.tensor == "wte padding"; }));
}

TEST(ModelGate, AMaskOffByOneIsCaughtByCausality) {
  expect_caught({.forward =
                     [](std::span<float> logits, double&, const Batch& b, const gpt2::TrainerOptions& o, float) {
                       // token t sees token t+1, by as little as one bit
                       const auto V = static_cast<size_t>(o.model.vocab_size);
                       for (size_t r = 0; r + 1 < b.inputs.size() && !logits.empty(); ++r)
                         if (b.inputs[r + 1] % 2 == 1) logits[r * V] = std::nextafter(logits[r * V], 1e9f);
                     }},
                "causality");
}

// By as little as one bit, and behind the sequence whose token it is.
TEST(ModelGate, ASequenceThatSeesTheOneBeforeIsCaughtByCausality) {
  expect_caught({.forward =
                     [](std::span<float> logits, double&, const Batch& b, const gpt2::TrainerOptions& o, float) {
                       const auto V = static_cast<size_t>(o.model.vocab_size), T = static_cast<size_t>(o.seq_len);
                       for (size_t r = T; r < b.inputs.size() && !logits.empty(); r += T)
                         if (b.inputs[r - T] % 2 == 1) logits[r * V] = std::nextafter(logits[r * V], 1e9f);
                     }},
                "causality");
}

TEST(ModelGate, CachedLogitsAreCaughtByCausality) {
  auto cache = std::make_shared<std::vector<float>>();
  expect_caught({.evaluate_only =
                     [cache](std::span<float> logits, double&) {
                       if (logits.empty()) return;
                       if (cache->size() != logits.size()) cache->assign(logits.begin(), logits.end());
                       std::copy(cache->begin(), cache->end(), logits.begin());
                     }},
                "causality");
}

TEST(ModelGate, AnElementThatIsNeverWrittenIsCaught) {
  expect_caught({.forward =
                     [](std::span<float> logits, double&, const Batch&, const gpt2::TrainerOptions&, float) {
                       if (!logits.empty()) logits.back() = std::numeric_limits<float>::quiet_NaN();
                     }},
                "forward");
}

TEST(ModelGate, ResultsThatDependOnTheRunAreCaughtByRepeatability) {
  auto call = std::make_shared<int>(0);
  expect_caught({.parameters =
                     [call](std::span<float> after, std::span<const float>, const gpt2::StepPlan&, const gpt2::TrainerOptions&) {
                       if (++*call % 5 == 0) after[100] = std::nextafter(after[100], 1e9f);
                     }},
                "repeatability");
}

TEST(ModelGate, ADriftingTrainingRunIsCaught) {
  expect_caught({.plan = [](gpt2::StepPlan& p) { p.adamw.learning_rate *= 1.01f; }}, "trajectory");
}

TEST(ModelGate, AnEvaluationUnlikeTrainingIsCaught) {
  expect_caught({.evaluate_only = [](std::span<float>, double& loss) { loss *= 1.000001; }}, "evaluate");
}

TEST(ModelGate, OverflowInTheSoftmaxIsCaught) {
  const Defect d{.forward = [](std::span<float> logits, double& loss, const Batch&, const gpt2::TrainerOptions&, float) {
    for (float x : logits)
      if (std::exp(x) > std::numeric_limits<float>::max()) loss = std::numeric_limits<double>::quiet_NaN();
  }};
  const auto names = failing(judge(d, true));
  EXPECT_EQ(names, std::set<std::string>{"large logits"});
}

TEST(ModelGate, TargetsThatLoseTheirHighestBitAreCaught) {
  const Defect d{.forward = [](std::span<float> logits, double& loss, const Batch& b, const gpt2::TrainerOptions& o, float) {
    const auto V = static_cast<size_t>(o.model.vocab_size);
    if (logits.empty()) return;
    for (size_t row = 0; row < b.targets.size(); ++row) {
      const auto target = static_cast<size_t>(b.targets[row]);
      loss += static_cast<double>(logits[row * V + target] - logits[row * V + (target & 0x7fff)]) / static_cast<double>(b.targets.size());
    }
  }};
  EXPECT_EQ(failing(judge(d, true)), std::set<std::string>{"shape C=16 V=50257"});
}

// A sum over 50,257 terms loses more than the sums that budgets were calibrated on; so much behind a small vocabulary is a bug.
TEST(ModelGate, GradientsBehindALargeVocabularyMayLoseWhatItsSumsLose) {
  const Defect off{.gradients = [](std::span<float> g, const gpt2::TrainerOptions& o, const Batch&) {
    const std::span<float> positions = tensor(g, o, Tensor::wpe);
    for (size_t i = 0; i < positions.size(); ++i) positions[i] *= i % 2 == 0 ? 1 + 3e-6f : 1 - 3e-6f;
  }};
  ModelGateOptions o = one_layer(false, 7);
  o.config.vocab_size = 50257;
  o.config.padded_vocab = 50304;
  o.config.channels = 16;
  const GateReport large = check_model(broken(off), o);
  for (const CheckResult& r : large.results) EXPECT_TRUE(r.passed || r.name != "gradients") << r.tensor;
  EXPECT_TRUE(failing(judge(off)).contains("gradients"));
}

TEST(ModelGate, ATrainerWithoutBudgetsIsRefused) {
  EXPECT_THROW(budgets_of("mixed", "tf32"), stepscope::InputError);
  EXPECT_THROW(budgets_of("reference", "tf32"), stepscope::InputError);
}

TEST(ModelGate, Tf32BudgetsAreLooserOnArithmeticAndNotOnTheOptimizer) {
  const ModelBudgets fp32 = budgets_of("fp32", "fp32"), tf32 = budgets_of("fp32", "tf32");
  EXPECT_EQ(fp32.gradients, 2e-6);
  EXPECT_EQ(tf32.gradients, 2e-3);
  EXPECT_EQ(fp32.trajectory, 1e-5);
  EXPECT_EQ(fp32.update, tf32.update);
}

}  // namespace
}  // namespace gate

// Every flag of the trainers leaves a trace: in run.json, in the document's `run`, in `diff`, and in the command line that `profile`
// writes out again. The flags are the command line's own list, so that a new one cannot be forgotten here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/arguments.h"
#include "cli/trainer_flags.h"
#include "gpt2/run_json.h"
#include "profiler/diff/diff.h"
#include "profiler/document/json.h"
#include "tests/profiler/fixture.h"

namespace {

using nlohmann::json;
using profiler::ProfileDocument;

struct Change {
  std::string value;
  std::string with = "";  // other flags that it needs
  bool in_diff = true;
};
// For each flag a value that is not its default.
const std::map<std::string, Change> kChanges = {
    {"trainer", {"fp32"}},
    {"model", {"d24"}},
    {"data", {"tokens.bin"}},
    {"batch-size", {"8"}},
    {"seq-len", {"512"}},
    {"steps", {"7"}},  // by the end of the learning-rate schedule
    {"matmul", {"tf32", "--trainer fp32"}},
    {"variant", {"adamw=per_tensor"}},
    {"recompute", {"gelu"}},
    {"weight-rounding", {"stochastic"}},
    {"deterministic", {""}},
    {"direct-steps", {"2"}},
    // `profile` sets it behind the timed steps: which steps they are says nothing about the timed ones.
    {"direct-from", {"3", "--direct-steps 2", false}},
    {"seed", {"7"}},
    {"no-shuffle", {""}},
    {"overfit", {""}},
    {"accumulation", {"2"}},
    {"lr-schedule", {"linear"}},
    {"lr", {"1e-3"}},
    {"lr-warmup", {"5"}},
    {"lr-total-steps", {"900"}},
    {"lr-final-fraction", {"0.1"}},
    {"weight-decay", {"0.1"}},
    {"clip", {"0"}},
    {"skip-loss-outliers", {"3"}},
    {"skip-grad-outliers", {"3"}},
    {"beta1", {"0.8"}},
    {"beta2", {"0.95"}},
    {"eps", {"1e-7"}},
};
// Flags that change no step, and why.
const std::map<std::string, std::string> kNoStep = {
    {"val-data", "is read by validation alone, which runs between steps"},
};

cli::TrainerFlags parsed(const std::string& line) {
  cli::Command app;
  cli::TrainerFlags f;
  cli::add_trainer_flags(app, f);
  std::istringstream words(line);
  app.parse({std::istream_iterator<std::string>(words), {}});
  return f;
}

std::string joined(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += word + " ";
  return line;
}

// Says what it would train, and trains nothing.
class Described : public gpt2::Trainer {
 public:
  Described(gpt2::TrainerOptions options, std::string name) : options_(std::move(options)), name_(std::move(name)) {}
  const gpt2::TrainerOptions& options() const override { return options_; }
  std::string_view name() const override { return name_; }
  std::string device() const override { return "no device"; }
  void read(gpt2::State, std::span<float>) override {}
  void write(gpt2::State, std::span<const float>) override {}
  void enqueue_step(const gpt2::StepPlan&) override {}
  gpt2::StepOutcome finish_step() override { return {}; }
  double evaluate(const gpt2::Batch&, std::span<float>) override { return 0; }
  double forward_backward(const gpt2::Batch&, std::span<float>) override { return 0; }
  std::vector<gpt2::MemoryItem> memory() const override { return {}; }

 private:
  gpt2::TrainerOptions options_;
  std::string name_;
};

ProfileDocument document_of(cli::TrainerFlags f) {
  cli::settle(f);
  const Described trainer(cli::trainer_options(f), f.trainer);
  const std::string run = gpt2::run_json(trainer, cli::loop_options(f), {}, {}, "");
  return profiler::build_profile(fixture::gpt2_recording(), profiler::run_info_from_json(run, "run.json"), fixture::round_ceilings(),
                                 fixture::options());
}
json run_of(const ProfileDocument& d) { return json::parse(profiler::to_json(d)).at("run"); }

std::vector<std::string> flags_of_the_trainers() {
  cli::Command app;
  cli::TrainerFlags f;
  cli::add_trainer_flags(app, f);
  std::vector<std::string> names;
  app.for_each_argument([&](const std::string&, cli::Argument& a) { names.push_back(a.name().substr(2)); });
  return names;
}

TEST(RunFlags, EveryFlagThatChangesAStepIsInTheDocumentAndInDiff) {
  const std::vector<std::string> flags = flags_of_the_trainers();
  ASSERT_GT(flags.size(), 25u);
  for (const std::string& flag : flags) {
    SCOPED_TRACE("--" + flag);
    if (kNoStep.contains(flag)) continue;
    const auto change = kChanges.find(flag);
    ASSERT_NE(change, kChanges.end()) << "a new flag: a row of base/run_fields.cpp and of kChanges here, or a reason in kNoStep";
    const auto& [value, with, in_diff] = change->second;
    const std::string context = with.starts_with("--trainer") || flag == "trainer" ? with : "--trainer mixed " + with;
    const std::string before = flag == "trainer" ? "--trainer mixed" : context;
    const ProfileDocument a = document_of(parsed(before)), b = document_of(parsed(context + " --" + flag + " " + value));
    EXPECT_NE(run_of(a), run_of(b));
    EXPECT_EQ(!profiler::diff_profiles(a, b).runs.empty(), in_diff);
    EXPECT_EQ(run_of(a), run_of(document_of(parsed(before)))) << "what is the same looks the same";
    EXPECT_TRUE(profiler::diff_profiles(a, a).runs.empty());
  }
}

TEST(RunFlags, ASeedOf64BitsIsTheSameNumberEverywhere) {
  const ProfileDocument a = document_of(parsed("--trainer mixed --seed 18446744073709551615")), b = document_of(parsed("--trainer mixed"));
  EXPECT_EQ(run_of(a).at("seed").dump(), "18446744073709551615");
  EXPECT_EQ(profiler::profile_from_json(profiler::to_json(a), "a.json").run.seed, a.run.seed);
  const auto differences = profiler::diff_profiles(a, b).runs;
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(differences[0].a, "18446744073709551615");
}

TEST(RunFlags, ProfilePassesEveryFlagOnToTheTrainer) {
  for (const auto& [flag, change] : kChanges) {
    SCOPED_TRACE("--" + flag);
    const std::string trainer = change.with.starts_with("--trainer") || flag == "trainer" ? "" : "--trainer mixed ";
    cli::TrainerFlags typed = parsed(trainer + change.with + " --" + flag + " " + change.value);
    cli::settle(typed);
    std::vector<std::string> arguments = cli::as_arguments(typed, typed.steps);
    ASSERT_EQ(arguments.front(), "train");
    arguments.erase(arguments.begin());
    EXPECT_EQ(run_of(document_of(parsed(joined(arguments)))), run_of(document_of(typed)));
  }
}

// `experiment since` told an older program every flag of today, and one that it lacked ended the comparison.
TEST(RunFlags, AnotherRevisionIsToldNoFlagAtItsDefault) {
  cli::TrainerFlags defaults = parsed("--trainer mixed");
  cli::settle(defaults);
  EXPECT_EQ(joined(cli::arguments_beyond_defaults(defaults)),
            "--trainer mixed --model d12 --batch-size 4 --seq-len 1024 --steps 50 --matmul bf16 ");
  for (const auto& [flag, change] : kChanges) {
    SCOPED_TRACE("--" + flag);
    const std::string trainer = change.with.starts_with("--trainer") || flag == "trainer" ? "" : "--trainer mixed ";
    cli::TrainerFlags typed = parsed(trainer + change.with + " --" + flag + " " + change.value);
    cli::settle(typed);
    const std::vector<std::string> arguments = cli::arguments_beyond_defaults(typed);
    EXPECT_LE(arguments.size(), 16u);
    EXPECT_EQ(run_of(document_of(parsed(joined(arguments)))), run_of(document_of(typed)));
  }
}

TEST(RunFlags, TheListsHoldNoFlagThatIsGone) {
  const std::vector<std::string> flags = flags_of_the_trainers();
  for (const auto& [flag, change] : kChanges) EXPECT_THAT(flags, ::testing::Contains(flag));
  for (const auto& [flag, why] : kNoStep) EXPECT_THAT(flags, ::testing::Contains(flag));
}

}  // namespace

#include "gpt2/train_loop.h"

#include <nlohmann/json.hpp>
#include <numeric>

#include "gpt2/data/token_shards.h"
#include "gpt2/data/tokenizer.h"
#include "gpt2/op_range.h"
#include "gpt2/training_state.h"
#include "tests/gpt2/files.h"
#include "tests/gpt2/loop_options.h"
#include "tests/gpt2/toy_trainer.h"

namespace gpt2 {
namespace {
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::loop_options;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::toy_options;
using testing::ToyTrainer;

std::vector<double> losses(const RunResult& r) {
  std::vector<double> l;
  for (const StepLog& s : r.steps) l.push_back(s.outcome.loss);
  return l;
}
nlohmann::json json_at(const std::filesystem::path& path) {
  const auto bytes = read_bytes(path);
  return nlohmann::json::parse(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}
std::filesystem::path make_shard(const std::filesystem::path& path, size_t tokens = 400) {
  std::vector<uint16_t> ids(tokens);
  for (size_t i = 0; i < tokens; ++i) ids[i] = static_cast<uint16_t>(i * i % 50);
  write_token_shard(path, ids);
  return path;
}

TEST(TrainLoop, LogsEveryStepInOrderWithTheRateOfTheSchedule) {
  ToyTrainer trainer(toy_options());
  std::vector<int64_t> logged;
  const LoopOptions o = loop_options(6);
  const RunResult r = train(trainer, o, [&](const StepLog& s) {
    logged.push_back(s.outcome.step);
    EXPECT_DOUBLE_EQ(s.tokens_per_s, 16 / 1e-3);
  });
  EXPECT_THAT(logged, ElementsAre(1, 2, 3, 4, 5, 6));
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(trainer.rates[i], o.learning_rate.at(static_cast<int64_t>(i)));
    EXPECT_EQ(r.steps[i].learning_rate, trainer.rates[i]);
  }
}

TEST(TrainLoop, RunsOneStepBehindTheDeviceAndNeverMore) {
  ToyTrainer trainer(toy_options());
  train(trainer, loop_options(5), {});
  EXPECT_EQ(trainer.most_unfinished, 2u);
}

TEST(TrainLoop, AnOutlierIsLeftOutOnceTheWindowIsFullAndNamed) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  for (const bool of_loss : {true, false}) {
    ToyTrainer trainer(toy_options());
    trainer.spikes_at = 150;
    LoopOptions o = loop_options(160);
    o.learning_rate.total = 160;
    (of_loss ? o.skip_loss_outliers : o.skip_grad_outliers) = 9;
    std::vector<std::string> notes;
    o.on_note = [&](const std::string& text) { notes.push_back(text); };
    const RunResult r = train(trainer, o, {});
    for (const StepLog& s : r.steps) EXPECT_EQ(s.outcome.skipped, s.outcome.step == 150) << s.outcome.step;
    EXPECT_THAT(notes, ElementsAre(HasSubstr("step 150: loss")));
    for (int64_t i = 0; i < 160; ++i) {
      const auto at = static_cast<size_t>(i);
      EXPECT_EQ((of_loss ? trainer.loss_limits : trainer.norm_limits)[at] == kNone, i < 128) << i;
      EXPECT_EQ((of_loss ? trainer.norm_limits : trainer.loss_limits)[at], kNone) << i;
    }
    EXPECT_EQ(trainer.most_unfinished, 1u);  // the limits of step 150 know of step 149
  }
}

TEST(TrainLoop, MoreThanAnyZScoreIsRefused) {
  ToyTrainer trainer(toy_options());
  LoopOptions o = loop_options(5);
  for (const double wrong : {11.5, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    o.skip_grad_outliers = wrong;
    EXPECT_THROW(train(trainer, o, {}), stepscope::InputError) << wrong;
  }
}

TEST(TrainLoop, OpensAStepRangeAroundEachEnqueuedStep) {
  struct Listener : RangeListener {
    void begin_step(int64_t step) override { events.push_back(step); }
    void end_step(int64_t step) override { events.push_back(-step); }
    void begin_op(Pass, int, Op) override {}
    void end_op(Pass, int, Op) override {}
    std::vector<int64_t> events;
  } listener;
  set_range_listener(&listener);
  ToyTrainer trainer(toy_options());
  train(trainer, loop_options(3), {});
  set_range_listener(nullptr);
  EXPECT_THAT(listener.events, ElementsAre(1, -1, 2, -2, 3, -3));
}

TEST(TrainLoop, AccumulationReadsTheSameTokensInFewerSteps) {
  ToyTrainer one(toy_options()), three(toy_options());
  LoopOptions o = loop_options(6);
  train(one, o, {});
  o.steps = 2;
  o.accumulation = 3;
  const RunResult r = train(three, o, [](const StepLog& s) { EXPECT_DOUBLE_EQ(s.tokens_per_s, 48 / 1e-3); });
  EXPECT_EQ(r.steps.size(), 2u);
  EXPECT_EQ(three.seen, one.seen);
}

TEST(TrainLoop, OverfitTrainsOnOneBatch) {
  ToyTrainer trainer(toy_options());
  LoopOptions o = loop_options(3);
  o.overfit = true;
  train(trainer, o, {});
  const auto& seen = trainer.seen;
  ASSERT_EQ(seen.size(), 48u);
  EXPECT_TRUE(std::equal(seen.begin(), seen.begin() + 16, seen.begin() + 16));
  EXPECT_TRUE(std::equal(seen.begin(), seen.begin() + 16, seen.begin() + 32));
}

TEST(TrainLoop, StoppedAndResumedItIsBitwiseTheRunThatNeverStopped) {
  TemporaryFolder folder;
  for (bool shards : {false, true}) {
    LoopOptions o = loop_options(12);
    o.accumulation = 2;
    if (shards) o.data = {make_shard(folder / "shard.bin").string()};
    ToyTrainer whole(toy_options());
    const RunResult expected = train(whole, o, {});

    o.checkpoint_dir = (folder / (shards ? "shards" : "synthetic")).string();
    o.checkpoint_every = 2;
    o.steps = 5;  // as if killed after step 5: the last save is of step 5
    ToyTrainer first(toy_options());
    train(first, o, {});
    std::filesystem::remove_all(CheckpointStore(o.checkpoint_dir, 9).path_of(5));  // only step 4 is left
    ToyTrainer second(toy_options());
    second.write(State::parameters, std::vector<float>(static_cast<size_t>(tensor_layout(toy_options().model).total), 9.0f));
    o.steps = 12;
    o.resume = true;
    const RunResult rest = train(second, o, {});
    ASSERT_EQ(rest.steps.size(), 8u);
    EXPECT_EQ(rest.steps[0].outcome.step, 5);
    const std::vector<double> all = losses(expected);
    EXPECT_EQ(losses(rest), std::vector<double>(all.begin() + 4, all.end()));
    std::vector<float> a(static_cast<size_t>(tensor_layout(toy_options().model).total)), b(a.size());
    for (State s : {State::parameters, State::adam_m, State::adam_v}) {
      whole.read(s, a);
      second.read(s, b);
      EXPECT_EQ(a, b);
    }
  }
}

// With --resume it began at step 1 and left step-00000006 in step-00000004, which no run then counted as its own.
TEST(TrainLoop, ACheckpointIsNoFolderOfCheckpoints) {
  TemporaryFolder folder;
  LoopOptions o = loop_options(4);
  o.checkpoint_dir = (folder / "c").string();
  ToyTrainer first(toy_options());
  train(first, o, {});
  o.checkpoint_dir = (folder / "c" / "step-00000004").string();
  for (const bool resume : {true, false}) {
    o.resume = resume;
    o.steps = 6;
    ToyTrainer second(toy_options());
    EXPECT_INPUT_ERROR(train(second, o, {}), "step-00000004: is one checkpoint, expected the folder that it lies in");
  }
  EXPECT_EQ(CheckpointStore((folder / "c").string(), 9).steps(), std::vector<int64_t>{4});
  EXPECT_FALSE(std::filesystem::exists(folder / "c" / "step-00000004" / "step-00000006"));
}

TEST(TrainLoop, TwoRunsDoNotKeepCheckpointsInOneFolder) {
  TemporaryFolder folder;
  LoopOptions o = loop_options(4);
  o.checkpoint_dir = (folder / "c").string();
  int refused = 0;
  ToyTrainer first(toy_options());
  train(first, o, [&](const StepLog&) {
    ToyTrainer second(toy_options());
    try {
      train(second, o, {});
    } catch (const stepscope::InputError& e) {
      refused += std::string(e.what()).ends_with("c: another run keeps its checkpoints there, expected another folder");
    }
  });
  EXPECT_EQ(refused, 4);
  EXPECT_EQ(CheckpointStore(o.checkpoint_dir, 9).steps(), std::vector<int64_t>{4});
  o.resume = true;
  o.steps = 5;
  ToyTrainer third(toy_options());
  EXPECT_EQ(train(third, o, {}).steps.size(), 1u) << "the lock goes with its run";
}

TEST(TrainLoop, AScheduleThatTheRunDoesNotSeeIsANote) {
  LoopOptions o = loop_options(4);
  o.learning_rate.warmup = 8;
  std::vector<std::string> notes;
  o.on_note = [&](const std::string& text) { notes.push_back(text); };
  ToyTrainer trainer(toy_options());
  train(trainer, o, {});
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(notes[0].starts_with("--lr-warmup 8: the run ends at step 4")) << notes[0];
}

// A run of 4 steps that is finished and has checkpoints of steps 2 and 4; `options` resume it.
class FinishedRun : public ::testing::Test {
 protected:
  FinishedRun() {
    options.checkpoint_dir = (folder / "c").string();
    options.checkpoint_every = 2;
    ToyTrainer trainer(toy_options());
    whole = losses(train(trainer, options, {}));
    options.resume = true;
    options.on_note = [this](const std::string& text) { notes.push_back(text); };
  }
  CheckpointStore store() const { return CheckpointStore(options.checkpoint_dir, 2); }
  void cut_off(int64_t step, const char* file) const { std::filesystem::resize_file(store().path_of(step) / file, 10); }
  RunResult resume() const {
    ToyTrainer trainer(toy_options());
    return train(trainer, options, {});
  }
  std::vector<double> from_step_3() const { return {whole.begin() + 2, whole.end()}; }

  TemporaryFolder folder;
  LoopOptions options = loop_options(4);
  std::vector<double> whole;  // its losses
  std::vector<std::string> notes;
};

TEST_F(FinishedRun, ResumeFallsBackOverADamagedCheckpointAndSaysSo) {
  cut_off(4, "state.bin");
  const RunResult rest = resume();
  EXPECT_THAT(notes, ElementsAre(HasSubstr("step-00000004/state.bin: truncated"), HasSubstr("resumed after step 2")));
  EXPECT_EQ(losses(rest), from_step_3());
}

TEST(TrainLoop, ResumeRefusesAnotherRun) {
  TemporaryFolder folder;
  LoopOptions o = loop_options(4);
  o.checkpoint_dir = (folder / "c").string();
  ToyTrainer first(toy_options());
  train(first, o, {});
  EXPECT_INPUT_ERROR(train(first, o, {}), "--checkpoints", "step 4", "--resume");
  o.resume = true;
  o.steps = 8;
  LoopOptions other = o;
  other.seed = 1;
  EXPECT_INPUT_ERROR(train(first, other, {}), "other data, seed or order");
  other = o;
  other.accumulation = 2;
  EXPECT_INPUT_ERROR(train(first, other, {}), "--accumulation 1", "2 of this run");
  ToyTrainer wider(toy_options(4));
  EXPECT_INPUT_ERROR(train(wider, o, {}), "--batch-size 2", "4 of this run");
  ToyTrainer longer(toy_options(2, 16));
  EXPECT_INPUT_ERROR(train(longer, o, {}), "--seq-len 8", "16 of this run");
  TrainerOptions deeper = toy_options();
  deeper.model.layers = 2;
  ToyTrainer deep(deeper);
  EXPECT_INPUT_ERROR(train(deep, o, {}), "1 layers", "2 layers");
  // Each of these is found before a trainer is built, too.
  o.steps = 4;
  EXPECT_INPUT_ERROR(finished_before(deeper, "reference", o), "1 layers", "2 layers");
  EXPECT_INPUT_ERROR(finished_before(toy_options(), "mixed", o), "saved by --trainer reference", "this run's mixed");
}

TEST(TrainLoop, ResumeSaysWhatUpdatesTheStepsOtherwiseFromThere) {
  TemporaryFolder folder;
  LoopOptions o = loop_options(2);
  o.checkpoint_dir = folder.path().string();
  ToyTrainer first(toy_options());
  train(first, o, {});
  std::vector<std::string> notes;
  o.on_note = [&](const std::string& text) { notes.push_back(text); };
  o.resume = true;
  o.steps = 3;
  ToyTrainer same(toy_options());
  train(same, o, {});
  EXPECT_THAT(notes, ElementsAre(HasSubstr("resumed after step 2")));
  notes.clear();
  o.steps = 4;
  o.adamw.clip = 0;
  o.adamw.beta2 = 0.5f;
  o.learning_rate.peak = 0.125f;
  o.learning_rate.warmup = 1;
  ToyTrainer other(toy_options());
  train(other, o, {});
  EXPECT_THAT(notes, ElementsAre(::testing::AllOf(HasSubstr("--lr is 0.125 now, it was "), HasSubstr("--lr-warmup is 1 now, it was 3"),
                                                  HasSubstr("--clip is 0 now, it was "), HasSubstr("--beta2 is 0.5 now, it was "),
                                                  ::testing::Not(HasSubstr("--beta1")), ::testing::Not(HasSubstr("--eps"))),
                                 HasSubstr("resumed after step 3")));
}

// What would make --resume worse than useless in a job script that always passes it: dying at the first start and at the last.
TEST(TrainLoop, ResumeBeginsWhereThereIsNothingYetAndEndsWhereNothingIsLeft) {
  TemporaryFolder folder;
  std::filesystem::create_directories(folder / "empty");
  std::filesystem::create_directories(folder / "half" / ".step-00000002.saving-999999-0");  // its writer was killed
  for (const char* name : {"empty", "not there yet", "half"}) {
    SCOPED_TRACE(name);
    LoopOptions o = loop_options(4);
    o.checkpoint_dir = (folder / name).string();
    o.checkpoint_every = 2;
    o.run_json = (folder / "run.json").string();
    o.resume = true;
    std::vector<std::string> notes;
    o.on_note = [&](const std::string& text) { notes.push_back(text); };
    EXPECT_FALSE(finished_before(toy_options(), "reference", o));
    ToyTrainer fresh(toy_options()), never(toy_options());
    const auto first = train(fresh, o, {});
    EXPECT_THAT(notes, ElementsAre(HasSubstr("yet; the run starts at step 1")));
    EXPECT_EQ(losses(first), losses(train(never, loop_options(4), {})));

    const auto run_json = json_at(o.run_json);
    notes.clear();
    EXPECT_THAT(*finished_before(toy_options(), "reference", o), HasSubstr("finished: " + o.checkpoint_dir + "/step-00000004"));
    ToyTrainer again(toy_options());
    EXPECT_TRUE(train(again, o, {}).steps.empty());
    EXPECT_TRUE(again.seen.empty());
    EXPECT_THAT(notes, ElementsAre(::testing::AllOf(HasSubstr("this run is finished"), HasSubstr("is of step 4, --steps 4"))));
    EXPECT_EQ(json_at(o.run_json), run_json) << "the record of the steps that ran must not become one of none";
    EXPECT_EQ(CheckpointStore(o.checkpoint_dir, 2).steps(), (std::vector<int64_t>{2, 4}));
    o.steps = 3;
    EXPECT_TRUE(finished_before(toy_options(), "reference", o)) << "beyond the last step";
    o.steps = 5;
    EXPECT_FALSE(finished_before(toy_options(), "reference", o));
  }
}

TEST_F(FinishedRun, AFolderWithOnlyDamagedCheckpointsIsNoFreshStart) {
  for (const int64_t step : store().steps()) cut_off(step, "model.bin");
  for (const int64_t steps : {4, 8}) {
    options.steps = steps;
    EXPECT_INPUT_ERROR(resume(), "--resume: no checkpoint in", "step-00000004", "step-00000002");
  }
  options.steps = 4;
  EXPECT_INPUT_ERROR(finished_before(toy_options(), "reference", options), "no checkpoint in");
}

// The newest is of the last step but damaged: the run is not finished, it goes on from the one before.
TEST_F(FinishedRun, ADamagedLastCheckpointDoesNotFinishIt) {
  cut_off(4, "state.bin");
  EXPECT_FALSE(finished_before(toy_options(), "reference", options));
  EXPECT_THAT(notes, ElementsAre()) << "said when the run resumes, not twice";
  EXPECT_EQ(losses(resume()), from_step_3());
}

TEST_F(FinishedRun, ACheckpointOfAnotherTrainerIsRefused) {
  TrainingState state = store().load(4).state;
  EXPECT_EQ(state.trainer, "reference");
  state.trainer = "mixed";
  save_training_state(store().path_of(4) / "state.bin", state);
  options.steps = 8;
  EXPECT_INPUT_ERROR(resume(), "--trainer mixed", "this run's reference", "--model", "model.bin");
  state.trainer = "";  // a file of version 1 does not say
  save_training_state(store().path_of(4) / "state.bin", state);
  EXPECT_EQ(resume().steps.size(), 4u);
}

TEST_F(FinishedRun, TheSameBatchEveryStepIsOtherData) {
  options.steps = 8;
  options.overfit = true;
  EXPECT_INPUT_ERROR(resume(), "was trained without --overfit");
  options.overfit = false;
  EXPECT_EQ(resume().steps.size(), 4u);
}

TEST(TrainLoop, ALossThatIsNotFiniteStopsTheRunAndNamesTheStep) {
  TemporaryFolder folder;
  ToyTrainer trainer(toy_options());
  trainer.diverge_at = 3;
  LoopOptions o = loop_options(10);
  o.run_json = (folder / "run.json").string();
  o.checkpoint_dir = (folder / "c").string();
  int logged = 0;
  try {
    train(trainer, o, [&](const StepLog&) { ++logged; });
    FAIL() << "training went on";
  } catch (const TrainingDiverged& e) {
    EXPECT_THAT(e.what(), HasSubstr("step 3: loss is nan"));
  }
  EXPECT_EQ(logged, 2);
  EXPECT_TRUE(CheckpointStore(o.checkpoint_dir, 1).steps().empty()) << "a diverged model is not saved";
  const auto run = json_at(o.run_json);
  EXPECT_THAT(run["stopped"].get<std::string>(), HasSubstr("step 3"));
  ASSERT_EQ(run["steps"].size(), 3u);
  EXPECT_FALSE(run["steps"][2].contains("loss"));
}

// The disk was full, and that was all that a user heard of a loss that was nan.
TEST(TrainLoop, ALossThatIsNotFiniteIsTheReasonAlsoWhereRunJsonDoesNotFit) {
  ToyTrainer trainer(toy_options());
  trainer.diverge_at = 3;
  LoopOptions o = loop_options(10);
  o.run_json = "/dev/full";
  EXPECT_THAT([&] { train(trainer, o, {}); }, ::testing::ThrowsMessage<TrainingDiverged>(HasSubstr("step 3: loss is nan")));
}

TEST(TrainLoop, AGradientNormThatIsNotFiniteStopsTheRunToo) {
  ToyTrainer trainer(toy_options());
  trainer.norm_diverges_at = 2;
  try {
    train(trainer, loop_options(10), {});
    FAIL() << "training went on";
  } catch (const TrainingDiverged& e) {
    EXPECT_THAT(e.what(), HasSubstr("step 2:"));
    EXPECT_THAT(e.what(), HasSubstr("gradient norm inf"));
  }
}

TEST(TrainLoop, ExactlyTheStepsToBeCountedLaunchDirectly) {
  ToyTrainer trainer(toy_options());
  LoopOptions o = loop_options(9);
  o.direct_from = 4;
  o.direct_steps = 2;
  train(trainer, o, {});
  EXPECT_THAT(trainer.direct, ElementsAre(4, 5));
}

TEST(TrainLoop, EachValidationBeginsAtTheSameBatchAndIsAMeanOfWhatItSaw) {
  TemporaryFolder folder;
  const std::string file = make_shard(folder / "val.bin", 50).string();  // 3 batches
  for (const bool synthetic : {false, true})
    for (const int64_t wanted : {2, 8}) {
      ToyTrainer trainer(toy_options());
      LoopOptions o = loop_options(4);
      o.val_every = 2;
      o.val_batches = wanted;
      if (!synthetic) o.val_data = {file};
      const RunResult r = train(trainer, o, {});
      const size_t count = synthetic ? static_cast<size_t>(wanted) : std::min<size_t>(static_cast<size_t>(wanted), 3);
      const auto& e = trainer.evaluated;
      ASSERT_EQ(e.size(), 2 * count);
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(e[i], e[i + count]) << i;
      // The toy's loss of any batch is the sum of its parameters.
      std::vector<float> p(static_cast<size_t>(tensor_layout(toy_options().model).total));
      trainer.read(State::parameters, p);
      EXPECT_NEAR(r.val_losses.back(), std::accumulate(p.begin(), p.end(), 0.0), 1e-9);
    }
}

TEST(TrainLoop, SamplesDifferFromStepToStepAndRepeatWithTheSeed) {
  const auto samples = [](uint64_t seed) {
    ToyTrainer trainer(toy_options());
    LoopOptions o = loop_options(4);
    o.seed = seed;
    o.sample_every = 2;
    o.sample_tokens = 40;
    o.sample_temperature = 2;
    std::vector<std::string> texts;
    o.on_sample = [&](int64_t, const std::string& text) { texts.push_back(text); };
    train(trainer, o, {});
    return texts;
  };
  const auto first = samples(1);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_NE(first[0], first[1]);
  EXPECT_EQ(samples(1), first);
  EXPECT_NE(samples(2)[0], first[0]);
}

TEST(TrainLoop, ValidationSeesTheSameHeldOutBatchesEachTimeAndNoneTwice) {
  TemporaryFolder folder;
  ToyTrainer trainer(toy_options());
  LoopOptions o = loop_options(5);
  o.val_every = 2;
  o.val_batches = 8;
  o.val_data = {make_shard(folder / "val.bin", 50).string()};  // 3 batches
  std::vector<int64_t> at;
  o.on_validation = [&](int64_t step, double) { at.push_back(step); };
  const RunResult r = train(trainer, o, {});
  EXPECT_THAT(at, ElementsAre(2, 4, 5));
  ASSERT_EQ(r.val_losses.size(), 3u);
  const auto& e = trainer.evaluated;
  ASSERT_EQ(e.size(), 9u);
  EXPECT_NE(e[0], e[1]);
  EXPECT_EQ(e[0], e[3]);
  EXPECT_EQ(e[2], e[8]);
}

TEST(TrainLoop, SamplesAreTextWithATokenizerAndTokenIdsWithout) {
  TemporaryFolder folder;
  std::vector<std::string> words;
  for (int i = 0; i < 50; ++i) words.push_back("w" + std::to_string(i) + " ");
  write_tokenizer(folder / "t.bin", words, 48);
  for (bool with : {true, false}) {
    ToyTrainer trainer(toy_options());
    LoopOptions o = loop_options(4);
    o.sample_every = 4;
    o.sample_tokens = 3;
    o.sample_temperature = 0;
    if (with) o.tokenizer = (folder / "t.bin").string();
    std::vector<std::string> samples;
    o.on_sample = [&](int64_t, const std::string& text) { samples.push_back(text); };
    train(trainer, o, {});
    EXPECT_THAT(samples, ElementsAre(with ? "w49 w0 w1 " : "1 2 3"));
  }
}

TEST(TrainLoop, RunJsonHoldsWhatAProfileNeeds) {
  TemporaryFolder folder;
  TrainerOptions t = toy_options();
  t.variants = {{"gelu_forward", "fused"}};
  ToyTrainer trainer(t);
  LoopOptions o = loop_options(3);
  o.run_json = (folder / "run.json").string();
  o.command = "stepscope train --steps 3";
  o.accumulation = 2;
  o.val_every = 3;
  const RunResult r = train(trainer, o, {});
  const auto run = json_at(o.run_json);
  EXPECT_EQ(run["schema"], "stepscope.run/1");
  EXPECT_EQ(run["command"], o.command);
  EXPECT_EQ(run["trainer"], "reference");
  EXPECT_EQ(run["device"], "toy");
  EXPECT_EQ(run["model"]["channels"], 8);
  EXPECT_EQ(run["batch_size"], 2);
  EXPECT_EQ(run["seq_len"], 8);
  EXPECT_EQ(run["accumulation"], 2);
  EXPECT_EQ(run["matmul"], "fp32");
  EXPECT_EQ(run["variants"]["gelu_forward"], "fused");
  EXPECT_EQ(run["seed"], 1337);
  EXPECT_EQ(run["data"][0], "synthetic");
  EXPECT_EQ(run["parameters"], tensor_layout(t.model).total);
  EXPECT_EQ(run["tokens_per_step"], 32);
  EXPECT_GT(run["model_flops"].get<double>(), 0);
  EXPECT_EQ(run["memory"][0]["name"], "parameters");
  ASSERT_EQ(run["steps"].size(), 3u);
  EXPECT_EQ(run["steps"][1]["step"], 2);
  EXPECT_EQ(run["steps"][1]["loss"].get<double>(), r.steps[1].outcome.loss);
  EXPECT_EQ(run["steps"][1]["time_ns"], 1e6);
  EXPECT_EQ(run["validation"][0]["step"], 3);
  EXPECT_FALSE(run.contains("stopped"));
  ASSERT_FALSE(run["work"].empty());
  bool attention = false;
  for (const auto& w : run["work"]) {
    EXPECT_TRUE(w["flops"].is_number() && w["min_bytes"].is_number());
    attention |= w["path"] == "backward/0/attention" && w["layer"] == 0 && w["op"] == "attention" && w["pass"] == "backward";
  }
  EXPECT_TRUE(attention);
}

TEST(TrainLoop, BadInputIsRefusedBeforeTheFirstStep) {
  TemporaryFolder folder;
  std::ofstream(folder / "file") << "x";
  const TrainerOptions t = toy_options();
  auto refused = [&](const TrainerOptions& trainer_options, auto change, std::initializer_list<const char*> parts) {
    LoopOptions o = loop_options(3);
    change(o);
    try {
      check_run(trainer_options, o);
      ADD_FAILURE() << "accepted, expected an error with " << *parts.begin();
    } catch (const stepscope::InputError& e) {
      for (const char* part : parts) EXPECT_THAT(e.what(), HasSubstr(part));
    }
  };
  auto same = [](LoopOptions&) {};
  check_run(t, loop_options(3));
  refused(toy_options(0), same, {"--batch-size 0"});
  refused(toy_options(1, 0), same, {"--seq-len 0"});
  refused(toy_options(1, 17), same, {"--seq-len 17", "at most 16"});
  refused(toy_options(int64_t{1} << 60, 16), same, {"--batch-size"});
  refused(t, [](auto& o) { o.accumulation = int64_t{1} << 60; }, {"--accumulation"});
  refused(t, [](auto& o) { o.accumulation = 0; }, {"--accumulation 0"});
  refused(t, [](auto& o) { o.steps = 0; }, {"--steps 0"});
  refused(t, [](auto& o) { o.learning_rate.peak = std::numeric_limits<float>::quiet_NaN(); }, {"--lr"});
  refused(t, [](auto& o) { o.learning_rate.schedule = "step"; }, {"step", "wsd"});
  refused(t, [](auto& o) { o.adamw.beta2 = 1.0f; }, {"--beta2"});
  refused(t, [](auto& o) { o.val_every = 1, o.val_batches = 0; }, {"--val-batches 0"});
  refused(t, [](auto& o) { o.checkpoint_every = 2; }, {"--checkpoint-every"});
  refused(t, [](auto& o) { o.resume = true; }, {"--resume"});
  refused(t, [](auto& o) { o.data = {"/nonexistent/*.bin"}; }, {"/nonexistent/*.bin"});
  refused(t, [&](auto& o) { o.data = {(folder / "file").string()}; }, {"file", "truncated"});
  refused(t, [&](auto& o) { o.checkpoint_dir = (folder / "file").string(); }, {"file"});
  refused(t, [&](auto& o) { o.run_json = (folder / "none" / "run.json").string(); }, {"--run-json", "none/run.json"});
  refused(t, [&](auto& o) { o.tokenizer = (folder / "none").string(); }, {"none", "No such file"});
  refused(t,
          [&](auto& o) {
            o.data = {make_shard(folder / "s.bin").string()};
            o.val_every = 1;
          },
          {"--val-every", "--val-data"});
  write_token_shard(folder / "ids.bin", std::vector<uint16_t>(100, 50));
  refused(t, [&](auto& o) { o.data = {(folder / "ids.bin").string()}; }, {"ids.bin", "id 50", "0 to 49"});
}

}  // namespace
}  // namespace gpt2

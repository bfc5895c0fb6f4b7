// The training loop and the reference trainer on ranks that are threads: the same rows, the same mathematics, the same files for any
// number of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/checksum.h"
#include "gpt2/data/eval_set.h"
#include "gpt2/data/token_shards.h"
#include "gpt2/distributed/staged_communicator.h"
#include "gpt2/reference/reference_trainer.h"
#include "gpt2/replicas.h"
#include "gpt2/train_loop.h"
#include "gpt2/training_state.h"
#include "tests/distributed/ranks_in_threads.h"
#include "tests/gpt2/toy_trainer.h"
#include "tests/temporary_folder.h"

namespace gpt2 {
namespace {
using distributed::Communicator;
using gpt2::testing::in_ranks;
using gpt2::testing::toy_options;
using gpt2::testing::ToyTrainer;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

LoopOptions loop_options(int64_t steps, int64_t accumulation) {
  LoopOptions o;
  o.data = {"synthetic"};
  o.steps = steps;
  o.accumulation = accumulation;
  o.learning_rate = {"constant", 1e-2f, 0, 0, 100};
  return o;
}

struct Trained {
  RunResult result;
  std::vector<float> parameters;
  std::string error;
  int diverged_on = -2;  // -2: it did not
};
using Wrap = std::function<std::unique_ptr<Trainer>(std::unique_ptr<Trainer>, int rank)>;

// The reference trainer on so many ranks; one without any communicator where `ranks` is 1.
std::vector<Trained> run_reference(int ranks, const LoopOptions& options, const Wrap& wrap = {}) {
  auto channels = distributed::make_thread_channels(ranks);
  std::vector<Trained> runs(static_cast<size_t>(ranks));
  const auto errors = in_ranks(ranks, [&](int r) {
#ifdef _OPENMP
    omp_set_num_threads(1);
#endif
    Trained& run = runs[static_cast<size_t>(r)];
    distributed::ControlChannel* channel = ranks == 1 ? nullptr : channels[static_cast<size_t>(r)].get();
    const auto communicator = channel ? distributed::make_staged(*channel, "threads") : nullptr;
    TrainerOptions t = toy_options();
    t.communicator = communicator.get();
    LoopOptions o = options;
    o.channel = channel;
    try {
      auto trainer = make_reference_trainer(t);
      trainer->write(State::parameters, init_parameters(t.model, 3));
      if (wrap) trainer = wrap(std::move(trainer), r);
      run.result = train(*trainer, o, {});
      run.parameters.resize(static_cast<size_t>(tensor_layout(t.model).total));
      trainer->read(State::parameters, run.parameters);
    } catch (const TrainingDiverged& e) {
      run.diverged_on = e.rank;
      throw;
    } catch (const distributed::RankFailure&) {
      throw;  // all have it
    } catch (...) {
      if (channel) channel->abort();
      throw;
    }
  });
  for (int r = 0; r < ranks; ++r) runs[static_cast<size_t>(r)].error = errors[static_cast<size_t>(r)];
  return runs;
}
std::vector<double> losses(const Trained& run) {
  std::vector<double> l;
  for (const StepLog& s : run.result.steps) l.push_back(s.outcome.loss);
  return l;
}

// Forwards to another trainer; tests change one thing.
struct Forwarding : Trainer {
  explicit Forwarding(std::unique_ptr<Trainer> t) : inner(std::move(t)) {}
  const TrainerOptions& options() const override { return inner->options(); }
  std::string_view name() const override { return inner->name(); }
  std::string device() const override { return inner->device(); }
  void read(State which, std::span<float> values) override { inner->read(which, values); }
  void write(State which, std::span<const float> values) override { inner->write(which, values); }
  void enqueue_step(const StepPlan& plan) override { inner->enqueue_step(plan); }
  StepOutcome finish_step() override { return inner->finish_step(); }
  double evaluate(const Batch& batch, std::span<float> logits) override { return inner->evaluate(batch, logits); }
  double forward_backward(const Batch& batch, std::span<float> logits) override { return inner->forward_backward(batch, logits); }
  std::vector<MemoryItem> memory() const override { return inner->memory(); }
  std::unique_ptr<Trainer> inner;
};

std::filesystem::path make_shard(const std::filesystem::path& path, size_t tokens) {
  std::vector<uint16_t> ids(tokens);
  for (size_t i = 0; i < tokens; ++i) ids[i] = static_cast<uint16_t>((i * i + tokens) % 50);
  write_token_shard(path, ids);
  return path;
}

// ---- data ---------------------------------------------------------------------------------------------------------------------------
TEST(RanksData, TogetherTheRanksReadWhatOneReadsInTheSameOrder) {
  const auto folder = fresh_test_folder();
  // 12 micro-batches of 2 x 8 tokens a step; shards of 15, 3 and 9 batches, so that epochs and shards end inside steps.
  const std::vector<std::string> shards{make_shard(folder / "a", 15 * 16 + 9).string(), make_shard(folder / "b", 3 * 16 + 1).string(),
                                        make_shard(folder / "c", 9 * 16 + 5).string()};
  for (const auto& data : {shards, std::vector<std::string>{"synthetic"}}) {
    for (const bool shuffle : {true, false}) {
      LoopOptions o = loop_options(5, 12);
      o.data = data;
      o.shuffle = shuffle;
      ToyTrainer one(toy_options());
      train(one, o, {});
      for (const int ranks : {1, 2, 3, 4, 6, 12}) {
        auto channels = distributed::make_thread_channels(ranks);
        std::vector<std::vector<int32_t>> seen(static_cast<size_t>(ranks));
        const auto errors = in_ranks(ranks, [&](int r) {
          LoopOptions mine = o;
          mine.accumulation = 12 / ranks;
          mine.channel = channels[static_cast<size_t>(r)].get();
          ToyTrainer trainer(toy_options());
          train(trainer, mine, {});
          seen[static_cast<size_t>(r)] = trainer.seen;
        });
        ASSERT_THAT(errors, Each(""));
        std::vector<int32_t> together;
        for (size_t at = 0; at < seen[0].size(); at += 16)
          for (const auto& rank : seen)
            together.insert(together.end(), rank.begin() + static_cast<ptrdiff_t>(at), rank.begin() + static_cast<ptrdiff_t>(at) + 16);
        EXPECT_EQ(together, one.seen) << ranks << " ranks";
      }
    }
  }
  std::filesystem::remove_all(folder);
}

// What each of two ranks ends with that read a shard of `tokens` tokens and one of `others` by another name.
std::vector<std::string> errors_of_two_files(int64_t tokens, int64_t others) {
  const auto folder = fresh_test_folder();
  make_shard(folder / "a", tokens);
  make_shard(folder / "b", others);
  auto channels = distributed::make_thread_channels(2);
  const auto errors = in_ranks(2, [&](int r) {
    LoopOptions o = loop_options(1, 1);
    o.data = {(folder / (r == 0 ? "a" : "b")).string()};
    o.channel = channels[static_cast<size_t>(r)].get();
    ToyTrainer trainer(toy_options());
    train(trainer, o, {});
  });
  std::filesystem::remove_all(folder);
  return errors;
}

TEST(RanksData, OtherDataOnOneRankIsRefusedBeforeTheFirstStep) {
  EXPECT_THAT(errors_of_two_files(200, 201), Each(HasSubstr("the ranks differ in the training data")));
}

// "Another path may lead to the same tokens": it was refused, though checkpoints go on from there.
TEST(RanksData, TheSameDataByAnotherNameOnOneRankIsTheSame) { EXPECT_THAT(errors_of_two_files(200, 200), Each("")); }

// ---- the same mathematics -------------------------------------------------------------------------------------------------------------
TEST(RanksTrain, AnyNumberTrainsAsOneDoesOnTheSameRows) {
  // Bitwise: the first loss, which is a sum of the micro-batches' losses in their order; and all ranks among themselves. Later losses
  // follow weights whose gradients were added in another order: one rank adds every row's product in turn, several add finished sums.
  for (const int64_t micro_batches : {4, 6}) {
    const Trained one = run_reference(1, loop_options(6, micro_batches))[0];
    for (const int ranks : {2, 3, 4, 6}) {
      if (micro_batches % ranks != 0) continue;
      const auto several = run_reference(ranks, loop_options(6, micro_batches / ranks));
      for (const Trained& run : several) {
        ASSERT_EQ(run.error, "");
        EXPECT_EQ(losses(run), losses(several[0]));
        EXPECT_EQ(run.parameters, several[0].parameters);
        EXPECT_EQ(losses(run)[0], losses(one)[0]);
        for (size_t i = 0; i < 6; ++i) {
          EXPECT_NEAR(losses(run)[i], losses(one)[i], 2e-5) << ranks << " ranks, step " << i + 1;
          EXPECT_NEAR(run.result.steps[i].outcome.grad_norm, one.result.steps[i].outcome.grad_norm,
                      1e-3 * one.result.steps[i].outcome.grad_norm);
          EXPECT_EQ(run.result.steps[i].tokens_per_s > 0, true);
        }
      }
      EXPECT_EQ(losses(run_reference(ranks, loop_options(6, micro_batches / ranks))[0]), losses(several[0]));  // bitwise again
    }
  }
}

TEST(RanksTrain, EightRanksOfOneMicroBatch) {
  const Trained one = run_reference(1, loop_options(3, 8))[0];
  const auto eight = run_reference(8, loop_options(3, 1));
  EXPECT_EQ(losses(eight[7])[0], losses(one)[0]);
  EXPECT_NEAR(losses(eight[7])[2], losses(one)[2], 2e-5);
}

struct Counting final : Communicator {
  Counting(Communicator& c, int& n) : inner(c), calls(n) {}
  const distributed::World& world() const override { return inner.world(); }
  void enqueue(const distributed::Collective& c, void* data, void* stream) override {
    ++calls;
    inner.enqueue(c, data, stream);
  }
  bool memory_is_host() const override { return true; }
  bool is_asynchronous() const override { return false; }
  std::string name() const override { return "counting"; }
  std::optional<distributed::Failure> failure() override { return std::nullopt; }
  void abort() noexcept override {}
  Communicator& inner;
  int& calls;
};

TEST(RanksTrain, AccumulationCommunicatesOnce) {
  for (const int64_t accumulation : {1, 3}) {
    auto channels = distributed::make_thread_channels(2);
    std::vector<int> calls(2);
    in_ranks(2, [&](int r) {
      const auto staged = distributed::make_staged(*channels[static_cast<size_t>(r)]);
      Counting communicator(*staged, calls[static_cast<size_t>(r)]);
      TrainerOptions t = toy_options();
      t.communicator = &communicator;
      LoopOptions o = loop_options(5, accumulation);
      o.channel = channels[static_cast<size_t>(r)].get();
      train(*make_reference_trainer(t), o, {});
    });
    EXPECT_THAT(calls, Each(5 * 2));  // gradients, and the losses of the micro-batches
  }
}

TEST(RanksTrain, ValidationHasTheSameBitsForAnyNumber) {
  LoopOptions o = loop_options(2, 1);
  o.learning_rate.peak = 0;  // the same weights, so that only the validation itself can differ
  o.val_every = 1;
  o.val_batches = 7;
  const Trained one = run_reference(1, o)[0];
  ASSERT_EQ(one.result.val_losses.size(), 2u);
  for (const int ranks : {2, 3, 5, 8})
    for (const Trained& run : run_reference(ranks, o)) EXPECT_EQ(run.result.val_losses, one.result.val_losses) << ranks;
}

// ---- checkpoints ------------------------------------------------------------------------------------------------------------------------
TEST(RanksCheckpoint, IsReadAtAnyNumberAndBack) {
  const auto folder = fresh_test_folder();
  const Trained whole = run_reference(1, loop_options(6, 4))[0];
  const auto whole2 = run_reference(2, loop_options(6, 2));
  for (const auto& path : std::vector<std::array<int, 3>>{{2, 1, 2}, {1, 4, 1}, {4, 2, 1}, {2, 2, 2}}) {
    LoopOptions o = loop_options(2, 0);
    o.checkpoint_dir = (folder / std::to_string(path[0] * 100 + path[1] * 10 + path[2])).string();
    std::vector<Trained> last;
    for (const int ranks : path) {
      o.accumulation = 4 / ranks;
      last = run_reference(ranks, o);
      ASSERT_EQ(last[0].error, "");
      ASSERT_EQ(last[0].result.steps.size(), 2u);
      o.resume = true;
      o.steps += 2;
    }
    for (const Trained& run : last) {
      EXPECT_EQ(run.result.steps[1].outcome.step, 6);
      EXPECT_NEAR(losses(run)[1], losses(whole)[5], 2e-5);
      if (path == std::array<int, 3>{2, 2, 2}) {
        EXPECT_EQ(losses(run)[1], losses(whole2[0])[5]);  // bitwise the one that never stopped
      }
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(RanksCheckpoint, ASecondRunOfAnotherGlobalBatchIsRefusedOnAll) {
  const auto folder = fresh_test_folder();
  LoopOptions o = loop_options(1, 2);
  o.checkpoint_dir = folder.string();
  ASSERT_EQ(run_reference(2, o)[0].error, "");
  o.resume = true;
  o.steps = 2;
  for (const Trained& run : run_reference(4, o))
    EXPECT_THAT(run.error, AllOf(HasSubstr("ranks x --accumulation 4"), HasSubstr("the 8 of this run")));
  o.accumulation = 1;
  EXPECT_EQ(run_reference(4, o)[3].error, "");
  std::filesystem::remove_all(folder);
}

TEST(RanksCheckpoint, WeightsThatDifferAreNotSaved) {
  const auto folder = fresh_test_folder();
  struct Flipping final : Forwarding {
    using Forwarding::Forwarding;
    void enqueue_step(const StepPlan& plan) override {
      if (plan.step == 2) {
        std::vector<float> p(static_cast<size_t>(tensor_layout(options().model).total));
        read(State::parameters, p);
        p[5] += 0.25f;  // a bit of the exponent
        write(State::parameters, p);
      }
      inner->enqueue_step(plan);
    }
  };
  LoopOptions o = loop_options(3, 1);
  o.checkpoint_dir = (folder / "run").string();
  const auto runs = run_reference(3, o, [](std::unique_ptr<Trainer> t, int rank) -> std::unique_ptr<Trainer> {
    if (rank != 1) return t;
    return std::make_unique<Flipping>(std::move(t));
  });
  for (const Trained& run : runs)
    EXPECT_THAT(run.error, HasSubstr("the weights of rank 1 differ from those of the others after step 3, so nothing was saved"));
  EXPECT_TRUE(CheckpointStore(folder / "run", 9).steps().empty());
  std::filesystem::remove_all(folder);
}

// Rank 0 alone answers the questions. Where ranks gather weights at the head of the next step, that needs the gathering now, of every rank:
// one that goes on to its next step meets rank 0 with another exchange.
TEST(RanksTrain, AllBringTheirWeightsTogetherBeforeOneEvaluates) {
  struct Gathering final : Forwarding {
    Gathering(std::unique_ptr<Trainer> t, std::vector<int64_t>& steps) : Forwarding(std::move(t)), gathered_after(steps) {}
    StepOutcome finish_step() override {
      const StepOutcome outcome = inner->finish_step();
      finished = outcome.step;
      return outcome;
    }
    void complete_weights() override { gathered_after.push_back(finished); }
    std::vector<int64_t>& gathered_after;
    int64_t finished = 0;
  };
  const auto folder = fresh_test_folder();
  write_eval_set(folder / "questions.bin", std::vector<EvalExample>{{1, {3, 4}, {{5}, {6}}}});
  // With a limit of losses every step is finished at once, so that none is left to finish where the weights are asked for.
  for (const double loss_limit : {0.0, 5.0}) {
    SCOPED_TRACE(loss_limit);
    LoopOptions o = loop_options(9, 1);
    o.skip_loss_outliers = loss_limit;
    o.eval_set = (folder / "questions.bin").string();
    o.eval_every = 4;
    o.sample_every = 3;  // rank 0 alone writes
    o.val_every = 7;
    o.val_data = {"synthetic"};
    o.val_batches = 1;  // and so do ranks 1 and 2 have none to validate with
    std::vector<std::vector<int64_t>> gathered_after(3);
    const auto runs = run_reference(3, o, [&](std::unique_ptr<Trainer> t, int rank) {
      return std::make_unique<Gathering>(std::move(t), gathered_after[static_cast<size_t>(rank)]);
    });
    for (size_t r = 0; r < runs.size(); ++r) {
      EXPECT_EQ(runs[r].error, "");
      EXPECT_THAT(gathered_after[r], ::testing::ElementsAre(3, 4, 6, 7, 8, 9)) << "rank " << r;
      EXPECT_EQ(runs[r].result.accuracies.size(), r == 0 ? 3u : 0u);
      EXPECT_EQ(runs[r].result.val_losses.size(), 2u) << "and after the last step";
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(RanksTrain, OtherWeightsOnOneRankAreRefusedBeforeTheFirstStep) {
  const auto runs = run_reference(3, loop_options(1, 1), [](std::unique_ptr<Trainer> t, int rank) {
    t->write(State::parameters, init_parameters(t->options().model, rank == 2 ? 4 : 3));
    return t;
  });
  for (const Trained& run : runs)
    EXPECT_THAT(run.error, HasSubstr("the weights of rank 2 differ from those of the others before the first step"));
}

// ---- one rank that is ill -----------------------------------------------------------------------------------------------------------------
TEST(RanksFailure, NotANumberOnOneRankStopsAllAtThatStepAndNamesIt) {
  struct Poisoned final : Forwarding {
    using Forwarding::Forwarding;
    void enqueue_step(const StepPlan& plan) override {
      if (plan.step == 3) write(State::parameters, std::vector<float>(static_cast<size_t>(tensor_layout(options().model).total), NAN));
      inner->enqueue_step(plan);
    }
  };
  const auto folder = fresh_test_folder();
  LoopOptions o = loop_options(9, 2);
  o.run_json = (folder / "run.json").string();
  const auto runs = run_reference(3, o, [](std::unique_ptr<Trainer> t, int rank) -> std::unique_ptr<Trainer> {
    if (rank != 1) return t;
    return std::make_unique<Poisoned>(std::move(t));
  });
  for (const Trained& run : runs) {
    EXPECT_EQ(run.diverged_on, 1);
    EXPECT_THAT(run.error, AllOf(HasSubstr("step 3: "), HasSubstr("on rank 1 first")));
  }
  for (const char* name : {"run.json", "run.rank1.json", "run.rank2.json"}) EXPECT_TRUE(std::filesystem::exists(folder / name)) << name;
  std::filesystem::remove_all(folder);
}

// Too large a learning rate makes nan on all at once: the rank that is named is the first of them, and no other is worse.
TEST(RanksFailure, OfSeveralThatAreNotFiniteInOneStepTheFirstIsNamed) {
  struct Poisoned final : Forwarding {
    using Forwarding::Forwarding;
    void enqueue_step(const StepPlan& plan) override {
      if (plan.step == 2) write(State::parameters, std::vector<float>(static_cast<size_t>(tensor_layout(options().model).total), NAN));
      inner->enqueue_step(plan);
    }
  };
  for (const std::vector<int>& ill : std::vector<std::vector<int>>{{1, 2}, {0, 2}, {0, 1, 2}, {2}}) {
    const auto runs = run_reference(3, loop_options(4, 2), [&](std::unique_ptr<Trainer> t, int rank) -> std::unique_ptr<Trainer> {
      if (std::find(ill.begin(), ill.end(), rank) == ill.end()) return t;
      return std::make_unique<Poisoned>(std::move(t));
    });
    for (const Trained& run : runs) {
      EXPECT_EQ(run.diverged_on, ill.front());
      EXPECT_THAT(run.error, AllOf(HasSubstr("step 2: "), HasSubstr("on rank " + std::to_string(ill.front()) + " first")));
    }
  }
}

TEST(RanksFiles, HaveTheRankBeforeTheEnding) {
  EXPECT_EQ(rank_file("a/run.json", 0), "a/run.json");
  EXPECT_EQ(rank_file("a/run.json", 12), "a/run.rank12.json");
  EXPECT_EQ(rank_file("run", 1), "run.rank1");
  EXPECT_EQ(rank_file("/dev/null", 0), "/dev/null");
  EXPECT_EQ(rank_file("/dev/null", 1), "") << "root would make a file /dev/null.rank1";
}

}  // namespace
}  // namespace gpt2

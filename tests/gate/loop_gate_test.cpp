// Loops that are wrong in one way each, around the right trainer: what the trainer is handed is what is judged.
#include "experiments/gate/loop_gate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <utility>

#include "experiments/gate/workload.h"
#include "gpt2/reference/reference_trainer.h"

namespace gate {
namespace {

using gpt2::LoopOptions;
using gpt2::RunResult;
using gpt2::StepLog;
using gpt2::StepPlan;
using gpt2::Trainer;
using Log = std::function<void(const StepLog&)>;

// Stands between the loop and the trainer.
class Between : public Trainer {
 public:
  Between(Trainer& real, std::function<void(StepPlan&)> change) : real_(real), change_(std::move(change)) {}
  const gpt2::TrainerOptions& options() const override { return real_.options(); }
  std::string_view name() const override { return real_.name(); }
  std::string device() const override { return real_.device(); }
  std::vector<gpt2::MemoryItem> memory() const override { return real_.memory(); }
  void read(gpt2::State s, std::span<float> v) override { real_.read(s, v); }
  void write(gpt2::State s, std::span<const float> v) override {
    if (s != drops) real_.write(s, v);
  }
  void enqueue_step(const StepPlan& plan) override {
    StepPlan changed = plan;
    if (change_) change_(changed);
    real_.enqueue_step(changed);
  }
  gpt2::StepOutcome finish_step() override { return real_.finish_step(); }
  double evaluate(const gpt2::Batch& b, std::span<float> l) override {
    evaluated.assign(b.inputs.begin(), b.inputs.end());
    return real_.evaluate(evaluates.empty() ? b : gpt2::Batch{evaluates, evaluates}, l);
  }
  double forward_backward(const gpt2::Batch& b, std::span<float> l) override { return real_.forward_backward(b, l); }
  gpt2::State drops = gpt2::State::gradients;  // of write(): the gradients, which nobody writes
  std::vector<int32_t> evaluates;              // instead of what it is handed; empty: that
  std::vector<int32_t> evaluated;              // inputs that it was handed last

 private:
  Trainer& real_;
  std::function<void(StepPlan&)> change_;
};

TrainFunction with(std::function<void(StepPlan&)> change) {
  return [change](Trainer& t, const LoopOptions& o, const Log& log) {
    Between between(t, change);
    return gpt2::train(between, o, log);
  };
}

std::set<std::string> failing(const TrainFunction& train, std::set<std::string> without = {}, LoopGateOptions o = {}) {
  o.seed = 5;
  o.train = train;
  o.wanted = [&](const std::string& name) { return !without.contains(name); };
  gpt2::TrainerOptions t;
  t.model = gate_model();
  t.model.layers = 1;
  t.batch_size = 2;
  t.seq_len = 16;
  std::set<std::string> names;
  int64_t asked = 0;
  for (const CheckResult& r : check_loop([&](int64_t) { return gpt2::make_reference_trainer(t); }, o)) {
    ++asked;
    EXPECT_FALSE(without.contains(r.name));
    if (!r.passed) names.insert(r.name);
  }
  EXPECT_GT(asked, 0);
  return names;
}
using Names = std::set<std::string>;

TEST(LoopGate, TheLoopOfTheProgramPasses) { EXPECT_EQ(failing(gpt2::train), Names{}); }

TEST(LoopGate, AScheduleThatIsOneStepLateIsCaught) {
  const TrainFunction late = [](Trainer& t, const LoopOptions& o, const Log& log) {
    Between between(t, [&](StepPlan& p) { p.adamw.learning_rate = o.learning_rate.at(p.step); });
    return gpt2::train(between, o, log);
  };
  EXPECT_TRUE(failing(late).contains("schedule"));
}

TEST(LoopGate, AScheduleThatIsAnotherOneIsCaught) {
  const TrainFunction other = [](Trainer& t, LoopOptions o, const Log& log) {
    if (o.learning_rate.schedule == "wsd") o.learning_rate.schedule = "linear";
    return gpt2::train(t, o, log);
  };
  EXPECT_TRUE(failing(other).contains("schedule"));
}

// A right rate that comes behind it may not make the judge forget it.
TEST(LoopGate, ARateThatIsNoNumberOnceIsCaught) {
  LoopGateOptions o;
  o.rate_at = [](const gpt2::LearningRate& rate, int64_t step) { return step == 5 ? NAN : rate.at(step); };
  EXPECT_EQ(failing(gpt2::train, {"loader", "loop", "resume", "outliers", "not finite"}, o), Names{"schedule"});
}

TEST(LoopGate, ARunWithoutAStepFollowsNoSchedule) {
  const TrainFunction nothing = [](Trainer&, const LoopOptions&, const Log&) { return RunResult{}; };
  EXPECT_EQ(failing(nothing, {"loader", "loop", "resume", "outliers", "not finite"}), Names{"schedule"});
}

TEST(LoopGate, ALogOfAnotherRateOrNormIsCaught) {
  const auto logs = [](std::function<void(StepLog&)> change) {
    return [change](Trainer& t, const LoopOptions& o, const Log& log) {
      RunResult result = gpt2::train(t, o, log);
      if (!result.steps.empty()) change(result.steps.back());
      return result;
    };
  };
  const Names others{"loader", "resume", "outliers", "not finite"};
  EXPECT_EQ(failing(logs([](StepLog& s) { s.learning_rate = NAN; }), others), Names{"loop"});
  EXPECT_EQ(failing(logs([](StepLog& s) { s.outcome.grad_norm *= 2; }), others), Names{"loop"});
}

// Both shards are left with a rest: a loader that begins the next one with the batch that it had last.
TEST(LoopGate, ABatchThatIsRepeatedAtAShardsEndIsCaught) {
  std::vector<int32_t> last_inputs, last_targets;
  const auto repeats = with([&](StepPlan& p) {
    static gpt2::Batch kept;
    if (p.micro_batches.size() == 1 && p.step == 4 && !last_inputs.empty()) {  // the first file holds three batches
      kept = {last_inputs, last_targets};
      p.micro_batches = {&kept, 1};
    }
    last_inputs.assign(p.micro_batches.back().inputs.begin(), p.micro_batches.back().inputs.end());
    last_targets.assign(p.micro_batches.back().targets.begin(), p.micro_batches.back().targets.end());
  });
  EXPECT_TRUE(failing(repeats).contains("loader"));
}

TEST(LoopGate, TargetsThatAreNotTheNextTokenAreCaught) {
  std::vector<int32_t> wrong;
  gpt2::Batch batch;
  const auto train = with([&](StepPlan& p) {
    if (p.micro_batches.size() != 1) return;
    wrong.assign(p.micro_batches[0].targets.begin(), p.micro_batches[0].targets.end());
    wrong.back() = (wrong.back() + 1) % 509;
    batch = {p.micro_batches[0].inputs, wrong};
    p.micro_batches = {&batch, 1};
  });
  EXPECT_TRUE(failing(train).contains("loader"));
}

// Of three batches an epoch, which the first file has.
TEST(LoopGate, AnOrderOfOneFileThatEveryEpochRepeatsIsCaught) {
  const TrainFunction train = [](Trainer& t, const LoopOptions& o, const Log& log) {
    std::vector<std::vector<int32_t>> inputs, targets;
    gpt2::Batch again;
    Between between(t, [&](StepPlan& p) {
      if (!o.shuffle || o.data.size() != 1 || o.data.front() == "synthetic") return;
      if (p.step > 3) {
        const auto i = static_cast<size_t>(p.step - 1) % 3;
        again = {inputs[i], targets[i]};
        p.micro_batches = {&again, 1};
      } else {
        inputs.emplace_back(p.micro_batches[0].inputs.begin(), p.micro_batches[0].inputs.end());
        targets.emplace_back(p.micro_batches[0].targets.begin(), p.micro_batches[0].targets.end());
      }
    });
    return gpt2::train(between, o, log);
  };
  EXPECT_EQ(failing(train), Names{"loader"});
}

TEST(LoopGate, AValidationThatLeavesItsBatchToAnOverfittingRunIsCaught) {
  const TrainFunction train = [](Trainer& t, const LoopOptions& o, const Log& log) {
    const std::vector<int32_t>* evaluated = nullptr;
    std::vector<gpt2::Batch> batches;
    Between between(t, [&](StepPlan& p) {
      if (!o.overfit || evaluated->empty()) return;
      batches.assign(p.micro_batches.begin(), p.micro_batches.end());
      batches[0] = {*evaluated, *evaluated};
      p.micro_batches = batches;
    });
    evaluated = &between.evaluated;
    return gpt2::train(between, o, log);
  };
  EXPECT_EQ(failing(train), Names{"loop"});
}

TEST(LoopGate, AValidationOfSyntheticDataThatWereTrainedOnIsCaught) {
  const TrainFunction train = [](Trainer& t, const LoopOptions& o, const Log& log) {
    std::vector<int32_t>* seen = nullptr;
    Between between(t, [&](StepPlan& p) {
      if (seen->empty()) seen->assign(p.micro_batches[0].inputs.begin(), p.micro_batches[0].inputs.end());
    });
    std::vector<int32_t> unused;
    seen = o.data.front() == "synthetic" && o.val_every > 0 ? &between.evaluates : &unused;
    return gpt2::train(between, o, log);
  };
  EXPECT_EQ(failing(train), Names{"loop"});
}

TEST(LoopGate, SyntheticDataThatBeginAgainAreCaught) {
  std::vector<int32_t> inputs, targets;
  gpt2::Batch first;
  const TrainFunction train = [&](Trainer& t, const LoopOptions& o, const Log& log) {
    Between between(t, [&](StepPlan& p) {
      if (o.data.front() != "synthetic" || o.val_every == 0) return;
      if (p.step == 1) {
        inputs.assign(p.micro_batches[0].inputs.begin(), p.micro_batches[0].inputs.end());
        targets.assign(p.micro_batches[0].targets.begin(), p.micro_batches[0].targets.end());
        first = {inputs, targets};
      }
      if (p.step == 5) p.micro_batches = {&first, 1};
    });
    return gpt2::train(between, o, log);
  };
  EXPECT_EQ(failing(train), Names{"loop"});
}

TEST(LoopGate, AnotherDecayThanAskedForIsCaught) {
  EXPECT_TRUE(failing(with([](StepPlan& p) { p.adamw.weight_decay = 0; })).contains("loop"));
}

TEST(LoopGate, AStepThatIsCountedFromZeroIsCaught) {
  const TrainFunction train = [](Trainer& t, const LoopOptions& o, const Log& log) {
    struct FromZero : Between {
      using Between::Between;
      void enqueue_step(const StepPlan& p) override {
        StepPlan q = p;
        q.step = p.step - 1 > 0 ? p.step - 1 : 1;
        Between::enqueue_step(q);
      }
      gpt2::StepOutcome finish_step() override {
        gpt2::StepOutcome x = Between::finish_step();
        x.step = ++finished;
        return x;
      }
      int64_t finished = 0;
    } between(t, nullptr);
    if (o.resume) return gpt2::train(t, o, log);
    return gpt2::train(between, o, log);
  };
  EXPECT_TRUE(failing(train).contains("loop"));
}

TEST(LoopGate, AResumedRunThatForgetsTheMomentsIsCaught) {
  const TrainFunction forgets = [](Trainer& t, const LoopOptions& o, const Log& log) {
    Between between(t, nullptr);
    if (o.resume) between.drops = gpt2::State::adam_m;
    return gpt2::train(between, o, log);
  };
  EXPECT_EQ(failing(forgets), Names{"resume"});
}

TEST(LoopGate, AResumedRunThatReadsFromTheFrontAgainIsCaught) {
  std::vector<std::vector<int32_t>> first;
  const TrainFunction train = [&](Trainer& t, const LoopOptions& o, const Log& log) {
    static std::vector<gpt2::Batch> batches;
    Between between(t, [&](StepPlan& p) {
      if (!o.resume) {
        if (p.step == 1) first.clear();
        for (const gpt2::Batch& b : p.micro_batches) {
          first.emplace_back(b.inputs.begin(), b.inputs.end());
          first.emplace_back(b.targets.begin(), b.targets.end());
        }
        return;
      }
      batches.clear();
      for (size_t i = 0; i < p.micro_batches.size(); ++i) batches.push_back({first[2 * i], first[2 * i + 1]});
      p.micro_batches = batches;
    });
    return gpt2::train(between, o, log);
  };
  EXPECT_EQ(failing(train), Names{"resume"});
}

TEST(LoopGate, AResumedScheduleThatBeginsAnewIsCaught) {
  const TrainFunction train = [](Trainer& t, const LoopOptions& o, const Log& log) {
    int64_t n = 0;
    Between between(t, [&](StepPlan& p) {
      if (o.resume) p.adamw.learning_rate = o.learning_rate.at(n++);
    });
    return gpt2::train(between, o, log);
  };
  EXPECT_EQ(failing(train), Names{"resume"});
}

TEST(LoopGate, AnOutlierLimitThatIsNotOfTheStepsBeforeIsCaught) {
  EXPECT_EQ(failing(with([](StepPlan& p) { p.skip_above_loss *= 1.0001; })), Names{"outliers"});
  EXPECT_EQ(failing(with([](StepPlan& p) { p.skip_above_grad_norm = INFINITY; })), Names{"outliers"});
  double before = INFINITY;  // the limit of the step before
  EXPECT_EQ(failing(with([&](StepPlan& p) { std::swap(before, p.skip_above_loss); })), Names{"outliers"});
}

// The same of limits: those of all later steps are right.
TEST(LoopGate, AStepWithoutTheLimitsOfItsNeighboursIsCaught) {
  const Names others{"schedule", "loader", "loop", "resume", "not finite"};
  const auto at_300 = [](std::function<void(StepPlan&)> change) {
    return with([change](StepPlan& p) {
      if (p.step == 300) change(p);
    });
  };
  EXPECT_EQ(failing(at_300([](StepPlan& p) { p.skip_above_loss = INFINITY; }), others), Names{"outliers"});
  EXPECT_EQ(failing(at_300([](StepPlan& p) { p.skip_above_grad_norm = NAN; }), others), Names{"outliers"});
}

TEST(LoopGate, ARunThatGoesOnWithWhatIsNoNumberIsCaught) {
  const TrainFunction train = [](Trainer& t, const LoopOptions& o, const Log& log) {
    struct Hides : Between {
      using Between::Between;
      gpt2::StepOutcome finish_step() override {
        gpt2::StepOutcome x = Between::finish_step();
        if (!std::isfinite(x.grad_norm)) x.grad_norm = 0;
        return x;
      }
    } between(t, nullptr);
    return gpt2::train(between, o, log);
  };
  EXPECT_EQ(failing(train), Names{"not finite"});
}

TEST(LoopGate, ACheckpointOfAStepThatWentWrongIsCaught) {
  const TrainFunction train = [](Trainer& t, const LoopOptions& o, const Log& log) {
    struct Late : Between {
      using Between::Between;
      gpt2::StepOutcome finish_step() override {  // says it one step later
        gpt2::StepOutcome x = Between::finish_step();
        std::swap(x.loss, before);
        if (std::isfinite(x.loss) && std::isfinite(before)) x.loss = before;
        return x;
      }
      double before = 4;
    } between(t, nullptr);
    return gpt2::train(between, o, log);
  };
  EXPECT_EQ(failing(train), Names{"not finite"});
}

TEST(LoopGate, WhatIsNotWantedIsNotRun) {
  EXPECT_EQ(failing(with([](StepPlan& p) { p.adamw.weight_decay = 0; }), {"loop", "resume"}), Names{});
}

}  // namespace
}  // namespace gate

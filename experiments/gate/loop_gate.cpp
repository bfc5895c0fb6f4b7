#include "experiments/gate/loop_gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "experiments/gate/known_model.h"
#include "experiments/gate/loop_run.h"
#include "experiments/gate/loop_scripted.h"
#include "experiments/gate/metrics.h"

namespace gate {
namespace {

using gpt2::State;
using Floats = std::vector<float>;

class LoopChecks {
 public:
  LoopChecks(const MakeLoopTrainer& make, const LoopGateOptions& options) : make_(make), options_(options) {}

  std::vector<CheckResult> run() {
    const bool any = options_.wanted("schedule") || options_.wanted("loader") || options_.wanted("loop");
    if (any) {
      int64_t accumulation = 1;
      for (const char* schedule : {"cosine", "linear", "constant", "wsd"})
        in_order_run(schedule, options_.accumulates ? accumulation++ % 3 + 1 : 1);
    }
    if (options_.wanted("schedule")) schedules();
    if (options_.wanted("loader")) add(check_shuffled(options_));
    if (options_.wanted("loop")) {
      add(check_validation(options_));
      add(check_beside_validation(options_));
      add(check_synthetic(options_));
    }
    if (options_.wanted("resume")) {
      resume(Resumed::plain);
      resume(Resumed::behind_a_step_left_out);
      resume(Resumed::overfit);
      results_.push_back(check_cuts(options_));
    }
    if (options_.wanted("outliers")) add(check_outliers(options_));
    if (options_.wanted("not finite")) add(check_not_finite(options_));
    return std::move(results_);
  }

 private:
  struct Taken {
    std::vector<Handed> handed;
    gpt2::RunResult result;
    Floats parameters, m, v;
  };

  void add(std::vector<CheckResult> results) {
    for (CheckResult& r : results) results_.push_back(std::move(r));
  }

  std::unique_ptr<Recorder> trainer(int64_t micro_batches) const {
    auto recorder = std::make_unique<Recorder>(make_(micro_batches));
    const gpt2::ModelConfig& c = recorder->options().model;
    const Floats zeros(static_cast<size_t>(known_parameter_count(c)));
    recorder->write(State::parameters, gpt2::init_parameters(c, options_.seed));
    recorder->write(State::adam_m, zeros);
    recorder->write(State::adam_v, zeros);
    return recorder;
  }

  Taken train(Recorder& recorder, const gpt2::LoopOptions& o) const {
    Taken t;
    t.result = options_.train(recorder, o, {});
    t.handed = recorder.handed;
    const auto total = static_cast<size_t>(known_parameter_count(recorder.options().model));
    for (auto [which, values] : {std::pair{State::parameters, &t.parameters}, {State::adam_m, &t.m}, {State::adam_v, &t.v}}) {
      values->resize(total);
      recorder.read(which, *values);
    }
    return t;
  }

  void in_order_run(const std::string& schedule, int64_t accumulation) {
    constexpr int64_t kSteps = 11;
    const auto recorder = trainer(accumulation);
    const gpt2::TrainerOptions& t = recorder->options();
    const TokenFiles files(t, options_.seed);
    gpt2::LoopOptions o = files.options(schedule, kSteps);
    o.accumulation = accumulation;
    const Taken taken = train(*recorder, o);

    const KnownSchedule known{schedule, static_cast<double>(o.learning_rate.peak), static_cast<double>(o.learning_rate.final_fraction), 3,
                              kSteps};
    double worst = taken.handed.empty() ? INFINITY : 0;  // without a step there was no rate to look at
    int64_t steps_off = std::abs(kSteps - static_cast<int64_t>(taken.handed.size())), settings_off = 0, logs_off = 0;
    for (size_t i = 0; i < taken.handed.size(); ++i) {
      const Handed& h = taken.handed[i];
      steps_off += h.step != static_cast<int64_t>(i) + 1;
      const double want = known_learning_rate(known, static_cast<int64_t>(i) + 1);
      keep_worst(worst, std::abs(static_cast<double>(h.adamw.learning_rate) - want) / want);
      settings_off += h.adamw.beta1 != o.adamw.beta1 || h.adamw.beta2 != o.adamw.beta2 || h.adamw.eps != o.adamw.eps ||
                      h.adamw.weight_decay != o.adamw.weight_decay || h.adamw.clip != o.adamw.clip;
      settings_off += static_cast<int64_t>(h.inputs.size()) != accumulation;
      if (i < taken.result.steps.size()) {
        const gpt2::StepLog& log = taken.result.steps[i];
        logs_off += !(log.outcome.loss == h.outcome.loss) || !(log.outcome.grad_norm == h.outcome.grad_norm) ||
                    log.outcome.step != h.step || !(std::abs(log.learning_rate - want) <= 1e-6 * want);
      } else {
        ++logs_off;
      }
    }
    // A rate crosses as a float: two roundings.
    if (options_.wanted("schedule")) results_.push_back(make_result("schedule", schedule, {{"relative", worst, 0x1p-23, -1}}));
    if (options_.wanted("loop")) {
      results_.push_back(must_be_zero("loop", "steps", steps_off, "steps"));
      results_.push_back(must_be_zero("loop", "settings", settings_off, "steps", "other AdamW settings or micro-batches"));
      results_.push_back(must_be_zero("loop", "log", logs_off, "steps", "another loss, norm or rate was logged"));
    }
    if (!options_.wanted("loader")) return;
    size_t batches = 0;
    for (const Handed& h : taken.handed) batches += h.inputs.size();
    const std::vector<BatchOfFile> want =
        in_order(files.shards(), static_cast<size_t>(t.batch_size * t.seq_len), std::max<size_t>(batches, 1));
    int64_t wrong = batches == 0 ? 1 : 0, first = -1;
    size_t at = 0;
    for (const Handed& h : taken.handed)
      for (size_t j = 0; j < h.inputs.size(); ++j, ++at)
        if ((h.inputs[j] != want[at].inputs || h.targets[j] != want[at].targets) && wrong++ == 0) first = static_cast<int64_t>(at);
    results_.push_back(must_be_zero("loader", fmt::format("in order x{}", accumulation), wrong, "batches",
                                    wrong > 0 ? fmt::format("first: batch {}", first) : ""));
  }

  // Every step of runs with and without a warm-up, of lengths that no fifth divides, to 0, to a part and to all of the peak, and a few steps
  // beyond: a run may be longer than its schedule.
  void schedules() {
    double worst = 0;
    std::string first;
    for (const char* name : {"cosine", "linear", "constant", "wsd"})
      for (const int64_t warmup : {0, 1, 7})
        for (const int64_t total : {1, 2, 13, 1000})
          for (const float final_fraction : {0.0f, 0.25f, 1.0f}) {
            const gpt2::LearningRate rate{name, 3e-4f, warmup, final_fraction, total};
            const KnownSchedule known{name, static_cast<double>(rate.peak), static_cast<double>(final_fraction), warmup, total};
            for (int64_t step = 1; step <= total + total / 2 + 2; ++step) {
              // Against the peak: towards 0 a rate has no relative error.
              const double off =
                  std::abs(static_cast<double>(options_.rate_at(rate, step - 1)) - known_learning_rate(known, step)) / known.peak;
              if (keep_worst(worst, off))
                first = fmt::format("{}, warm-up {}, {} steps, final fraction {}: step {}", name, warmup, total, final_fraction, step);
            }
          }
    results_.push_back(make_result("schedule", "other lengths", {{"of the peak", worst, 0x1p-23, -1}}, worst <= 0x1p-23 ? "" : first));
  }

  enum class Resumed {
    plain,
    behind_a_step_left_out,  // weights that are rounded at random have to be those of the next step's draw although nothing moved
    overfit                  // every step has the first batch of the data, wherever a checkpoint says that they stand
  };
  // A run that is interrupted by a checkpoint and goes on in a new trainer is the run that was not.
  void resume(Resumed how) {
    const bool left_out = how == Resumed::behind_a_step_left_out;
    constexpr int64_t kSteps = 9, kCut = 4;
    const int64_t accumulation = options_.accumulates ? 2 : 1;
    const auto leaving_out = [&] {
      auto recorder = trainer(accumulation);
      if (left_out) recorder->leaves_out = kCut;
      return recorder;
    };
    const auto whole = leaving_out();
    const TokenFiles files(whole->options(), options_.seed);
    gpt2::LoopOptions o = files.options("cosine", kSteps);
    o.overfit = how == Resumed::overfit;
    o.shuffle = !o.overfit;
    o.accumulation = accumulation;
    const Taken want = train(*whole, o);
    gpt2::LoopOptions first = o;
    first.steps = kCut;
    first.checkpoint_dir = (files.folder() / "checkpoints").string();
    const auto before = leaving_out();
    const Taken begun = train(*before, first);
    gpt2::LoopOptions rest = o;
    rest.checkpoint_dir = first.checkpoint_dir;
    rest.resume = true;
    const auto after = leaving_out();  // of a fresh model: everything must come from the checkpoint
    const Taken resumed = train(*after, rest);

    std::vector<Handed> both = begun.handed;
    both.insert(both.end(), resumed.handed.begin(), resumed.handed.end());
    const std::string behind = left_out ? ", behind a step left out" : o.overfit ? ", overfit" : "";
    results_.push_back(
        must_be_zero("resume", "steps handed" + behind, handed_otherwise(both, want.handed), "steps", "other tokens, rate or number"));
    if (left_out) {
      const bool one = want.handed.size() >= static_cast<size_t>(kCut) && want.handed[kCut - 1].outcome.skipped;
      results_.push_back(must_be_zero("resume", "left out, said", !one, "steps"));
    }
    if (!options_.deterministic) return;
    results_.push_back(must_be_zero("resume", "param" + behind, count_different(resumed.parameters, want.parameters), "elements"));
    results_.push_back(
        must_be_zero("resume", "m,v" + behind, count_different(resumed.m, want.m) + count_different(resumed.v, want.v), "elements"));
  }

  const MakeLoopTrainer& make_;
  const LoopGateOptions& options_;
  std::vector<CheckResult> results_;
};

}  // namespace

std::vector<CheckResult> check_loop(const MakeLoopTrainer& make_trainer, const LoopGateOptions& options) {
  return LoopChecks(make_trainer, options).run();
}

}  // namespace gate

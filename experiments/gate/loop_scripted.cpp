#include "experiments/gate/loop_scripted.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>

#include "base/temporary_folder.h"
#include "experiments/gate/loop_run.h"
#include "experiments/gate/metrics.h"
#include "experiments/gate/random.h"
#include "gpt2/training_state.h"

namespace gate {
namespace {

using gpt2::State;

// A trainer of which only losses and norms are asked: those of a script. It computes nothing.
class Scripted final : public gpt2::Trainer {
 public:
  struct Step {
    double loss = 4, norm = 1;
  };
  explicit Scripted(std::vector<Step> script) : script_(std::move(script)) {
    options_.model = {.max_seq_len = 8, .vocab_size = 61, .padded_vocab = 64, .layers = 1, .heads = 1, .channels = 8};
    options_.batch_size = 2, options_.seq_len = 8;
  }
  const gpt2::TrainerOptions& options() const override { return options_; }
  std::string_view name() const override { return "scripted"; }
  std::string device() const override { return "none"; }
  std::vector<gpt2::MemoryItem> memory() const override { return {}; }
  void read(State, std::span<float>) override {}
  void write(State, std::span<const float>) override {}
  double evaluate(const gpt2::Batch& b, std::span<float>) override { return loss_of(b.inputs); }
  double forward_backward(const gpt2::Batch&, std::span<float>) override { return 0; }
  void enqueue_step(const gpt2::StepPlan& plan) override {
    limits.push_back({plan.skip_above_loss, plan.skip_above_grad_norm});
    numbers_.push_back(plan.step);
  }
  gpt2::StepOutcome finish_step() override {
    const Step& s = script_.at(finished_);
    gpt2::StepOutcome o;
    o.loss = s.loss, o.grad_norm = s.norm;
    o.skipped = s.loss > limits.at(finished_).loss || s.norm > limits.at(finished_).norm;
    o.step = numbers_.at(finished_++);
    return o;
  }
  // What it says the loss of a batch is.
  static double loss_of(std::span<const int32_t> inputs) {
    double sum = 0;
    for (const int32_t id : inputs) sum += static_cast<double>(id);
    return 1 + sum / static_cast<double>(inputs.size());
  }

  std::vector<Step> limits;  // that each step was given

 private:
  gpt2::TrainerOptions options_;
  std::vector<Step> script_;
  std::vector<int64_t> numbers_;
  size_t finished_ = 0;
};

// The definition, not the formula of gpt2/outliers.cpp: a value at the limit has, among the 128 values that end with it, the z-score
// `most`; before 128 values were seen there is no limit. The error of `limit` in z-scores; NaN for a limit that is not finite.
double outlier_limit_off(std::span<const double> seen, double most, double limit) {
  constexpr size_t kWindow = 128;
  if (seen.size() < kWindow) return std::isinf(limit) && limit > 0 ? 0 : INFINITY;
  std::vector<double> window(seen.end() - (kWindow - 1), seen.end());
  window.push_back(limit);
  double mean = 0, variance = 0;
  for (const double x : window) mean += x / kWindow;
  for (const double x : window) variance += (x - mean) * (x - mean) / kWindow;
  return std::abs((limit - mean) / std::sqrt(variance) - most);
}

// Notes what a run of so many steps hands over.
std::unique_ptr<Recorder> scripted(size_t steps) {
  return std::make_unique<Recorder>(std::make_unique<Scripted>(std::vector<Scripted::Step>(steps)));
}

// The first file alone: its order has nothing but the epoch to differ by. It has seven windows, so two epochs are alike once in 5,040 times;
// all nine are not.
CheckResult check_shuffled_file(const LoopGateOptions& options) {
  constexpr int64_t kEpochs = 9, kBatches = 3;
  const auto recorder = scripted(kEpochs * kBatches);
  const TokenFiles files(recorder->options(), options.seed);
  gpt2::LoopOptions o = files.options("constant", kEpochs * kBatches);
  o.data.resize(1);
  o.shuffle = true;
  (void)options.train(*recorder, o, {});
  const std::vector<Handed>& handed = recorder->handed;
  int64_t differ = 0;
  for (size_t i = kBatches; i < handed.size(); ++i) differ += handed[i].inputs != handed[i % kBatches].inputs;
  return must_be_zero("loader", "epochs alike, one file", differ == 0, "orders", "every epoch has the first one's");
}

}  // namespace

// Of one batch in the order of another epoch, a window in seven is not seen twice: so several epochs.
std::vector<CheckResult> check_shuffled(const LoopGateOptions& options) {
  constexpr size_t kEpochs = 9;
  const auto recorder = scripted(kEpochs * TokenFiles::kBatches);
  const gpt2::TrainerOptions& t = recorder->options();
  const auto T = static_cast<size_t>(t.seq_len), B = static_cast<size_t>(t.batch_size);
  const TokenFiles files(t, options.seed);
  const Shards& shards = files.shards();
  size_t per_epoch = 0;
  std::map<Ids, std::pair<size_t, size_t>> windows;  // T + 1 tokens -> file, number
  for (size_t f = 0; f < shards.size(); ++f) {
    const size_t count = (shards[f].size() - 1) / T;
    per_epoch += count / B;
    for (size_t w = 0; w < count; ++w)
      windows[Ids(shards[f].begin() + static_cast<int64_t>(w * T), shards[f].begin() + static_cast<int64_t>(w * T + T + 1))] = {f, w};
  }
  gpt2::LoopOptions o = files.options("constant", static_cast<int64_t>(kEpochs * per_epoch));
  o.shuffle = true;
  (void)options.train(*recorder, o, {});
  const std::vector<Handed>& handed = recorder->handed;
  int64_t unknown = 0, repeated = 0, across = 0, alike = 0;
  std::vector<std::vector<std::pair<size_t, size_t>>> order(kEpochs);
  for (size_t i = 0; i < handed.size(); ++i) {
    std::set<size_t> of_files;
    for (size_t b = 0; b < B; ++b) {
      const Ids &x = handed[i].inputs[0], &y = handed[i].targets[0];
      Ids window(x.begin() + static_cast<int64_t>(b * T), x.begin() + static_cast<int64_t>(b * T + T));
      window.push_back(y[b * T + T - 1]);
      const bool shifted = std::equal(window.begin() + 1, window.end(), y.begin() + static_cast<int64_t>(b * T));
      const auto found = windows.find(window);
      if (found == windows.end() || !shifted) {
        ++unknown;
        continue;
      }
      of_files.insert(found->second.first);
      auto& epoch = order[std::min<size_t>(i / per_epoch, kEpochs - 1)];
      repeated += std::count(epoch.begin(), epoch.end(), found->second);
      epoch.push_back(found->second);
    }
    across += of_files.size() > 1;
  }
  for (size_t i = 1; i < kEpochs; ++i) alike += order[i] == order[i - 1];
  return {must_be_zero("loader", "shuffled windows", unknown, "windows", "not of the files"),
          must_be_zero("loader", "once an epoch", repeated, "windows"), must_be_zero("loader", "one file a batch", across, "batches"),
          must_be_zero("loader", "epochs alike", alike, "epochs"), check_shuffled_file(options)};
}

std::vector<CheckResult> check_validation(const LoopGateOptions& options) {
  constexpr int64_t kSteps = 4, kOfFile = 3;  // batches of the first file, behind which one window of T tokens is left over
  std::vector<CheckResult> results;
  const auto check = [&](int64_t times, int64_t asked) {
    const auto recorder = scripted(kSteps);
    const gpt2::TrainerOptions& t = recorder->options();
    const TokenFiles files(t, options.seed);
    gpt2::LoopOptions o = files.options("constant", kSteps);
    o.val_data.assign(static_cast<size_t>(times), o.data.front());
    o.val_every = 2;
    o.val_batches = asked;
    const gpt2::RunResult result = options.train(*recorder, o, {});
    const auto batches = in_order(Shards(static_cast<size_t>(times), files.shards()[0]), static_cast<size_t>(t.batch_size * t.seq_len),
                                  static_cast<size_t>(std::min(asked, times * kOfFile)));
    double want = 0;
    for (const BatchOfFile& b : batches) want += Scripted::loss_of(b.inputs) / static_cast<double>(batches.size());
    double worst = result.val_losses.size() < 2 ? INFINITY : 0;
    for (const double loss : result.val_losses) keep_worst(worst, std::abs(loss - want) / want);
    results.push_back(make_result("loop", fmt::format("validation of {}{}", asked, times > 1 ? fmt::format(", {} files", times) : ""),
                                  {{"relative", worst, 1e-12, -1}}));
  };
  check(1, 2);
  check(1, 8);
  // What is left over of so many files would make a batch, if it were put together.
  const int64_t batch = scripted(1)->options().batch_size;
  check(batch, batch * kOfFile + 5);
  return results;
}

// A run is handed the same with validations between its steps and without.
std::vector<CheckResult> check_beside_validation(const LoopGateOptions& options) {
  constexpr int64_t kSteps = 5;
  std::vector<CheckResult> results;
  for (const bool overfit : {false, true}) {
    const auto handed = [&](int64_t every) {
      const auto recorder = scripted(kSteps);
      const TokenFiles files(recorder->options(), options.seed);
      gpt2::LoopOptions o = files.options("constant", kSteps);
      o.accumulation = options.accumulates ? 2 : 1;
      o.overfit = overfit;
      o.shuffle = !overfit;
      o.val_data = {o.data.back()};
      o.data.pop_back();
      o.val_every = every;
      o.val_batches = 1;
      (void)options.train(*recorder, o, {});
      return recorder->handed;
    };
    results.push_back(must_be_zero("loop", fmt::format("steps beside validation{}", overfit ? ", overfit" : ""),
                                   handed_otherwise(handed(1), handed(0)), "steps", "other tokens, rate or number than without"));
  }
  return results;
}

// Without files both kinds of batches come from one stream.
std::vector<CheckResult> check_synthetic(const LoopGateOptions& options) {
  constexpr size_t kSteps = 6, kBatches = 3;
  const auto recorder = scripted(kSteps);
  gpt2::LoopOptions o;
  o.data = {"synthetic"};
  o.seed = options.seed;
  o.steps = kSteps;
  o.learning_rate = {"constant", 1e-3f, 0, 1.0f, o.steps};
  o.val_every = 2;
  o.val_batches = kBatches;
  (void)options.train(*recorder, o, {});
  const auto T = static_cast<int64_t>(recorder->options().seq_len);
  std::map<Ids, int64_t> trained, held_out;  // windows of T tokens, how often
  const auto note = [&](const Ids& inputs, std::map<Ids, int64_t>& windows) {
    for (auto at = inputs.begin(); at != inputs.end(); at += T) ++windows[Ids(at, at + T)];
  };
  for (const Handed& h : recorder->handed) note(h.inputs[0], trained);
  const std::vector<Ids>& evaluated = recorder->evaluated;
  for (size_t i = 0; i < std::min(kBatches, evaluated.size()); ++i) note(evaluated[i], held_out);
  int64_t again = 0, known = 0, others = evaluated.size() != kSteps / 2 * kBatches;
  for (const auto& [window, times] : trained) again += times - 1;
  for (const auto& [window, times] : held_out) known += times - 1 + static_cast<int64_t>(trained.contains(window));
  for (size_t i = kBatches; i < evaluated.size(); ++i) others += evaluated[i] != evaluated[i % kBatches];
  return {must_be_zero("loop", "synthetic data", again, "windows", "handed twice"),
          must_be_zero("loop", "synthetic validation", known, "windows", "that are trained on, or asked twice"),
          must_be_zero("loop", "validations alike", others, "batches", "missing, or not those of the first validation")};
}

CheckResult check_cuts(const LoopGateOptions& options) {
  constexpr int64_t kSteps = TokenFiles::kBatches + 4;
  const auto whole = scripted(kSteps);
  const TokenFiles files(whole->options(), options.seed);
  gpt2::LoopOptions o = files.options("constant", kSteps);
  o.shuffle = true;
  (void)options.train(*whole, o, {});
  int64_t differ = std::abs(kSteps - static_cast<int64_t>(whole->handed.size()));
  std::string first;
  for (int64_t cut = 1; cut <= TokenFiles::kBatches + 1; ++cut) {
    gpt2::LoopOptions begun = o, rest = o;
    begun.steps = cut;
    begun.checkpoint_dir = rest.checkpoint_dir = (files.folder() / fmt::format("cut{}", cut)).string();
    rest.resume = true;
    const auto before = scripted(kSteps), after = scripted(kSteps);
    (void)options.train(*before, begun, {});
    (void)options.train(*after, rest, {});
    for (Handed& h : after->handed) before->handed.push_back(std::move(h));
    const int64_t here = handed_otherwise(before->handed, whole->handed);
    if (here > 0 && first.empty()) first = fmt::format("first: cut after step {}", cut);
    differ += here;
  }
  return must_be_zero("resume", "cut anywhere", differ, "steps", first);
}

// Three and a half windows long, so that the window turns more than once.
std::vector<CheckResult> check_outliers(const LoopGateOptions& options) {
  constexpr size_t kSteps = 450;
  constexpr double kMostLoss = 3, kMostNorm = 5;
  Random random(options.seed, 78);
  std::vector<Scripted::Step> script;
  for (size_t i = 0; i < kSteps; ++i) {
    Scripted::Step s{4 + 0.1 * random.normal(1) - 0.002 * static_cast<double>(i), 1 + 0.2 * std::abs(random.normal(1))};
    if (i == 100 || i == 200 || i == 201 || i == 390) s.loss += 5;
    if (i == 127 || i == 255 || i == 256 || i == 320) s.norm += 9;
    script.push_back(s);
  }
  Scripted trainer(script);
  gpt2::LoopOptions o;
  o.data = {"synthetic"};
  o.seed = options.seed;
  o.steps = static_cast<int64_t>(kSteps);
  o.learning_rate = {"constant", 1e-3f, 0, 1.0f, o.steps};
  o.skip_loss_outliers = kMostLoss, o.skip_grad_outliers = kMostNorm;
  const gpt2::RunResult result = options.train(trainer, o, {});
  double off_loss = 0, off_norm = 0;
  int64_t told = 0;
  std::vector<double> losses, norms;
  for (size_t i = 0; i < std::min(kSteps, trainer.limits.size()); ++i) {
    keep_worst(off_loss, outlier_limit_off(losses, kMostLoss, trainer.limits[i].loss));
    keep_worst(off_norm, outlier_limit_off(norms, kMostNorm, trainer.limits[i].norm));
    losses.push_back(script[i].loss);
    norms.push_back(script[i].norm);
    told += i < result.steps.size() && result.steps[i].outcome.skipped;
  }
  const int64_t missing = std::abs(static_cast<int64_t>(kSteps) - static_cast<int64_t>(trainer.limits.size()));
  // Sums of 128 numbers in double, some of them 50 deviations from the others.
  return {make_result("outliers", "limit of the loss", {{"z-scores", off_loss, 1e-9, -1}}),
          make_result("outliers", "limit of the norm", {{"z-scores", off_norm, 1e-9, -1}}),
          must_be_zero("outliers", "steps", missing + (told < 4), "steps", "missing, or outliers were not left out")};
}

// Two steps may be queued, so a trainer has finished the next one, with finite numbers, when the loop looks at the wrong one.
std::vector<CheckResult> check_not_finite(const LoopGateOptions& options) {
  constexpr int64_t kSteps = 8, kWrong = 5;
  std::vector<CheckResult> results;
  for (const auto& [what, wrong] : {std::pair<std::string, Scripted::Step>{"a loss that is no number", {NAN, 1}},
                                    {"a norm that is no number", {4, NAN}},
                                    {"an infinite loss", {INFINITY, 1}},
                                    {"an infinite norm", {4, INFINITY}}}) {
    std::vector<Scripted::Step> script(kSteps);
    script[kWrong - 1] = wrong;
    Scripted trainer(script);
    const stepscope::TemporaryFolder folder;
    gpt2::LoopOptions o;
    o.data = {"synthetic"};
    o.seed = options.seed;
    o.steps = kSteps;
    o.learning_rate = {"constant", 1e-3f, 0, 1.0f, o.steps};
    o.checkpoint_dir = (folder.path() / "checkpoints").string();
    o.checkpoint_every = kWrong;
    bool ended = false;
    try {
      (void)options.train(trainer, o, {});
    } catch (const gpt2::TrainingDiverged&) {
      ended = true;
    }
    const std::vector<int64_t> saved = gpt2::saved_steps(o.checkpoint_dir);
    const auto too_late = std::ranges::count_if(saved, [](int64_t step) { return step >= kWrong; });
    results.push_back(must_be_zero("not finite", what, !ended, "runs", "went on"));
    results.push_back(must_be_zero("not finite", what + ", checkpoints", too_late, "checkpoints", "of that step or a later one"));
  }
  return results;
}

}  // namespace gate

#include "experiments/gate/loop_gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/errors.h"
#include "base/temporary_folder.h"
#include "experiments/gate/known_model.h"
#include "experiments/gate/metrics.h"
#include "experiments/gate/random.h"

namespace gate {
namespace {

namespace fs = std::filesystem;
using gpt2::State;
using Floats = std::vector<float>;
using Ids = std::vector<int32_t>;

// What a trainer was handed in a step, copied.
struct Handed {
  int64_t step = 0;
  gpt2::AdamW adamw;
  std::vector<Ids> inputs, targets;  // per micro-batch
  gpt2::StepOutcome outcome;
};

class Recorder final : public gpt2::Trainer {
 public:
  explicit Recorder(std::unique_ptr<gpt2::Trainer> real) : real_(std::move(real)) {}
  const gpt2::TrainerOptions& options() const override { return real_->options(); }
  std::string_view name() const override { return real_->name(); }
  std::string device() const override { return real_->device(); }
  std::vector<gpt2::MemoryItem> memory() const override { return real_->memory(); }
  std::vector<gpt2::OpWork> work(int64_t n) const override { return real_->work(n); }
  std::optional<int64_t> memory_used_bytes() const override { return real_->memory_used_bytes(); }
  double logits_rounded_after_loss() const override { return real_->logits_rounded_after_loss(); }
  void read(State which, std::span<float> values) override { real_->read(which, values); }
  void write(State which, std::span<const float> values) override { real_->write(which, values); }
  void read_weights(std::span<float> values) override { real_->read_weights(values); }
  void enqueue_step(const gpt2::StepPlan& plan) override {
    Handed h;
    h.step = plan.step;
    h.adamw = plan.adamw;
    for (const gpt2::Batch& b : plan.micro_batches) {
      h.inputs.emplace_back(b.inputs.begin(), b.inputs.end());
      h.targets.emplace_back(b.targets.begin(), b.targets.end());
    }
    handed.push_back(std::move(h));
    real_->enqueue_step(plan);
  }
  gpt2::StepOutcome finish_step() override {
    const gpt2::StepOutcome o = real_->finish_step();
    if (finished_ < handed.size()) handed[finished_++].outcome = o;
    return o;
  }
  double evaluate(const gpt2::Batch& b, std::span<float> logits) override { return real_->evaluate(b, logits); }
  double forward_backward(const gpt2::Batch& b, std::span<float> logits) override { return real_->forward_backward(b, logits); }

  std::vector<Handed> handed;

 private:
  std::unique_ptr<gpt2::Trainer> real_;
  size_t finished_ = 0;
};

using Shards = std::vector<std::vector<uint16_t>>;

void write_bytes(const fs::path& path, const std::vector<uint16_t>& tokens) {
  std::vector<int32_t> header(256, 0);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = static_cast<int32_t>(tokens.size());
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(header.data()), 1024);
  out.write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(2 * tokens.size()));
  if (!out.flush()) throw stepscope::MachineError(fmt::format("{}: cannot be written", path.string()));
}

// Two files that end within a batch, and one that is a batch and the token after it; ids 0 and V-1 are among them.
constexpr int64_t kBatchesOfShards = 3 + 2 + 1;
Shards write_shards(const fs::path& folder, int64_t B, int64_t T, int64_t V, uint64_t seed) {
  Random random(seed, 77);
  Shards shards;
  for (const int64_t count : {3 * B * T + T + 1, 2 * B * T + T / 2 + 1, B * T + 1}) {
    std::vector<uint16_t> tokens(static_cast<size_t>(count));
    for (uint16_t& t : tokens) t = static_cast<uint16_t>(random.below(V));
    tokens.front() = 0;
    tokens.back() = static_cast<uint16_t>(V - 1);
    shards.push_back(tokens);
    write_bytes(folder / fmt::format("tokens_{}.bin", shards.size()), tokens);
  }
  return shards;
}

// The batches of an unshuffled run, by the definition: consecutive pieces of B*T tokens with the one that follows,
// no piece across two files, files one after the other and from the front again.
struct BatchOfFile {
  Ids inputs, targets;
};
std::vector<BatchOfFile> in_order(const Shards& shards, size_t tokens_per_batch, size_t count) {
  std::vector<BatchOfFile> all;
  while (all.size() < count)
    for (const auto& file : shards)
      for (size_t at = 0; at + tokens_per_batch + 1 <= file.size(); at += tokens_per_batch) {
        BatchOfFile b;
        for (size_t i = 0; i < tokens_per_batch; ++i) {
          b.inputs.push_back(file[at + i]);
          b.targets.push_back(file[at + i + 1]);
        }
        all.push_back(std::move(b));
      }
  all.resize(count);
  return all;
}

// A trainer of which only losses and norms are asked: those of a script. It computes nothing.
class Scripted final : public gpt2::Trainer {
 public:
  struct Step {
    double loss, norm;
  };
  Scripted(const gpt2::TrainerOptions& like, std::vector<Step> script) : options_(like), script_(std::move(script)) {}
  const gpt2::TrainerOptions& options() const override { return options_; }
  std::string_view name() const override { return "scripted"; }
  std::string device() const override { return "none"; }
  std::vector<gpt2::MemoryItem> memory() const override { return {}; }
  void read(State, std::span<float>) override {}
  void write(State, std::span<const float>) override {}
  double evaluate(const gpt2::Batch& b, std::span<float>) override { return loss_of({b.inputs.begin(), b.inputs.end()}); }
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
  static double loss_of(const Ids& inputs) {
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
// `most`; before 128 values were seen there is no limit. The error of `limit` in z-scores.
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
    if (options_.wanted("loader")) shuffled_run();
    if (options_.wanted("loop")) validation();
    if (options_.wanted("resume")) {
      resume();
      resume_everywhere();
    }
    if (options_.wanted("outliers")) outliers();
    return std::move(results_);
  }

 private:
  struct Taken {
    std::vector<Handed> handed;
    gpt2::RunResult result;
    Floats parameters, m, v;
  };

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

  gpt2::LoopOptions loop_options(const fs::path& folder, const std::string& schedule, int64_t steps) const {
    gpt2::LoopOptions o;
    o.data = {(folder / "tokens_1.bin").string(), (folder / "tokens_2.bin").string(), (folder / "tokens_3.bin").string()};
    o.seed = options_.seed;
    o.shuffle = false;
    o.steps = steps;
    o.learning_rate = {schedule, 1e-3f, 3, 0.1f, steps};
    o.adamw = {.beta1 = 0.85f, .beta2 = 0.97f, .eps = 1e-7f, .weight_decay = 0.1f, .clip = 0.9f};  // not the defaults
    return o;
  }

  void in_order_run(const std::string& schedule, int64_t accumulation) {
    constexpr int64_t kSteps = 11;
    const stepscope::TemporaryFolder folder;
    const auto recorder = trainer(accumulation);
    const gpt2::TrainerOptions t = recorder->options();
    const Shards shards = write_shards(folder.path(), t.batch_size, t.seq_len, t.model.vocab_size, options_.seed);
    gpt2::LoopOptions o = loop_options(folder.path(), schedule, kSteps);
    o.accumulation = accumulation;
    const Taken taken = train(*recorder, o);

    const KnownSchedule known{schedule, static_cast<double>(o.learning_rate.peak), static_cast<double>(o.learning_rate.final_fraction), 3,
                              kSteps};
    double worst = 0;
    int64_t steps_off = std::abs(kSteps - static_cast<int64_t>(taken.handed.size())), settings_off = 0, logs_off = 0;
    for (size_t i = 0; i < taken.handed.size(); ++i) {
      const Handed& h = taken.handed[i];
      steps_off += h.step != static_cast<int64_t>(i) + 1;
      const double want = known_learning_rate(known, static_cast<int64_t>(i) + 1);
      const double off = std::abs(static_cast<double>(h.adamw.learning_rate) - want) / want;
      if (!(off <= worst)) worst = off;
      settings_off += h.adamw.beta1 != o.adamw.beta1 || h.adamw.beta2 != o.adamw.beta2 || h.adamw.eps != o.adamw.eps ||
                      h.adamw.weight_decay != o.adamw.weight_decay || h.adamw.clip != o.adamw.clip;
      settings_off += static_cast<int64_t>(h.inputs.size()) != accumulation;
      if (i < taken.result.steps.size()) {
        const gpt2::StepLog& log = taken.result.steps[i];
        logs_off += !(log.outcome.loss == h.outcome.loss) || log.outcome.step != h.step || std::abs(log.learning_rate - want) > 1e-6 * want;
      } else {
        ++logs_off;
      }
    }
    // A rate crosses as a float: two roundings.
    if (options_.wanted("schedule")) results_.push_back(make_result("schedule", schedule, {{"relative", worst, 0x1p-23, -1}}));
    if (options_.wanted("loop")) {
      results_.push_back(must_be_zero("loop", "steps", steps_off, "steps"));
      results_.push_back(must_be_zero("loop", "settings", settings_off, "steps", "other AdamW settings or micro-batches"));
      results_.push_back(must_be_zero("loop", "log", logs_off, "steps", "another loss or rate was logged"));
    }
    if (!options_.wanted("loader")) return;
    size_t batches = 0;
    for (const Handed& h : taken.handed) batches += h.inputs.size();
    const std::vector<BatchOfFile> want = in_order(shards, static_cast<size_t>(t.batch_size * t.seq_len), std::max<size_t>(batches, 1));
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
              const double off = std::abs(static_cast<double>(rate.at(step - 1)) - known_learning_rate(known, step)) / known.peak;
              if (off <= worst) continue;
              worst = off;
              first = fmt::format("{}, warm-up {}, {} steps, final fraction {}: step {}", name, warmup, total, final_fraction, step);
            }
          }
    results_.push_back(make_result("schedule", "other lengths", {{"of the peak", worst, 0x1p-23, -1}}, worst > 0x1p-23 ? first : ""));
  }

  // Shuffled, an epoch has every window of T tokens at most once, each with its own targets, all windows of a batch
  // from one file, and another epoch another order. Of one batch in the order of another epoch, a window in seven is not seen twice: so several
  // epochs.
  void shuffled_run() {
    constexpr size_t kEpochs = 9;
    const stepscope::TemporaryFolder folder;
    const auto recorder = scripted(kEpochs * kBatchesOfShards);
    const gpt2::TrainerOptions t = recorder->options();
    const auto T = static_cast<size_t>(t.seq_len), B = static_cast<size_t>(t.batch_size);
    const Shards shards = write_shards(folder.path(), t.batch_size, t.seq_len, t.model.vocab_size, options_.seed);
    size_t per_epoch = 0;
    std::map<Ids, std::pair<size_t, size_t>> windows;  // T + 1 tokens -> file, number
    for (size_t f = 0; f < shards.size(); ++f) {
      const size_t count = (shards[f].size() - 1) / T;
      per_epoch += count / B;
      for (size_t w = 0; w < count; ++w)
        windows[Ids(shards[f].begin() + static_cast<int64_t>(w * T), shards[f].begin() + static_cast<int64_t>(w * T + T + 1))] = {f, w};
    }
    gpt2::LoopOptions o = loop_options(folder.path(), "constant", static_cast<int64_t>(kEpochs * per_epoch));
    o.shuffle = true;
    (void)options_.train(*recorder, o, {});
    const std::vector<Handed>& handed = recorder->handed;
    int64_t unknown = 0, repeated = 0, across = 0, alike = 0;
    std::vector<std::vector<std::pair<size_t, size_t>>> order(kEpochs);
    for (size_t i = 0; i < handed.size(); ++i) {
      std::set<size_t> files;
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
        files.insert(found->second.first);
        auto& epoch = order[std::min<size_t>(i / per_epoch, kEpochs - 1)];
        repeated += std::count(epoch.begin(), epoch.end(), found->second);
        epoch.push_back(found->second);
      }
      across += files.size() > 1;
    }
    results_.push_back(must_be_zero("loader", "shuffled windows", unknown, "windows", "not of the files"));
    results_.push_back(must_be_zero("loader", "once an epoch", repeated, "windows"));
    results_.push_back(must_be_zero("loader", "one file a batch", across, "batches"));
    for (size_t i = 1; i < kEpochs; ++i) alike += order[i] == order[i - 1];
    results_.push_back(must_be_zero("loader", "epochs alike", alike, "epochs"));
  }

  // A run that is interrupted by a checkpoint and goes on in a new trainer is the run that was not.
  void resume() {
    constexpr int64_t kSteps = 9, kCut = 4;
    const stepscope::TemporaryFolder folder;
    const int64_t accumulation = options_.accumulates ? 2 : 1;
    const auto whole = trainer(accumulation);
    const gpt2::TrainerOptions t = whole->options();
    write_shards(folder.path(), t.batch_size, t.seq_len, t.model.vocab_size, options_.seed);
    gpt2::LoopOptions o = loop_options(folder.path(), "cosine", kSteps);
    o.shuffle = true;
    o.accumulation = accumulation;
    const Taken want = train(*whole, o);
    gpt2::LoopOptions first = o;
    first.steps = kCut;
    first.checkpoint_dir = (folder.path() / "checkpoints").string();
    const auto before = trainer(accumulation);
    const Taken begun = train(*before, first);
    gpt2::LoopOptions rest = o;
    rest.checkpoint_dir = first.checkpoint_dir;
    rest.resume = true;
    const auto after = trainer(accumulation);  // of a fresh model: everything must come from the checkpoint
    const Taken resumed = train(*after, rest);

    std::vector<Handed> both = begun.handed;
    both.insert(both.end(), resumed.handed.begin(), resumed.handed.end());
    int64_t differ = std::abs(static_cast<int64_t>(both.size()) - static_cast<int64_t>(want.handed.size()));
    for (size_t i = 0; i < std::min(both.size(), want.handed.size()); ++i)
      differ += both[i].step != want.handed[i].step || both[i].inputs != want.handed[i].inputs ||
                both[i].targets != want.handed[i].targets || both[i].adamw.learning_rate != want.handed[i].adamw.learning_rate;
    results_.push_back(must_be_zero("resume", "steps handed", differ, "steps", "other tokens, rate or number"));
    if (!options_.deterministic) return;
    results_.push_back(must_be_zero("resume", "param", count_different(resumed.parameters, want.parameters), "elements"));
    results_.push_back(must_be_zero("resume", "m,v", count_different(resumed.m, want.m) + count_different(resumed.v, want.v), "elements"));
  }

  // A trainer that computes nothing, with so many steps to tell of.
  static std::unique_ptr<Recorder> scripted(size_t steps) {
    gpt2::TrainerOptions t;
    t.model = {.max_seq_len = 8, .vocab_size = 61, .padded_vocab = 64, .layers = 1, .heads = 1, .channels = 8};
    t.batch_size = 2, t.seq_len = 8;
    return std::make_unique<Recorder>(std::make_unique<Scripted>(t, std::vector<Scripted::Step>(steps, {4, 1})));
  }

  // Cut after every step of an epoch and one more, ends of files among them.
  void resume_everywhere() {
    constexpr int64_t kPerEpoch = kBatchesOfShards;
    const stepscope::TemporaryFolder folder;
    const auto whole = scripted(kPerEpoch + 4);
    write_shards(folder.path(), whole->options().batch_size, whole->options().seq_len, whole->options().model.vocab_size, options_.seed);
    gpt2::LoopOptions o = loop_options(folder.path(), "constant", kPerEpoch + 4);
    o.shuffle = true;
    (void)options_.train(*whole, o, {});
    int64_t differ = 0;
    std::string first;
    for (int64_t cut = 1; cut <= kPerEpoch + 1; ++cut) {
      gpt2::LoopOptions begun = o, rest = o;
      begun.steps = cut;
      begun.checkpoint_dir = rest.checkpoint_dir = (folder.path() / fmt::format("cut{}", cut)).string();
      rest.resume = true;
      const auto before = scripted(static_cast<size_t>(o.steps)), after = scripted(static_cast<size_t>(o.steps));
      (void)options_.train(*before, begun, {});
      (void)options_.train(*after, rest, {});
      for (Handed& h : after->handed) before->handed.push_back(std::move(h));
      int64_t here = std::abs(static_cast<int64_t>(before->handed.size()) - o.steps);
      for (size_t i = 0; i < std::min(before->handed.size(), whole->handed.size()); ++i)
        here += before->handed[i].step != whole->handed[i].step || before->handed[i].inputs != whole->handed[i].inputs ||
                before->handed[i].targets != whole->handed[i].targets;
      if (here > 0 && differ == 0) first = fmt::format("first: cut after step {}", cut);
      differ += here;
    }
    results_.push_back(must_be_zero("resume", "cut anywhere", differ, "steps", first));
  }

  // Validation is the mean over the batches that there are, of a set that has fewer than were asked for and of one that has more.
  void validation() {
    for (const int64_t asked : {2, 8}) {
      const stepscope::TemporaryFolder folder;
      constexpr int64_t kSteps = 4;
      const auto recorder = scripted(kSteps);
      const gpt2::TrainerOptions& t = recorder->options();
      const Shards shards = write_shards(folder.path(), t.batch_size, t.seq_len, t.model.vocab_size, options_.seed);
      gpt2::LoopOptions o = loop_options(folder.path(), "constant", kSteps);
      o.val_data = {(folder.path() / "tokens_1.bin").string()};  // three batches
      o.val_every = 2;
      o.val_batches = asked;
      const gpt2::RunResult result = options_.train(*recorder, o, {});
      const auto batches =
          in_order({shards[0]}, static_cast<size_t>(t.batch_size * t.seq_len), static_cast<size_t>(std::min<int64_t>(asked, 3)));
      double want = 0;
      for (const BatchOfFile& b : batches) want += Scripted::loss_of(b.inputs) / static_cast<double>(batches.size());
      double worst = result.val_losses.size() < 2 ? INFINITY : 0;
      for (const double loss : result.val_losses)
        if (const double off = std::abs(loss - want) / want; !(off <= worst)) worst = off;
      results_.push_back(make_result("loop", fmt::format("validation of {}", asked), {{"relative", worst, 1e-12, -1}}));
    }
  }

  // A run with outliers in it, three and a half windows long, so that the window turns more than once. What a step is given must follow from
  // the values of all steps before it, those that were left out among them.
  void outliers() {
    constexpr size_t kSteps = 450;
    constexpr double kMostLoss = 3, kMostNorm = 5;
    Random random(options_.seed, 78);
    std::vector<Scripted::Step> script;
    for (size_t i = 0; i < kSteps; ++i) {
      Scripted::Step s{4 + 0.1 * random.normal(1) - 0.002 * static_cast<double>(i), 1 + 0.2 * std::abs(random.normal(1))};
      if (i == 100 || i == 200 || i == 201 || i == 390) s.loss += 5;
      if (i == 127 || i == 255 || i == 256 || i == 320) s.norm += 9;
      script.push_back(s);
    }
    gpt2::TrainerOptions t;
    t.model = {.max_seq_len = 8, .vocab_size = 61, .padded_vocab = 64, .layers = 1, .heads = 1, .channels = 8};
    t.batch_size = 1, t.seq_len = 8;
    Scripted trainer(t, script);
    gpt2::LoopOptions o;
    o.data = {"synthetic"};
    o.seed = options_.seed;
    o.steps = static_cast<int64_t>(kSteps);
    o.learning_rate = {"constant", 1e-3f, 0, 1.0f, o.steps};
    o.skip_loss_outliers = kMostLoss, o.skip_grad_outliers = kMostNorm;
    const gpt2::RunResult result = options_.train(trainer, o, {});
    double off_loss = 0, off_norm = 0;
    int64_t told = 0;
    std::vector<double> losses, norms;
    for (size_t i = 0; i < std::min(kSteps, trainer.limits.size()); ++i) {
      const double a = outlier_limit_off(losses, kMostLoss, trainer.limits[i].loss);
      const double b = outlier_limit_off(norms, kMostNorm, trainer.limits[i].norm);
      if (!(a <= off_loss)) off_loss = a;
      if (!(b <= off_norm)) off_norm = b;
      losses.push_back(script[i].loss);
      norms.push_back(script[i].norm);
      told += i < result.steps.size() && result.steps[i].outcome.skipped;
    }
    const int64_t missing = std::abs(static_cast<int64_t>(kSteps) - static_cast<int64_t>(trainer.limits.size()));
    // Sums of 128 numbers in double, some of them 50 deviations from the others.
    results_.push_back(make_result("outliers", "limit of the loss", {{"z-scores", off_loss, 1e-9, -1}}));
    results_.push_back(make_result("outliers", "limit of the norm", {{"z-scores", off_norm, 1e-9, -1}}));
    results_.push_back(must_be_zero("outliers", "steps", missing + (told < 4), "steps", "missing, or outliers were not left out"));
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

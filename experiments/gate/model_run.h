// What the checks of model_gate.cpp stand on: the trainer and the case at hand, answers that are judged later, and steps taken from the
// trainer's own state. Private to the model gate.
//
// Calls to the trainer come first, in order; judging (the expensive half: the oracle) waits until a few answers are there and is done by all
// threads at once.
#pragma once
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "experiments/gate/audited_trainer.h"
#include "experiments/gate/budgets.h"
#include "experiments/gate/expected.h"
#include "experiments/gate/model_gate.h"
#include "experiments/gate/moment_bits.h"
#include "experiments/gate/step_judge.h"
#include "gpt2/tensor_table.h"

namespace gate {

using Floats = std::vector<float>;
using Results = std::vector<CheckResult>;

// How the trainer that is checked rounds its weights.
WeightRounding rounding_of(const ModelGateOptions& options);
// Of such models one draw says enough, threads share one oracle, and an answer is too large to keep.
bool is_big(const gpt2::ModelConfig& config);
Case real_size_case(const ModelGateOptions& options);
Case wide_case(const ModelGateOptions& options);
// Whether a check whose name begins so is run.
bool any_wanted(const ModelGateOptions& options, std::string_view prefix);

// Results in the order in which they were asked for, some of which are judged later.
class Pending {
 public:
  void add(GateReport& report, Results results) { slots_.push_back({&report, std::move(results)}); }
  void add(GateReport& report, CheckResult result) { add(report, Results{std::move(result)}); }
  void later(GateReport& report, bool big, std::function<Results()> judge);
  // Judges what waits and moves everything into the reports, in the order of asking.
  void settle();

 private:
  // A place in the report that is filled now or later.
  struct Slot {
    GateReport* report;
    Results results{};
    std::function<Results()> judge{};
    bool big = false;  // wants all threads for itself
  };
  static void settle_one(Slot& s);
  std::vector<Slot> slots_;
};

// Base of the one class that asks the checks, which so reads and writes this state as its own.
class ModelRun {
 public:
  ModelRun(const TrainerFactory& make_trainer, const ModelGateOptions& options, std::span<const uint64_t> seeds, bool use_trainers_again);

 protected:
  struct OracleNames {
    std::string forward, gradients, own_loss;
  };

  // ---- what is asked of whom
  bool wanted(const std::string& name) const { return !options_.without.contains(name); }
  std::string if_wanted(const std::string& name, const std::string& suffix = "") const { return wanted(name) ? name + suffix : ""; }

  // `work` once per seed; then everything that it asked is judged.
  void for_each_seed(const Case& c, const std::function<void()>& work);
  GateReport& report() { return reports_[at_]; }
  uint64_t seed() const { return seeds_[at_]; }
  void add(CheckResult result) { pending_.add(report(), std::move(result)); }
  void later(std::function<Results()> judge);
  int draws() const;
  MomentBits moment_bits() const { return moment_bits_of(options_.trainer, trainer_->options().variants); }
  // The oracle's answers to the case at hand.
  ExpectedCache& answers() {
    ExpectedCache* shared = is_big(case_.config) ? options_.big_answers : options_.small_answers;
    return shared != nullptr ? *shared : own_answers_;
  }

  // Builds the trainer of a case, or takes the last one again, and writes its parameters. Where a variant that was asked for by name refuses
  // one of the gate's own models, that model has heads of 64 channels from then on: some variants know no others.
  void begin(const Case& c);
  // The case as it is run: with the heads that begin() has found to be needed.
  Case as_run(const Case& c) const;
  // A variant that was asked for by name may be refused at an odd shape; a default may not.
  bool begin_or_note(const Case& c);
  bool refuses_what_was_asked_for(const std::exception& e) const { return !options_.variants.empty() && refuses_a_variant(e); }
  std::unique_ptr<gpt2::Trainer> make_trainer(int64_t micro_batches);
  std::unique_ptr<gpt2::Trainer> make_trainer() { return make_trainer(case_.micro_batches); }

  // Says what is done next; the wall time until the next such word is its.
  void progress(const std::string& what);
  // The time of the last part; before the reports are taken.
  void end_part();

  Floats read(gpt2::Trainer& trainer, gpt2::State which) const;
  Floats read_weights() const;
  // Those that the next forward pass multiplies with. Where no chance takes part they are computed here, so that a
  // trainer that rounds wrongly is wrong in everything that follows too.
  Floats weights_now() const;
  Floats zeros() const { return Floats(static_cast<size_t>(layout_.total)); }
  Floats empty_logits() const {  // NaN, so that an element never written is seen
    return Floats(static_cast<size_t>(case_.batch_size * case_.seq_len * case_.config.vocab_size), NAN);
  }
  int64_t rows() const { return case_.batch_size * case_.seq_len; }

  // Parameters that were written are rounded at random by the step that comes, unseen. A step that moves nothing
  // leaves weights behind that the next one uses as they are.
  void set_state(const Floats& parameters, const Floats& m, const Floats& v);
  StepTaken take_step(int64_t t, const gpt2::AdamW& adamw, std::vector<Tokens> tokens);
  void judge_later(StepTaken taken, const StepNames& names);
  // Forward and backward on the trainer as it is, and the oracle on its weights.
  void ask_oracle(OracleNames names, uint64_t tokens_number);

  const TrainerFactory& make_;
  const ModelGateOptions& options_;
  const ModelBudgets budgets_;
  Storage storage_;  // of the trainer at hand: a default that gives way at a case may store something else
  const WeightRounding rounding_;
  const bool use_again_;
  const gpt2::AdamW training_{.learning_rate = 1e-3f, .weight_decay = 0.1f};
  std::vector<uint64_t> seeds_;
  std::vector<GateReport> reports_;
  size_t at_ = 0;  // of the seed at hand
  Pending pending_;
  TrainerAudit audit_;
  std::unique_ptr<Watchdog> dog_;          // of a trainer on a device; on a CPU a step may take minutes
  const std::shared_ptr<void> red_zones_;  // behind the memory of trainers that are built while it lives
  int64_t parameters_changed_ = 0;         // by a forward and backward pass
  int64_t moments_not_zero_ = 0;           // of trainers to which nothing had been written
  Case case_;
  gpt2::TensorLayout layout_;
  Floats parameters_;
  std::unique_ptr<gpt2::Trainer> trainer_;

 private:
  using Clock = std::chrono::steady_clock;

  void describe(GateReport& r, uint64_t seed) const;
  void build(const Case& c);
  // The case with such heads where its channels allow that and its model is not the user's choice.
  Case with_heads_of_64(Case c) const;
  // In these cases one term of a sum is about as large as the sum, which so rounds at that size with each of its C = 64
  // terms: sqrt(64) times what storing it once would lose, three bits.
  Storage storage_for(const Case& c) const;
  // On the floors of some cases: what a device needed before errors were measured against draws.
  double stress_factor(const Case& c) const;

  ExpectedCache own_answers_;  // of the case at hand
  bool heads_of_64_;           // of the gate's own models
  std::string part_;           // that is done now; empty: none yet
  Clock::time_point part_since_;
};

}  // namespace gate

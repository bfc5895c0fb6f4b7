// Two traps. The gradient of the key bias is zero in exact arithmetic, so after an AdamW update those elements are
// rounding noise blown up to +-lr: parameters after an update cannot be compared with the oracle's element by
// element. Instead the gradients are compared with the oracle, and moments and parameters with AdamW in double on the
// trainer's own gradients (step_judge.h). And what is compared is always one step from the trainer's own state and
// weights, never a drift: weights that were rounded at random would drift anywhere.
//
// Calls to the trainer come first, in order; judging (the expensive half: the oracle) waits until a few answers are
// there and is done by all threads at once.
#include "experiments/gate/model_gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include "base/errors.h"
#include "experiments/gate/audited_trainer.h"
#include "experiments/gate/budgets.h"
#include "experiments/gate/expected.h"
#include "experiments/gate/known_model.h"
#include "experiments/gate/oracle.h"
#include "experiments/gate/random.h"
#include "experiments/gate/step_judge.h"
#include "experiments/gate/timed_steps.h"

namespace gate {
namespace {

using gpt2::AdamW;
using gpt2::Batch;
using gpt2::State;
using gpt2::StepOutcome;
using gpt2::Trainer;
using Floats = std::vector<float>;
using Results = std::vector<CheckResult>;

constexpr float kLargeStep = 1e-2f;              // of the optimizer checks; large_step() says why wide models take less
constexpr int kDraws = 2;                        // of roundings, per comparison
constexpr int64_t kManyParameters = 10'000'000;  // from here one draw says enough, and threads share one oracle

// A place in the report that is filled now or later.
struct Slot {
  GateReport* report;
  Results results{};
  std::function<Results()> judge{};
  bool big = false;  // wants all threads for itself
};

class Pending {
 public:
  void add(GateReport& report, Results results) { slots_.push_back({&report, std::move(results)}); }
  void add(GateReport& report, CheckResult result) { add(report, Results{std::move(result)}); }
  void later(GateReport& report, bool big, std::function<Results()> judge) {
    slots_.push_back({&report, {}, std::move(judge), big});
    if (big) settle_one(slots_.back());
  }
  // Judges what waits and moves everything into the reports, in the order of asking.
  void settle() {
    std::exception_ptr failed;
#pragma omp parallel for schedule(dynamic)
    for (size_t i = 0; i < slots_.size(); ++i) {
      try {
        settle_one(slots_[i]);
      } catch (...) {
#pragma omp critical
        failed = std::current_exception();
      }
    }
    if (failed) std::rethrow_exception(failed);
    for (Slot& s : slots_)
      for (CheckResult& r : s.results) s.report->add(std::move(r));
    slots_.clear();
  }

 private:
  static void settle_one(Slot& s) {
    if (!s.judge) return;
    s.results = s.judge();
    s.judge = {};
  }
  std::vector<Slot> slots_;
};

std::vector<ModelCheck> all_checks() {
  std::vector<ModelCheck> all{{"tensor table", "order, shapes and decay of the tensors are those that the judge has written down"},
                              {"fresh model", "a fresh model has GPT-2's means and deviations"},
                              {"forward", "logits and loss against the oracle"},
                              {"loss of logits", "the loss is that of the trainer's own logits"},
                              {"gradients", "every gradient tensor against the oracle: norm, worst row, worst column"},
                              {"evaluate", "forward alone gives what forward and backward gave"},
                              {"grad norm", "the reported norm is that of the trainer's own gradients, and near the oracle's"},
                              {"optimizer", "losses of five AdamW steps against the oracle"},
                              {"step gradients", "gradients of five AdamW steps against the oracle"},
                              {"adam m", "first moments are AdamW's of the trainer's own gradients, clipped"},
                              {"adam v", "second moments, the same"},
                              {"update", "parameters are AdamW's from the trainer's own moments; padding stays zero"},
                              {"weights", "weights are the rounded parameters"},
                              {"accumulation", "two micro-batches are one step of the mean gradient"},
                              {"causality", "no later token changes an earlier logit by a bit"},
                              {"padding", "padded vocabulary takes no part"},
                              {"trajectory", "losses of a short run"},
                              {"fresh inputs", "the oracle once more after everything else, same shapes and weights, new tokens"},
                              {"repeatability", "new trainer, used trainer, queued steps: the same bits"}};
  for (const Case& c : small_cases()) all.push_back({c.name, "a small model that stresses one thing"});
  for (const char* part : {"loss", "grad norm", "gradients", "norm", "m", "v", "update", "weights"})
    all.push_back({fmt::format("steps {}", part), "whole steps of 1, 2, 3 and 5 micro-batches from t = 1, 99, 1000, 100000"});
  for (const char* part : {"forward", "gradients", "grad norm", "norm", "m", "v", "update", "weights"})
    all.push_back({fmt::format("d12 {}", part), "a whole step of GPT-2's smallest model at T = 1024"});
  const std::vector<ModelCheck> rest{{"schedule", "the learning rate of every step, of four schedules"},
                                     {"loader", "every batch is the one that the files hold"},
                                     {"loop", "steps, settings and log of a run"},
                                     {"resume", "a run that was cut by a checkpoint is the run that was not"},
                                     {"rounding", "no two steps round the weights alike (stochastic rounding only)"},
                                     {"timed steps", "steps taken as an arm takes them, then again by a fresh trainer"},
                                     {"clock", "reported times add up to the judge's clock"},
                                     {"late work", "a finished step has finished"},
                                     {"persisting L2", "no part of L2 is set aside"},
                                     {"inputs", "tokens and parameters are as they were after every call that may only read them"},
                                     {"launch error", "no launch failed unseen"}};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

class Checks {
 public:
  Checks(const TrainerFactory& make_trainer, const ModelGateOptions& options, std::span<const uint64_t> seeds, bool use_trainers_again)
      : make_(make_trainer),
        options_(options),
        budgets_(budgets_of(options.trainer, options.matmul)),
        storage_(storage_of(options.trainer, options.matmul, options.variants)),
        rounding_(options.trainer != "mixed"                ? WeightRounding::none
                  : options.weight_rounding == "stochastic" ? WeightRounding::stochastic
                                                            : WeightRounding::nearest),
        use_again_(use_trainers_again),
        seeds_(seeds.begin(), seeds.end()),
        reports_(seeds.size()) {
    for (const std::string& name : options.without)
      if (std::ranges::none_of(model_checks(), [&](const ModelCheck& c) { return c.name == name; }))
        throw stepscope::InputError(fmt::format("--without '{}': there is no such check; `stepscope gate --list-checks` has them", name));
    for (size_t i = 0; i < seeds_.size(); ++i) describe(reports_[i], seeds_[i]);
  }

  std::vector<GateReport> run() {
    const Case main_case{"main", options_.config, options_.batch_size, options_.seq_len};
    for_each_seed(main_case, [&] {
      begin(main_case);
      if (wanted("tensor table")) tensor_table();
      if (wanted("fresh model")) fresh_model();
      ask_oracle({"forward", "gradients", "loss of logits"}, 0);
      if (wanted("evaluate")) evaluate();
      optimizer();
      if (wanted("accumulation")) accumulation();
      if (wanted("causality")) causality();
      if (wanted("padding")) padding();
      if (wanted("trajectory")) trajectory();
      if (wanted("fresh inputs")) fresh_inputs();
      if (options_.deterministic && wanted("repeatability")) repeatability();
    });
    if (options_.with_small_cases)
      for (const Case& c : small_cases())
        if (wanted(c.name)) small_case(c);
    if (options_.with_steps && any_wanted("steps "))
      for (const Case& c : step_cases()) for_each_seed(c, [&] { whole_steps(c); });
    if (options_.with_loop && options_.train) loop();
    if (options_.weight_rounding == "stochastic" && wanted("rounding")) for_each_seed(main_case, [&] { rounding(); });
    if (options_.real_size_batch > 0 && any_wanted("d12 ")) real_size();
    finish();
    return std::move(reports_);
  }

  // What depends on the seed: no bit-for-bit checks, no loop, no clock.
  std::vector<GateReport> run_seeds() {
    const Case main_case{"main", options_.config, options_.batch_size, options_.seq_len};
    for_each_seed(main_case, [&] {
      begin(main_case);
      ask_oracle({"forward", "gradients", "loss of logits"}, 0);
      optimizer();
      accumulation();
      trajectory();
      fresh_inputs();
    });
    for (const Case& c : small_cases()) small_case(c);
    for (const Case& c : step_cases()) for_each_seed(c, [&] { whole_steps(c); });
    return std::move(reports_);
  }

 private:
  struct OracleNames {
    std::string forward, gradients, own_loss;
  };

  // ---- what is asked of whom -------------------------------------------------------------------------------------

  void describe(GateReport& r, uint64_t seed) const {
    r.trainer = options_.trainer;
    r.matmul = options_.matmul;
    r.seed = seed;
    r.workload = fmt::format("{}, B={} T={}", options_.model_name, options_.batch_size, options_.seq_len);
    for (const auto& [slot, variant] : options_.variants) r.workload += fmt::format(", {}={}", slot, variant);
    if (options_.recompute != "none") r.workload += ", recompute " + options_.recompute;
    if (options_.weight_rounding != "nearest") r.workload += ", weights rounded " + options_.weight_rounding;
    if (!options_.deterministic) r.workload += ", not deterministic";
    for (const std::string& name : options_.without) r.notes.push_back("not run: " + name);
  }

  bool wanted(const std::string& name) const { return !options_.without.contains(name); }
  bool any_wanted(const std::string& prefix) const {
    return std::ranges::any_of(model_checks(), [&](const ModelCheck& c) { return c.name.starts_with(prefix) && wanted(c.name); });
  }
  std::string if_wanted(const std::string& name, const std::string& suffix = "") const { return wanted(name) ? name + suffix : ""; }

  // `work` once per seed; then everything that it asked is judged.
  void for_each_seed(const Case& c, const std::function<void()>& work) {
    progress(c.name == "main" ? reports_.front().workload : c.name);
    for (size_t i = 0; i < seeds_.size(); ++i) {
      at_ = i;
      work();
    }
    pending_.settle();
    cache_.clear();
  }
  GateReport& report() { return reports_[at_]; }
  uint64_t seed() const { return seeds_[at_]; }
  void add(CheckResult result) { pending_.add(report(), std::move(result)); }
  void later(std::function<Results()> judge) {
    pending_.later(report(), known_parameter_count(case_.config) >= kManyParameters, std::move(judge));
  }
  int draws() const { return known_parameter_count(case_.config) >= kManyParameters || use_again_ ? 1 : kDraws; }

  void begin(const Case& c) {
    const bool same_shape = case_.config == c.config && case_.batch_size == c.batch_size && case_.seq_len == c.seq_len;
    const bool again = use_again_ && same_shape && trainer_ != nullptr;
    if (!again) trainer_.reset();  // the old one's memory first
    case_ = c;
    layout_ = gpt2::tensor_layout(c.config);
    parameters_ = trained_like_parameters(c, seed());
    if (!again) trainer_ = make_trainer();
    if (report().device.empty()) report().device = trainer_->device();
    if (!again)
      for (const std::string& notice : trainer_->notices()) report().notes.push_back(fmt::format("{}: {}", c.name, notice));
    trainer_->write(State::parameters, parameters_);
  }

  std::unique_ptr<Trainer> make_trainer() {
    gpt2::TrainerOptions o;
    o.model = case_.config;
    o.batch_size = case_.batch_size;
    o.seq_len = case_.seq_len;
    o.matmul = options_.matmul;
    o.variants = options_.variants;
    o.recompute = options_.recompute;
    o.weight_rounding = options_.weight_rounding;
    o.deterministic = options_.deterministic;
    return audited(make_(o), wanted("launch error") ? options_.device : nullptr, audit_);
  }

  void progress(const std::string& what) const {
    if (options_.progress) options_.progress(what);
  }

  Floats read(Trainer& trainer, State which) const {
    Floats values(static_cast<size_t>(layout_.total));
    trainer.read(which, values);
    return values;
  }
  Floats read_weights() const {
    Floats values(static_cast<size_t>(layout_.total));
    trainer_->read_weights(values);
    return values;
  }
  // Those that the next forward pass multiplies with. Where no chance takes part they are computed here, so that a
  // trainer that rounds wrongly is wrong in everything that follows too.
  Floats weights_now() const {
    return rounding_ == WeightRounding::stochastic ? read_weights() : rounded_weights(read(*trainer_, State::parameters), rounding_);
  }
  Floats zeros() const { return Floats(static_cast<size_t>(layout_.total)); }
  Floats empty_logits() const {  // NaN, so that an element never written is seen
    return Floats(static_cast<size_t>(case_.batch_size * case_.seq_len * case_.config.vocab_size), NAN);
  }
  int64_t rows() const { return case_.batch_size * case_.seq_len; }

  // Parameters that were written are rounded at random by the step that comes, unseen. A step that moves nothing
  // leaves weights behind that the next one uses as they are.
  void set_state(const Floats& parameters, const Floats& m, const Floats& v) {
    trainer_->write(State::parameters, parameters);
    if (rounding_ == WeightRounding::stochastic) {
      const Tokens tokens = random_tokens(case_, seed(), 40);
      const Batch batch = tokens.batch();
      AdamW still;
      still.learning_rate = 0;
      trainer_->enqueue_step({1, {&batch, 1}, still});
      trainer_->finish_step();
    }
    trainer_->write(State::adam_m, m);
    trainer_->write(State::adam_v, v);
  }

  StepTaken take_step(int64_t t, const AdamW& adamw, std::vector<Tokens> tokens) {
    StepTaken s;
    s.c = case_;
    s.t = t;
    s.adamw = adamw;
    s.tokens = std::move(tokens);
    s.parameters = read(*trainer_, State::parameters);
    s.weights = rounding_ == WeightRounding::stochastic ? read_weights() : rounded_weights(s.parameters, rounding_);
    s.m = read(*trainer_, State::adam_m);
    s.v = read(*trainer_, State::adam_v);
    std::vector<Batch> batches;
    for (const Tokens& x : s.tokens) batches.push_back(x.batch());
    trainer_->enqueue_step({t, batches, adamw});
    s.outcome = trainer_->finish_step();
    s.gradients = read(*trainer_, State::gradients);
    s.new_parameters = read(*trainer_, State::parameters);
    s.new_m = read(*trainer_, State::adam_m);
    s.new_v = read(*trainer_, State::adam_v);
    s.new_weights = read_weights();
    return s;
  }

  void judge_later(StepTaken taken, const StepNames& names) {
    later([this, s = std::make_shared<const StepTaken>(std::move(taken)), names, draws = draws()] {
      Results out = judge_arithmetic(*s, names, rounding_);
      if (names.loss.empty() && names.grad_norm.empty() && names.gradients.empty()) return out;
      const auto expected = cache_.get(s->c, s->weights, s->tokens, storage_, draws, true);
      for (CheckResult& r : judge_against_oracle(*s, names, *expected, budgets_)) out.push_back(std::move(r));
      return out;
    });
  }

  // In these cases one term of a sum is about as large as the sum, which so rounds at that size with each of its C = 64
  // terms: sqrt(64) times what storing it once would lose, three bits.
  Storage storage_for(const Case& c) const {
    Storage s = storage_;
    if (c.stress == Stress::far_mean || c.stress == Stress::low_logits || c.stress == Stress::one_high_logit)
      for (int* bits : {&s.activation_bits, &s.stream_bits}) *bits = std::min(*bits, 21);
    return s;
  }

  // On the floors of some cases: what a device needed before errors were measured against draws.
  double stress_factor(const Case& c) const {
    if (c.stress == Stress::large_logits) return budgets_.large_logits_factor;
    if (c.stress == Stress::offset_stream || c.stress == Stress::gelu_tail) return budgets_.forward_stress_factor;
    return c.stress == Stress::sharp_attention ? budgets_.sharp_attention_factor : 1;
  }
  static double noise_factor(const Case& c) {
    return c.stress == Stress::low_logits || c.stress == Stress::one_high_logit ? kFewPartsFactor : kNoiseFactor;
  }
  double slice_factor(const Case& c) const {
    return c.stress == Stress::sharp_attention ? budgets_.sharp_attention_slice_factor : budgets_.slice_factor;
  }

  static void compare_gradients(Results& out, const std::string& check, const Case& c, std::span<const float> got, const Expected& e,
                                double floor, double slice_factor, double noise_factor) {
    const std::vector<KnownTensor> tensors = known_tensors(c.config);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const KnownTensor& t = tensors[i];
      const auto offset = static_cast<size_t>(t.offset), size = static_cast<size_t>(t.size());
      out.push_back(from_metrics(
          check, t.name,
          compare<float, double>(got.subspan(offset, size), std::span(e.gradients).subspan(offset, size), t.layers * t.rows, t.columns),
          limits_of(e.gradients_noise[i], floor, slice_factor, noise_factor)));
    }
  }

  // ---- the checks ------------------------------------------------------------------------------------------------

  // Forward and backward on the trainer as it is, and the oracle on its weights.
  void ask_oracle(OracleNames names, uint64_t tokens_number) {
    for (std::string* name : {&names.forward, &names.gradients, &names.own_loss})
      if (!name->empty() && !wanted(*name)) name->clear();
    if (case_.forward_only) names.gradients.clear();
    if (names.forward.empty() && names.gradients.empty() && names.own_loss.empty()) return;
    struct Answer {
      Case c;
      std::vector<Tokens> tokens;
      Floats weights, logits, gradients;
      double loss = 0;
    };
    auto a = std::make_shared<Answer>();
    a->c = case_;
    a->tokens = {random_tokens(case_, seed(), tokens_number)};
    a->weights = weights_now();
    a->logits = empty_logits();
    a->loss = trainer_->forward_backward(a->tokens[0].batch(), a->logits);
    if (!names.gradients.empty()) a->gradients = read(*trainer_, State::gradients);
    if (wanted("inputs")) parameters_changed_ += count_different(read(*trainer_, State::parameters), parameters_);
    later([this, a, names, draws = draws()] {
      Results out;
      const Case& c = a->c;
      const int64_t tokens = c.batch_size * c.seq_len, V = c.config.vocab_size;
      if (!names.own_loss.empty()) out.push_back(loss_of_own_logits(names.own_loss, "loss", a->loss, a->logits, a->tokens[0].targets, V));
      if (names.forward.empty() && names.gradients.empty()) return out;
      const auto e = cache_.get(c, a->weights, a->tokens, storage_for(c), draws, !c.forward_only);
      const double factor = stress_factor(c);
      if (!names.forward.empty()) {
        out.push_back(from_metrics(names.forward, "logits", compare<float, double>(a->logits, e->logits, tokens, V),
                                   limits_of(e->logits_noise, budgets_.logits * factor, budgets_.slice_factor, noise_factor(c))));
        const double alone = tokens == 1 ? budgets_.one_token_factor : 1;
        out.push_back(scalar_result(names.forward, "loss", a->loss, e->loss, loss_limit(*e, tokens, budgets_.loss * factor * alone)));
      }
      if (!names.gradients.empty())
        compare_gradients(out, names.gradients, c, a->gradients, *e, budgets_.gradients * factor, slice_factor(c), noise_factor(c));
      return out;
    });
  }

  // The table that trainers and oracle walk is the one that is written down in known_model.cpp.
  void tensor_table() {
    const std::vector<KnownTensor> known = known_tensors(case_.config);
    int64_t wrong = std::abs(static_cast<int64_t>(known.size()) - int64_t{gpt2::kTensorCount});
    std::string first;
    for (size_t i = 0; i < std::min<size_t>(known.size(), gpt2::kTensorCount); ++i) {
      const gpt2::TensorRow& row = gpt2::kTensorTable[i];
      const gpt2::TensorSpan& span = layout_[row.id];
      const KnownTensor& k = known[i];
      const bool right = row.name == k.name && row.decayed == k.decayed && span.offset == k.offset && span.size == k.size() &&
                         span.rows == k.rows && span.columns == k.columns;
      if (!right && wrong++ == 0) first = k.name;
    }
    add(must_be_zero("tensor table", "rows", wrong, "rows", first));
  }

  // Mean and deviation of each tensor of a fresh model, in deviations of what as many draws have.
  void fresh_model() {
    const Floats fresh = gpt2::init_parameters(case_.config, seed());
    for (const KnownTensor& t : known_tensors(case_.config)) {
      double sum = 0, squares = 0, n = 0;
      int64_t wrong = 0;
      for (int64_t i = 0; i < t.size(); ++i) {
        const double x = static_cast<double>(fresh[static_cast<size_t>(t.offset + i)]);
        const bool padding = t.name == "wte" && i >= case_.config.vocab_size * case_.config.channels;
        if (padding || t.start_deviation == 0) {
          wrong += x != (padding ? 0 : t.start_mean);
          continue;
        }
        sum += x - t.start_mean;
        squares += (x - t.start_mean) * (x - t.start_mean);
        ++n;
      }
      add(must_be_zero("fresh model", t.name, wrong, "elements"));
      if (t.start_deviation == 0) continue;
      const double mean_off = std::abs(sum) / (t.start_deviation * std::sqrt(n));
      const double deviation_off = std::abs(squares / (t.start_deviation * t.start_deviation) - n) / std::sqrt(2 * n);
      add(make_result("fresh model", t.name, {{"deviations", mean_off, 6, -1}, {"deviations", deviation_off, 6, -1}}));
    }
  }

  // The oracle once more, after everything that this trainer has done by now: shapes and weights are those of the first
  // comparison, only the tokens are new.
  void fresh_inputs() {
    progress("fresh inputs");
    trainer_->write(State::parameters, parameters_);
    ask_oracle({"fresh inputs", "fresh inputs", ""}, 21);
  }

  void small_case(const Case& c) {
    const auto stream = options_.variants.find("residual_stream");
    if ((c.stress == Stress::offset_stream || c.stress == Stress::far_mean) && stream != options_.variants.end() &&
        stream->second == "bf16") {
      for (GateReport& r : reports_)
        r.notes.push_back(c.name + ": not checked: a residual stream in bf16 was asked for, which cannot hold it");
      return;
    }
    for_each_seed(c, [&] {
      if (begin_or_note(c)) ask_oracle({c.name, c.name, ""}, 0);
    });
  }
  // A variant that was asked for by name may be refused at an odd shape; a default may not.
  bool begin_or_note(const Case& c) {
    const auto not_checked = [&](const std::exception& e) {
      if (options_.variants.empty() || !std::string_view(e.what()).starts_with("--variant ")) throw;
      trainer_.reset();
      report().notes.push_back(fmt::format("{}: not checked: {}", c.name, e.what()));
      return false;
    };
    try {
      begin(c);
      return true;
    } catch (const stepscope::InputError& e) {
      return not_checked(e);
    } catch (const stepscope::MachineError& e) {
      return not_checked(e);
    }
  }

  // Weights are rounded anew in every step, each time with other random bits: of steps that move nothing, no two may
  // leave the same weights behind.
  void rounding() {
    begin({"rounding", options_.config, options_.batch_size, options_.seq_len});
    const Tokens tokens = random_tokens(case_, seed(), 31);
    const Batch batch = tokens.batch();
    AdamW still = training_;
    still.learning_rate = 0;
    std::vector<Floats> logits;
    int64_t same = 0;
    for (int64_t step = 1; step <= 4; ++step) {
      trainer_->enqueue_step({step, {&batch, 1}, still});
      trainer_->finish_step();
      logits.push_back(empty_logits());
      trainer_->evaluate(batch, logits.back());
      for (size_t i = 0; i + 1 < logits.size(); ++i) same += count_different(logits[i], logits.back()) == 0;
    }
    add(must_be_zero("rounding", "logits", same, "pairs", "two steps rounded the weights alike"));
  }

  // Forward alone gives what forward and backward gave, and twice the same.
  void evaluate() {
    const Tokens tokens = random_tokens(case_, seed(), 0);
    Floats with_backward = empty_logits(), alone = empty_logits();
    const double first = trainer_->forward_backward(tokens.batch(), with_backward);
    const double second = trainer_->evaluate(tokens.batch(), alone);
    const double third = trainer_->evaluate(tokens.batch());
    add(must_be_zero("evaluate", "logits", count_different(with_backward, alone), "elements"));
    add(scalar_result("evaluate", "loss", second, first, 1e-7));
    add(scalar_result("evaluate", "loss, no logits", third, second, 0));
  }

  double norm_of_own_gradients(uint64_t tokens_number) {
    const Tokens tokens = random_tokens(case_, seed(), tokens_number);
    trainer_->forward_backward(tokens.batch());
    double sum = 0;
    for (const float g : read(*trainer_, State::gradients)) sum += static_cast<double>(g) * static_cast<double>(g);
    return std::sqrt(sum);
  }

  // Three steps from zero moments, clipped, decayed; then one unclipped because the limit is far, one because
  // it is off.
  void optimizer() {
    const StepNames base{if_wanted("grad norm"), if_wanted("adam m"),         if_wanted("adam v"),
                         if_wanted("update"),    if_wanted("weights"),        if_wanted("optimizer"),
                         if_wanted("grad norm"), if_wanted("step gradients"), ""};
    if ((base.norm + base.m + base.v + base.update + base.weights + base.loss + base.gradients).empty()) return;
    progress("optimizer");
    const double norm = norm_of_own_gradients(1);
    set_state(parameters_, zeros(), zeros());
    for (int64_t t = 1; t <= 5; ++t) {
      AdamW adamw{.learning_rate = large_step(), .weight_decay = 0.1f};
      adamw.clip = t <= 3 ? static_cast<float>(norm / 10) : t == 4 ? static_cast<float>(norm * 100) : 0.0f;
      StepNames names = base;
      const std::string at = fmt::format(" t={} clip {:.2g}", t, adamw.clip);
      for (std::string* name : {&names.m, &names.v, &names.update, &names.weights, &names.gradients})
        if (!name->empty()) *name += at;
      names.detail = fmt::format("t={}", t);
      judge_later(take_step(t, adamw, {random_tokens(case_, seed(), static_cast<uint64_t>(t))}), names);
    }
  }

  // A step of Adam moves every weight by about the learning rate. 1e-2 is as much as the weights themselves; what that
  // does to the activations grows with the width, and on d12 the gradients at t=3 were so ill-conditioned that fp32
  // missed 2e-6 by a factor of 2.7 (H200, 2026-11-20). So wide models step less.
  float large_step() const { return kLargeStep * std::min(1.0f, 128.0f / static_cast<float>(case_.config.channels)); }

  // Two micro-batches are one step of the mean gradient. At t=1 from zero moments m = (1 - beta1) g, which also shows
  // gradients that were left over from before.
  void accumulation() {
    progress("accumulation");
    AdamW adamw;
    adamw.clip = 0;
    adamw.beta1 = 0.5f;
    set_state(parameters_, zeros(), zeros());
    StepTaken taken = take_step(1, adamw, {random_tokens(case_, seed(), 11), random_tokens(case_, seed(), 12)});
    taken.gradients = taken.new_m;
    for (float& x : taken.gradients) x *= 2;
    StepNames names;
    names.loss = names.grad_norm = names.gradients = "accumulation";
    later([this, s = std::make_shared<const StepTaken>(std::move(taken)), names, draws = draws()] {
      return judge_against_oracle(*s, names, *cache_.get(s->c, s->weights, s->tokens, storage_, draws, true), budgets_);
    });
  }

  // A later token may not change an earlier output by a single bit, nor another sequence's; its own it must change.
  void causality() {
    progress("causality");
    Tokens tokens = random_tokens(case_, seed(), 0);
    trainer_->write(State::parameters, parameters_);
    const auto T = static_cast<size_t>(case_.seq_len), V = static_cast<size_t>(case_.config.vocab_size);
    Floats before = empty_logits(), after = empty_logits();
    trainer_->evaluate(tokens.batch(), before);
    const size_t sequence = static_cast<size_t>(case_.batch_size - 1);
    int64_t leaked = 0, unmoved = 0;
    for (size_t t : {T / 3, T / 2, T - 1}) {
      if (t == 0) continue;
      int32_t& token = tokens.inputs[sequence * T + t];
      const int32_t old = token;
      token = static_cast<int32_t>((old + 1) % case_.config.vocab_size);
      trainer_->evaluate(tokens.batch(), after);
      token = old;
      const std::span<const float> x(before), y(after);
      const size_t first = (sequence * T + t) * V;
      leaked += count_different(x.first(first), y.first(first));
      for (size_t r = sequence * T + t; r < (sequence + 1) * T; ++r)
        unmoved += count_different(x.subspan(r * V, V), y.subspan(r * V, V)) == 0;
    }
    add(must_be_zero("causality", "logits before", leaked, "elements", "a later token changed them"));
    add(must_be_zero("causality", "logits after", unmoved, "rows", "a token changed nothing"));
  }

  // Whatever the padded rows of wte hold, nothing that is not padding may see it.
  void padding() {
    const int64_t V = case_.config.vocab_size, C = case_.config.channels;
    if (V == case_.config.padded_vocab) return;
    progress("padding");
    const Tokens tokens = random_tokens(case_, seed(), 0);
    trainer_->write(State::parameters, parameters_);
    Floats clean = empty_logits(), dirty = empty_logits();
    const double clean_loss = trainer_->forward_backward(tokens.batch(), clean);
    const Floats clean_gradients = read(*trainer_, State::gradients);
    Floats huge = parameters_;
    for (int64_t i = V * C; i < case_.config.padded_vocab * C; ++i) huge[static_cast<size_t>(i)] = 1e4f;  // wte is the first
    trainer_->write(State::parameters, huge);
    const double dirty_loss = trainer_->forward_backward(tokens.batch(), dirty);
    const Floats dirty_gradients = read(*trainer_, State::gradients);
    trainer_->write(State::parameters, parameters_);
    add(must_be_zero("padding", "logits", count_different(clean, dirty), "elements"));
    add(scalar_result("padding", "loss", dirty_loss, clean_loss, 0));
    for (const KnownTensor& t : known_tensors(case_.config)) {
      const std::span<const float> x(clean_gradients), y(dirty_gradients);
      const auto offset = static_cast<size_t>(t.offset), size = static_cast<size_t>(t.size());
      add(must_be_zero("padding", t.name, count_different(x.subspan(offset, size), y.subspan(offset, size)), "elements"));
    }
  }

  // A short training run from a fresh model. Its losses must be the oracle's; where weights are rounded at random, the
  // oracle's on the trainer's own weights of each step.
  void trajectory() {
    progress(fmt::format("trajectory of {} steps", trajectory_steps()));
    const Floats fresh = gpt2::init_parameters(case_.config, seed());
    if (rounding_ == WeightRounding::stochastic) {
      set_state(fresh, zeros(), zeros());
      for (int64_t t = 1; t <= trajectory_steps(); ++t) {
        const std::vector<Tokens> tokens{random_tokens(case_, seed(), static_cast<uint64_t>(t % 4))};
        const Floats weights = read_weights();
        const Batch batch = tokens[0].batch();
        trainer_->enqueue_step({t, {&batch, 1}, training_});
        const double got = trainer_->finish_step().loss;
        later([this, c = case_, t, tokens, weights, got] {
          const Expected e = expect(c, weights, tokens, storage_, 1, false);
          return Results{scalar_result("trajectory", fmt::format("loss of step {}", t), got, e.loss,
                                       loss_limit(e, c.batch_size * c.seq_len, budgets_.trajectory))};
        });
      }
      return;
    }
    const std::vector<double> got = losses(*trainer_, fresh, trajectory_steps(), 1);
    later([this, c = case_, fresh, got, seed = seed()] {
      Results out;
      Oracle oracle(c.config, c.batch_size, c.seq_len);
      oracle.set(State::parameters, fresh);
      for (size_t i = 0; i < got.size(); ++i) {
        const auto t = static_cast<int64_t>(i) + 1;
        const Tokens tokens = random_tokens(c, seed, static_cast<uint64_t>(t % 4));
        const Batch batch = tokens.batch();
        const double want = oracle.step({t, {&batch, 1}, training_}).loss;
        out.push_back(scalar_result("trajectory", fmt::format("loss of step {}", t), got[i], want, budgets_.trajectory));
      }
      return out;
    });
  }

  int64_t trajectory_steps() const { return use_again_ ? std::min<int64_t>(options_.trajectory_steps, 8) : options_.trajectory_steps; }

  // Losses of a run from `start`; up to `in_flight` steps are queued before the first is waited for.
  std::vector<double> losses(Trainer& trainer, const Floats& start, int64_t steps, int64_t in_flight) const {
    trainer.write(State::parameters, start);
    trainer.write(State::adam_m, zeros());
    trainer.write(State::adam_v, zeros());
    std::vector<double> out;
    int64_t queued = 0;
    for (int64_t t = 1; t <= steps; ++t) {
      const Tokens tokens = random_tokens(case_, seed(), static_cast<uint64_t>(t % 4));
      const Batch batch = tokens.batch();
      trainer.enqueue_step({t, {&batch, 1}, training_});
      if (++queued == in_flight) {
        out.push_back(trainer.finish_step().loss);
        --queued;
      }
    }
    for (; queued > 0; --queued) out.push_back(trainer.finish_step().loss);
    return out;
  }

  // The same run on a new trainer, on one whose buffers are dirty from another run, and with two steps in
  // flight.
  void repeatability() {
    progress("repeatability");
    constexpr int64_t kSteps = 4;
    struct Run {
      std::vector<double> losses;
      Floats parameters, m, v;
    };
    const auto record = [&](Trainer& trainer, int64_t in_flight) {
      Run r;
      r.losses = losses(trainer, parameters_, kSteps, in_flight);
      r.parameters = read(trainer, State::parameters);
      r.m = read(trainer, State::adam_m);
      r.v = read(trainer, State::adam_v);
      return r;
    };
    const Run used = record(*trainer_, 1);
    trainer_.reset();
    const std::unique_ptr<Trainer> fresh = make_trainer();
    const Run again = record(*fresh, 1), queued = record(*fresh, 2);
    for (const auto& [what, run] : {std::pair<std::string, const Run&>{"new trainer", again}, {"queued", queued}}) {
      int64_t losses_differ = 0;
      for (size_t i = 0; i < run.losses.size(); ++i) losses_differ += !(run.losses[i] == used.losses[i]);
      add(must_be_zero("repeatability", what + " loss", losses_differ, "steps"));
      add(must_be_zero("repeatability", what + " param", count_different(run.parameters, used.parameters), "elements"));
      add(must_be_zero("repeatability", what + " m,v", count_different(run.m, used.m) + count_different(run.v, used.v), "elements"));
    }
  }

  // Steps of 1, 2, 3 and 5 micro-batches that begin at t = 1, 99, 1000 and 100000 from a given state. With many seeds
  // only those of 1 and 3: errors do not grow with the number.
  void whole_steps(const Case& c) {
    if (!begin_or_note(c)) return;
    StepNames names{if_wanted("steps norm"),      if_wanted("steps m"),         if_wanted("steps v"),
                    if_wanted("steps update"),    if_wanted("steps weights"),   if_wanted("steps loss"),
                    if_wanted("steps grad norm"), if_wanted("steps gradients"), ""};
    const Moments given = given_moments(c, seed());
    uint64_t number = 100;
    for (const auto& [micro_batches, t] : {std::pair<int, int64_t>{1, 1000}, {2, 1}, {3, 100000}, {5, 99}}) {
      if (use_again_ && (micro_batches % 2 == 0 || micro_batches == 5)) continue;
      if (use_again_ && micro_batches > 1 && rows() > 1000) continue;
      std::vector<Tokens> tokens;
      for (int i = 0; i < micro_batches; ++i) tokens.push_back(random_tokens(c, seed(), number++));
      set_state(parameters_, t == 1 ? zeros() : given.m, t == 1 ? zeros() : given.v);
      names.detail = fmt::format("{} x{} t={}", c.name, micro_batches, t);
      const AdamW adamw{.learning_rate = 1e-3f, .weight_decay = 0.1f, .clip = micro_batches == 3 ? 0.0f : 1.0f};
      judge_later(take_step(t, adamw, std::move(tokens)), names);
    }
  }

  void loop() {
    bool any = false;
    for (const char* name : {"schedule", "loader", "loop", "resume"}) any = any || wanted(name);
    if (!any) return;
    progress("loop");
    trainer_.reset();
    case_ = Case{"loop", gate_model(), 2, 16};
    case_.config.layers = 1;
    layout_ = gpt2::tensor_layout(case_.config);
    LoopGateOptions o;
    o.seed = seed();
    o.deterministic = options_.deterministic;
    o.wanted = [this](const std::string& name) { return wanted(name); };
    o.train = options_.train;
    for (CheckResult& r : check_loop([this] { return make_trainer(); }, o)) add(std::move(r));
    pending_.settle();
  }

  // GPT-2's smallest model as it trains: one step against the oracle. B = 1: no token twice among inputs or targets;
  // more sequences: all equal, random, at the edges.
  void real_size() {
    Case c{"d12 T=1024", gpt2::model_from_name("d12"), options_.real_size_batch, 1024, Stress::mixed_tokens};
    for_each_seed(c, [&] {
      begin(c);
      ask_oracle({"d12 forward", "", ""}, 0);
      StepNames names{if_wanted("d12 norm"),      if_wanted("d12 m"),         if_wanted("d12 v"),
                      if_wanted("d12 update"),    if_wanted("d12 weights"),   "",
                      if_wanted("d12 grad norm"), if_wanted("d12 gradients"), ""};
      if ((names.norm + names.m + names.v + names.update + names.weights + names.grad_norm + names.gradients).empty()) return;
      set_state(parameters_, zeros(), zeros());
      judge_later(take_step(1, AdamW{.learning_rate = 1e-3f, .weight_decay = 0.1f}, {random_tokens(c, seed(), 0)}), names);
    });
    trainer_.reset();
  }

  // On a device with more parameters and fewer tokens than the gate's model has: its step would be so short that late
  // work in it could not be told from waking up.
  void timed_steps() {
    progress("timed steps");
    trainer_.reset();
    case_ = Case{"main", options_.config, options_.batch_size, options_.seq_len};
    if (options_.device != nullptr && options_.with_small_cases) case_ = {"timed", timed_model(), 1, 64};
    TimedStepsOptions o;
    o.again.seed = seed();
    o.again.adamw = training_;
    o.again.deterministic = options_.deterministic;
    o.device = options_.device;
    o.wanted = [this](const std::string& name) { return wanted(name); };
    for (CheckResult& r : check_timed_steps([&] { return make_trainer(); }, o)) add(std::move(r));
  }

  void finish() {
    bool timed = false;
    for (const char* name : {"timed steps", "clock", "late work", "persisting L2"}) timed = timed || wanted(name);
    if (options_.with_timed_steps && timed) timed_steps();
    if (wanted("inputs")) {
      add(must_be_zero("inputs", "tokens", audit_.tokens_changed, "tokens"));
      add(must_be_zero("inputs", "param", parameters_changed_, "elements"));
    }
    if (options_.device != nullptr && wanted("launch error"))
      add(must_be_zero("launch error", "every call", !audit_.launch_error.empty(), "launches", audit_.launch_error));
    pending_.settle();
  }

  const TrainerFactory& make_;
  const ModelGateOptions& options_;
  const ModelBudgets budgets_;
  const Storage storage_;
  const WeightRounding rounding_;
  const bool use_again_;
  const AdamW training_{.learning_rate = 1e-3f, .weight_decay = 0.1f};
  std::vector<uint64_t> seeds_;
  std::vector<GateReport> reports_;
  size_t at_ = 0;  // of the seed at hand
  Pending pending_;
  ExpectedCache cache_;
  TrainerAudit audit_;
  int64_t parameters_changed_ = 0;  // by a forward and backward pass
  Case case_;
  gpt2::TensorLayout layout_;
  Floats parameters_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace

const std::vector<ModelCheck>& model_checks() {
  static const std::vector<ModelCheck> all = all_checks();
  return all;
}

GateReport check_model(const TrainerFactory& make_trainer, const ModelGateOptions& options) {
  const uint64_t seeds[] = {options.seed};
  return std::move(Checks(make_trainer, options, seeds, false).run().front());
}

std::vector<GateReport> check_seeds(const TrainerFactory& make_trainer, const ModelGateOptions& options, std::span<const uint64_t> seeds) {
  return Checks(make_trainer, options, seeds, true).run_seeds();
}

}  // namespace gate

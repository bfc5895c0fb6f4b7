// Two traps. The gradient of the key bias is zero in exact arithmetic, so after an AdamW update those
// elements are rounding noise blown up to +-lr: parameters after an update cannot be compared with the
// oracle's element by element. Instead the moments (linear in the gradient) are compared with the oracle, and
// the new parameters with the closed form from the trainer's own moments. And the trainer keeps its state in
// fp32, so the oracle is set to the trainer's state before every compared step: what is compared is one step,
// not a drift.
#include "experiments/gate/model_gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "experiments/gate/audited_trainer.h"
#include "experiments/gate/budgets.h"
#include "experiments/gate/oracle.h"
#include "experiments/gate/timed_steps.h"
#include "gpt2/errors.h"

namespace gate {
namespace {

constexpr float kLargeStep = 1e-2f;  // of the optimizer checks; large_step() says why wide models take less

using gpt2::AdamW;
using gpt2::Batch;
using gpt2::State;
using gpt2::StepOutcome;
using gpt2::Trainer;
using Floats = std::vector<float>;

template <typename T>
std::span<const T> part(std::span<const T> all, const gpt2::TensorSpan& span) {
  return all.subspan(static_cast<size_t>(span.offset), static_cast<size_t>(span.size));
}

class Checks {
 public:
  Checks(const TrainerFactory& make_trainer, const ModelGateOptions& options)
      : make_(make_trainer), options_(options), budgets_(budgets_of(options.trainer, options.matmul)) {}

  GateReport run() {
    const Case main_case{"main", options_.config, options_.batch_size, options_.seq_len};
    report_.trainer = options_.trainer;
    report_.matmul = options_.matmul;
    report_.seed = options_.seed;
    report_.workload =
        fmt::format("{}, B={} T={}", options_.model_name, main_case.batch_size, main_case.seq_len);
    for (const auto& [slot, variant] : options_.variants)
      report_.workload += fmt::format(", {}={}", slot, variant);
    if (options_.recompute != "none") report_.workload += ", recompute " + options_.recompute;
    if (options_.weight_rounding != "nearest") report_.workload += ", weights rounded " + options_.weight_rounding;
    if (!options_.deterministic) report_.workload += ", not deterministic";
    {
      begin(main_case);
      oracle_comparison("forward", "gradients");
      evaluate();
      optimizer();
      accumulation();
      causality();
      padding();
    }
    trajectory();
    fresh_inputs();
    if (options_.deterministic) repeatability();
    if (options_.with_small_cases)
      for (const Case& c : small_cases()) {
        const auto stream = options_.variants.find("residual_stream");
        if (c.stress == Stress::offset_stream && stream != options_.variants.end() && stream->second == "bf16") {
          report_.notes.push_back(c.name + ": not checked: a residual stream in bf16 was asked for, which cannot hold it");
          continue;
        }
        if (begin_or_note(c)) oracle_comparison(c.name, c.name);
      }
    if (options_.weight_rounding == "stochastic") rounding();
    if (options_.with_timed_steps) timed_steps();
    report_.add(must_be_zero("inputs", "tokens", audit_.tokens_changed, "tokens"));
    report_.add(must_be_zero("inputs", "param", parameters_changed_, "elements"));
    if (options_.device != nullptr)
      report_.add(must_be_zero("launch error", "every call", !audit_.launch_error.empty(), "launches", audit_.launch_error));
    return std::move(report_);
  }

 private:
  void begin(const Case& c) {
    progress(c.name == "main" ? report_.workload : c.name);
    trainer_.reset();  // the old one's memory first
    oracle_.reset();
    case_ = c;
    layout_ = gpt2::tensor_layout(c.config);
    parameters_ = trained_like_parameters(c, options_.seed);
    trainer_ = make_trainer();
    if (report_.device.empty()) report_.device = trainer_->device();
    for (const std::string& notice : trainer_->notices()) report_.notes.push_back(fmt::format("{}: {}", c.name, notice));
    oracle_ = std::make_unique<Oracle>(c.config, c.batch_size, c.seq_len);
    trainer_->write(State::parameters, parameters_);
    oracle_->set(State::parameters, parameters_);
  }

  // A variant that was asked for by name may be refused at an odd shape; a default may not.
  bool begin_or_note(const Case& c) {
    const auto not_checked = [&](const std::exception& e) {
      if (options_.variants.empty() || !std::string_view(e.what()).starts_with("--variant ")) throw;
      report_.notes.push_back(fmt::format("{}: not checked: {}", c.name, e.what()));
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
    return audited(make_(o), options_.device, audit_);
  }

  void progress(const std::string& what) const {
    if (options_.progress) options_.progress(what);
  }

  Floats read(Trainer& trainer, State which) const {
    Floats values(static_cast<size_t>(layout_.total));
    trainer.read(which, values);
    return values;
  }

  Floats empty_logits() const {  // NaN, so that an element never written is seen
    return Floats(static_cast<size_t>(case_.batch_size * case_.seq_len * case_.config.vocab_size), NAN);
  }

  void compare_tensors(const std::string& check, std::span<const float> got, std::span<const double> want,
                       double budget, double factor = 1) {
    for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
      const gpt2::TensorSpan& span = layout_[row.id];
      const auto metrics = compare(part(got, span), part(want, span), span.size / span.columns, span.columns);
      report_.add(from_metrics(check, std::string(row.name), metrics,
                               tolerance(budget * factor, slice_factor())));
    }
  }

  double slice_factor() const {
    return case_.stress == Stress::sharp_attention ? budgets_.sharp_attention_slice_factor : budgets_.slice_factor;
  }

  double stress_factor() const {
    if (case_.stress == Stress::large_logits) return budgets_.large_logits_factor;
    if (case_.stress == Stress::offset_stream || case_.stress == Stress::gelu_tail) return budgets_.forward_stress_factor;
    return case_.stress == Stress::sharp_attention ? budgets_.sharp_attention_factor : 1;
  }

  void oracle_comparison(const std::string& forward_name, const std::string& gradients_name) {
    const Tokens tokens = random_tokens(case_, options_.seed, 0);
    const Batch batch = tokens.batch();
    const double want_loss = oracle_->forward_backward({&batch, 1});
    Floats logits = empty_logits();
    const double loss = trainer_->forward_backward(batch, logits);
    const std::span<const double> want = oracle_->logits();
    const double factor = stress_factor();
    report_.add(from_metrics(
        forward_name, "logits",
        compare<float, double>(logits, want, case_.batch_size * case_.seq_len, case_.config.vocab_size),
        tolerance(budgets_.logits * factor, budgets_.slice_factor)));
    const double alone = case_.batch_size * case_.seq_len == 1 ? budgets_.one_token_factor : 1;
    report_.add(scalar_result(forward_name, "loss", loss, want_loss, budgets_.loss * factor * alone));
    if (case_.forward_only) return;
    compare_tensors(gradients_name, read(*trainer_, State::gradients), oracle_->gradients(),
                    budgets_.gradients, factor);
    parameters_changed_ += count_different(read(*trainer_, State::parameters), parameters_);
  }

  // The oracle once more, after everything that this trainer has done by now: shapes and weights are those of the first comparison,
  // only the tokens are new.
  void fresh_inputs() {
    progress("fresh inputs");
    trainer_->write(State::parameters, parameters_);
    oracle_->set(State::parameters, parameters_);
    const Tokens tokens = random_tokens(case_, options_.seed, 21);
    const Batch batch = tokens.batch();
    const double want_loss = oracle_->forward_backward({&batch, 1});
    Floats logits = empty_logits();
    const double loss = trainer_->forward_backward(batch, logits);
    report_.add(from_metrics("fresh inputs", "logits",
                             compare<float, double>(logits, oracle_->logits(), case_.batch_size * case_.seq_len,
                                                    case_.config.vocab_size),
                             tolerance(budgets_.logits, budgets_.slice_factor)));
    report_.add(scalar_result("fresh inputs", "loss", loss, want_loss, budgets_.loss));
    compare_tensors("fresh inputs", read(*trainer_, State::gradients), oracle_->gradients(), budgets_.gradients);
  }

  // Weights are rounded anew in every step, each time with other random bits: of steps that move nothing, no two may leave the same
  // weights behind.
  void rounding() {
    progress("rounding");
    begin({"rounding", options_.config, options_.batch_size, options_.seq_len});
    const Tokens tokens = random_tokens(case_, options_.seed, 31);
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
    report_.add(must_be_zero("rounding", "logits", same, "pairs", "two steps rounded the weights alike"));
  }

  // On a device with more parameters and fewer tokens than the gate's model has: its step would be so short that late work in it
  // could not be told from waking up.
  void timed_steps() {
    progress("timed steps");
    trainer_.reset();
    oracle_.reset();
    case_ = Case{"main", options_.config, options_.batch_size, options_.seq_len};
    if (options_.device != nullptr && options_.with_small_cases) case_ = {"timed", timed_model(), 1, 64};
    TimedStepsOptions o;
    o.again.seed = options_.seed;
    o.again.adamw = training_;
    o.again.deterministic = options_.deterministic;
    o.device = options_.device;
    for (CheckResult& r : check_timed_steps([&] { return make_trainer(); }, o)) report_.add(std::move(r));
  }

  // Forward alone gives what forward and backward gave, and twice the same.
  void evaluate() {
    const Tokens tokens = random_tokens(case_, options_.seed, 0);
    Floats with_backward = empty_logits(), alone = empty_logits();
    const double first = trainer_->forward_backward(tokens.batch(), with_backward);
    const double second = trainer_->evaluate(tokens.batch(), alone);
    const double third = trainer_->evaluate(tokens.batch());
    report_.add(must_be_zero("evaluate", "logits", count_different(with_backward, alone), "elements"));
    report_.add(scalar_result("evaluate", "loss", second, first, 1e-7));
    report_.add(scalar_result("evaluate", "loss, no logits", third, second, 0));
  }

  // Three steps from zero moments, clipped, decayed; then one unclipped because the limit is far, one because
  // it is off.
  void optimizer() {
    progress("optimizer");
    const Floats zeros(static_cast<size_t>(layout_.total));
    trainer_->write(State::parameters, parameters_);
    trainer_->write(State::adam_m, zeros);
    trainer_->write(State::adam_v, zeros);
    double norm = 0;
    for (int64_t t = 1; t <= 5; ++t) {
      AdamW adamw{.learning_rate = large_step(), .weight_decay = 0.1f};
      if (t == 1) {
        const Tokens tokens = random_tokens(case_, options_.seed, 1);
        const Batch batch = tokens.batch();
        oracle_->set(State::parameters, parameters_);
        oracle_->forward_backward({&batch, 1});
        norm = oracle_->grad_norm();
      }
      adamw.clip = t <= 3 ? static_cast<float>(norm / 10) : t == 4 ? static_cast<float>(norm * 100) : 0.0f;
      one_update(t, adamw);
    }
  }

  // A step of Adam moves every weight by about the learning rate. 1e-2 is as much as the weights themselves; what that does to
  // the activations grows with the width, and on d12 the gradients at t=3 were so ill-conditioned that fp32 missed 2e-6 by
  // a factor of 2.7 (H200, 2026-11-20). So wide models step less.
  float large_step() const {
    return kLargeStep * std::min(1.0f, 128.0f / static_cast<float>(case_.config.channels));
  }

  void one_update(int64_t t, const AdamW& adamw) {
    const std::string at = fmt::format("t={} clip {:.2g}", t, adamw.clip);
    const Tokens tokens = random_tokens(case_, options_.seed, static_cast<uint64_t>(t));
    const Batch batch = tokens.batch();
    const Floats before = read(*trainer_, State::parameters);
    oracle_->set(State::parameters, before);
    oracle_->set(State::adam_m, read(*trainer_, State::adam_m));
    oracle_->set(State::adam_v, read(*trainer_, State::adam_v));
    const StepOutcome want = oracle_->step({t, {&batch, 1}, adamw});
    trainer_->enqueue_step({t, {&batch, 1}, adamw});
    const StepOutcome got = trainer_->finish_step();
    report_.add(scalar_result("grad norm", at, got.grad_norm, want.grad_norm, budgets_.grad_norm));
    report_.add(scalar_result("optimizer", "loss " + at, got.loss, want.loss, budgets_.loss));
    const Floats m = read(*trainer_, State::adam_m), v = read(*trainer_, State::adam_v);
    compare_tensors("adam m " + at, m, oracle_->adam_m(), budgets_.adam_m);
    compare_tensors("adam v " + at, v, oracle_->adam_v(), budgets_.adam_v);
    closed_form("update " + at, t, adamw, before, read(*trainer_, State::parameters), m, v);
  }

  void closed_form(const std::string& check, int64_t t, const AdamW& adamw, const Floats& before,
                   const Floats& after, const Floats& m, const Floats& v) {
    const double correct_m = 1 - std::pow(static_cast<double>(adamw.beta1), static_cast<double>(t));
    const double correct_v = 1 - std::pow(static_cast<double>(adamw.beta2), static_cast<double>(t));
    for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
      const gpt2::TensorSpan& span = layout_[row.id];
      std::vector<double> got(static_cast<size_t>(span.size)), want(got.size());
      for (size_t i = 0; i < got.size(); ++i) {
        const size_t k = static_cast<size_t>(span.offset) + i;
        const double decay =
            row.decayed ? static_cast<double>(adamw.weight_decay) * static_cast<double>(before[k]) : 0;
        const double step =
            static_cast<double>(m[k]) / correct_m /
            (std::sqrt(static_cast<double>(v[k]) / correct_v) + static_cast<double>(adamw.eps));
        want[i] = -static_cast<double>(adamw.learning_rate) * (step + decay);
        got[i] = static_cast<double>(after[k]) - static_cast<double>(before[k]);
      }
      report_.add(from_metrics(check, std::string(row.name),
                               compare<double, double>(got, want, span.size / span.columns, span.columns),
                               // The update is the difference of two rounded parameters: its error grows as it shrinks.
                               tolerance(budgets_.update * static_cast<double>(kLargeStep / adamw.learning_rate),
                                         budgets_.slice_factor)));
    }
    const gpt2::TensorSpan& wte = layout_[gpt2::Tensor::wte];
    int64_t moved = 0;
    for (int64_t i = case_.config.vocab_size * case_.config.channels; i < wte.size; ++i)
      moved += !(after[static_cast<size_t>(wte.offset + i)] == 0);
    report_.add(must_be_zero(check, "wte padding", moved, "elements"));
  }

  // Two micro-batches are one step of the mean gradient. At t=1 from zero moments m = (1 - beta1) g, which
  // also shows gradients that were left over from before.
  void accumulation() {
    progress("accumulation");
    const Tokens a = random_tokens(case_, options_.seed, 11), b = random_tokens(case_, options_.seed, 12);
    const Batch both[2] = {a.batch(), b.batch()};
    const Floats zeros(static_cast<size_t>(layout_.total));
    trainer_->write(State::parameters, parameters_);
    trainer_->write(State::adam_m, zeros);
    trainer_->write(State::adam_v, zeros);
    oracle_->set(State::parameters, parameters_);
    AdamW adamw;
    adamw.clip = 0;
    adamw.beta1 = 0.5f;
    const double want_loss = oracle_->forward_backward(both);
    const double want_norm = oracle_->grad_norm();
    trainer_->enqueue_step({1, both, adamw});
    const StepOutcome got = trainer_->finish_step();
    report_.add(scalar_result("accumulation", "loss", got.loss, want_loss, budgets_.loss));
    report_.add(scalar_result("accumulation", "grad norm", got.grad_norm, want_norm, budgets_.grad_norm));
    Floats gradient = read(*trainer_, State::adam_m);
    for (float& x : gradient) x *= 2;
    compare_tensors("accumulation", gradient, oracle_->gradients(), budgets_.gradients);
  }

  // A later token may not change an earlier output by a single bit, nor another sequence's; its own it must
  // change.
  void causality() {
    progress("causality");
    Tokens tokens = random_tokens(case_, options_.seed, 0);
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
    report_.add(must_be_zero("causality", "logits before", leaked, "elements", "a later token changed them"));
    report_.add(must_be_zero("causality", "logits after", unmoved, "rows", "a token changed nothing"));
  }

  // Whatever the padded rows of wte hold, nothing that is not padding may see it.
  void padding() {
    const int64_t V = case_.config.vocab_size, C = case_.config.channels;
    if (V == case_.config.padded_vocab) return;
    progress("padding");
    const Tokens tokens = random_tokens(case_, options_.seed, 0);
    trainer_->write(State::parameters, parameters_);
    Floats clean = empty_logits(), dirty = empty_logits();
    const double clean_loss = trainer_->forward_backward(tokens.batch(), clean);
    const Floats clean_gradients = read(*trainer_, State::gradients);
    Floats huge = parameters_;
    const gpt2::TensorSpan& wte = layout_[gpt2::Tensor::wte];
    for (int64_t i = V * C; i < wte.size; ++i) huge[static_cast<size_t>(wte.offset + i)] = 1e4f;
    trainer_->write(State::parameters, huge);
    const double dirty_loss = trainer_->forward_backward(tokens.batch(), dirty);
    const Floats dirty_gradients = read(*trainer_, State::gradients);
    trainer_->write(State::parameters, parameters_);
    report_.add(must_be_zero("padding", "logits", count_different(clean, dirty), "elements"));
    report_.add(scalar_result("padding", "loss", dirty_loss, clean_loss, 0));
    for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
      const std::span<const float> x(clean_gradients), y(dirty_gradients);
      report_.add(must_be_zero("padding", std::string(row.name),
                               count_different(part(x, layout_[row.id]), part(y, layout_[row.id])),
                               "elements"));
    }
  }

  // A short training run from a fresh model, whose losses must be the oracle's.
  void trajectory() {
    progress(fmt::format("trajectory of {} steps", options_.trajectory_steps));
    const Floats fresh = gpt2::init_parameters(case_.config, options_.seed);
    const Floats zeros(static_cast<size_t>(layout_.total));
    oracle_->set(State::parameters, fresh);
    oracle_->set(State::adam_m, zeros);
    oracle_->set(State::adam_v, zeros);
    const std::vector<double> got = losses(*trainer_, fresh, options_.trajectory_steps, 1);
    for (int64_t t = 1; t <= options_.trajectory_steps; ++t) {
      const Tokens tokens = random_tokens(case_, options_.seed, static_cast<uint64_t>(t % 4));
      const Batch batch = tokens.batch();
      const double want = oracle_->step({t, {&batch, 1}, training_}).loss;
      report_.add(scalar_result("trajectory", fmt::format("loss of step {}", t),
                                got[static_cast<size_t>(t - 1)], want, budgets_.trajectory));
      if (t == options_.trajectory_steps)
        report_.notes.push_back(fmt::format("trajectory: the oracle's loss at step {} is {:.4f}", t, want));
    }
  }

  // Losses of a run from `start`; up to `in_flight` steps are queued before the first is waited for.
  std::vector<double> losses(Trainer& trainer, const Floats& start, int64_t steps, int64_t in_flight) const {
    const Floats zeros(static_cast<size_t>(layout_.total));
    trainer.write(State::parameters, start);
    trainer.write(State::adam_m, zeros);
    trainer.write(State::adam_v, zeros);
    std::vector<double> out;
    int64_t queued = 0;
    for (int64_t t = 1; t <= steps; ++t) {
      const Tokens tokens = random_tokens(case_, options_.seed, static_cast<uint64_t>(t % 4));
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
    oracle_.reset();  // not needed any more; a second trainer is
    const Run used = record(*trainer_, 1);
    trainer_.reset();
    const std::unique_ptr<Trainer> fresh = make_trainer();
    const Run again = record(*fresh, 1), queued = record(*fresh, 2);
    for (const auto& [what, run] :
         {std::pair<std::string, const Run&>{"new trainer", again}, {"queued", queued}}) {
      int64_t losses_differ = 0;
      for (size_t i = 0; i < run.losses.size(); ++i) losses_differ += !(run.losses[i] == used.losses[i]);
      report_.add(must_be_zero("repeatability", what + " loss", losses_differ, "steps"));
      report_.add(must_be_zero("repeatability", what + " param",
                               count_different(run.parameters, used.parameters), "elements"));
      report_.add(must_be_zero("repeatability", what + " m,v",
                               count_different(run.m, used.m) + count_different(run.v, used.v), "elements"));
    }
  }

  const TrainerFactory& make_;
  const ModelGateOptions& options_;
  const ModelBudgets budgets_;
  const AdamW training_{.learning_rate = 1e-3f, .weight_decay = 0.1f};
  GateReport report_;
  TrainerAudit audit_;
  int64_t parameters_changed_ = 0;  // by a forward and backward pass
  Case case_;
  gpt2::TensorLayout layout_;
  Floats parameters_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Oracle> oracle_;
};

}  // namespace

GateReport check_model(const TrainerFactory& make_trainer, const ModelGateOptions& options) {
  return Checks(make_trainer, options).run();
}

}  // namespace gate

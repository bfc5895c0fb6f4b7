#include "experiments/gate/model_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>

#include "base/errors.h"
#include "experiments/gate/known_model.h"

namespace gate {
namespace {

using gpt2::AdamW;
using gpt2::Batch;
using gpt2::State;
using gpt2::Trainer;

// In a note.
std::string place(const Case& c) { return c.name + (c.micro_batches > 1 ? ", steps of several micro-batches" : ""); }

constexpr int kDraws = 2;  // of roundings, per comparison
constexpr int64_t kManyParameters = 10'000'000;

double noise_factor(const Case& c) {
  return c.stress == Stress::low_logits || c.stress == Stress::one_high_logit ? kFewPartsFactor : kNoiseFactor;
}

double slice_factor_of(const Case& c, const ModelBudgets& budgets) {
  return c.stress == Stress::sharp_attention ? budgets.sharp_attention_slice_factor : budgets.slice_factor;
}

void compare_gradients(Results& out, const std::string& check, const Case& c, std::span<const float> got, const Expected& e, double floor,
                       double slice_factor, double noise) {
  const std::vector<KnownTensor> tensors = known_tensors(c.config);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const KnownTensor& t = tensors[i];
    if (!c.only_gradient.empty() && t.name != c.only_gradient) continue;
    const auto offset = static_cast<size_t>(t.offset), size = static_cast<size_t>(t.size());
    out.push_back(from_metrics(
        check, t.name,
        compare<float, double>(got.subspan(offset, size), std::span(e.gradients).subspan(offset, size), t.layers * t.rows, t.columns),
        limits_of(e.gradients_noise[i], floor, slice_factor, noise)));
  }
}

// Red zones stand behind memory that is asked for while the answer lives.
std::shared_ptr<void> red_zones_of(const DeviceHooks* device) {
  if (device == nullptr || !device->watch_memory) return nullptr;
  device->watch_memory(true);
  return {nullptr, [device](void*) { device->watch_memory(false); }};
}

}  // namespace

WeightRounding rounding_of(const ModelGateOptions& options) {
  if (options.trainer != "mixed") return WeightRounding::none;
  return options.weight_rounding == "stochastic" ? WeightRounding::stochastic : WeightRounding::nearest;
}

bool any_wanted(const ModelGateOptions& options, std::string_view prefix) {
  return std::ranges::any_of(model_checks(),
                             [&](const ModelCheck& c) { return c.name.starts_with(prefix) && !options.without.contains(c.name); });
}

bool is_big(const gpt2::ModelConfig& config) { return known_parameter_count(config) >= kManyParameters; }

// B = 1: no token twice among inputs or targets; more sequences: all equal, random, at the edges.
Case real_size_case(const ModelGateOptions& options) {
  return {"d12 T=1024", options.real_size_model, options.real_size_batch, options.real_size_length, Stress::mixed_tokens};
}

// Two sequences of one more than a tile of 64, if the model has as many positions.
Case wide_case(const ModelGateOptions& options) {
  return {"wide", options.wide_model, 2, std::min<int64_t>(options.wide_model.max_seq_len, 65)};
}

void Pending::later(GateReport& report, bool big, std::function<Results()> judge) {
  slots_.push_back({&report, {}, std::move(judge), big});
  if (big) settle_one(slots_.back());
}

void Pending::settle() {
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

void Pending::settle_one(Slot& s) {
  if (!s.judge) return;
  s.results = s.judge();
  s.judge = {};
}

ModelRun::ModelRun(const TrainerFactory& make_trainer, const ModelGateOptions& options, std::span<const uint64_t> seeds,
                   bool use_trainers_again)
    : make_(make_trainer),
      options_(options),
      budgets_(budgets_of(options.trainer, options.matmul)),
      storage_(storage_of(options.trainer, options.matmul, options.variants)),
      rounding_(rounding_of(options)),
      use_again_(use_trainers_again),
      seeds_(seeds.begin(), seeds.end()),
      reports_(seeds.size()),
      dog_(options.device == nullptr ? nullptr : std::make_unique<Watchdog>(options.on_hang)),
      red_zones_(red_zones_of(options.device)),
      own_answers_(options.answers),
      heads_of_64_(options.heads_of_64) {
  for (const std::string& name : options.without)
    if (std::ranges::none_of(model_checks(), [&](const ModelCheck& c) { return c.name == name; }))
      throw stepscope::InputError(fmt::format("--without '{}': there is no such check; `stepscope gate --list-checks` has them", name));
  for (size_t i = 0; i < seeds_.size(); ++i) describe(reports_[i], seeds_[i]);
}

void ModelRun::describe(GateReport& r, uint64_t seed) const {
  r.trainer = options_.trainer;
  r.matmul = options_.matmul;
  r.seed = seed;
  r.workload = fmt::format("{}, B={} T={}", options_.model_name, options_.batch_size, options_.seq_len);
  for (const auto& [slot, variant] : options_.variants) r.workload += fmt::format(", {}={}", slot, variant);
  if (options_.recompute != "none") r.workload += ", recompute " + options_.recompute;
  if (options_.weight_rounding != "nearest") r.workload += ", weights rounded " + options_.weight_rounding;
  if (!options_.deterministic) r.workload += ", not deterministic";
  if (options_.heads_of_64) r.workload += ", heads of 64 channels";
  for (const std::string& name : options_.without) r.notes.push_back("not run: " + name);
}

void ModelRun::progress(const std::string& what) {
  end_part();
  part_ = what;
  part_since_ = Clock::now();
  if (options_.progress) options_.progress(what);
}

void ModelRun::end_part() {
  if (part_.empty()) return;
  std::vector<PartTime>& times = reports_.front().part_times;
  auto there = std::ranges::find(times, part_, &PartTime::part);
  if (there == times.end()) there = times.insert(times.end(), PartTime{.part = part_});
  there->checks_s += std::chrono::duration<double>(Clock::now() - part_since_).count();
  part_.clear();
}

void ModelRun::for_each_seed(const Case& c, const std::function<void()>& work) {
  progress(c.name == "main" ? reports_.front().workload : c.name);
  for (size_t i = 0; i < seeds_.size(); ++i) {
    at_ = i;
    work();
  }
  progress("judging");
  pending_.settle();
  own_answers_.clear();
}

void ModelRun::later(std::function<Results()> judge) { pending_.later(report(), is_big(case_.config), std::move(judge)); }

int ModelRun::draws() const { return is_big(case_.config) || use_again_ ? 1 : kDraws; }

Case ModelRun::with_heads_of_64(Case c) const {
  const bool chosen_by_user = c.config == options_.config && options_.config != gate_model();
  if (!chosen_by_user && c.config.channels % 64 == 0) c.config.heads = c.config.channels / 64;
  return c;
}

Case ModelRun::as_run(const Case& c) const { return heads_of_64_ ? with_heads_of_64(c) : c; }

void ModelRun::begin(const Case& c) {
  if (heads_of_64_) return build(as_run(c));
  try {
    build(c);
  } catch (const stepscope::InputError& e) {
    const Case other = with_heads_of_64(c);
    if (!refuses_what_was_asked_for(e) || other.config == c.config) throw;
    const std::exception_ptr refused = std::current_exception();
    const std::string note = fmt::format("models of the gate have heads of 64 channels: {}", e.what());
    try {
      build(other);
    } catch (const stepscope::InputError&) {
      case_ = c;
      std::rethrow_exception(refused);
    }
    heads_of_64_ = true;
    for (GateReport& r : reports_) r.notes.push_back(note);
  }
}

void ModelRun::build(const Case& c) {
  const bool same_options =
      case_.config == c.config && case_.batch_size == c.batch_size && case_.seq_len == c.seq_len && case_.micro_batches == c.micro_batches;
  const bool again = use_again_ && same_options && trainer_ != nullptr;
  if (!again) trainer_.reset();  // the old one's memory first
  case_ = c;
  layout_ = gpt2::tensor_layout(c.config);
  parameters_ = trained_like_parameters(c, seed());
  if (!again) trainer_ = make_trainer();
  storage_ = storage_of(options_.trainer, options_.matmul, trainer_->options().variants);
  if (report().device.empty()) report().device = trainer_->device();
  if (!again) {
    for (const std::string& notice : trainer_->notices()) report().notes.push_back(fmt::format("{}: {}", place(c), notice));
    if (wanted("fresh model") && !is_big(case_.config))
      for (const State moment : {State::adam_m, State::adam_v})
        moments_not_zero_ += std::ranges::count_if(read(*trainer_, moment), [](float x) { return !(x == 0); });
  }
  trainer_->write(State::parameters, parameters_);
}

bool ModelRun::begin_or_note(const Case& c) {
  const auto not_checked = [&](const std::exception& e) {
    if (!refuses_what_was_asked_for(e)) throw;
    trainer_.reset();
    report().notes.push_back(fmt::format("{}: not checked: {}", place(c), e.what()));
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

std::unique_ptr<Trainer> ModelRun::make_trainer(int64_t micro_batches) {
  gpt2::TrainerOptions o;
  o.model = case_.config;
  o.batch_size = case_.batch_size;
  o.seq_len = case_.seq_len;
  o.matmul = options_.matmul;
  o.variants = options_.variants;
  o.micro_batches = micro_batches;
  o.recompute = options_.recompute;
  o.weight_rounding = options_.weight_rounding;
  o.deterministic = options_.deterministic;
  const Watchdog::Watched watched(dog_.get(), "building a trainer");
  return audited(make_(o), wanted("launch error") ? options_.device : nullptr, audit_, dog_.get());
}

Floats ModelRun::read(Trainer& trainer, State which) const {
  Floats values(static_cast<size_t>(layout_.total));
  trainer.read(which, values);
  return values;
}

Floats ModelRun::read_weights() const {
  Floats values(static_cast<size_t>(layout_.total));
  trainer_->read_weights(values);
  return values;
}

Floats ModelRun::weights_now() const {
  return rounding_ == WeightRounding::stochastic ? read_weights() : rounded_weights(read(*trainer_, State::parameters), rounding_);
}

void ModelRun::set_state(const Floats& parameters, const Floats& m, const Floats& v) {
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

StepTaken ModelRun::take_step(int64_t t, const AdamW& adamw, std::vector<Tokens> tokens) {
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

void ModelRun::judge_later(StepTaken taken, const StepNames& names) {
  later([this, s = std::make_shared<const StepTaken>(std::move(taken)), names, storage = storage_, draws = draws(), &answers = answers(),
         bits = moment_bits()] {
    Results out = judge_arithmetic(*s, names, rounding_, bits);
    if (names.loss.empty() && names.grad_norm.empty() && names.gradients.empty()) return out;
    const auto expected = answers.get(s->c, s->weights, s->tokens, storage, draws, true);
    for (CheckResult& r : judge_against_oracle(*s, names, *expected, budgets_)) out.push_back(std::move(r));
    return out;
  });
}

Storage ModelRun::storage_for(const Case& c) const {
  Storage s = storage_;
  if (c.stress == Stress::far_mean || c.stress == Stress::low_logits || c.stress == Stress::one_high_logit ||
      c.stress == Stress::offset_gradient)
    for (int* bits : {&s.activation_bits, &s.stream_bits}) *bits = std::min(*bits, 21);
  return s;
}

double ModelRun::stress_factor(const Case& c) const {
  if (c.stress == Stress::large_logits) return budgets_.large_logits_factor;
  if (c.stress == Stress::offset_stream || c.stress == Stress::gelu_tail) return budgets_.forward_stress_factor;
  if (c.config == options_.wide_model) return budgets_.wide_factor;
  return c.stress == Stress::sharp_attention ? budgets_.sharp_attention_factor : 1;
}

void ModelRun::ask_oracle(OracleNames names, uint64_t tokens_number) {
  for (std::string* name : {&names.forward, &names.gradients, &names.own_loss})
    if (!name->empty() && !wanted(*name)) name->clear();
  if (case_.forward_only) names.gradients.clear();
  if (!case_.only_gradient.empty()) names.forward.clear();
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
  later([this, a, names, storage = storage_for(case_), draws = draws(), &answers = answers(),
         rounded = trainer_->logits_rounded_after_loss()] {
    Results out;
    const Case& c = a->c;
    const int64_t tokens = c.batch_size * c.seq_len, V = c.config.vocab_size;
    if (!names.own_loss.empty())
      out.push_back(loss_of_own_logits(names.own_loss, "loss", a->loss, a->logits, a->tokens[0].targets, V, rounded));
    if (names.forward.empty() && names.gradients.empty()) return out;
    const auto e = answers.get(c, a->weights, a->tokens, storage, draws, !c.forward_only);
    const double factor = stress_factor(c);
    if (!names.forward.empty()) {
      out.push_back(from_metrics(names.forward, "logits", compare<float, double>(a->logits, e->logits, tokens, V),
                                 limits_of(e->logits_noise, budgets_.logits * factor, budgets_.slice_factor, noise_factor(c))));
      const double alone = tokens == 1 ? budgets_.one_token_factor : 1;
      out.push_back(scalar_result(names.forward, "loss", a->loss, e->loss, loss_limit(*e, tokens, budgets_.loss * factor * alone)));
    }
    if (!names.gradients.empty())
      compare_gradients(out, names.gradients, c, a->gradients, *e,
                        gradient_floor(c.config, tokens, budgets_.gradients) *
                            (c.stress == Stress::sharp_attention ? budgets_.sharp_attention_gradient_factor : factor),
                        slice_factor_of(c, budgets_), noise_factor(c));
    return out;
  });
}

}  // namespace gate

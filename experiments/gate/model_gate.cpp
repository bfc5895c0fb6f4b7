// Two traps. The gradient of the key bias is zero in exact arithmetic, so after an AdamW update those elements are
// rounding noise blown up to +-lr: parameters after an update cannot be compared with the oracle's element by
// element. Instead the gradients are compared with the oracle, and moments and parameters with AdamW in double on the
// trainer's own gradients (step_judge.h). And what is compared is always one step from the trainer's own state and
// weights, never a drift: weights that were rounded at random would drift anywhere.
#include "experiments/gate/model_gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/checksum.h"
#include "base/errors.h"
#include "base/temporary_folder.h"
#include "experiments/gate/known_model.h"
#include "experiments/gate/many_rows.h"
#include "experiments/gate/model_parts.h"
#include "experiments/gate/model_run.h"
#include "experiments/gate/oracle.h"
#include "experiments/gate/random.h"
#include "experiments/gate/rounded_at_random.h"
#include "experiments/gate/step_judge.h"
#include "experiments/gate/timed_steps.h"

namespace gate {
namespace {

using gpt2::AdamW;
using gpt2::Batch;
using gpt2::State;
using gpt2::Trainer;

// Moves one setting to an end of what flags allow, another for each number, and says which.
std::string to_an_end(AdamW& a, size_t number) {
  constexpr std::pair<const char*, float AdamW::*> kSettings[] = {{"beta1", &AdamW::beta1},
                                                                  {"beta2", &AdamW::beta2},
                                                                  {"weight decay", &AdamW::weight_decay},
                                                                  {"learning rate", &AdamW::learning_rate},
                                                                  {"clip", &AdamW::clip}};
  const auto& [name, setting] = kSettings[number % std::size(kSettings)];
  a.*setting = setting == &AdamW::clip ? -1.0f : 0.0f;
  return fmt::format("{} {}", name, a.*setting);
}

constexpr float kLargeStep = 1e-2f;  // of the optimizer checks; large_step() says why wide models take less

// While it lives, what this process keeps of its measurements (base/cache_folder.h) goes to a folder of its own, empty at first. Made before the
// first trainer: it changes the environment.
class OwnCache {
 public:
  OwnCache() { ::setenv(kName, folder_.path().c_str(), 1); }
  ~OwnCache() {
    if (before_)
      ::setenv(kName, before_->c_str(), 1);
    else
      ::unsetenv(kName);
  }
  OwnCache(const OwnCache&) = delete;
  OwnCache& operator=(const OwnCache&) = delete;
  int64_t files() const {
    const std::filesystem::recursive_directory_iterator all(folder_.path());
    return std::count_if(begin(all), end(all), [](const std::filesystem::directory_entry& e) { return e.is_regular_file(); });
  }

 private:
  static constexpr const char* kName = "STEPSCOPE_CACHE";
  const std::optional<std::string> before_ = std::getenv(kName) ? std::optional<std::string>(std::getenv(kName)) : std::nullopt;
  const stepscope::TemporaryFolder folder_;
};

class Checks : public ModelRun {
 public:
  using ModelRun::ModelRun;

  std::vector<GateReport> run() {
    if (options_.deterministic && wanted("repeatability")) own_cache_.emplace();
    const Case main_case{"main", options_.config, options_.batch_size, options_.seq_len};
    for_each_seed(main_case, [&] {
      begin(main_case);
      if (wanted("tensor table")) tensor_table();
      if (wanted("fresh model"))
        for (CheckResult& r : check_fresh_model(case_.config, seed())) add(std::move(r));
      ask_oracle({"forward", "gradients", "loss of logits"}, 0);
      if (wanted("evaluate")) evaluate();
      optimizer();
      if (wanted("skipped update")) skipped_update();
      if (wanted("between steps")) between_steps();
      if (wanted("not finite")) not_finite();
      if (wanted("causality")) causality();
      if (wanted("padding")) padding();
      if (wanted("trajectory")) trajectory();
      if (wanted("fresh inputs")) fresh_inputs();
      if (options_.deterministic && wanted("repeatability")) repeatability();
    });
    if (wanted("accumulation") || (options_.deterministic && wanted("repeatability")))
      several_micro_batches(main_case, options_.deterministic);
    if (options_.with_small_cases && options_.variants.empty()) heads_of_64();
    if (options_.with_small_cases)
      for (const Case& c : small_cases())
        if (wanted(c.name)) small_case(c);
    if (options_.with_steps && any_wanted(options_, "steps ")) all_whole_steps();
    if (options_.with_loop && options_.train) loop();
    const bool moments_at_random = moment_bits_of(options_.trainer, options_.variants).at_random();
    if ((options_.weight_rounding == "stochastic" || moments_at_random) && wanted("rounding"))
      for_each_seed(main_case, [&] { rounding(); });
    if (options_.real_size_batch > 0 && any_wanted(options_, "d12 ")) real_size();
    if (options_.wide && wanted("wide")) small_case(wide_case(options_));
    if (options_.many_rows && wanted("many rows")) many_rows();
    finish();
    end_part();
    return std::move(reports_);
  }

  // What depends on the seed: no bit-for-bit checks, no loop, no clock.
  std::vector<GateReport> run_seeds() {
    const Case main_case{"main", options_.config, options_.batch_size, options_.seq_len};
    for_each_seed(main_case, [&] {
      begin(main_case);
      ask_oracle({"forward", "gradients", "loss of logits"}, 0);
      optimizer();
      if (wanted("trajectory")) trajectory();
      if (wanted("fresh inputs")) fresh_inputs();
    });
    if (wanted("accumulation")) several_micro_batches(main_case, false);
    for (const Case& c : small_cases())
      if (wanted(c.name)) small_case(c);
    if (any_wanted(options_, "steps ")) all_whole_steps();
    end_part();
    return std::move(reports_);
  }

 private:
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
      if (!begin_or_note(c)) return;
      const auto& runs = trainer_->options().variants;
      if (const auto gradient = runs.find("residual_gradient");
          c.stress == Stress::offset_gradient && gradient != runs.end() && gradient->second == "bf16")
        return report().notes.push_back(c.name + ": not checked: the residual stream's gradient is in bf16, which cannot hold it");
      ask_oracle({c.name, c.name, ""}, 0);
    });
  }

  // What is rounded at random is so anew in every step, each time with other random bits: of steps that move nothing, no two may leave the
  // same weights behind; nor, of steps with the same weights, the same moments where they began with the same.
  void rounding() {
    begin({"rounding", options_.config, options_.batch_size, options_.seq_len});
    const bool of_weights = options_.weight_rounding == "stochastic";
    if (!of_weights && !moment_bits().at_random()) return;
    const Tokens tokens = random_tokens(case_, seed(), 31);
    const Batch batch = tokens.batch();
    AdamW still = training_;
    still.learning_rate = 0;
    const Moments given = given_moments(case_, seed(), moment_bits());
    std::vector<uint64_t> left;
    int64_t same = 0;
    // Also steps that are alike in their lowest 6 to 20 bits.
    for (const int64_t step :
         {1, 2, 3, 4, 1 + (1 << 6), 1 + (1 << 7), 1 + (1 << 8), 1 + (1 << 10), 1 + (1 << 12), 1 + (1 << 16), 1 + (1 << 20)}) {
      if (!of_weights) {
        trainer_->write(State::adam_m, given.m);
        trainer_->write(State::adam_v, given.v);
      }
      trainer_->enqueue_step({step, {&batch, 1}, still});
      trainer_->finish_step();
      std::vector<Floats> states;
      if (of_weights) {
        states.push_back(empty_logits());
        trainer_->evaluate(batch, states.back());
      } else {
        for (const State which : {State::adam_m, State::adam_v}) states.push_back(read(*trainer_, which));
      }
      for (const Floats& values : states) {
        const uint64_t sum = gpt2::Checksum::of(std::as_bytes(std::span(values)));
        same += std::count(left.begin(), left.end(), sum);
        left.push_back(sum);
      }
    }
    add(must_be_zero("rounding", of_weights ? "logits" : "m,v", same, "pairs",
                     of_weights ? "two steps rounded the weights alike" : "two steps rounded the moments alike"));
  }

  // Forward alone gives what forward and backward gave, and twice the same.
  void evaluate() {
    const Tokens tokens = random_tokens(case_, seed(), 0);
    Floats with_backward = empty_logits(), alone = empty_logits();
    const double first = trainer_->forward_backward(tokens.batch(), with_backward);
    const double second = trainer_->evaluate(tokens.batch(), alone);
    // Other tokens in between: the logits of the last call may still lie where the loss is made of them.
    const Tokens others = random_tokens(case_, seed(), 62);
    const double other = trainer_->evaluate(others.batch()), third = trainer_->evaluate(tokens.batch());
    Floats logits_of_others = empty_logits();
    add(must_be_zero("evaluate", "logits", count_different(with_backward, alone), "elements"));
    const double of_rounding = moved_by_rounding(trainer_->logits_rounded_after_loss(), case_.batch_size * case_.seq_len) *
                               size_of_logits(alone, case_.config.vocab_size) / std::abs(second);
    add(scalar_result("evaluate", "loss", second, first, 1e-7 + of_rounding));
    add(scalar_result("evaluate", "loss, no logits", third, second, 0));
    add(scalar_result("evaluate", "loss of others, no logits", other, trainer_->evaluate(others.batch(), logits_of_others), 0));
    next_tokens(tokens, alone);
  }

  // What follows a part of the first sequence is the row of its last token.
  void next_tokens(const Tokens& tokens, std::span<const float> logits) {
    const auto T = static_cast<size_t>(case_.seq_len), V = static_cast<size_t>(case_.config.vocab_size);
    int64_t differ = 0;
    for (const size_t length : {size_t{1}, (T + 1) / 2, T}) {
      const Floats row = trainer_->next_token_logits(std::span(tokens.inputs).first(length));
      differ += row.size() == V ? count_different(row, logits.subspan((length - 1) * V, V)) : 1;
    }
    add(must_be_zero("evaluate", "next token", differ, "elements", "logits after 1, T/2 and T tokens"));
  }

  double norm_of_own_gradients(uint64_t tokens_number) {
    const Tokens tokens = random_tokens(case_, seed(), tokens_number);
    trainer_->forward_backward(tokens.batch());
    double sum = 0;
    for (const float g : read(*trainer_, State::gradients)) sum += static_cast<double>(g) * static_cast<double>(g);
    return std::sqrt(sum);
  }

  // Three steps from zero moments, clipped, decayed; then one unclipped because the limit is far, one because
  // it is off: a limit below 0 is none.
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
      adamw.clip = t <= 3 ? static_cast<float>(norm / 10) : t == 4 ? static_cast<float>(norm * 100) : -1.0f;
      StepNames names = base;
      const std::string at = fmt::format(" t={} clip {:.2g}", t, adamw.clip);
      for (std::string* name : {&names.m, &names.v, &names.update, &names.weights, &names.gradients})
        if (!name->empty()) *name += at;
      names.detail = fmt::format("t={}", t);
      judge_later(take_step(t, adamw, {random_tokens(case_, seed(), static_cast<uint64_t>(t))}), names);
    }
  }

  // Beyond one of its two limits a step leaves parameters and moments as they are; within both it does not. Weights rounded at random are
  // rounded anew all the same, as by a step that was not left out and moved nothing: the next step, or a run that is resumed there, reads them
  // with its own random bits.
  void skipped_update() {
    progress("skipped update");
    constexpr uint64_t kTokens = 61;
    constexpr int64_t kStep = 7;
    const Tokens tokens = random_tokens(case_, seed(), kTokens);
    const Batch batch = tokens.batch();
    trainer_->write(State::parameters, parameters_);
    const double norm = norm_of_own_gradients(kTokens), loss = trainer_->evaluate(batch);
    const Moments given = given_moments(case_, seed(), moment_bits());
    if (rounding_ == WeightRounding::stochastic) {
      AdamW still = training_;
      still.learning_rate = 0;
      trainer_->enqueue_step({kStep, {&batch, 1}, still});
      trainer_->finish_step();
    }
    const Floats weights = read_weights();
    set_state(parameters_, given.m, given.v);
    for (const auto& [part, loss_limit, norm_limit] :
         {std::tuple{"of the loss", loss / 2, norm * 2}, {"of the norm", loss * 2, norm / 2}, {"of none", loss * 2, norm * 2}}) {
      gpt2::StepPlan plan{kStep, {&batch, 1}, training_};
      plan.skip_above_loss = loss_limit;
      plan.skip_above_grad_norm = norm_limit;
      trainer_->enqueue_step(plan);
      const bool skipped = trainer_->finish_step().skipped, within = std::string_view(part) == "of none";
      int64_t changed = count_different(read(*trainer_, State::parameters), parameters_) +
                        count_different(read(*trainer_, State::adam_m), given.m) + count_different(read(*trainer_, State::adam_v), given.v);
      const int64_t other_weights = count_different(read_weights(), weights);
      if (rounding_ != WeightRounding::stochastic) changed += other_weights;
      add(must_be_zero("skipped update", part, within ? changed == 0 : changed, "elements", "limit " + std::string(part)));
      add(must_be_zero("skipped update", std::string(part) + ", said", skipped == within, "steps", "limit " + std::string(part)));
      if (rounding_ == WeightRounding::stochastic && !within)
        add(must_be_zero("skipped update", std::string(part) + ", weights", other_weights, "elements",
                         "not those that the next step draws"));
    }
  }

  // Steps with evaluation, logits and sampling before and between them, against the same steps without. A trainer that does not promise to
  // repeat is held to losses alone, and to as much as a run may be off.
  void between_steps() {
    progress("between steps");
    constexpr int64_t kSteps = 4;
    constexpr uint64_t kTokens = 80;
    struct Run {
      std::vector<double> losses, norms;
      Floats parameters, m, v;
    };
    const auto look = [&](int64_t t) {
      const Tokens others = random_tokens(case_, seed(), kTokens + static_cast<uint64_t>(t));
      Floats logits = empty_logits();
      trainer_->evaluate(others.batch());
      trainer_->evaluate(others.batch(), logits);
      trainer_->next_token_logits(std::span(others.inputs).first(static_cast<size_t>(case_.seq_len + 1) / 2));
    };
    int64_t too_long = 0;
    const auto run = [&](bool looks) {
      Run r;
      trainer_->write(State::parameters, parameters_);
      trainer_->write(State::adam_m, zeros());
      trainer_->write(State::adam_v, zeros());
      for (int64_t t = 1; t <= kSteps; ++t) {
        if (looks) look(t);
        const Tokens tokens = random_tokens(case_, seed(), static_cast<uint64_t>(t));
        const Batch batch = tokens.batch();
        const auto begin = judges_now(options_.device);
        trainer_->enqueue_step({t, {&batch, 1}, training_});
        const gpt2::StepOutcome outcome = trainer_->finish_step();
        const std::chrono::duration<double, std::nano> clock = judges_now(options_.device) - begin;
        // What looks before a step takes longer than several steps, so a time that has it in it is beyond the clock's. Events may be a little off.
        if (looks) too_long += !(outcome.time_ns <= 1.05 * clock.count());
        r.losses.push_back(outcome.loss);
        r.norms.push_back(outcome.grad_norm);
      }
      r.parameters = read(*trainer_, State::parameters);
      r.m = read(*trainer_, State::adam_m);
      r.v = read(*trainer_, State::adam_v);
      return r;
    };
    const Run without = run(false), with = run(true);
    add(must_be_zero("between steps", "time", too_long, "steps", too_long > 0 ? "took longer than by the judge's clock" : ""));
    int64_t differ = 0;
    double worst = 0;
    for (size_t i = 0; i < without.losses.size(); ++i) {
      differ += !(with.losses[i] == without.losses[i]) || !(with.norms[i] == without.norms[i]);
      keep_worst(worst, std::abs(with.losses[i] / without.losses[i] - 1));
    }
    if (!options_.deterministic) return add(make_result("between steps", "loss", {{"relative", worst, budgets_.trajectory, -1}}));
    add(must_be_zero("between steps", "loss and norm", differ, "steps"));
    add(must_be_zero("between steps", "param", count_different(with.parameters, without.parameters), "elements"));
    add(must_be_zero("between steps", "m,v", count_different(with.m, without.m) + count_different(with.v, without.v), "elements"));
  }

  // A parameter that is no number, in each tensor in turn, where a token of the batch meets it: the first element of one tensor, the last of
  // the next. By loss and norm alone a run notices that it has gone wrong.
  void not_finite() {
    progress("not finite");
    const Tokens tokens = random_tokens(case_, seed(), 63);
    const Batch batch = tokens.batch();
    const int64_t C = case_.config.channels;
    const auto write = [&](const Floats& parameters) {
      trainer_->write(State::parameters, parameters);
      trainer_->write(State::adam_m, zeros());
      trainer_->write(State::adam_v, zeros());
    };
    bool at_the_end = false;
    for (const KnownTensor& t : known_tensors(case_.config)) {
      int64_t first = 0, last = t.size() - 1;
      if (t.name == "wte") first = tokens.inputs.front() * C, last = tokens.inputs.back() * C + C - 1;
      if (t.name == "wpe") last = case_.seq_len * C - 1;
      Floats broken = parameters_;
      broken[static_cast<size_t>(t.offset + (at_the_end ? last : first))] = NAN;
      at_the_end = !at_the_end;
      write(broken);
      trainer_->enqueue_step({1, {&batch, 1}, training_});
      const gpt2::StepOutcome outcome = trainer_->finish_step();
      add(must_be_zero("not finite", t.name + ", loss", std::isfinite(outcome.loss), "steps", "a parameter is no number, the loss is one"));
      add(must_be_zero("not finite", t.name + ", norm", std::isfinite(outcome.grad_norm), "steps",
                       "a parameter is no number, the norm is one"));
    }
    write(parameters_);  // moments too: they are none either, and a step moves by them
  }

  // A step of Adam moves every weight by about the learning rate. 1e-2 is as much as the weights themselves; what that
  // does to the activations grows with the width, and on d12 the gradients at t=3 were so ill-conditioned that fp32
  // missed 2e-6 by a factor of 2.7 (H200, 2026-11-20). So wide models step less.
  float large_step() const { return kLargeStep * std::min(1.0f, 128.0f / static_cast<float>(case_.config.channels)); }

  // The heads of the main case are narrower, and a trainer may have other kernels for heads of 64. Defaults alone: each of a receipt's
  // configurations would build these trainers again.
  void heads_of_64() {
    for_each_seed(head_of_64(), [&] {
      begin(head_of_64());
      if (wanted("evaluate")) evaluate();
      if (wanted("causality")) causality();
    });
    if (wanted("accumulation") || (options_.deterministic && wanted("repeatability")))
      several_micro_batches(head_of_64(), options_.deterministic);
    if (!options_.deterministic || !wanted("repeatability")) return;
    for_each_seed(overflowing_rows(), [&] {
      begin(overflowing_rows());
      repeatability();
    });
  }

  // On a trainer for them: a default that cannot add up gradients gives way there.
  void several_micro_batches(Case c, bool queued) {
    c.micro_batches = 3;
    for_each_seed(c, [&] {
      if (!begin_or_note(c)) return;
      if (wanted("accumulation")) accumulation();
      if (!queued || !wanted("repeatability")) return;
      for (CheckResult& r : check_queued_micro_batches(*trainer_, case_, seed(), parameters_, training_)) add(std::move(r));
    });
  }

  // Two micro-batches are one step of the mean gradient. At t=1 from zero moments m = (1 - beta1) g, which also shows
  // gradients that were left over from before.
  void accumulation() {
    progress("accumulation");
    trainer_->forward_backward(random_tokens(case_, seed(), 13).batch());
    AdamW adamw;
    adamw.clip = 0;
    adamw.beta1 = 0.5f;
    set_state(parameters_, zeros(), zeros());
    StepTaken taken = take_step(1, adamw, {random_tokens(case_, seed(), 11), random_tokens(case_, seed(), 12)});
    taken.gradients = taken.new_m;
    for (float& x : taken.gradients) x *= 2;
    StepNames names;
    names.loss = names.grad_norm = names.gradients = "accumulation";
    later(
        [this, s = std::make_shared<const StepTaken>(std::move(taken)), names, storage = storage_, draws = draws(), &answers = answers()] {
          return judge_against_oracle(*s, names, *answers.get(s->c, s->weights, s->tokens, storage, draws, true), budgets_);
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
    if (case_.batch_size == 1) return;
    tokens.inputs[0] = static_cast<int32_t>((tokens.inputs[0] + 1) % case_.config.vocab_size);
    trainer_->evaluate(tokens.batch(), after);
    add(must_be_zero("causality", "next sequences", count_different(std::span(before).subspan(T * V), std::span(after).subspan(T * V)),
                     "elements", "a token of the first sequence changed them"));
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
        later([this, c = case_, storage = storage_, t, tokens, weights, got] {
          const Expected e = expect(c, weights, tokens, storage, 1, false);
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
  // Not `graph_allowed`: every kernel is launched by itself, as where counters are read.
  std::vector<double> losses(Trainer& trainer, const Floats& start, int64_t steps, int64_t in_flight, bool graph_allowed = true) const {
    trainer.write(State::parameters, start);
    trainer.write(State::adam_m, zeros());
    trainer.write(State::adam_v, zeros());
    std::vector<double> out;
    int64_t queued = 0;
    for (int64_t t = 1; t <= steps; ++t) {
      const Tokens tokens = random_tokens(case_, seed(), static_cast<uint64_t>(t % 4));
      const Batch batch = tokens.batch();
      trainer.enqueue_step({t, {&batch, 1}, training_, graph_allowed});
      if (++queued == in_flight) {
        out.push_back(trainer.finish_step().loss);
        --queued;
      }
    }
    for (; queued > 0; --queued) out.push_back(trainer.finish_step().loss);
    return out;
  }

  // The same run on a new trainer, on one whose buffers are dirty from another run, with two steps in flight, and with kernels that are
  // launched by themselves where the others may lie in a graph, in which some wait for each other in another way.
  void repeatability() {
    progress("repeatability");
    constexpr int64_t kSteps = 4;
    struct Run {
      std::vector<double> losses;
      Floats parameters, m, v;
    };
    const auto record = [&](Trainer& trainer, int64_t in_flight, bool graph_allowed = true) {
      Run r;
      r.losses = losses(trainer, parameters_, kSteps, in_flight, graph_allowed);
      r.parameters = read(trainer, State::parameters);
      r.m = read(trainer, State::adam_m);
      r.v = read(trainer, State::adam_v);
      return r;
    };
    const Run used = record(*trainer_, 1);
    trainer_.reset();
    const std::unique_ptr<Trainer> fresh = make_trainer();
    const Run again = record(*fresh, 1), queued = record(*fresh, 2), direct = record(*fresh, 1, false);
    for (const auto& [what, run] :
         {std::pair<std::string, const Run&>{"new trainer", again}, {"queued", queued}, {"launched one by one", direct}}) {
      int64_t losses_differ = 0;
      for (size_t i = 0; i < run.losses.size(); ++i) losses_differ += !(run.losses[i] == used.losses[i]);
      add(must_be_zero("repeatability", what + " loss", losses_differ, "steps"));
      add(must_be_zero("repeatability", what + " param", count_different(run.parameters, used.parameters), "elements"));
      add(must_be_zero("repeatability", what + " m,v", count_different(run.m, used.m) + count_different(run.v, used.v), "elements"));
    }
  }

  void all_whole_steps() {
    const std::vector<Case> cases = step_cases();
    for (size_t i = 0; i < cases.size(); ++i) whole_steps(cases[i], i);
  }

  void whole_steps(Case c, size_t number) {
    for_each_seed(c, [&] { steps_of(c, number); });
    c.micro_batches = 5;
    if (!use_again_ || c.batch_size * c.seq_len <= 1000) for_each_seed(c, [&] { steps_of(c, number); });
  }

  // Steps of 1, or of 2, 3 and 5 micro-batches, that begin at t = 1, 99, 1000 and 100000 from a given state. With many seeds
  // only those of 1 and 3: errors do not grow with the number. `number`: of the case.
  void steps_of(const Case& c, size_t number) {
    if (!begin_or_note(c)) return;
    StepNames names{if_wanted("steps norm"),      if_wanted("steps m"),         if_wanted("steps v"),
                    if_wanted("steps update"),    if_wanted("steps weights"),   if_wanted("steps loss"),
                    if_wanted("steps grad norm"), if_wanted("steps gradients"), ""};
    const Moments given = given_moments(c, seed(), moment_bits());
    uint64_t tokens_number = c.micro_batches == 1 ? 100 : 101;
    for (const auto& [micro_batches, t] : {std::pair<int, int64_t>{1, 1000}, {2, 1}, {3, 100000}, {5, 99}}) {
      if ((micro_batches == 1) != (c.micro_batches == 1)) continue;
      if (use_again_ && (micro_batches % 2 == 0 || micro_batches == 5)) continue;
      std::vector<Tokens> tokens;
      for (int i = 0; i < micro_batches; ++i) tokens.push_back(random_tokens(c, seed(), tokens_number++));
      set_state(parameters_, t == 1 ? zeros() : given.m, t == 1 ? zeros() : given.v);
      names.detail = fmt::format("{} x{} t={}", c.name, micro_batches, t);
      AdamW adamw{.learning_rate = 1e-3f, .weight_decay = 0.1f, .clip = micro_batches == 3 ? 0.0f : 1.0f};
      if (micro_batches == 2 || micro_batches == 5) {  // not what a trainer may have by heart
        adamw.beta1 = 0.8f, adamw.beta2 = 0.98f, adamw.eps = 1e-6f;
      }
      if (micro_batches == 5) names.detail += ", " + to_an_end(adamw, number);
      adamw = slower_if_late(adamw, t);
      judge_later(take_step(t, adamw, std::move(tokens)), names);
    }
  }

  void loop() {
    bool any = false;
    for (const char* name : {"schedule", "loader", "loop", "resume", "outliers", "not finite"}) any = any || wanted(name);
    if (!any) return;
    progress("loop");
    Case c{"loop", gate_model(), 2, 16};
    c.config.layers = 1;
    c.micro_batches = 3;
    LoopGateOptions o;
    o.accumulates = begin_or_note(c);
    trainer_.reset();
    o.seed = seed();
    o.deterministic = options_.deterministic;
    o.wanted = [this](const std::string& name) { return wanted(name); };
    o.train = options_.train;
    for (CheckResult& r : check_loop([this](int64_t micro_batches) { return make_trainer(micro_batches); }, o)) add(std::move(r));
    pending_.settle();
  }

  void real_size() {
    const Case c = real_size_case(options_);
    for_each_seed(c, [&] {
      begin(c);
      ask_oracle({"d12 forward", "", ""}, 0);
      StepNames names{if_wanted("d12 norm"),      if_wanted("d12 m"),         if_wanted("d12 v"),
                      if_wanted("d12 update"),    if_wanted("d12 weights"),   "",
                      if_wanted("d12 grad norm"), if_wanted("d12 gradients"), ""};
      if ((names.norm + names.m + names.v + names.update + names.weights + names.grad_norm + names.gradients).empty()) return;
      progress(c.name + ", a step");
      set_state(parameters_, zeros(), zeros());
      StepTaken taken = take_step(1, AdamW{.learning_rate = 1e-3f, .weight_decay = 0.1f}, {random_tokens(c, seed(), 0)});
      progress(c.name + ", judging it");
      judge_later(std::move(taken), names);
    });
    trainer_.reset();
  }

  void many_rows() {
    many_rows_of(many_rows_case(), 8, many_rows_budget(options_.matmul));
    many_rows_of(many_layers_case(), 64, many_layers_budget(options_.matmul));
  }

  void many_rows_of(const Case& all, int64_t piece, double budget) {
    progress(all.name);
    trainer_.reset();
    case_ = all;
    const auto not_checked = [&](const std::exception& e) {
      report().notes.push_back(fmt::format("{}: not checked: {}", all.name, e.what()));
    };
    try {
      for (CheckResult& r : check_many_rows(
               [&](int64_t sequences) {
                 case_.batch_size = sequences;
                 return make_trainer();
               },
               all, piece, budget, seed()))
        add(std::move(r));
    } catch (const stepscope::MachineError& e) {  // too little memory, say
      not_checked(e);
    } catch (const stepscope::InputError& e) {
      if (!refuses_what_was_asked_for(e)) throw;
      not_checked(e);
    }
  }

  // On a device with more parameters and fewer tokens than the gate's model has: its step would be so short that late
  // work in it could not be told from waking up.
  void timed_steps() {
    progress("timed steps");
    trainer_.reset();
    case_ = as_run({"main", options_.config, options_.batch_size, options_.seq_len});
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
    if (wanted("fresh model"))
      add(must_be_zero("fresh model", "m,v of new trainers", moments_not_zero_, "elements", "nothing was written before the first step"));
    bool timed = false;
    for (const char* name : {"timed steps", "clock", "late work", "persisting L2"}) timed = timed || wanted(name);
    if (options_.with_timed_steps && timed) timed_steps();
    if (wanted("inputs")) {
      add(must_be_zero("inputs", "tokens", audit_.tokens_changed, "tokens"));
      add(must_be_zero("inputs", "param", parameters_changed_, "elements"));
    }
    if (options_.device != nullptr && wanted("launch error"))
      add(must_be_zero("launch error", "every call", !audit_.launch_error.empty(), "launches", audit_.launch_error));
    // What a clock chooses it may choose otherwise tomorrow.
    if (own_cache_) add(must_be_zero("repeatability", "choices by measurement", own_cache_->files(), "files", "kept for the next run"));
    trainer_.reset();
    if (options_.device != nullptr && options_.device->bytes_beyond_memory && wanted("red zone"))
      add(must_be_zero("red zone", "device memory", options_.device->bytes_beyond_memory(), "bytes",
                       "written behind a buffer of a trainer"));
    pending_.settle();
  }

  std::optional<OwnCache> own_cache_;  // of a trainer that promises to repeat
};

}  // namespace

GateReport check_model(const TrainerFactory& make_trainer, const ModelGateOptions& options) {
  const uint64_t seeds[] = {options.seed};
  return std::move(Checks(make_trainer, options, seeds, false).run().front());
}

RealSizeAhead::RealSizeAhead(const ModelGateOptions& o) {
  const WeightRounding rounding = rounding_of(o);
  std::vector<Case> cases;
  if (o.real_size_batch > 0 && any_wanted(o, "d12 ")) cases.push_back(real_size_case(o));
  if (o.wide && any_wanted(o, "wide")) cases.push_back(wide_case(o));
  std::erase_if(cases, [](const Case& c) { return !is_big(c.config); });
  if (cases.empty() || rounding == WeightRounding::stochastic) return;
  thread_ = std::thread([&cache = *o.big_answers, cases, rounding, seed = o.seed, storage = storage_of(o.trainer, o.matmul, o.variants)] {
    try {
      for (const Case& c : cases) {
        const Tokens tokens = random_tokens(c, seed, 0);
        cache.get(c, rounded_weights(trained_like_parameters(c, seed), rounding), {&tokens, 1}, storage, 1, true);
      }
    } catch (const std::exception&) {  // whoever asks next hears of it, or computes anew
    }
  });
}

RealSizeAhead::~RealSizeAhead() {
  if (thread_.joinable()) thread_.join();
}

std::vector<GateReport> check_seeds(const TrainerFactory& make_trainer, const ModelGateOptions& options, std::span<const uint64_t> seeds) {
  return Checks(make_trainer, options, seeds, true).run_seeds();
}

}  // namespace gate

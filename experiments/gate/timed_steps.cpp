// One trap: a trainer may tell a timed stretch from a checked one by what happens in between. So the stretch
// that is taken again runs uninterrupted with fresh tokens, and the fresh trainer's steps are each followed
// by a read.
#include "experiments/gate/timed_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "experiments/gate/workload.h"
#include "gpt2/op_range.h"
#include "gpt2/tensor_table.h"

namespace gate {
namespace {

using gpt2::State;
using gpt2::StepOutcome;
using gpt2::Trainer;
using Floats = std::vector<float>;

constexpr State kStates[] = {State::parameters, State::adam_m, State::adam_v};
constexpr const char* kStateNames[] = {"param", "m", "v"};
// What two runs of a trainer that does not repeat may drift apart over a stretch, relative: they may even use
// other algorithms. A step left out takes away a tenth of m at least, and its token batch from the loss.
constexpr double kLossDrift = 2e-2, kNormDrift = 0.3, kMomentDrift = 0.3;

size_t state_size(const Trainer& trainer) { return static_cast<size_t>(gpt2::tensor_layout(trainer.options().model).total); }

Floats read(Trainer& trainer, State which) {
  Floats values(state_size(trainer));
  trainer.read(which, values);
  return values;
}

uint64_t hash(std::span<const float> values) {
  uint64_t h = 0x9e3779b97f4a7c15u;
  for (const float x : values) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    h = (h ^ bits) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
  }
  return h;
}

// Micro-batches of one step, of tokens that no other number gives.
class StepTokens {
 public:
  StepTokens(const gpt2::TrainerOptions& o, uint64_t seed, uint64_t number, int64_t micro_batches) {
    const Case c{"timed", o.model, o.batch_size, o.seq_len};
    for (int64_t i = 0; i < micro_batches; ++i)
      tokens_.push_back(random_tokens(c, seed, number * static_cast<uint64_t>(micro_batches) + static_cast<uint64_t>(i)));
    for (const Tokens& t : tokens_) batches_.push_back(t.batch());
  }
  std::span<const gpt2::Batch> batches() const { return batches_; }

 private:
  std::vector<Tokens> tokens_;
  std::vector<gpt2::Batch> batches_;
};

constexpr uint64_t kTimedTokens = 1000;  // numbers from here: none of the other checks' tokens

// As an arm steps: two in flight. `clock` may be null.
std::vector<StepOutcome> steps_in_flight(Trainer& trainer, const AgainOptions& o, int64_t first, int count, BlockClock* clock) {
  std::vector<StepOutcome> out;
  const auto finish = [&] {
    out.push_back(trainer.finish_step());
    if (clock != nullptr) clock->step_done(out.back().time_ns);
  };
  for (int i = 0; i < count; ++i) {
    const StepTokens tokens(trainer.options(), o.seed, kTimedTokens + static_cast<uint64_t>(first + i), o.micro_batches);
    {
      const gpt2::StepRange range(first + i);
      trainer.enqueue_step({first + i, tokens.batches(), o.adamw});
    }
    if (i + 1 - static_cast<int>(out.size()) == 2) finish();
  }
  while (static_cast<int>(out.size()) < count) finish();
  return out;
}

CheckResult from_finding(const AuditFinding& f) {
  const std::string unit = f.check == "launch error" ? "launches" : f.check == "persisting L2" ? "bytes" : "ns";
  return make_result(f.check, f.what, {{unit, f.value, f.limit, -1}}, f.passed() ? "" : f.sentence);
}

}  // namespace

std::vector<CheckResult> check_steps_again(std::unique_ptr<Trainer> trainer, const MakeTrainer& make_fresh, const AgainOptions& o) {
  std::vector<Floats> start;
  for (const State s : kStates) start.push_back(read(*trainer, s));
  const std::vector<StepOutcome> got = steps_in_flight(*trainer, o, o.first_step, o.steps, nullptr);
  std::vector<uint64_t> hashes;
  for (const State s : kStates) hashes.push_back(hash(read(*trainer, s)));
  Floats m;
  if (!o.deterministic) m = read(*trainer, State::adam_m);
  const gpt2::ModelConfig config = trainer->options().model;
  trainer.reset();

  const std::unique_ptr<Trainer> fresh = make_fresh();
  for (size_t s = 0; s < start.size(); ++s) fresh->write(kStates[s], start[s]);
  start.clear();
  std::vector<CheckResult> results;
  Floats unused(state_size(*fresh));
  int64_t losses_differ = 0, norms_differ = 0;
  for (int i = 0; i < o.steps; ++i) {
    const int64_t step = o.first_step + i;
    const StepTokens tokens(fresh->options(), o.seed, kTimedTokens + static_cast<uint64_t>(step), o.micro_batches);
    fresh->enqueue_step({step, tokens.batches(), o.adamw});
    const StepOutcome want = fresh->finish_step(), &have = got[static_cast<size_t>(i)];
    fresh->read(State::parameters, unused);
    losses_differ += !(have.loss == want.loss);
    norms_differ += !(have.grad_norm == want.grad_norm);
    if (o.deterministic) continue;
    results.push_back(scalar_result("timed steps", fmt::format("loss of step {}", step), have.loss, want.loss, kLossDrift));
    results.push_back(scalar_result("timed steps", fmt::format("norm of step {}", step), have.grad_norm, want.grad_norm, kNormDrift));
  }
  if (o.deterministic) {
    results.push_back(must_be_zero("timed steps", "loss", losses_differ, "steps"));
    results.push_back(must_be_zero("timed steps", "grad norm", norms_differ, "steps"));
    for (size_t s = 0; s < hashes.size(); ++s)
      results.push_back(must_be_zero("timed steps", kStateNames[s], hash(read(*fresh, kStates[s])) != hashes[s], "states"));
    return results;
  }
  const Floats want = read(*fresh, State::adam_m);
  const gpt2::TensorLayout layout = gpt2::tensor_layout(config);
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    const gpt2::TensorSpan& span = layout[row.id];
    const auto part = [&](const Floats& all) {
      return std::span<const float>(all).subspan(static_cast<size_t>(span.offset), static_cast<size_t>(span.size));
    };
    const std::vector<double> as_double(part(want).begin(), part(want).end());
    const auto metrics = compare<float, double>(part(m), as_double, span.size / span.columns, span.columns);
    results.push_back(make_result("timed steps", "m of " + std::string(row.name), {{"norm", metrics.norm, kMomentDrift, -1}}));
  }
  return results;
}

std::vector<CheckResult> check_timed_steps(const MakeTrainer& make_trainer, const TimedStepsOptions& options) {
  std::unique_ptr<Trainer> trainer = make_trainer();
  trainer->write(State::parameters, gpt2::init_parameters(trainer->options().model, options.again.seed));
  const Floats zeros(state_size(*trainer));
  trainer->write(State::adam_m, zeros);
  trainer->write(State::adam_v, zeros);
  const AuditLimits limits = options.device == nullptr ? host_limits() : AuditLimits();
  std::vector<BlockAudit> blocks;
  int64_t step = options.again.first_step;
  const auto measure = [&](int count) {
    for (int b = 0; b < count; ++b) {
      BlockClock clock(options.device);
      steps_in_flight(*trainer, options.again, step, options.block_steps, &clock);
      blocks.push_back(clock.end());
      step += options.block_steps;
    }
  };
  measure(options.blocks);
  if (!std::ranges::all_of(findings(blocks, limits), [](const AuditFinding& f) { return f.passed(); })) measure(3 * options.blocks);
  std::vector<CheckResult> results;
  for (const AuditFinding& f : findings(blocks, limits))
    if (options.wanted(f.check)) results.push_back(from_finding(f));
  if (!options.wanted("timed steps")) return results;
  AgainOptions again = options.again;
  again.first_step = step;
  for (CheckResult& r : check_steps_again(std::move(trainer), make_trainer, again)) results.push_back(std::move(r));
  return results;
}

}  // namespace gate

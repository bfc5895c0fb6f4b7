#include "profiler/collect/phase_machine.h"

#include <algorithm>

namespace profiler::collect {

PhaseMachine::PhaseMachine(const std::vector<PhasePlan>& phases) {
  for (const PhasePlan& p : phases) {
    if (p.steps <= 0) continue;
    phases_.push_back(p);
    planned_ += p.steps;
  }
}

std::optional<StepOrders> PhaseMachine::begin_step() {
  if (phase_ >= phases_.size()) return std::nullopt;
  const PhasePlan& p = phases_[phase_];
  StepOrders o;
  o.step = step_;
  o.collecting = o.recorded = p.phase;
  o.first_of_phase = in_phase_ == 0;
  o.last_of_phase = in_phase_ + 1 == p.steps;
  o.last_of_plan = o.last_of_phase && phase_ + 1 == phases_.size();
  if (p.phase == Phase::activity && in_phase_ < std::min(kDiscardedSteps, p.steps - 1)) o.recorded = Phase::warmup;
  if (p.phase == Phase::warmup && o.last_of_phase)
    o.count_launches = std::any_of(phases_.begin() + static_cast<std::ptrdiff_t>(phase_), phases_.end(), [](const PhasePlan& later) {
      return later.phase == Phase::counters || later.phase == Phase::pass_counters;
    });
  ++step_;
  if (++in_phase_ == p.steps) {
    ++phase_;
    in_phase_ = 0;
  }
  return o;
}

}  // namespace profiler::collect

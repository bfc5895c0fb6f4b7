// Which step belongs to which phase. A step range that begins asks for its orders; what they mean for CUPTI
// is the collector's affair.
//
// The trap: the first kDiscardedSteps steps (records/collect_plan.h) of the activity phase are recorded as warm-up, because enabling
// kernel tracing patches the loaded kernels and the first traced step pays for that. So an activity phase of
// N steps yields N - 2 traced steps (at least one): whoever writes the plan asks for two more than it wants.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "profiler/records/collect_plan.h"

namespace profiler::collect {

struct StepOrders {
  int64_t step = 0;                  // 0-based count of steps in the process
  Phase collecting = Phase::warmup;  // what is switched on during the step
  Phase recorded = Phase::warmup;    // what its StepRecord says
  bool first_of_phase = false;
  bool last_of_phase = false;
  bool last_of_plan = false;
  bool count_launches = false;  // the warm-up step whose launches size the counter image
};

class PhaseMachine {
 public:
  explicit PhaseMachine(const std::vector<PhasePlan>& phases);
  // nullopt: the plan is done, leave the step alone.
  std::optional<StepOrders> begin_step();
  int64_t steps_planned() const { return planned_; }
  int64_t steps_begun() const { return step_; }

 private:
  std::vector<PhasePlan> phases_;  // without empty ones
  int64_t planned_ = 0;
  int64_t step_ = 0;
  size_t phase_ = 0;
  int64_t in_phase_ = 0;
};

}  // namespace profiler::collect

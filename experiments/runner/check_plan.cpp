#include "experiments/runner/check_plan.h"

#include <fmt/format.h>

#include "base/errors.h"

namespace experiments {

void check_at_least(const char* flag, double value, double least) {
  if (!(value >= least)) throw stepscope::InputError(fmt::format("{} is {}: expected at least {}", flag, value, least));
}

void check_common(const PairPlan& p) {
  const std::vector<Look>& looks = p.thresholds.looks;
  if (looks.empty()) throw stepscope::InputError("the plan has no look at its pairs");
  check_at_least("--pairs", looks.front().pairs, 2);
  for (size_t i = 1; i < looks.size(); ++i)
    if (looks[i].pairs <= looks[i - 1].pairs)
      throw stepscope::InputError(
          fmt::format("--pairs: looks at {} and then at {} pairs: expected more at every look", looks[i - 1].pairs, looks[i].pairs));
  check_at_least("--start-timeout-s", p.start_timeout_s, 0.001);
  check_at_least("--block-timeout-s", p.block_timeout_s, 0.001);
  if (p.a.steps_on_command != p.b.steps_on_command)
    throw stepscope::InputError("one arm steps on command and the other is run to its end: expected two of a kind");
}

std::unique_ptr<Arm> arm_of(const ArmSpec& spec, const Hooks& hooks) {
  return hooks.make_arm ? hooks.make_arm(spec) : make_arm(spec, hooks.stop);
}

}  // namespace experiments

#include "experiments/runner/both_procedures.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <thread>

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

void refuse_strangers(const Hooks& hooks, int own) {
  if (!hooks.foreign_process) return;
  if (const auto who = hooks.foreign_process(own)) throw ForeignProcess(*who);
}

void refuse_strangers_once_ours_left(const Hooks& hooks) {
  if (!hooks.foreign_process) return;
  std::optional<std::string> who;
  for (int i = 0; i < 50 && (who = hooks.foreign_process(0)); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  if (who) throw ForeignProcess(*who);
}

std::string stopped_sentence(size_t pairs, int planned) {
  return fmt::format("stopped after {} of {} pairs; what was measured is kept", pairs, planned);
}

}  // namespace experiments

#include "experiments/verdict/words.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

namespace experiments {

namespace {

constexpr double kLargest_pct = 1000;  // what a few pairs that spread cannot exclude may have 18 digits

}  // namespace

std::string change_pct(double ratio) {
  const double change = 100 * (ratio - 1);
  return change > kLargest_pct ? fmt::format("above {:+.0f}%", kLargest_pct) : fmt::format("{:+.2f}%", change);
}
std::string effect_pct(double effect) {
  return effect > kLargest_pct ? fmt::format("above {:.0f}%", kLargest_pct) : fmt::format("{:.2f}%", effect);
}

std::string ratio_text(double ratio, const Range& i) {
  return fmt::format("{} [{}, {}]", change_pct(ratio), change_pct(i[0]), change_pct(i[1]));
}

std::string ratio_text(const std::optional<RatioSection>& r) { return r ? ratio_text(r->ratio, r->ratio_interval) : "-"; }

std::string ratio_text(const Statistics& s) {
  if (!s.ratio) return "-";
  return s.ratio_interval ? ratio_text(*s.ratio, *s.ratio_interval) : change_pct(*s.ratio);
}

std::string both(const std::optional<double>& a, const std::optional<double>& b, int decimals) {
  return a && b ? fmt::format("{:.{}f} → {:.{}f}", *a, decimals, *b, decimals) : "-";
}

std::string estimand(const WorkloadSection& w) {
  if (w.procedure == Procedure::alone)
    return w.sustained && (w.sustained->a.burst || w.sustained->b.burst) ? "alone, too short to be sustained (a burst)" : "sustained";
  return w.whole_programs ? "in turns, whole programs (a burst)" : "at one clock (in turns)";
}

std::string equal_clocks_words(const WorkloadSection& w) {
  if (w.procedure == Procedure::in_turns) return w.whole_programs ? "in turns, whole programs (a burst)" : "in turns";
  if (!w.equal_clocks) return "not measured";
  const EqualClocksSection& e = *w.equal_clocks;
  const std::string how = e.by == EqualClocksBy::turns ? "in turns" : "first steps of a process";
  return e.sm_clock_mhz ? fmt::format("{}, {:.0f} MHz", how, *e.sm_clock_mhz) : how;
}

std::string cap_cost_text(const WorkloadSection& w) {
  if (!w.sustained || !w.sustained->a.cap_cost_pct || !w.sustained->b.cap_cost_pct) return "";
  return fmt::format("the cap costs {:.1f}% of A's step and {:.1f}% of B's", *w.sustained->a.cap_cost_pct, *w.sustained->b.cap_cost_pct);
}

std::string cap_text(const WorkloadSection& w) {
  if (!w.sustained || !w.equal_clocks || !w.statistics.ratio || !w.sustained->sm_clock) return "";
  if (!w.sustained->a.clock_limited.value_or(false) || !w.sustained->b.clock_limited.value_or(false)) return "";
  const auto takes = [](double ratio) { return fmt::format("{:.2f}% {}", 100 * std::fabs(ratio - 1), ratio < 1 ? "less" : "more"); };
  const double clock = w.sustained->sm_clock->ratio;
  return fmt::format("Both arms are at the power cap. At one clock B takes {}; alone it runs at {:.1f}% {} clock: who trains sees {}.",
                     takes(w.equal_clocks->ratio.ratio), 100 * std::fabs(clock - 1), clock < 1 ? "less" : "more",
                     takes(*w.statistics.ratio));
}

std::string differences_text(const VerdictDocument& d) {
  std::set<Verdict> verdicts;
  std::string each;
  for (const WorkloadSection& w : d.workloads) {
    verdicts.insert(w.verdict);
    each += fmt::format("{}{}: {}{}", each.empty() ? "" : "; ", w.workload, name(w.verdict),
                        w.statistics.ratio ? " " + ratio_text(w.statistics) + " " + estimand(w) : "");
  }
  return verdicts.size() < 2 ? "" : fmt::format("The answer depends on the workload. {}.", each);
}

bool prediction_is_off(const WorkloadSection& workload) {
  constexpr double kOff = 0.3;
  if (!workload.saved_ms || !workload.predicted_saving_ms) return false;
  if (const auto& range = workload.saved_ms_interval;
      range && (*range)[0] <= *workload.predicted_saving_ms && *workload.predicted_saving_ms <= (*range)[1])
    return false;
  return std::fabs(*workload.saved_ms - *workload.predicted_saving_ms) > kOff * std::fabs(*workload.predicted_saving_ms);
}

}  // namespace experiments

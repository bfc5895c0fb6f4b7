#include "profiler/document/states.h"

#include <algorithm>
#include <map>

#include "profiler/document/device_state.h"
#include "profiler/document/missing_rows.h"

namespace profiler {
namespace {

// A trainer's own times, placed by the begin of its first timed step; what came before lies in front of it without a gap.
std::vector<StepInTime> steps_of_trainer(const Recording& r, const RunInfo& run, const ProfileOptions& o) {
  std::optional<int64_t> begin_ns;
  for (const StepRecord& s : r.steps)
    if (s.phase == Phase::timed) begin_ns = std::min(begin_ns.value_or(s.host_begin_ns), s.host_begin_ns);
  if (!begin_ns) return {};
  const auto all = static_cast<int64_t>(run.steps.size());
  const int64_t first = std::clamp<int64_t>(o.first_timed_step, 0, all), last = std::clamp<int64_t>(first + o.timed_steps, first, all);
  double before = 0;
  for (int64_t i = 0; i < first; ++i) before += run.steps[static_cast<size_t>(i)].time_ns;
  double at = static_cast<double>(*begin_ns) - before;
  std::vector<StepInTime> steps;
  for (int64_t i = 0; i < last; ++i) {
    const double time = run.steps[static_cast<size_t>(i)].time_ns;
    steps.push_back({static_cast<int64_t>(at), time, i >= first});
    at += time;
  }
  return steps;
}

// A program without run.json: from step begin to step begin, as long as nothing is collected.
std::vector<StepInTime> steps_of_program(const Recording& r) {
  std::map<int64_t, const StepRecord*> by_number;
  for (const StepRecord& s : r.steps) by_number[s.step] = &s;
  std::vector<StepInTime> steps;
  for (const auto& [number, step] : by_number) {
    const auto next = by_number.find(number + 1);
    if ((step->phase != Phase::timed && step->phase != Phase::warmup) || next == by_number.end()) break;
    steps.push_back(
        {step->host_begin_ns, static_cast<double>(next->second->host_begin_ns - step->host_begin_ns), step->phase == Phase::timed});
  }
  return steps;
}

DeviceStates states_of(const Recording& r, const std::optional<RunInfo>& run, const ProfileOptions& o, const char* which) {
  const std::vector<StepInTime> steps = run ? steps_of_trainer(r, *run, o) : steps_of_program(r);
  const Number tokens = run && run->tokens_per_step ? Number(static_cast<double>(*run->tokens_per_step)) : std::nullopt;
  return device_states(steps, r.environment, r.energy, which, tokens);
}

// One row of a kind: what was lost in the collector has been told already.
void tell(ProfileDocument& d, const char* name, const std::string& why) {
  if (!is_missing(d, name)) add_missing(d, {name, 1, why});
}

}  // namespace

void fill_states(ProfileDocument& d, const Recording& r, const std::optional<RunInfo>& run, const ProfileOptions& o) {
  const bool timed = std::any_of(r.steps.begin(), r.steps.end(), [](const StepRecord& s) { return s.phase == Phase::timed; });
  if (r.session.producer != "cupti" || !timed) return;
  // Without clock and power nobody knows, however few the steps; that they are missing has been told.
  if (is_missing(d, "environment_not_sampled")) return;
  const DeviceStates found = states_of(r, run, o, "timed");
  d.timing.state = found.state;
  d.timing.states = found.rows;
  if (!found.state) tell(d, "device_state_unknown", found.why_none);
  const bool energy = std::any_of(found.rows.begin(), found.rows.end(), [](const StateRow& s) { return s.joules_per_step.has_value(); });
  if (!energy && !found.rows.empty()) tell(d, "energy_not_measured", found.why_no_energy);
}

void sustained_not_measured(ProfileDocument& d, const std::string& why) {
  add_missing(d, {"sustained_not_measured", 1, why});
  sort_missing(d);
}

void add_sustained(ProfileDocument& d, const Recording& r, const std::optional<RunInfo>& run, const ProfileOptions& o) {
  const DeviceStates found = states_of(r, run, o, "sustained");
  const auto warm = std::find_if(found.rows.begin(), found.rows.end(), [](const StateRow& s) { return s.state == "warm"; });
  if (warm == found.rows.end()) {
    sustained_not_measured(d, found.why_not_warm.empty() ? found.why_none : found.why_not_warm);
    return;
  }
  d.timing.states.push_back(*warm);
  // The question of energy is answered by the longer run.
  if (warm->joules_per_step) {
    std::erase_if(d.missing, [](const MissingRow& m) { return m.name == "energy_not_measured"; });
  } else {
    tell(d, "energy_not_measured", found.why_no_energy);
  }
  sort_missing(d);
}

}  // namespace profiler

#include "profiler/records/collect_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/json_text.h"
#include "profiler/records/names.h"

namespace profiler {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kSchema = "stepscope.collect/1";

[[noreturn]] void wrong(const std::string& field, const std::string& expected) {
  throw std::runtime_error("collect plan: field '" + field + "': expected " + expected);
}

const Json& at(const Json& object, const char* field) {
  const auto it = object.find(field);
  if (it == object.end()) wrong(field, "it to be there");
  return *it;
}
std::string text_at(const Json& object, const char* field) {
  const Json& v = at(object, field);
  if (!v.is_string()) wrong(field, "a string");
  return v.get<std::string>();
}
int64_t count_at(const Json& object, const char* field) {
  const Json& v = at(object, field);
  if (!v.is_number_integer() || v.get<int64_t>() < 0) wrong(field, "an integer >= 0");
  return v.get<int64_t>();
}

}  // namespace

int64_t planned_steps(const std::vector<PhasePlan>& phases) {
  int64_t steps = 0;
  for (const PhasePlan& p : phases) steps += std::max<int64_t>(p.steps, 0);
  return steps;
}

int64_t planned_steps(const std::vector<PhasePlan>& phases, Phase of) {
  int64_t steps = 0;
  for (const PhasePlan& p : phases)
    if (p.phase == of) steps += p.steps;
  return steps;
}

std::vector<PhasePlan> phases_that_fit(const std::vector<PhasePlan>& wanted, int64_t steps) {
  std::map<Phase, int64_t> taken;
  const auto take = [&](Phase phase) {
    if (steps <= 0 || taken[phase] >= planned_steps(wanted, phase)) return false;
    ++taken[phase];
    --steps;
    return true;
  };
  using enum Phase;
  for (const Phase phase : {activity, warmup, timed, counters, activity, timed, activity, timed, pass_counters}) take(phase);
  bool more = true;
  while (more) {
    more = false;
    for (const Phase phase : {timed, timed, timed, activity, warmup, counters, pass_counters}) more = take(phase) || more;
  }
  std::vector<PhasePlan> phases;
  for (const PhasePlan& p : wanted) {
    const int64_t n = std::min(p.steps, taken[p.phase]);
    taken[p.phase] -= n;
    if (n > 0) phases.push_back({p.phase, n});
  }
  return phases;
}

std::optional<MissingRecord> left_out(const std::vector<PhasePlan>& wanted, const std::vector<StepRecord>& recorded) {
  std::string words;
  const auto short_of = [&](int64_t have, int64_t want, std::string_view word) {
    if (have >= want) return;
    words += (words.empty() ? "" : ", ") + std::to_string(have) + " of " + std::to_string(want) + " " + std::string(word);
  };
  const auto compare = [&](Phase phase, int64_t want, std::string_view word) {
    short_of(std::count_if(recorded.begin(), recorded.end(), [&](const StepRecord& s) { return s.phase == phase; }), want, word);
  };
  const int64_t tracing = planned_steps(wanted, Phase::activity);
  const int64_t traced = tracing > 0 ? std::max<int64_t>(1, tracing - kDiscardedSteps) : 0;
  compare(Phase::activity, traced, "traced");
  compare(Phase::timed, planned_steps(wanted, Phase::timed), "timed");
  compare(Phase::counters, planned_steps(wanted, Phase::counters), "counted");
  compare(Phase::pass_counters, planned_steps(wanted, Phase::pass_counters), "counted by pass");
  // The discarded steps of the tracing are recorded as warm-up too: those at the beginning count.
  int64_t first_other = std::numeric_limits<int64_t>::max(), warm = 0;
  for (const StepRecord& s : recorded)
    if (s.phase != Phase::warmup) first_other = std::min(first_other, s.step);
  for (const StepRecord& s : recorded) warm += s.step < first_other;
  short_of(warm, planned_steps(wanted, Phase::warmup), "warm-up");
  if (words.empty()) return std::nullopt;
  return MissingRecord{"plan_shortened", 1,
                       "the program had " + std::to_string(recorded.size()) + (recorded.size() == 1 ? " step" : " steps") +
                           ", the plan needs " + std::to_string(planned_steps(wanted)) + ": " + words};
}

std::string file_of_rank(const std::string& path, int64_t rank) {
  const size_t name = path.find_last_of('/') + 1;  // npos + 1 is 0
  size_t ending = path.find_last_of('.');
  if (ending == std::string::npos || ending <= name) ending = path.size();
  return path.substr(0, ending) + ".rank" + std::to_string(rank) + path.substr(ending);
}

std::string to_json(const CollectPlan& plan) {
  Json j;
  j["schema"] = kSchema;
  j["output"] = plan.output;
  j["raw_trace"] = plan.raw_trace;
  j["mode"] = plan.mode;
  j["step_range"] = plan.step_range;
  j["phases"] = Json::array();
  for (const PhasePlan& p : plan.phases) {
    Json phase;
    phase["phase"] = name(p.phase);
    phase["steps"] = p.steps;
    j["phases"].push_back(std::move(phase));
  }
  j["metrics"] = plan.metrics;
  j["max_launches"] = plan.max_launches;
  if (!plan.job.empty()) j["job"] = plan.job;
  return stepscope::json_text(j, 1) + "\n";
}

CollectPlan collect_plan_from_json(const std::string& text) {
  Json j;
  try {
    j = Json::parse(text);
  } catch (const Json::exception& e) {
    throw std::runtime_error(std::string("collect plan: not JSON: ") + e.what());
  }
  if (!j.is_object()) throw std::runtime_error("collect plan: expected a JSON object");
  if (text_at(j, "schema") != kSchema) wrong("schema", "\"" + std::string(kSchema) + "\"");
  CollectPlan plan;
  plan.output = text_at(j, "output");
  plan.raw_trace = text_at(j, "raw_trace");
  plan.mode = text_at(j, "mode");
  if (plan.mode != "steps" && plan.mode != "program_activity" && plan.mode != "program_counters")
    wrong("mode", "steps, program_activity or program_counters");
  plan.step_range = text_at(j, "step_range");
  const Json& phases = at(j, "phases");
  if (!phases.is_array()) wrong("phases", "a list");
  for (const Json& p : phases) {
    if (!p.is_object()) wrong("phases", "a list of objects");
    const auto phase = phase_from_name(text_at(p, "phase"));
    if (!phase) wrong("phases[].phase", "warmup, timed, activity, counters, pass_counters or program");
    plan.phases.push_back({*phase, count_at(p, "steps")});
  }
  const Json& metrics = at(j, "metrics");
  if (!metrics.is_array()) wrong("metrics", "a list of strings");
  for (const Json& m : metrics) {
    if (!m.is_string()) wrong("metrics", "a list of strings");
    plan.metrics.push_back(m.get<std::string>());
  }
  plan.max_launches = count_at(j, "max_launches");
  if (j.contains("job")) plan.job = text_at(j, "job");
  return plan;
}

}  // namespace profiler

#include "profiler/records/collect_plan.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

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
  return j.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
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
  return plan;
}

}  // namespace profiler

#include "experiments/energy/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/errors.h"
#include "base/json_place.h"
#include "experiments/energy/document_checks.h"

namespace energy {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kSchema = "stepscope.energy/1";

// One list of fields per structure, for both directions. An absent optional is no key.
struct Writer {
  static constexpr bool kReads = false;
  Json json = Json::object();
  template <class T>
  void operator()(const char* key, const T& value);
};
struct Reader {
  static constexpr bool kReads = true;
  const Json& json;
  const stepscope::JsonPlace here;  // a number below zero may be an answer: signs are looked at together, below
  std::set<std::string> known = {};
  template <class T>
  void operator()(const char* key, T& value);
  void check_object() const { here.type(json.is_object(), "an object"); }
  void check_nothing_else() const {
    for (const auto& [key, value] : json.items())
      if (!known.contains(key)) here.fail(fmt::format("unknown field '{}'", key));
  }
};

// Walks all numbers: finite, and not below zero but where that is an answer.
struct Signs {
  static constexpr bool kReads = false;
  const std::string& file;
  std::string place;
  template <class T>
  void operator()(const char* key, const T& value);
};

template <class A>
void fields(A& a, std::conditional_t<A::kReads, RunSettings, const RunSettings>& s) {
  a("trainer", s.trainer);
  a("device", s.device);
  a("uuid", s.uuid);
  a("model", s.model);
  a("batch_size", s.batch_size);
  a("seq_len", s.seq_len);
  a("accumulation", s.accumulation);
  a("matmul", s.matmul);
  a("recompute", s.recompute);
  a("weight_rounding", s.weight_rounding);
  a("variants", s.variants);
  a("driver", s.driver);
  a("git_revision", s.git_revision);
  a("command", s.command);
  a("measured_at", s.measured_at);
}
template <class A>
void fields(A& a, std::conditional_t<A::kReads, Method, const Method>& s) {
  a("settle_s", s.settle_s);
  a("window_s", s.window_s);
  a("added_share", s.added_share);
  a("windows", s.windows);
  a("window_noise", s.window_noise);
  a("by_launch", s.by_launch);
  a("full_clock", s.full_clock);
  a("all_ops", s.all_ops);
}
template <class A>
void fields(A& a, std::conditional_t<A::kReads, StepEnergy, const StepEnergy>& s) {
  a("joules", s.joules);
  a("seconds", s.seconds);
  a("graph_joules", s.graph_joules);
  a("graph_seconds", s.graph_seconds);
  a("sm_clock_mhz", s.sm_clock_mhz);
  a("power_w", s.power_w);
  a("power_limit_w", s.power_limit_w);
  a("max_sm_clock_mhz", s.max_sm_clock_mhz);
  a("clock_limited", s.clock_limited);
  a("twice_over_two", s.twice_over_two);
  a("clock_exponent", s.clock_exponent);
  a("full_clock_joules", s.full_clock_joules);
  a("full_clock_mhz", s.full_clock_mhz);
  a("limited_joules", s.limited_joules);
  a("limited_mhz", s.limited_mhz);
  a("loss_before", s.loss_before);
  a("loss_after", s.loss_after);
}
template <class A>
void fields(A& a, std::conditional_t<A::kReads, ProbeRecord, const ProbeRecord>& s) {
  a("name", s.name);
  a("power_w", s.probe.watts);
  a("bytes_per_s", s.probe.bytes_per_s);
  a("flops_per_s", s.probe.flops_per_s);
  a("sm_clock_mhz", s.probe.sm_clock_mhz);
}
template <class A>
void fields(A& a, std::conditional_t<A::kReads, Coefficients, const Coefficients>& s) {
  a("static_w", s.static_w);
  a("joules_per_byte", s.joules_per_byte);
  a("joules_per_flop", s.joules_per_flop);
  a("bytes_per_s", s.bytes_per_s);
  a("flops_per_s", s.flops_per_s);
}
template <class A>
void fields(A& a, std::conditional_t<A::kReads, Slope, const Slope>& s) {
  a("joules", s.joules);
  a("joules_error", s.joules_error);
  a("joules_at_step_clock", s.joules_at_step_clock);
  a("seconds", s.seconds);
  a("sm_clock_mhz", s.sm_clock_mhz);
  a("windows", s.windows);
}
template <class A>
void fields(A& a, std::conditional_t<A::kReads, Floor, const Floor>& s) {
  a("memory_s", s.memory_s);
  a("math_s", s.math_s);
  a("joules", s.joules);
}
template <class A>
void fields(A& a, std::conditional_t<A::kReads, OpEnergy, const OpEnergy>& s) {
  a("pass", s.pass);
  a("op", s.op);
  a("launch", s.launch);
  a("instances", s.instances);
  a("launches", s.launches);
  a("copies", s.copies);
  a("added", s.slope);
  a("resolved", s.resolved);
  a("has_work", s.has_work);
  a("flops", s.flops);
  a("min_bytes", s.min_bytes);
  a("floor", s.floor);
  a("bound", s.bound);
  a("sustained_s", s.sustained_s);
  a("alone_joules", s.alone_joules);
  a("alone_seconds", s.alone_seconds);
  a("alone_sm_clock_mhz", s.alone_sm_clock_mhz);
}
template <class A>
void fields(A& a, std::conditional_t<A::kReads, Closure, const Closure>& s) {
  a("step_joules", s.step_joules);
  a("placed_joules", s.placed_joules);
  a("placed_error", s.placed_error);
}
template <class A>
void fields(A& a, std::conditional_t<A::kReads, Document, const Document>& s) {
  a("run", s.run);
  a("method", s.method);
  a("step", s.step);
  a("closure", s.closure);
  a("closure_at_step_clock", s.closure_at_step_clock);
  a("probes", s.probes);
  a("coefficients", s.coefficients);
  a("coefficients_absent", s.coefficients_absent);
  a("ops", s.ops);
}

constexpr Bound kBounds[] = {Bound::memory, Bound::tensor, Bound::power, Bound::latency, Bound::neither};

template <class T>
constexpr bool kPlain = std::is_arithmetic_v<T> || std::is_same_v<T, std::string> || std::is_same_v<T, std::map<std::string, std::string>>;
template <class T>
struct Inner {};
template <class T>
struct Inner<std::optional<T>> {
  using Optional = T;
};
template <class T>
struct Inner<std::vector<T>> {
  using Element = T;
};
template <class T>
concept IsOptional = requires {
  typename Inner<T>::Optional;
};
template <class T>
concept IsVector = requires {
  typename Inner<T>::Element;
};

template <class T>
Json written(const T& value) {
  if constexpr (kPlain<T>) {
    return value;
  } else if constexpr (std::is_same_v<T, Bound>) {
    return name(value);
  } else if constexpr (IsVector<T>) {
    Json list = Json::array();
    for (const auto& each : value) list.push_back(written(each));
    return list;
  } else {
    Writer inner;
    fields(inner, value);
    return std::move(inner.json);
  }
}
template <class T>
void Writer::operator()(const char* key, const T& value) {
  if constexpr (IsOptional<T>) {
    if (value) json[key] = written(*value);
  } else {
    json[key] = written(value);
  }
}

// What is the difference of two windows may be below zero; how far, document_checks.cpp says. A loss is what training makes of it.
constexpr std::string_view kBelowZero[] = {
    "added.joules",        "added.joules_at_step_clock", "added.seconds",    "sustained_s",     "placed_joules",
    "step.clock_exponent", "step.full_clock_joules",     "step.loss_before", "step.loss_after",
};
template <class T>
void Signs::operator()(const char* key, const T& value) {
  if constexpr (IsOptional<T>) {
    if (value) (*this)(key, *value);
  } else if constexpr (IsVector<T>) {
    for (size_t i = 0; i < value.size(); ++i) (*this)(fmt::format("{}[{}]", key, i).c_str(), value[i]);
  } else if constexpr (std::is_floating_point_v<T>) {
    const std::string at = place + key;
    const bool below_zero = std::any_of(std::begin(kBelowZero), std::end(kBelowZero), [&](std::string_view k) { return at.ends_with(k); });
    if (!std::isfinite(value) || (!below_zero && value < 0))
      throw stepscope::InputError(
          fmt::format("{}: {}: found {}, expected {}", file, at, value, below_zero ? "a finite number" : "0 or more"));
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    const int least = std::string_view(key) == "launch" ? -1 : 0;
    if (value < least) throw stepscope::InputError(fmt::format("{}: {}{}: found {}, expected {} or more", file, place, key, value, least));
  } else if constexpr (!kPlain<T> && !std::is_same_v<T, Bound>) {
    Signs inner{file, fmt::format("{}{}.", place, key)};
    fields(inner, value);
  }
}

template <class T>
void read(const Json& json, const stepscope::JsonPlace& here, T& value) {
  if constexpr (kPlain<T>) {
    here.get(json, value);
  } else if constexpr (std::is_same_v<T, Bound>) {
    std::string text;
    here.get(json, text);
    const auto* found = std::find_if(std::begin(kBounds), std::end(kBounds), [&](Bound b) { return name(b) == text; });
    if (found == std::end(kBounds)) here.fail(fmt::format("unknown bound '{}'", text));
    value = *found;
  } else if constexpr (IsVector<T>) {
    here.type(json.is_array(), "a list");
    for (size_t i = 0; i < json.size(); ++i) read(json[i], here.in(i), value.emplace_back());
  } else {
    Reader inner{json, here};
    inner.check_object();
    fields(inner, value);
    inner.check_nothing_else();
  }
}
template <class T>
void Reader::operator()(const char* key, T& value) {
  known.insert(key);
  const auto found = json.find(key);
  if constexpr (IsOptional<T>) {
    if (found != json.end()) read(*found, here.in(key), value.emplace());
  } else {
    if (found == json.end()) here.in(key).fail("is missing");
    read(*found, here.in(key), value);
  }
}

}  // namespace

std::vector<const OpEnergy*> most_above_floor(const Document& document, size_t count) {
  std::vector<const OpEnergy*> found;
  for (const OpEnergy& op : document.ops)
    if (op.floor && *op.above_floor_joules() > 0) found.push_back(&op);
  std::stable_sort(found.begin(), found.end(),
                   [](const OpEnergy* a, const OpEnergy* b) { return *a->above_floor_joules() > *b->above_floor_joules(); });
  if (found.size() > count) found.resize(count);
  return found;
}

nlohmann::ordered_json to_json(const Document& document) {
  Writer w;
  w("schema", std::string(kSchema));
  fields(w, document);
  return std::move(w.json);
}

Document from_json(const nlohmann::ordered_json& json, const std::string& file) {
  Reader r{json, {file, "", true}};
  r.check_object();
  std::string schema;
  r("schema", schema);
  if (schema != kSchema)
    throw stepscope::InputError(fmt::format(
        "{}: schema '{}', expected '{}'{}", file, schema, kSchema,
        schema.starts_with("stepscope.profile/") ? "; a profile document goes behind --profile, and `stepscope report` shows it" : ""));
  Document document;
  fields(r, document);
  r.check_nothing_else();
  check_more_than_zero(document, file);
  Signs signs{file, ""};
  fields(signs, document);
  check_agreement(document, file);
  return document;
}

}  // namespace energy

#include "profiler/records/record_json.h"

#include <cmath>
#include <set>
#include <string>
#include <type_traits>

#include "base/json_text.h"
#include "profiler/records/names.h"

namespace profiler {
namespace {

using Json = nlohmann::ordered_json;

// ---- the field lists: `f(key, member)` in the order of the file
// ---------------------------------------------
template <class F, class R>
void fields(F& f, R& r, const SessionRecord*) {
  f("producer", r.producer);
  f("program", r.program);
  f("pid", r.pid);
  f("device", r.device);
  f("versions", r.versions);
}
template <class F, class R>
void fields(F& f, R& r, const RankRecord*) {
  f("rank", r.rank);
  f("size", r.size);
  f("job", r.job);
  f("host", r.host);
  f("boot_id", r.boot_id);
  f("time_namespace", r.time_namespace);
  f("build", r.build);
}
template <class F, class R>
void fields(F& f, R& r, const LaunchRecord*) {
  f("activity", r.activity);
  f("step", r.step);
  f("index", r.index);
  f("name", r.name);
  f("path", r.path);
  f("stream", r.stream);
  f("device", r.device);
  f("grid", r.grid);
  f("block", r.block);
  f("registers", r.registers);
  f("shared_static_bytes", r.shared_static_bytes);
  f("shared_dynamic_bytes", r.shared_dynamic_bytes);
  f("correlation", r.correlation);
  f("graph_node", r.graph_node);
  f("launch_ns", r.launch_ns);
  f("start_ns", r.start_ns);
  f("end_ns", r.end_ns);
  f("bytes", r.bytes);
}
template <class F, class R>
void fields(F& f, R& r, const LaunchStats*) {
  f("activity", r.activity);
  f("index", r.index);
  f("samples", r.samples);
  f("median_ns", r.median_ns);
  f("mean_ns", r.mean_ns);
  f("min_ns", r.min_ns);
  f("max_ns", r.max_ns);
}
template <class F, class R>
void fields(F& f, R& r, const StepRecord*) {
  f("step", r.step);
  f("phase", r.phase);
  f("host_begin_ns", r.host_begin_ns);
  f("host_end_ns", r.host_end_ns);
  f("gpu_begin_ns", r.gpu_begin_ns);
  f("gpu_end_ns", r.gpu_end_ns);
  f("kernels", r.kernels);
  f("copies", r.copies);
  f("memsets", r.memsets);
}
template <class F, class R>
void fields(F& f, R& r, const CounterSet*) {
  f("name", r.name);
  f("metrics", r.metrics);
  f("setup_ns", r.setup_ns);
  f("run_ns", r.run_ns);
  f("decode_ns", r.decode_ns);
  f("launches", r.launches);
  f("ranges", r.ranges);
}
template <class F, class R>
void fields(F& f, R& r, const CounterRecord*) {
  f("set", r.set);
  f("step", r.step);
  f("index", r.index);
  f("pass", r.pass);
  f("kernel", r.kernel);
  f("path", r.path);
  f("grid", r.grid);
  f("values", r.values);
}
template <class F, class R>
void fields(F& f, R& r, const EnvironmentSample*) {
  f("time_ns", r.time_ns);
  f("phase", r.phase);
  f("sm_clock_mhz", r.sm_clock_mhz);
  f("memory_clock_mhz", r.memory_clock_mhz);
  f("power_w", r.power_w);
  f("temperature_c", r.temperature_c);
  f("throttle_reasons", r.throttle_reasons);
}
template <class F, class R>
void fields(F& f, R& r, const EnergySample*) {
  f("time_ns", r.time_ns);
  f("energy_mj", r.energy_mj);
}
template <class F, class R>
void fields(F& f, R& r, const MissingRecord*) {
  f("name", r.name);
  f("count", r.count);
  f("detail", r.detail);
}

// ---- values -----------------------------------------------------------------------------------------------
[[noreturn]] void wrong(std::string_view key, std::string_view expected, const Json& found) {
  std::string text = stepscope::json_text(found, -1);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  throw RecordError("field '" + std::string(key) + "': expected " + std::string(expected) + ", found " + text);
}

double finite(std::string_view key, double v) {
  if (!std::isfinite(v)) throw RecordError("field '" + std::string(key) + "': not a finite number; a failed value is a missing record");
  return v;
}

struct ToJson {
  Json out;
  void operator()(const char* key, const std::string& v) { out[key] = v; }
  void operator()(const char* key, int64_t v) { out[key] = v; }
  void operator()(const char* key, uint64_t v) { out[key] = v; }
  void operator()(const char* key, double v) { out[key] = finite(key, v); }
  void operator()(const char* key, Activity v) { out[key] = name(v); }
  void operator()(const char* key, Phase v) { out[key] = name(v); }
  void operator()(const char* key, const std::array<int64_t, 3>& v) { out[key] = v; }
  void operator()(const char* key, const std::vector<std::string>& v) { out[key] = v; }
  void operator()(const char* key, const std::map<std::string, std::string>& v) { out[key] = v; }
  void operator()(const char* key, const std::vector<double>& v) {
    Json list = Json::array();
    for (double x : v) list.push_back(finite(key, x));
    out[key] = std::move(list);
  }
};

int64_t integer(std::string_view key, const Json& v) {
  if (!v.is_number_integer()) wrong(key, "an integer", v);
  if (v.is_number_unsigned() && v.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) wrong(key, "an integer of 63 bits", v);
  return v.get<int64_t>();
}

struct FromJson {
  const Json& in;
  std::set<std::string> known{"type"};

  const Json& at(const char* key) {
    known.insert(key);
    const auto it = in.find(key);
    if (it == in.end()) throw RecordError("field '" + std::string(key) + "' is missing");
    return *it;
  }
  void operator()(const char* key, std::string& v) {
    const Json& j = at(key);
    if (!j.is_string()) wrong(key, "a string", j);
    v = j.get<std::string>();
  }
  void operator()(const char* key, int64_t& v) { v = integer(key, at(key)); }
  void operator()(const char* key, uint64_t& v) {
    const Json& j = at(key);
    if (!j.is_number_unsigned()) wrong(key, "an unsigned integer", j);
    v = j.get<uint64_t>();
  }
  void operator()(const char* key, double& v) {
    const Json& j = at(key);
    if (!j.is_number()) wrong(key, "a number", j);
    v = j.get<double>();
  }
  void operator()(const char* key, Activity& v) { word(key, v, activity_from_name, "kernel, copy, memset or cpu_op"); }
  void operator()(const char* key, Phase& v) {
    word(key, v, phase_from_name, "warmup, timed, activity, counters, pass_counters or program");
  }
  void operator()(const char* key, std::array<int64_t, 3>& v) {
    const Json& j = at(key);
    if (!j.is_array() || j.size() != 3) wrong(key, "three integers", j);
    for (size_t i = 0; i < 3; ++i) v[i] = integer(key, j[i]);
  }
  void operator()(const char* key, std::vector<std::string>& v) {
    const Json& j = at(key);
    if (!j.is_array()) wrong(key, "a list of strings", j);
    for (const Json& e : j) {
      if (!e.is_string()) wrong(key, "a list of strings", j);
      v.push_back(e.get<std::string>());
    }
  }
  void operator()(const char* key, std::map<std::string, std::string>& v) {
    const Json& j = at(key);
    if (!j.is_object()) wrong(key, "an object of strings", j);
    for (const auto& [k, e] : j.items()) {
      if (!e.is_string()) wrong(key, "an object of strings", j);
      v[k] = e.get<std::string>();
    }
  }
  void operator()(const char* key, std::vector<double>& v) {
    const Json& j = at(key);
    if (!j.is_array()) wrong(key, "a list of numbers", j);
    for (const Json& e : j) {
      if (!e.is_number()) wrong(key, "a list of numbers", j);
      v.push_back(e.get<double>());
    }
  }
  template <class Enum>
  void word(const char* key, Enum& v, std::optional<Enum> (*find)(std::string_view), const char* expected) {
    const Json& j = at(key);
    const auto found = j.is_string() ? find(j.get<std::string>()) : std::nullopt;
    if (!found) wrong(key, expected, j);
    v = *found;
  }
};

}  // namespace

template <class Record>
nlohmann::ordered_json record_to_json(const Record& record) {
  ToJson to;
  to.out["type"] = kRecordType<Record>;
  fields(to, record, static_cast<const Record*>(nullptr));
  return std::move(to.out);
}

template <class Record>
Record record_from_json(const nlohmann::ordered_json& object) {
  Record record;
  FromJson from{object};
  fields(from, record, static_cast<const Record*>(nullptr));
  for (const auto& [key, value] : object.items())
    if (!from.known.contains(key)) throw RecordError("unknown field '" + key + "' in a record of type " + std::string(kRecordType<Record>));
  return record;
}

#define PROFILER_INSTANTIATE(R)                                       \
  template nlohmann::ordered_json record_to_json<R>(const R& record); \
  template R record_from_json<R>(const nlohmann::ordered_json& object);
PROFILER_INSTANTIATE(SessionRecord)
PROFILER_INSTANTIATE(RankRecord)
PROFILER_INSTANTIATE(LaunchRecord)
PROFILER_INSTANTIATE(LaunchStats)
PROFILER_INSTANTIATE(StepRecord)
PROFILER_INSTANTIATE(CounterSet)
PROFILER_INSTANTIATE(CounterRecord)
PROFILER_INSTANTIATE(EnvironmentSample)
PROFILER_INSTANTIATE(EnergySample)
PROFILER_INSTANTIATE(MissingRecord)
#undef PROFILER_INSTANTIATE

}  // namespace profiler

#include "profiler/report/trace.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "profiler/report/names.h"
#include "profiler/report/rank_trace.h"
#include "profiler/report/trace_events.h"

namespace profiler {
namespace {

using trace::Json, trace::kNsPerUs, trace::metadata, trace::slice;

constexpr int64_t kStepTrack = 0;

struct Slice {
  const LaunchRow* launch;
  double begin_ns, end_ns;
};

template <class T>
void put(Json& args, const std::string& key, const std::optional<T>& v) {
  if (v) args[key] = *v;
}

Json counter(const char* name, double at_ns, int64_t pid, const char* series, double value) {
  Json e;
  e["name"] = name;
  e["ph"] = "C";
  e["ts"] = at_ns / kNsPerUs;
  e["pid"] = pid;
  e["args"][series] = value;
  return e;
}

Json launch_slice(const Slice& s, int64_t pid, int64_t tid) {
  const LaunchRow& l = *s.launch;
  Json e = slice(l.activity == "cpu_op" ? l.name : short_kernel_name(l.name), l.activity.c_str(), s.begin_ns, s.end_ns, pid, tid);
  Json& a = e["args"];
  a["name"] = l.name;
  a["index"] = l.index;
  a["path"] = l.path;
  if (l.activity == "kernel") {
    a["grid"] = l.grid;
    a["block"] = l.block;
    put(a, "registers", l.registers);
    put(a, "shared_bytes", l.shared_bytes);
  }
  put(a, "bytes", l.bytes);
  put(a, "median_ns", l.time_ns);
  for (const NumberRow& n : number_rows()) put(a, std::string(n.name), l.*n.member);
  put(a, "bound", l.bound);
  put(a, "headroom_ns", l.headroom_ns);
  return e;
}

// Runs of neighbours with the same key become one slice each; an empty key makes none.
template <class KeyOf>
void enclosing_slices(Json& events, const std::vector<Slice>& slices, const char* category, int64_t pid, int64_t tid, KeyOf key_of) {
  for (size_t i = 0; i < slices.size();) {
    const std::string key = key_of(*slices[i].launch);
    size_t end = i + 1;
    while (end < slices.size() && key_of(*slices[end].launch) == key) ++end;
    if (!key.empty()) {
      const std::string name = key.substr(0, key.find('\n'));
      events.push_back(slice(name, category, slices[i].begin_ns, slices[end - 1].end_ns, pid, tid));
    }
    i = end;
  }
}

std::string pass_key(const LaunchRow& l) { return l.pass.value_or(""); }
// What is shown, then what makes it another slice: the same op of the next pass is another one.
std::string op_key(const LaunchRow& l) {
  if (!l.pass || !l.op) return "";
  return (l.layer ? "layer " + std::to_string(*l.layer) + " " : "") + *l.op + "\n" + *l.pass;
}

void add_track(Json& events, const std::vector<Slice>& slices, int64_t pid, int64_t tid) {
  enclosing_slices(events, slices, "pass", pid, tid, pass_key);
  enclosing_slices(events, slices, "op", pid, tid, op_key);
  for (const Slice& s : slices) events.push_back(launch_slice(s, pid, tid));
}

// A step function: what the operations running at each moment add up to.
void add_counter_track(Json& events, const std::vector<Slice>& slices, int64_t pid, const char* name, const char* series,
                       Number Numbers::*member, double scale) {
  std::map<double, double> changes;
  for (const Slice& s : slices) {
    const Number value = s.launch->*member;
    if (!value || !(s.end_ns > s.begin_ns)) continue;
    changes[s.begin_ns] += *value * scale;
    changes[s.end_ns] -= *value * scale;
  }
  double sum = 0;
  for (const auto& [at_ns, change] : changes) {
    sum += change;
    if (std::abs(sum) < 1e-9) sum = 0;  // what is left of adding and taking away the same number
    events.push_back(counter(name, at_ns, pid, series, sum));
  }
}

}  // namespace

std::string trace_text(const ProfileDocument& d) {
  if (!d.lanes.empty()) return rank_trace_text(d);
  Json events = Json::array();
  std::map<int64_t, std::map<int64_t, std::vector<Slice>>> by_stream;  // device -> stream
  for (const LaunchRow& l : d.launches)
    if (l.start_ns && l.shown_ns) by_stream[l.device][l.stream].push_back({&l, *l.start_ns, *l.start_ns + *l.shown_ns});

  const bool cpu = d.collection.producer == "cpu";
  for (const auto& [device, streams] : by_stream) {
    const std::string name =
        cpu ? d.run.device.value_or("CPU") : d.environment.gpu.value_or("GPU") + " (device " + std::to_string(device) + ")";
    events.push_back(metadata("process_name", device, std::nullopt, "name", name));
    events.push_back(metadata("process_sort_index", device, std::nullopt, "sort_index", device));
    if (d.collection.shown_step && d.timeline.window_ns) {
      events.push_back(metadata("thread_name", device, kStepTrack, "name", "steps"));
      events.push_back(metadata("thread_sort_index", device, kStepTrack, "sort_index", kStepTrack));
      events.push_back(slice("step " + std::to_string(*d.collection.shown_step), "step", 0, *d.timeline.window_ns, device, kStepTrack));
    }
    std::vector<Slice> all;
    for (const auto& [stream, slices] : streams) {
      const std::string track_name = cpu ? "ops" : "stream " + std::to_string(stream);
      const auto tracks = trace::tracks_of(slices);
      for (size_t i = 0; i < tracks.size(); ++i)
        add_track(events, tracks[i], device, trace::add_stream_track(events, device, stream, i, track_name));
      all.insert(all.end(), slices.begin(), slices.end());
    }
    add_counter_track(events, all, device, "DRAM GB/s", "GB/s", &LaunchRow::dram_bytes_per_s, 1e-9);
    add_counter_track(events, all, device, "tensor %", "%", &LaunchRow::tensor_active_pct, 1);
  }
  if (!by_stream.empty())
    for (const EnvironmentRow& s : d.timeline.environment) {
      const int64_t device = by_stream.begin()->first;
      const double at_ns = std::max(0.0, s.at_ns);  // the sample before the step still holds at its begin
      events.push_back(counter("SM clock MHz", at_ns, device, "MHz", s.sm_clock_mhz));
      events.push_back(counter("power W", at_ns, device, "W", s.power_w));
    }
  Json about;
  about["command"] = d.run.command;
  put(about, "git_revision", d.run.git_revision);
  put(about, "gpu", d.environment.gpu);
  return trace::text(std::move(events), std::move(about));
}

}  // namespace profiler

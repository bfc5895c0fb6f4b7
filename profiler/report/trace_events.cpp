#include "profiler/report/trace_events.h"

#include <algorithm>
#include <utility>

#include "base/json_text.h"

namespace profiler::trace {

Json slice(const std::string& name, const std::string& category, double begin_ns, double end_ns, int64_t pid, int64_t tid) {
  return {{"name", name}, {"cat", category}, {"ph", "X"}, {"ts", begin_ns / kNsPerUs}, {"dur", (end_ns - begin_ns) / kNsPerUs},
          {"pid", pid},   {"tid", tid}};
}

Json metadata(const char* what, int64_t pid, std::optional<int64_t> tid, const char* key, const Json& value) {
  Json e{{"name", what}, {"ph", "M"}, {"pid", pid}};
  if (tid) e["tid"] = *tid;
  e["args"][key] = value;
  return e;
}

bool cut_to_fit(double begin_ns, double& end_ns, double next_begin_ns) {
  constexpr double kNeighbours_ns = 1000;
  if (end_ns - next_begin_ns > std::min(kNeighbours_ns, (end_ns - begin_ns) / 2)) return false;
  end_ns = std::min(end_ns, next_begin_ns);
  return true;
}

int64_t add_stream_track(Json& events, int64_t pid, int64_t stream, size_t position, const std::string& name) {
  constexpr int64_t kMostStreams = 1'000'000;  // numbers of streams are small
  const int64_t first = stream + 1, tid = first + static_cast<int64_t>(position) * kMostStreams;
  events.push_back(metadata("thread_name", pid, tid, "name", position == 0 ? name : name + " (" + std::to_string(position + 1) + ")"));
  events.push_back(metadata("thread_sort_index", pid, tid, "sort_index", first));
  return tid;
}

std::string text(Json events, Json about) {
  Json j;
  j["schemaVersion"] = 1;
  j["displayTimeUnit"] = "ns";
  j["traceEvents"] = std::move(events);
  about["time_basis"] = "the step shown";
  j["otherData"] = std::move(about);
  return stepscope::json_text(j, -1) + "\n";
}

}  // namespace profiler::trace

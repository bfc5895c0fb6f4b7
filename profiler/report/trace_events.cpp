#include "profiler/report/trace_events.h"

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

// What the traces of one process and of several ranks have in common: events of the Trace Event Format, as Perfetto reads it, and the text
// around them.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace profiler::trace {

using Json = nlohmann::ordered_json;

inline constexpr double kNsPerUs = 1000;  // ts and dur are microseconds; their fractions keep the nanoseconds

Json slice(const std::string& name, const std::string& category, double begin_ns, double end_ns, int64_t pid, int64_t tid);
// "process_name", "thread_sort_index", …; without `tid` it is about the process.
Json metadata(const char* what, int64_t pid, std::optional<int64_t> tid, const char* key, const Json& value);
// The whole file. `about`: what is said of the run.
std::string text(Json events, Json about);

}  // namespace profiler::trace

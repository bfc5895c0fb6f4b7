// What the traces of one process and of several ranks have in common: events of the Trace Event Format, as Perfetto reads it, and the text
// around them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace profiler::trace {

using Json = nlohmann::ordered_json;

inline constexpr double kNsPerUs = 1000;  // ts and dur are microseconds; their fractions keep the nanoseconds

Json slice(const std::string& name, const std::string& category, double begin_ns, double end_ns, int64_t pid, int64_t tid);
// "process_name", "thread_sort_index", …; without `tid` it is about the process.
Json metadata(const char* what, int64_t pid, std::optional<int64_t> tid, const char* key, const Json& value);
// Whether two slices can stand on one track; then the earlier one ends at the later one's begin. A stream runs in order, but records of
// neighbours may overlap by some ns (programmatic launch).
bool cut_to_fit(double begin_ns, double& end_ns, double next_begin_ns);

// The slices of a stream (with `begin_ns` and `end_ns`) as tracks of slices that do not overlap: those of one track must nest, or viewers drop
// them. Branches of a CUDA graph run at the same time on one stream, and so do streams of several processes that have one number.
template <class Slice>
std::vector<std::vector<Slice>> tracks_of(std::vector<Slice> slices) {
  std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) { return a.begin_ns < b.begin_ns; });
  std::vector<std::vector<Slice>> tracks;
  for (Slice& s : slices) {
    const auto track =
        std::find_if(tracks.begin(), tracks.end(), [&](auto& t) { return cut_to_fit(t.back().begin_ns, t.back().end_ns, s.begin_ns); });
    if (track == tracks.end())
      tracks.push_back({std::move(s)});
    else
      track->push_back(std::move(s));
  }
  return tracks;
}
// Names the track with this position among those of a stream; returns its id.
int64_t add_stream_track(Json& events, int64_t pid, int64_t stream, size_t position, const std::string& name);

// The whole file. `about`: what is said of the run.
std::string text(Json events, Json about);

}  // namespace profiler::trace

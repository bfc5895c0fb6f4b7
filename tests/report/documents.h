// Documents of the kinds that a report must cope with.
#pragma once
#include "profiler/document/build_profile.h"
#include "tests/profiler/fixture.h"

namespace documents {

inline profiler::ProfileDocument gpu() {
  return profiler::build_profile(fixture::gpt2_recording(), fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
}
inline profiler::ProfileDocument cpu() {
  return profiler::build_profile(fixture::cpu_recording(), fixture::cpu_run(), {}, fixture::options());
}

// Names that would end a script element, open a tag or a comment, or break a line of old scripts, if they were not escaped.
inline const char* const kHostileNames[] = {"</script><img src=x onerror=alert(1)>", "<!--<script>", "a&amp;b|c`d`",
                                            "k\xe2\x80\xa8\xe2\x80\xa9n", "\"quoted\" \\ @DATA@ @SCRIPT@"};
inline profiler::ProfileDocument hostile() {
  profiler::ProfileDocument d = gpu();
  for (size_t i = 0; i < std::size(kHostileNames); ++i) {
    d.kernels.at(i).name = kHostileNames[i];
    d.launches.at(i).name = kHostileNames[i];
  }
  d.run.command = kHostileNames[0];
  // A list without a blank, as `ingest` writes one of metrics: the page was as wide as the list.
  profiler::MissingRow& list = d.missing.emplace_back();
  list.severity = "notice";
  list.name = "metrics_not_in_report";
  for (int i = 0; i < 12; ++i) list.detail += "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed,";
  return d;
}

inline profiler::ProfileDocument with_launches(size_t count, const std::string& name = "") {
  profiler::ProfileDocument d = gpu();
  const profiler::LaunchRow first = d.launches.front();
  d.launches.clear();
  for (size_t i = 0; i < count; ++i) {
    profiler::LaunchRow l = first;
    l.index = static_cast<int64_t>(i);
    if (!name.empty()) l.name = name;
    l.start_ns = static_cast<double>(i) * 1000;
    l.shown_ns = 500 + static_cast<double>(i % 7) * 50;
    d.launches.push_back(l);
  }
  d.timeline.window_ns = static_cast<double>(count) * 1000;
  return d;
}

}  // namespace documents

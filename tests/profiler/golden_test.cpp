// From a saved recording to every output, without a GPU: the files in tests/profiler/data are what a user
// gets (tests/golden.h says how a change of them is accepted).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "profiler/document/json.h"
#include "profiler/report/csv.h"
#include "profiler/report/markdown.h"
#include "profiler/report/page.h"
#include "profiler/report/table.h"
#include "profiler/report/trace.h"
#include "tests/golden.h"
#include "tests/profiler/fixture.h"

namespace {

using namespace profiler;

std::string path_of(const std::string& file) { return SOURCE_DIR "/tests/profiler/data/" + file; }

void expect_outputs(const std::string& stem, const ProfileDocument& d) {
  expect_golden("profiler/data/" + stem + ".profile.json", to_json(d));
  expect_golden("profiler/data/" + stem + ".kernels.txt", table_text(d, {}));
  expect_golden("profiler/data/" + stem + ".ops.txt", table_text(d, {TableBy::op, 30, 80, false}));
  expect_golden("profiler/data/" + stem + ".layers-wide-colour.txt", table_text(d, {TableBy::layer, 3, 240, true}));
  expect_golden("profiler/data/" + stem + ".narrow.txt", table_text(d, {TableBy::kernel, 2, 60, false}));
  expect_golden("profiler/data/" + stem + ".md", markdown_text(d, 3));
  expect_golden("profiler/data/" + stem + ".page.json", page_json(d));
  expect_golden("profiler/data/" + stem + ".kernels.csv", csv_text(d, CsvRows::kernel));
  expect_golden("profiler/data/" + stem + ".trace.json", trace_text(d));
  // The document alone is enough for every output.
  const ProfileDocument back = profile_from_json(to_json(d), stem);
  EXPECT_EQ(table_text(back, {}), table_text(d, {}));
  EXPECT_EQ(trace_text(back), trace_text(d));
}

TEST(Golden, AGpuStepFromRecordingToTableCsvTraceAndDocument) {
  if (std::getenv("STEPSCOPE_WRITE_GOLDEN")) save_recording(fixture::gpt2_recording(), path_of("gpu.recording.jsonl"));
  const Recording r = load_recording(path_of("gpu.recording.jsonl"));
  expect_outputs("gpu", build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options()));
}

TEST(Golden, ACpuStepFromRecordingToTableCsvTraceAndDocument) {
  if (std::getenv("STEPSCOPE_WRITE_GOLDEN")) save_recording(fixture::cpu_recording(), path_of("cpu.recording.jsonl"));
  const Recording r = load_recording(path_of("cpu.recording.jsonl"));
  expect_outputs("cpu", build_profile(r, fixture::cpu_run(), {}, fixture::options()));
}

TEST(Golden, ABrokenRecordingShowsWhatIsMissingInsteadOfNumbers) {
  Recording r = fixture::gpt2_recording();
  r.counters[4].kernel = "another_kernel(float *)";
  r.launches[7].path = "";
  r.launches.erase(r.launches.begin() + 12);
  r.missing.push_back({"truncated_recording", 1, "rec.jsonl ends after line 80"});
  const ProfileDocument d = build_profile(r, fixture::gpt2_run(), {}, fixture::options());
  EXPECT_TRUE(has_severe_missing(d));
  expect_golden("profiler/data/broken.kernels.txt", table_text(d, {}));
}

}  // namespace

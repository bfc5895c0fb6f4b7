// From a saved recording to every output, without a GPU: the files in tests/profiler/data are what a user
// gets. To accept a change of an output: run with STEPSCOPE_WRITE_GOLDEN=1, look at the difference, commit
// it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "profiler/document/json.h"
#include "profiler/report/csv.h"
#include "profiler/report/table.h"
#include "profiler/report/trace.h"
#include "tests/profiler/fixture.h"

namespace {

using namespace profiler;

std::string path_of(const std::string& file) { return SOURCE_DIR "/tests/profiler/data/" + file; }

std::string read(const std::string& file) {
  std::ifstream in(path_of(file), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void expect_golden(const std::string& file, const std::string& text) {
  if (std::getenv("STEPSCOPE_WRITE_GOLDEN")) std::ofstream(path_of(file), std::ios::binary) << text;
  EXPECT_TRUE(read(file) == text) << file << " differs; now:\n" << text.substr(0, 6000);
}

void expect_outputs(const std::string& stem, const ProfileDocument& d) {
  expect_golden(stem + ".profile.json", to_json(d));
  expect_golden(stem + ".kernels.txt", table_text(d, {}));
  expect_golden(stem + ".ops.txt", table_text(d, {TableBy::op, 30, 80, false}));
  expect_golden(stem + ".kernels.csv", csv_text(d, CsvRows::kernel));
  expect_golden(stem + ".trace.json", trace_text(d));
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
  expect_golden("broken.kernels.txt", table_text(d, {}));
}

}  // namespace

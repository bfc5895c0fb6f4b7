// The terminal tables: they fit, they align, and what has no answer shows none.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "profiler/report/table.h"
#include "tests/profiler/fixture.h"

namespace {

using namespace profiler;

ProfileDocument gpt2_profile() {
  return build_profile(fixture::gpt2_recording(), fixture::gpt2_run(), fixture::round_ceilings(),
                       fixture::options());
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

TEST(Table, FitsTheWidthInEveryForm) {
  ProfileDocument d = gpt2_profile();
  d.missing.push_back({"counter_sequence_mismatch", "severe", "attribute", 3,
                       std::string(200, 'x') + " and more words", "Advice."});
  for (const TableBy by : {TableBy::pass, TableBy::op, TableBy::kernel, TableBy::layer})
    for (const size_t width : {size_t{80}, size_t{100}, size_t{160}}) {
      TableOptions o;
      o.by = by;
      o.width = width;
      for (const std::string& line : lines(table_text(d, o)))
        if (line.find("xxxx") == std::string::npos) {
          EXPECT_LE(line.size(), width) << line;  // one word is never cut
        }
    }
}

TEST(Table, RowsOfPassesAddUpToTheStep) {
  const std::set<std::string> rows = {"encoder",   "forward", "classifier",   "backward",
                                      "optimizer", "other",   "unattributed", "idle"};
  double sum = 0, shown = -1;
  size_t seen = 0;
  for (const std::string& line : lines(table_text(gpt2_profile(), {TableBy::pass, 12, 80, false}))) {
    std::istringstream in(line);
    std::string first;
    double value = 0;
    if (!(in >> first >> value)) continue;
    if (first == "sum") shown = value;
    if (!rows.contains(first)) continue;
    sum += value;
    ++seen;
  }
  EXPECT_EQ(seen, rows.size());
  EXPECT_NEAR(sum, shown, 0.004) << "eight rows rounded to 0.001 ms";
  EXPECT_NEAR(shown, 4.313, 0.0005) << "4.275 ms of kernels, 102 us of memset and copy, gaps";
}

TEST(Table, ColourOnlyWhenAskedFor) {
  EXPECT_EQ(table_text(gpt2_profile(), {}).find('\x1b'), std::string::npos);
  TableOptions o;
  o.color = true;
  EXPECT_NE(table_text(gpt2_profile(), o).find("\x1b["), std::string::npos);
  EXPECT_FALSE(color_wanted(-1)) << "not a terminal";
}

TEST(Table, TopLimitsTheRowsAndSaysWhatIsLeft) {
  const std::string text = table_text(gpt2_profile(), {TableBy::kernel, 3, 80, false});
  EXPECT_NE(text.find("12 more kernels"), std::string::npos) << text;
  EXPECT_EQ(table_text(gpt2_profile(), {TableBy::kernel, 100, 80, false}).find("more kernels"),
            std::string::npos);
}

TEST(Table, WithoutCountersItShowsDashesNotZeros) {
  const std::string text =
      table_text(build_profile(fixture::cpu_recording(), fixture::cpu_run(), {}, fixture::options()), {});
  for (const std::string& line : lines(text))
    if (line.rfind("backward", 0) == 0) {
      EXPECT_NE(line.find(" -"), std::string::npos) << line;
    }
  EXPECT_NE(text.find("no_gpu_counters"), std::string::npos);
}

TEST(Table, MissingIsShownWithSeverityCountAndAdvice) {
  Recording r = fixture::gpt2_recording();
  r.missing.push_back({"dropped_activity_records", 7, "buffer"});
  const std::string text =
      table_text(build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options()), {});
  EXPECT_NE(text.find("severe dropped_activity_records x 7: buffer. CUPTI ran out"), std::string::npos)
      << text;
}

TEST(Table, AProgramWithoutStepsListsItsKernels) {
  Recording r = fixture::recording(
      {{"", "void a<int>(int)", 10'000, 1e6, 1e6, 0}, {"", "b(float)", 20'000, 1e6, 1e6, 0}});
  for (LaunchRecord& l : r.launches) l.step = -1;
  for (CounterRecord& c : r.counters) c.step = -1;
  r.steps.clear();
  const ProfileDocument d = build_profile(r, std::nullopt, fixture::round_ceilings(), {});
  const std::string text = table_text(d, {});
  EXPECT_NE(text.find("2 kernel launches"), std::string::npos) << text;
  EXPECT_EQ(text.find("unattributed"), std::string::npos) << text;
  EXPECT_FALSE(has_severe_missing(d));
}

}  // namespace

// A program built without the parts that only one output needs: whoever asks for that output gets exit 3 and the package's name, all
// others notice nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#define STEPSCOPE_PROGRAM "stepscope-bare"
#include "tests/cli/run_stepscope.h"

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

namespace {

constexpr const char* kDocument = SOURCE_DIR "/tests/profiler/data/gpu.profile.json";

TEST(AbsentParts, AnHtmlReportNamesChartJs) {
  const auto folder = fresh_folder();
  const auto page = folder / "x.html";
  const Outcome o = stepscope("report " + std::string(kDocument) + " -o " + page.string());
  EXPECT_EQ(o.exit_code, 3);
  EXPECT_THAT(o.err, AllOf(HasSubstr("libjs-chart.js"), HasSubstr("x.html")));
  EXPECT_FALSE(std::filesystem::exists(page));
  std::filesystem::remove_all(folder);
}

TEST(AbsentParts, OtherReportsNeedNoChartJs) {
  const auto folder = fresh_folder();
  const Outcome o = stepscope("report " + std::string(kDocument) + " -o " + (folder / "x.md").string());
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_GT(std::filesystem::file_size(folder / "x.md"), 100u);
  std::filesystem::remove_all(folder);
}

TEST(AbsentParts, AnExportOfNsysNamesSqlite) {
  const auto folder = fresh_folder();
  const auto file = folder / "x.sqlite";
  std::ofstream(file, std::ios::binary) << std::string("SQLite format 3\0", 16) << std::string(1000, '\0');
  const Outcome o = stepscope("ingest " + file.string() + " --out " + (folder / "d.json").string());
  EXPECT_EQ(o.exit_code, 3);
  EXPECT_THAT(o.err, AllOf(HasSubstr("libsqlite3-dev"), HasSubstr("x.sqlite")));
  std::filesystem::remove_all(folder);
}

TEST(AbsentParts, TokenizingTextNamesIcu) {
  const auto folder = fresh_folder();
  const Outcome o = stepscope("data " SOURCE_DIR "/README.md --vocab /absent --out " + (folder / "x").string());
  EXPECT_EQ(o.exit_code, 3);
  EXPECT_THAT(o.err, HasSubstr("libicu-dev"));
  std::filesystem::remove_all(folder);
}

TEST(AbsentParts, DoctorHasALineForEach) {
  const Outcome o = stepscope("doctor");
  for (const char* package : {"install libjs-chart.js", "install libsqlite3-dev", "install libicu-dev"})
    EXPECT_THAT(o.out, HasSubstr(package));
}

TEST(AbsentParts, TheMainJobRuns) {
  const auto folder = fresh_folder();
  const Outcome o =
      stepscope("profile --trainer reference --model tiny --batch-size 1 --seq-len 16 --steps 2 --warmup 1 --traced-steps 1 --out " +
                (folder / "d.json").string());
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("forward"));
  std::filesystem::remove_all(folder);
}

}  // namespace

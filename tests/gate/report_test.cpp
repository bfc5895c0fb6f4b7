#include "experiments/gate/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

namespace gate {
namespace {

const double kNoNumber = std::numeric_limits<double>::quiet_NaN();

TEST(Report, NothingCheckedHasNotPassed) {
  GateReport report;
  EXPECT_FALSE(report.passed());
  EXPECT_NE(to_table(report, false).find("FAILED: nothing was checked"), std::string::npos);
}

TEST(Report, AResultWithoutMeasuresHasNotPassed) { EXPECT_FALSE(make_result("a", "b", {}).passed); }

TEST(Report, NotANumberFailsAndBinds) {
  const CheckResult r = make_result("a", "b", {{"norm", 5, 1, -1}, {"worst row", kNoNumber, 1, 7}});
  EXPECT_FALSE(r.passed);
  EXPECT_TRUE(std::isnan(r.error));
  EXPECT_FALSE(scalar_result("loss", "loss", kNoNumber, 1, 1e30).passed);
  EXPECT_FALSE(scalar_result("loss", "loss", 1, kNoNumber, 1e30).passed);
  GateReport report;
  report.results.push_back(make_result("a", "b", {{"norm", std::copysign(kNoNumber, -1.0), 1, 7}}));
  EXPECT_EQ(to_table(report, false).find("-nan"), std::string::npos) << to_table(report, false);
}

// Also of scalars far below 1, as a gradient norm late in a run is.
TEST(Report, AScalarsErrorIsRelativeToWhatItShouldBe) {
  for (const double want : {1e-6, 0.02, 1.0, -3.0, 1e6}) {
    EXPECT_NEAR(scalar_result("norm", "x", want * 1.001, want, 1).error, 1e-3, 1e-9) << want;
    EXPECT_NEAR(scalar_result("norm", "x", want * 0.999, want, 1).error, 1e-3, 1e-9) << want;
    EXPECT_FALSE(scalar_result("norm", "x", want * 1.001, want, 9e-4).passed) << want;
    EXPECT_TRUE(scalar_result("norm", "x", want * 1.001, want, 1.1e-3).passed) << want;
  }
  EXPECT_TRUE(scalar_result("norm", "x", 0, 0, 0).passed);
  EXPECT_FALSE(scalar_result("norm", "x", 1e-30, 0, 1).passed) << "any distance from 0 is infinitely far";
}

TEST(Report, TheMeasureFurthestBeyondItsBudgetIsShown) {
  const CheckResult r = make_result("a", "b", {{"norm", 0.9, 1, -1}, {"worst row", 3, 2, 7}, {"worst column", 1, 8, 3}});
  EXPECT_FALSE(r.passed);
  EXPECT_EQ(r.unit, "worst row");
  EXPECT_EQ(r.detail, "at 7");
}

TEST(Report, ACountMustBeZero) {
  EXPECT_TRUE(must_be_zero("a", "b", 0, "elements").passed);
  EXPECT_FALSE(must_be_zero("a", "b", 1, "elements").passed);
}

TEST(Report, OneFailureFailsTheReport) {
  GateReport report;
  report.add(must_be_zero("a", "b", 0, "elements"));
  EXPECT_TRUE(report.passed());
  report.add(must_be_zero("a", "c", 1, "elements"));
  EXPECT_FALSE(report.passed());
  EXPECT_EQ(report.failures(), 1);
}

TEST(Report, TheDearestOpsAreNamedAndTheOthersAddedUp) {
  const std::vector<PartTime> times{{"gelu", 0.25, 1.25}, {"lm_head", 11.9, 0.5}, {"encoder", 0, 0.04}, {"attention", 3, 17.1}};
  EXPECT_EQ(dearest(times, 2), "attention 20.1 s (cases 3.0), lm_head 12.4 s (cases 11.9), 2 others 1.5 s");
  EXPECT_EQ(dearest({{"gelu", 0.25, 1.25}}), "gelu 1.5 s (cases 0.2)");
  EXPECT_EQ(dearest({{"optimizer", 0, 2}}), "optimizer 2.0 s");
  EXPECT_EQ(dearest({}), "");
}

TEST(Report, FailuresAreListedSinglyAndLinesFitAHundredColumns) {
  GateReport report;
  report.trainer = "fp32";
  for (const char* t : {"wte", "wpe", "a tensor with a name that is far too long for its column"})
    report.add(make_result("a check with a name that is far too long", t,
                           {{"worst column", t[1] == 'p' ? kNoNumber : 1.23456789e-100, 1e-100 * 2, 123456789}}, ""));
  const std::string table = to_table(report, false);
  EXPECT_NE(table.find("wpe"), std::string::npos);
  EXPECT_NE(table.find("2 more within budget"), std::string::npos);
  EXPECT_NE(table.find("FAILED: 1 of 3"), std::string::npos);
  std::istringstream lines(to_table(report, true));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(Report, JsonCarriesWhatIsNotANumberAsText) {
  GateReport report;
  report.add(make_result("a", "b", {{"norm", kNoNumber, 1, -1}}));
  const auto j = nlohmann::json::parse(to_json(report).dump());
  EXPECT_EQ(j["checks"][0]["error"], "nan");
  EXPECT_EQ(j["passed"], false);
}

}  // namespace
}  // namespace gate

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profiler/ingest/to_recording.h"
#include "profiler/records/errors.h"
#include "tests/ingest/fixture.h"

namespace {

using namespace profiler;
using testing::HasSubstr;

constexpr char kTitles[] =
    R"("ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC",)"
    R"("dram__bytes_read.sum","gpu__time_duration.sum")"
    "\n";

std::string table(const std::string& units, const std::string& rows) {
  return kTitles + ("\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\"," + units + "\n") + rows;
}
std::string row(const std::string& id, const std::string& process, const std::string& name,
                const std::string& values) {
  return "\"" + id + "\",\"" + process + "\",\"p\",\"h\",\"" + name +
         "\",\"1\",\"7\",\"(256, 1, 1)\",\"(64, 2, 1)\",\"0\",\"9.0\"," + values + "\n";
}
double value(const ForeignReport& r, size_t result, const char* metric) {
  return value_of(r.results.at(result), metric_index(r, metric)).value();
}
std::string error_of(const std::string& text) {
  try {
    read_ncu_csv(text, "x.csv");
  } catch (const DataError& e) {
    return e.what();
  }
  return "";
}

TEST(NcuCsv, UnitsAndThousandsSeparatorsComeBackToBaseUnits) {
  const ForeignReport r =
      read_ncu_csv(table("\"Mbyte\",\"us\"", row("0", "5", "k", "\"1,234.50\",\"2.05\"")), "x");
  EXPECT_DOUBLE_EQ(value(r, 0, "dram__bytes_read.sum"), 1234.5e6);
  EXPECT_DOUBLE_EQ(value(r, 0, "gpu__time_duration.sum"), 2050);
  EXPECT_EQ(r.results[0].grid, (std::array<int64_t, 3>{64, 2, 1}));
  EXPECT_EQ(r.results[0].block, (std::array<int64_t, 3>{256, 1, 1}));
  EXPECT_EQ(r.results[0].stream, 7);
  EXPECT_EQ(r.device.at("compute_capability"), "9.0");
}

TEST(NcuCsv, ATableWithoutARowOfUnitsIsInBaseUnits) {
  const ForeignReport r = read_ncu_csv(kTitles + row("0", "5", "k", "\"8\",\"16\""), "x");
  EXPECT_DOUBLE_EQ(value(r, 0, "gpu__time_duration.sum"), 16);
}

TEST(NcuCsv, QuotedCommasAndQuotesBelongToTheName) {
  const ForeignReport r =
      read_ncu_csv(table("\"byte\",\"ns\"", row("0", "5", R"(f<1, 2>(""a"", b))", "\"1\",\"2\"")), "x");
  EXPECT_EQ(r.results[0].name, R"(f<1, 2>("a", b))");
}

TEST(NcuCsv, OutputBeforeTheTableAndMessagesInsideAreSteppedOver) {
  const std::string text =
      "==PROF== Connected\nstep 1 loss 3.2\n" +
      table("\"byte\",\"ns\"", row("0", "5", "a", "\"1\",\"2\"") + "==PROF== Disconnected\n" +
                                   row("1", "5", "b", "\"3\",\"4\""));
  const ForeignReport r = read_ncu_csv(text, "x");
  ASSERT_EQ(r.results.size(), 2u);
  EXPECT_EQ(r.results[1].name, "b");
}

TEST(NcuCsv, CellsWithoutAnAnswerAreAbsent) {
  const ForeignReport r = read_ncu_csv(
      table("\"byte\",\"ns\"", row("0", "5", "a", "\"no data\",\"2\"") + row("1", "5", "b", "\"nan\",\"\"")),
      "x");
  EXPECT_FALSE(value_of(r.results[0], metric_index(r, "dram__bytes_read.sum")));
  EXPECT_TRUE(r.results[1].values.empty());
}

TEST(NcuCsv, ADecimalCommaIsRefusedWithTheCure) {
  for (const char* number : {"0,74", "1.980,5", "1.980.000", "12,5"})
    EXPECT_THAT(
        error_of(table("\"byte\",\"ns\"", row("0", "5", "a", "\"" + std::string(number) + "\",\"2\""))),
        testing::AllOf(HasSubstr("line 3"), HasSubstr(number), HasSubstr("LC_ALL=C")));
}

TEST(NcuCsv, AnUnknownUnitIsRefused) {
  EXPECT_THAT(error_of(table("\"Xbyte\",\"ns\"", row("0", "5", "a", "\"1\",\"2\""))),
              HasSubstr("unit 'Xbyte' is not known"));
}

TEST(NcuCsv, SeveralProcessesCanBeToldApart) {
  const ForeignReport r = read_ncu_csv(
      table("\"byte\",\"ns\"", row("0", "5", "a", "\"1\",\"2\"") + row("0", "6", "b", "\"3\",\"40\"")), "x");
  IngestOptions only;
  only.process = 6;
  const Recording one = to_recording(r, only);
  ASSERT_EQ(one.launches.size(), 1u);
  EXPECT_EQ(one.launches[0].name, "b");
  const Recording both = to_recording(r, {});
  EXPECT_TRUE(std::any_of(both.missing.begin(), both.missing.end(), [](const MissingRecord& m) {
    return m.name == "several_processes" && m.detail == "5, 6";
  }));
  only.process = 7;
  EXPECT_THROW(to_recording(r, only), DataError);
}

TEST(NcuCsv, DetailsGroupTheirRowsByResult) {
  const std::string titles =
      R"("ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name")"
      "\n";
  const auto detail = [](const char* id, const char* section, const char* label, const char* unit,
                         const char* v) {
    return std::string("\"") + id + R"x(","5","p","h","k","1","7","(32, 1, 1)","(1, 1, 1)","0","9.0",")x" +
           section + "\",\"" + label + "\",\"" + unit + "\",\"" + v + "\"\n";
  };
  const ForeignReport r =
      read_ncu_csv(titles + detail("0", "GPU Speed Of Light Throughput", "Duration", "us", "1.50") +
                       detail("0", "Occupancy", "", "", "") +
                       detail("1", "Command line profiler metrics", "gpu__time_duration.sum", "ns", "700"),
                   "x");
  ASSERT_EQ(r.results.size(), 2u);
  EXPECT_DOUBLE_EQ(value(r, 0, "gpu__time_duration.sum"), 1500);
  EXPECT_DOUBLE_EQ(value(r, 1, "gpu__time_duration.sum"), 700);
}

// Found by the fuzzer: a row of page details may be shorter than the titles.
TEST(NcuCsv, ARangeColumnBehindTheEndOfARowIsNotRead) {
  const ForeignReport r = read_ncu_csv(
      "\"ID\",\"Process ID\",\"Kernel Name\",\"Metric Name\",\"Metric Unit\",\"Metric "
      "Value\",\"d:Push/Pop_Range:x\",\"d:Start/Stop_Range:x\"\n"
      "\"0\",\"5\",\"k\",\"gpu__time_duration.sum\",\"ns\",\"700\"\n",
      "x");
  EXPECT_EQ(r.results.at(0).path, "");
}

TEST(NcuCsv, ARowThatEndsEarlyKeepsTheRowsBeforeIt) {
  const std::string whole =
      table("\"byte\",\"ns\"", row("0", "5", "a", "\"1\",\"2\"") + row("1", "5", "b", "\"3\",\"4\""));
  const ForeignReport r = read_ncu_csv(whole.substr(0, whole.size() - 8), "x");
  ASSERT_EQ(r.results.size(), 1u);
  ASSERT_FALSE(r.missing.empty());
  EXPECT_EQ(r.missing.back().name, "report_damaged");
  EXPECT_THAT(r.missing.back().detail, HasSubstr("line 4"));
}

TEST(NcuCsv, RefusesTextWithoutATable) {
  EXPECT_THAT(error_of("hello\n"), HasSubstr("no ncu table"));
  EXPECT_THAT(error_of(table("\"byte\",\"ns\"", "")), HasSubstr("holds no result"));
  EXPECT_THAT(error_of(std::string(kTitles) + "\"0\",\"5"), HasSubstr("never closed"));
}

TEST(NcuCsv, ARangeThatIsNamedByAMessageMayHoldColons) {
  const std::string titles =
      R"("ID","Process ID","Process Name","Host Name","thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","gpu__time_duration.sum")"
      "\n";
  const std::string line =
      R"x("0","5","p","h","1773  ""d:a:b:none:none:none:none:REGISTERED:a:b"" ""<default domain>:plain:none:none:none:none:ASCII:plain"" ","k","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0","5")x"
      "\n";
  const ForeignReport r = read_ncu_csv(titles + line, "x");
  EXPECT_EQ(r.results[0].path, "a:b/plain");
  EXPECT_EQ(r.results[0].thread, 1773);
}

}  // namespace

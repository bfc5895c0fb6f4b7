#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"
#include "profiler/ingest/csv_cells.h"
#include "profiler/ingest/to_recording.h"
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
std::string row(const std::string& id, const std::string& process, const std::string& name, const std::string& values) {
  return "\"" + id + "\",\"" + process + "\",\"p\",\"h\",\"" + name + "\",\"1\",\"7\",\"(256, 1, 1)\",\"(64, 2, 1)\",\"0\",\"9.0\"," +
         values + "\n";
}
double value(const ForeignReport& r, size_t result, const char* metric) {
  return value_of(r.results.at(result), metric_index(r, metric)).value();
}
std::string csv_error_of(const std::string& text) {
  try {
    read_ncu_csv(text, "x.csv");
  } catch (const stepscope::InputError& e) {
    return e.what();
  }
  return "";
}

TEST(NcuCsv, UnitsAndThousandsSeparatorsComeBackToBaseUnits) {
  const ForeignReport r = read_ncu_csv(table("\"Mbyte\",\"us\"", row("0", "5", "k", "\"1,234.50\",\"2.05\"")), "x");
  EXPECT_DOUBLE_EQ(value(r, 0, "dram__bytes_read.sum"), 1234.5e6);
  EXPECT_DOUBLE_EQ(value(r, 0, "gpu__time_duration.sum"), 2050);
  EXPECT_EQ(r.results[0].grid, (std::array<int64_t, 3>{64, 2, 1}));
  EXPECT_EQ(r.results[0].block, (std::array<int64_t, 3>{256, 1, 1}));
  EXPECT_EQ(r.results[0].stream, 7);
  EXPECT_EQ(r.processes.begin()->second.device.at("compute_capability"), "9.0");
}

// Without it the numbers may be in any unit.
TEST(NcuCsv, ATableWithoutARowOfUnitsIsRefused) {
  EXPECT_THAT(csv_error_of(kTitles + row("0", "5", "k", "\"8\",\"16\"")),
              testing::AllOf(HasSubstr("x.csv: line 2"), HasSubstr("expected the row of units"), HasSubstr("--page raw")));
}

TEST(NcuCsv, QuotedCommasAndQuotesBelongToTheName) {
  const ForeignReport r = read_ncu_csv(table("\"byte\",\"ns\"", row("0", "5", R"(f<1, 2>(""a"", b))", "\"1\",\"2\"")), "x");
  EXPECT_EQ(r.results[0].name, R"(f<1, 2>("a", b))");
}

TEST(NcuCsv, OutputBeforeTheTableAndMessagesInsideAreSteppedOver) {
  const std::string text =
      "==PROF== Connected\nstep 1 loss 3.2\n" +
      table("\"byte\",\"ns\"", row("0", "5", "a", "\"1\",\"2\"") + "==PROF== Disconnected\n" + row("1", "5", "b", "\"3\",\"4\""));
  const ForeignReport r = read_ncu_csv(text, "x");
  ASSERT_EQ(r.results.size(), 2u);
  EXPECT_EQ(r.results[1].name, "b");
}

TEST(NcuCsv, CellsWithoutAnAnswerAreAbsent) {
  const ForeignReport r =
      read_ncu_csv(table("\"byte\",\"ns\"", row("0", "5", "a", "\"no data\",\"2\"") + row("1", "5", "b", "\"nan\",\"\"")), "x");
  EXPECT_FALSE(value_of(r.results[0], metric_index(r, "dram__bytes_read.sum")));
  EXPECT_TRUE(r.results[1].values.empty());
  for (const char* none : {"No Data", "N/A", "(!) n/a", "NaN", "-nan", "INF", "-Inf"}) {
    const ForeignReport other = read_ncu_csv(table("\"byte\",\"ns\"", row("0", "5", "a", "\"" + std::string(none) + "\",\"2\"")), "x");
    EXPECT_FALSE(value_of(other.results[0], metric_index(other, "dram__bytes_read.sum"))) << none;
    EXPECT_TRUE(other.results[0].values.size() == 1u) << none;
  }
}

TEST(NcuCsv, WordsInTheColumnOfANumberAreRefused) {
  for (const char* word : {"12a", "1 2", "a1", "1e", "0x10", "1.5.2"})
    EXPECT_THAT(csv_error_of(table("\"byte\",\"ns\"", row("0", "5", "a", "\"" + std::string(word) + "\",\"2\""))),
                testing::AllOf(HasSubstr("line 3"), HasSubstr(word)))
        << word;
}

TEST(NcuCsv, ADecimalCommaIsRefusedWithTheCure) {
  for (const char* number : {"0,74", "0,740", "1.980,5", "1.980.000", "12,5"})
    EXPECT_THAT(csv_error_of(table("\"byte\",\"ns\"", row("0", "5", "a", "\"" + std::string(number) + "\",\"2\""))),
                testing::AllOf(HasSubstr("line 3"), HasSubstr(number), HasSubstr("LC_ALL=C")));
}

TEST(NcuCsv, GroupsOfThousandsHaveThreeDigitsAndTheFirstOneAtMostThree) {
  double value = 0;
  EXPECT_EQ(csv::parse_number("1,980,000", value), csv::Cell::number);
  EXPECT_EQ(value, 1'980'000);
  EXPECT_EQ(csv::parse_number("123,456.5", value), csv::Cell::number);
  EXPECT_EQ(value, 123'456.5);
  EXPECT_EQ(csv::parse_number("1234,567", value), csv::Cell::decimal_comma);
  EXPECT_EQ(csv::parse_number("1.980.000", value), csv::Cell::decimal_comma);
  EXPECT_EQ(csv::parse_number("1234.567.890", value), csv::Cell::text);
  EXPECT_EQ(csv::parse_number(".123.456", value), csv::Cell::text);
  EXPECT_EQ(csv::parse_number("1,,980", value), csv::Cell::text);
}

TEST(NcuCsv, AnUnknownUnitIsRefused) {
  EXPECT_THAT(csv_error_of(table("\"Xbyte\",\"ns\"", row("0", "5", "a", "\"1\",\"2\""))), HasSubstr("unit 'Xbyte' is not known"));
}

TEST(NcuCsv, SeveralProcessesCanBeToldApart) {
  const ForeignReport r =
      read_ncu_csv(table("\"byte\",\"ns\"", row("0", "5", "a", "\"1\",\"2\"") + row("0", "6", "b", "\"3\",\"40\"")), "x");
  IngestOptions only;
  only.process = 6;
  const Recording one = to_recording(r, only);
  ASSERT_EQ(one.launches.size(), 1u);
  EXPECT_EQ(one.launches[0].name, "b");
  EXPECT_TRUE(std::none_of(one.missing.begin(), one.missing.end(), [](const MissingRecord& m) { return m.name == "several_processes"; }))
      << "one of them was asked for";
  const Recording both = to_recording(r, {});
  EXPECT_TRUE(std::any_of(both.missing.begin(), both.missing.end(),
                          [](const MissingRecord& m) { return m.name == "several_processes" && m.detail == "5, 6"; }));
  only.process = 7;
  EXPECT_THROW(to_recording(r, only), stepscope::InputError);
}

TEST(NcuCsv, DetailsGroupTheirRowsByResult) {
  const std::string titles =
      R"("ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value","Rule Name")"
      "\n";
  const auto detail = [](const char* id, const char* section, const char* label, const char* unit, const char* v) {
    return std::string("\"") + id + R"x(","5","p","h","k","1","7","(32, 1, 1)","(1, 1, 1)","0","9.0",")x" + section + "\",\"" + label +
           "\",\"" + unit + "\",\"" + v + "\"\n";
  };
  const ForeignReport r =
      read_ncu_csv(titles + detail("0", "GPU Speed Of Light Throughput", "Duration", "us", "1.50") + detail("0", "Occupancy", "", "", "") +
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

// Where the unit stands behind the value, a row that ends with the value has none: its cell was read all the same.
TEST(NcuCsv, ARowWithoutItsUnitIsDamage) {
  EXPECT_THAT(csv_error_of("\"ID\",\"Process ID\",\"Kernel Name\",\"Metric Name\",\"Metric Value\",\"Metric Unit\",\"Rule Name\"\n"
                           "\"0\",\"1\",\"k\",\"gpu__time_duration.sum\",\"5\"\n"),
              HasSubstr("5 cells, expected 7 as in the titles"));
}

TEST(NcuCsv, ARowThatEndsEarlyKeepsTheRowsBeforeIt) {
  const std::string whole = table("\"byte\",\"ns\"", row("0", "5", "a", "\"1\",\"2\"") + row("1", "5", "b", "\"3\",\"4\""));
  const ForeignReport r = read_ncu_csv(whole.substr(0, whole.size() - 8), "x");
  ASSERT_EQ(r.results.size(), 1u);
  ASSERT_FALSE(r.missing.empty());
  EXPECT_EQ(r.missing.back().name, "report_damaged");
  EXPECT_THAT(r.missing.back().detail, HasSubstr("line 4: 12 cells, expected 13 as in the titles (the file ends here)"));
}

TEST(NcuCsv, AColumnOfRangesIsNoMetric) {
  std::string text;
  for (const std::string& line :
       {std::string(kTitles), std::string("\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"byte\",\"ns\"\n"),
        row("0", "5", "k", "\"1\",\"2\"")})
    text += line.substr(0, line.size() - 1) + (text.empty() ? ",\"d:Push/Pop_Range:x\",\"d:Start/Stop_Range:x\"\n" : ",\"\",\"\"\n");
  EXPECT_THAT(read_ncu_csv(text, "x").metrics, testing::ElementsAre("dram__bytes_read.sum", "gpu__time_duration.sum"));
}

TEST(NcuCsv, RefusesTextWithoutATable) {
  EXPECT_THAT(csv_error_of("hello\n"), HasSubstr("no ncu table"));
  EXPECT_THAT(csv_error_of(table("\"byte\",\"ns\"", "")), HasSubstr("holds no result"));
  EXPECT_THAT(csv_error_of(std::string(kTitles) + "\"0\",\"5"), HasSubstr("never closed"));
}

TEST(NcuCsv, ARangeThatIsNamedByAMessageMayHoldColons) {
  const std::string titles =
      R"("ID","Process ID","Process Name","Host Name","thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","gpu__time_duration.sum")"
      "\n";
  const std::string line =
      R"x("0","5","p","h","1773  ""d:a:b:none:none:none:none:REGISTERED:a:b"" ""<default domain>:plain:none:none:none:none:ASCII:plain"" ","k","1","7","(1, 1, 1)","(1, 1, 1)","0","9.0","5")x"
      "\n";
  const std::string units = R"("","","","","","","","","","","","","ns")"
                            "\n";
  const ForeignReport r = read_ncu_csv(titles + units + line, "x");
  EXPECT_EQ(r.results[0].path, "a:b/plain");
  EXPECT_EQ(r.results[0].thread, 1773);
}

// ---- what is refused, and with which words ----------------------------------------------------------------

const std::string kUnits = "\"byte\",\"ns\"";
std::string one_row(const std::string& values) { return table(kUnits, row("0", "5", "k", values)); }

// A cell that is no number must never become "the report lacks this metric".
TEST(NcuCsv, ATimeThatIsNoTimeIsRefusedWithItsPlace) {
  for (const char* time : {"0", "-5", "0.00", "12'345", "1 234", "0x10", "ten", "1e400", "1e-400", "1e16"})
    EXPECT_THAT(csv_error_of(one_row("\"1\",\"" + std::string(time) + "\"")),
                testing::AllOf(HasSubstr("x.csv: line 3, column 13 ('gpu__time_duration.sum')"), HasSubstr("'" + std::string(time) + "'"),
                               HasSubstr("expected ")))
        << time;
  EXPECT_EQ(csv_error_of(one_row("\"1\",\"0.5\"")), "");
}

TEST(NcuCsv, AnyNumberTooLargeIsRefusedEvenWhereNobodyReadsIt) {
  const std::string titles = std::string(kTitles).substr(0, std::string(kTitles).size() - 1) + ",\"some__metric.sum\"\n";
  const std::string text = titles + "\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"byte\",\"ns\",\"\"\n" +
                           row("0", "5", "k", "\"1\",\"2\",\"1e400\"");
  EXPECT_THAT(csv_error_of(text), testing::AllOf(HasSubstr("line 3, column 14 ('some__metric.sum')"), HasSubstr("'1e400'")));
}

TEST(NcuCsv, ANegativeCountIsRefused) {
  EXPECT_THAT(csv_error_of(one_row("\"-1\",\"2\"")), testing::AllOf(HasSubstr("dram__bytes_read.sum is '-1'"), HasSubstr("0 or more")));
  EXPECT_THAT(csv_error_of(one_row("\"1e30\",\"2\"")),
              testing::AllOf(HasSubstr("dram__bytes_read.sum is '1e30'"), HasSubstr("less than 9e18")));
}

TEST(NcuCsv, AWordInAColumnWithAUnitIsRefused) {
  EXPECT_THAT(csv_error_of(one_row("\"many\",\"2\"")), testing::AllOf(HasSubstr("column 12"), HasSubstr("'many'"), HasSubstr("LC_ALL=C")));
}

TEST(NcuCsv, ATitleThatStandsTwiceIsRefused) {
  std::string text = one_row("\"9\",\"2\"");
  text.replace(text.find("dram__bytes_read.sum"), 20, "gpu__time_duration.sum");
  EXPECT_THAT(csv_error_of(text),
              testing::AllOf(HasSubstr("line 1, column 13 ('gpu__time_duration.sum')"), HasSubstr("columns 12 and 13")));
}

TEST(NcuCsv, AUnitThatTheMetricCannotHaveIsRefused) {
  EXPECT_THAT(csv_error_of(table("\"byte\",\"byte\"", row("0", "5", "k", "\"1\",\"2\""))),
              testing::AllOf(HasSubstr("line 2, column 13"), HasSubstr("unit 'byte'"), HasSubstr("a unit of time")));
  EXPECT_THAT(csv_error_of(table("\"us\",\"ns\"", row("0", "5", "k", "\"1\",\"2\""))),
              testing::AllOf(HasSubstr("line 2, column 12"), HasSubstr("a unit of bytes")));
  EXPECT_THAT(csv_error_of(table("\"byte\",\"\"", row("0", "5", "k", "\"1\",\"2\""))), HasSubstr("a unit of time"));
  EXPECT_THAT(csv_error_of(table("\"byte/block\",\"ns\"", row("0", "5", "k", "\"1\",\"2\""))), HasSubstr("a unit of bytes"));
  EXPECT_THAT(csv_error_of(table("\"Mibyte\",\"ns\"", row("0", "5", "k", "\"1\",\"2\""))), HasSubstr("unit 'Mibyte' is not known"));
  const auto registers = [](const char* unit, const char* v) {
    std::string text = table(fmt::format("\"{}\",\"ns\"", unit), row("0", "5", "k", fmt::format("\"{}\",\"2\"", v)));
    return text.replace(text.find("dram__bytes_read.sum"), 20, "launch__registers_per_thread");
  };
  EXPECT_EQ(csv_error_of(registers("register/thread", "32")), "");
  EXPECT_THAT(csv_error_of(registers("furlong", "32")), testing::AllOf(HasSubstr("'furlong'"), HasSubstr("a count")));
  EXPECT_THAT(csv_error_of(registers("register/thread", "1.5")), testing::AllOf(HasSubstr("'1.5'"), HasSubstr("a whole number")));
}

std::vector<std::string> notices(const ForeignReport& r) {
  std::vector<std::string> out;
  for (const MissingRecord& m : r.missing) out.push_back(fmt::format("{} x {}: {}", m.name, m.count, m.detail));
  return out;
}

TEST(NcuCsv, ATableWithoutTheSizesOfALaunchSaysSo) {
  EXPECT_THAT(notices(read_ncu_csv(one_row("\"1\",\"2\""), "x")), testing::IsEmpty());
  std::string text = one_row("\"1\",\"2\"");
  text.replace(text.find("Grid Size"), 9, "Grid");
  const ForeignReport r = read_ncu_csv(text, "x");
  EXPECT_THAT(notices(r), testing::ElementsAre("columns_absent x 1: Grid Size"));
}

TEST(NcuCsv, ErrorsThatNcuPrintedAreSaid) {
  const std::string text = "==ERROR== first\n" + table(kUnits, row("0", "5", "a", "\"1\",\"2\"") + "==PROF== Disconnected\n" +
                                                                   "==ERROR== An error occurred while trying to profile.\r\n");
  EXPECT_THAT(notices(read_ncu_csv(text, "x")), testing::ElementsAre("errors_printed x 2: ==ERROR== first"));
}

TEST(NcuCsv, CellsOfALaunchMustBeWhatTheyAre) {
  const auto with = [](const char* from, const char* to) {
    std::string text = one_row("\"1\",\"2\"");
    const size_t at = text.find(from, text.find("\"k\""));
    return text.replace(at, std::string(from).size(), to);
  };
  EXPECT_THAT(csv_error_of(with("(64, 2, 1)", "64x2")),
              testing::AllOf(HasSubstr("('Grid Size')"), HasSubstr("'64x2'"), HasSubstr("(256, 1, 1)")));
  EXPECT_THAT(csv_error_of(with("(256, 1, 1)", "(256, 1)")), HasSubstr("('Block Size')"));
  EXPECT_THAT(csv_error_of(with("(256, 1, 1)", "(256, 0, 1)")),
              testing::AllOf(HasSubstr("('Block Size')"), HasSubstr("found '(256, 0, 1)', expected at least 1 each")));
  EXPECT_THAT(csv_error_of(with("(64, 2, 1)", "(0, 0, 0)")), HasSubstr("('Grid Size'): found '(0, 0, 0)'"));
  EXPECT_EQ(read_ncu_csv(with("\"(256, 1, 1)\",\"(64, 2, 1)\"", "\"(0, 0, 0)\",\"(0, 0, 0)\""), "x").results.size(), 1u) << "a range";
  EXPECT_EQ(read_ncu_csv(with("(64, 2, 1)", ""), "x").results.size(), 1u) << "some versions lack a column";
  EXPECT_THAT(csv_error_of(with("\"7\"", "\"main\"")), testing::AllOf(HasSubstr("('Stream')"), HasSubstr("'main'")));
  EXPECT_THAT(csv_error_of(with("\"7\"", "\"-7\"")),
              testing::AllOf(HasSubstr("('Stream')"), HasSubstr("found '-7', expected a whole number of 0 or more")));
  EXPECT_THAT(csv_error_of(with("\"k\"", "\"\"")), testing::AllOf(HasSubstr("('Kernel Name')"), HasSubstr("empty")));
  EXPECT_THAT(csv_error_of(table(kUnits, row("0", "five", "k", "\"1\",\"2\""))), HasSubstr("('Process ID')"));
  EXPECT_THAT(csv_error_of(table(kUnits, row("x", "5", "k", "\"1\",\"2\""))), HasSubstr("('ID')"));
}

// ---- several tables: `ncu --csv >> FILE`

TEST(NcuCsv, ASecondTableWithTheSameTitlesIsReadOn) {
  const std::string first = table("\"byte\",\"us\"", row("0", "5", "a", "\"1\",\"2\""));
  const std::string second =
      "==PROF== Connected to process 6\nstep 1 loss 3.2\n" + table("\"Kbyte\",\"ns\"", row("0", "6", "b", "\"3\",\"40\""));
  const ForeignReport r = read_ncu_csv(first + second, "x");
  ASSERT_EQ(r.results.size(), 2u);
  EXPECT_EQ(r.results[1].name, "b");
  EXPECT_DOUBLE_EQ(value(r, 0, "gpu__time_duration.sum"), 2000);
  EXPECT_DOUBLE_EQ(value(r, 1, "gpu__time_duration.sum"), 40);  // in the second table's unit
  EXPECT_DOUBLE_EQ(value(r, 1, "dram__bytes_read.sum"), 3000);
  ASSERT_EQ(r.missing.size(), 1u);
  EXPECT_EQ(r.missing[0].name, "several_tables");
  EXPECT_THAT(r.missing[0].detail, HasSubstr("lines 1, 6"));
}

TEST(NcuCsv, ASecondTableWithOtherTitlesIsRefused) {
  std::string other = table(kUnits, row("0", "6", "b", "\"3\",\"4\""));
  other.replace(other.find("dram__bytes_read.sum"), 20, "dram__bytes_write.sum");
  EXPECT_THAT(csv_error_of(one_row("\"1\",\"2\"") + other),
              testing::AllOf(HasSubstr("line 4"), HasSubstr("a second table"), HasSubstr("(line 1)")));
}

TEST(NcuCsv, AReportThatStandsTwiceIsRefused) {
  EXPECT_THAT(csv_error_of(one_row("\"1\",\"2\"") + one_row("\"1\",\"2\"")),
              testing::AllOf(HasSubstr("line 6, column 1 ('ID')"), HasSubstr("result 0 of process 5 stands in line 3")));
}

TEST(NcuCsv, RealTablesOneBehindTheOtherAreTwoRuns) {
  const std::string one = file_text("mixed_nvtx.raw.base.csv");
  EXPECT_THAT(csv_error_of(one + one), HasSubstr("stands in line"));
  std::string other = one;
  for (size_t at = 0; (at = other.find("\"1773\"", at)) != std::string::npos;) other.replace(at, 6, "\"1774\"");
  const ForeignReport twice = read_ncu_csv(one + other, "x"), once = read_ncu_csv(one, "x");
  ASSERT_EQ(twice.results.size(), 2 * once.results.size());
  for (size_t i = 0; i < once.results.size(); ++i) {
    EXPECT_EQ(twice.results[once.results.size() + i].name, once.results[i].name);
    EXPECT_EQ(twice.results[once.results.size() + i].values, once.results[i].values);
  }
}

// ---- encodings and separators

TEST(NcuCsv, AByteOrderMarkOfUtf8IsSteppedOver) {
  const ForeignReport r =
      read_ncu_csv("\xEF\xBB\xBF" + one_row("\"1\",\"2\"") + "\xEF\xBB\xBF" + table(kUnits, row("0", "6", "b", "\"3\",\"4\"")), "x");
  EXPECT_EQ(r.results.size(), 2u);
}

std::string utf16(const std::string& text, bool little_endian) {
  std::string wide;
  for (const char c : text) wide += little_endian ? std::string{c, '\0'} : std::string{'\0', c};
  return wide;
}

TEST(NcuCsv, Utf16IsRefusedWithTheWayToConvertIt) {
  const std::string text = one_row("\"1\",\"2\"");
  for (const std::string& wide : {"\xFF\xFE" + utf16(text, true), "\xFE\xFF" + utf16(text, false), utf16(text, true), utf16(text, false)}) {
    EXPECT_TRUE(looks_like_ncu_csv(wide));
    EXPECT_THAT(csv_error_of(wide), testing::AllOf(HasSubstr("UTF-16"), HasSubstr("iconv -f UTF-16 -t UTF-8 x.csv")));
  }
  EXPECT_THAT(csv_error_of(std::string("\xFF\xFE\0\0", 4) + text), HasSubstr("UTF-32"));
}

TEST(NcuCsv, AZeroByteIsRefusedWithItsPlace) {
  std::string text = one_row("\"1\",\"2\"");
  text[text.find("\"k\"") + 1] = '\0';
  EXPECT_THAT(csv_error_of(text), testing::AllOf(HasSubstr("line 3, byte 18"), HasSubstr("a zero byte")));
}

TEST(NcuCsv, OtherSeparatorsAreRefusedByName) {
  for (const char separator : {';', '\t'}) {
    std::string text = one_row("\"1\",\"2\"");
    for (size_t at = 0; (at = text.find("\",\"", at)) != std::string::npos;) text[at + 1] = separator;
    EXPECT_TRUE(looks_like_ncu_csv(text));
    EXPECT_THAT(csv_error_of(text), testing::AllOf(HasSubstr(separator == ';' ? "';'" : "tabs"), HasSubstr("expected ','")));
  }
}

TEST(NcuCsv, WindowsLineEndsAreLineEndsAndOldMacOnesAreRefused) {
  std::string text = one_row("\"1\",\"2\""), windows, mac;
  for (const char c : text) {
    windows += c == '\n' ? "\r\n" : std::string(1, c);
    mac += c == '\n' ? '\r' : c;
  }
  EXPECT_DOUBLE_EQ(value(read_ncu_csv(windows, "x"), 0, "gpu__time_duration.sum"), 2);
  EXPECT_THAT(csv_error_of(mac), testing::AllOf(HasSubstr("line 1"), HasSubstr("line feed")));
}

TEST(NcuCsv, ALineEndInsideQuotesBelongsToTheCell) {
  const ForeignReport r = read_ncu_csv(table(kUnits, row("0", "5", "f<1,\n2>", "\"1\",\"2\"") + row("1", "5", "g", "\"3\",\"4\"")), "x");
  ASSERT_EQ(r.results.size(), 2u);
  EXPECT_EQ(r.results[0].name, "f<1,\n2>");
  // Lines are still counted as an editor shows them.
  EXPECT_THAT(csv_error_of(table(kUnits, row("0", "5", "f<1,\n2>", "\"1\",\"2\"") + row("1", "5", "g", "\"3\",\"0\""))),
              HasSubstr("line 5, column 13"));
}

TEST(NcuCsv, ATableReSavedWithoutQuotesIsReadToo) {
  const std::string titles = "ID,Process ID,Kernel Name,gpu__time_duration.sum\n,,,ns\n";
  const ForeignReport r = read_ncu_csv(titles + "0,5,k,20\n1,5,k,30\n", "x");
  ASSERT_EQ(r.results.size(), 2u);
  EXPECT_DOUBLE_EQ(value(r, 1, "gpu__time_duration.sum"), 30);
  // Cut in its last cell 30 would be 3: the file must end with a line end.
  const ForeignReport cut = read_ncu_csv(titles + "0,5,k,20\n1,5,k,3", "x");
  ASSERT_EQ(cut.results.size(), 1u);
  EXPECT_EQ(cut.missing.at(0).name, "report_damaged");
  EXPECT_THAT(cut.missing.at(0).detail, testing::AllOf(HasSubstr("line 4"), HasSubstr("'3'")));
}

// ---- tables that end early

TEST(NcuCsv, ATableOfTitlesAloneIsRefused) {
  EXPECT_THAT(csv_error_of(kTitles), HasSubstr("holds no result"));
  EXPECT_THAT(csv_error_of(table(kUnits, "")), HasSubstr("holds no result"));
  EXPECT_THAT(csv_error_of(""), HasSubstr("no ncu table"));
}

TEST(NcuCsv, ARowOfAnotherLengthSaysBothLengths) {
  EXPECT_THAT(csv_error_of(one_row("\"1\"")), testing::AllOf(HasSubstr("line 3: 12 cells, expected 13")));
  EXPECT_THAT(csv_error_of(one_row("\"1\",\"2\",\"3\"")), testing::EndsWith("14 cells, expected 13 as in the titles"));
  const ForeignReport r = read_ncu_csv(table(kUnits, row("0", "5", "a", "\"1\",\"2\"") + row("1", "5", "b", "\"3\"")), "x");
  ASSERT_EQ(r.results.size(), 1u);
  EXPECT_THAT(r.missing.at(0).detail, HasSubstr("line 4"));
}

TEST(NcuCsv, OtherTextBehindTheTableIsDamage) {
  const ForeignReport r = read_ncu_csv(one_row("\"1\",\"2\"") + "Killed\n", "x");
  ASSERT_EQ(r.results.size(), 1u);
  ASSERT_EQ(r.missing.size(), 1u);
  EXPECT_EQ(r.missing[0].name, "report_damaged");
  EXPECT_THAT(r.missing[0].detail, testing::AllOf(HasSubstr("line 4"), HasSubstr("'Killed'")));
}

// A cut anywhere gives an error, or fewer results and a record that says so; never another number.
TEST(NcuCsv, ACutAnywhereIsSeen) {
  for (const char* form : {"mixed_nvtx.raw.auto.csv", "mixed_nvtx.details.auto.csv"}) {
    const std::string whole = file_text(form);
    const ForeignReport truth = read_ncu_csv(whole, form);
    size_t damaged = 0;
    for (size_t length = 0; length < whole.size() - 1; length += 97) {
      try {
        const ForeignReport r = read_ncu_csv(whole.substr(0, length), form);
        const bool between_rows = whole[length - 1] == '\n' || whole[length] == '\n' || whole.compare(length, 2, "\r\n") == 0;
        const bool said =
            std::any_of(r.missing.begin(), r.missing.end(), [](const MissingRecord& m) { return m.name == "report_damaged"; });
        EXPECT_TRUE(said || between_rows) << form << " cut at " << length;
        damaged += said;
        ASSERT_LE(r.results.size(), truth.results.size());
        for (size_t i = 0; i < r.results.size(); ++i)
          for (const auto& [index, v] : r.results[i].values)
            EXPECT_EQ(v, value_of(truth.results[i], metric_index(truth, r.metrics[index]))) << form << " cut at " << length;
      } catch (const stepscope::InputError&) {
      }
    }
    EXPECT_GT(damaged, 20u) << form;
  }
}

TEST(NcuCsv, OneMetricOfDetailsWithTwoValuesIsRefused) {
  const std::string titles = R"("ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value")"
                             "\n";
  const auto detail = [](const char* section, const char* unit, const char* v) {
    return fmt::format("\"0\",\"5\",\"k\",\"{}\",\"gpu__time_duration.sum\",\"{}\",\"{}\"\n", section, unit, v);
  };
  EXPECT_EQ(csv_error_of(titles + detail("a", "ns", "700") + detail("b", "us", "0.7")), "");
  EXPECT_THAT(csv_error_of(titles + detail("a", "ns", "700") + detail("b", "ns", "800")),
              testing::AllOf(HasSubstr("line 3, column 7"), HasSubstr("800"), HasSubstr("700")));
  EXPECT_THAT(csv_error_of(titles + detail("a", "byte", "700")), HasSubstr("line 2, column 6 ('Metric Unit')"));
}

// Its time would be counted for the kernel of the first row.
TEST(NcuCsv, ARowOfDetailsThatIsOfAnotherKernelThanItsResultIsRefused) {
  const std::string titles = R"("ID","Process ID","Kernel Name","Grid Size","Section Name","Metric Name","Metric Unit","Metric Value")"
                             "\n";
  const auto detail = [](const char* kernel, const char* grid, const char* metric) {
    return fmt::format("\"0\",\"5\",\"{}\",\"{}\",\"s\",\"{}\",\"ns\",\"7\"\n", kernel, grid, metric);
  };
  const std::string first = titles + detail("a", "(1, 1, 1)", "gpu__time_duration.sum");
  EXPECT_EQ(csv_error_of(first + detail("a", "(1, 1, 1)", "smsp__time.sum")), "");
  EXPECT_THAT(csv_error_of(first + detail("b", "(1, 1, 1)", "smsp__time.sum")),
              HasSubstr("line 3, column 3 ('Kernel Name'): result 0 has 'b' here and 'a' in its first row"));
  EXPECT_THAT(csv_error_of(first + detail("a", "(2, 1, 1)", "smsp__time.sum")), HasSubstr("line 3, column 4 ('Grid Size')"));
}

}  // namespace

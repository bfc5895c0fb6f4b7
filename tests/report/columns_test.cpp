// A number is declared once and shown alike everywhere: the same title, the same digits in terminal, Markdown, page and diff.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "profiler/diff/diff.h"
#include "profiler/document/fields.h"
#include "profiler/report/cells.h"
#include "profiler/report/csv.h"
#include "profiler/report/markdown.h"
#include "profiler/report/page.h"
#include "profiler/report/table.h"
#include "profiler/report/trace.h"
#include "profiler/report/view.h"
#include "tests/report/documents.h"

namespace {

using namespace profiler;
using testing::HasSubstr;
using testing::Not;

std::string wide_table(const ProfileDocument& d) { return table_text(d, {TableBy::kernel, 50, 400, false}); }

// Every text that a table of the page shows.
std::set<std::string> page_cells(const ProfileDocument& d, const std::string& table) {
  const auto view = nlohmann::json::parse(page_json(d));
  std::set<std::string> cells;
  for (const auto& c : view["tables"][table]["columns"]) cells.insert(c["title"].get<std::string>());
  for (const auto& row : view["tables"][table]["rows"])
    for (const auto& cell : row) cells.insert(view["texts"][(cell.is_array() ? cell[0] : cell).get<size_t>()].get<std::string>());
  return cells;
}

// A copy, a memset and a range of the host have no grid; the page gave them one of 0x0x0 blocks.
TEST(Columns, WhatHasNoGridHasADash) {
  const ProfileDocument d = documents::gpu();
  EXPECT_EQ(page_cells(d, "launches").count("0x0x0"), 0u);
  EXPECT_EQ(page_cells(d, "launches").count("200x1x1"), 1u);
  EXPECT_EQ(page_cells(documents::cpu(), "launches").count("0x0x0"), 0u);
}

// The page sorts by the number of a cell: copies stood below everything in "n", and a click on "grid" did nothing.
TEST(Columns, ACellOfThePageSortsByWhatItShows) {
  ProfileDocument d = documents::gpu();
  d.kernels.front().launches = 2;
  d.kernels.front().copies = 3;
  d.launches.resize(2);
  d.launches[0].grid = {200, 3, 2};
  d.launches[1].grid = {};
  const auto tables = nlohmann::json::parse(page_json(d))["tables"];
  const auto number = [&](const char* table, size_t row, const char* title) {
    const auto& columns = tables[table]["columns"];
    const auto at = std::find_if(columns.begin(), columns.end(), [&](const auto& c) { return c["title"] == title; });
    const auto& cell = tables[table]["rows"][row][static_cast<size_t>(at - columns.begin())];
    return cell.is_array() ? cell[1].get<double>() : -1;
  };
  EXPECT_EQ(number("kernels", 0, "n"), 5);
  EXPECT_EQ(number("launches", 0, "grid"), 1200);
  EXPECT_EQ(number("launches", 1, "grid"), -1) << "a copy has none";
}

// Launches outside every pass were in the sum of "n" and in no row above it.
TEST(Columns, LaunchesThatNoPassHoldsStandInTheirRow) {
  ProfileDocument d = documents::gpu();
  const auto launches = [&](const std::string& name) {
    const auto view = nlohmann::json::parse(page_json(d));
    const auto text = [&](const auto& cell) {
      return view["texts"][(cell.is_array() ? cell[0] : cell).template get<size_t>()].template get<std::string>();
    };
    for (const auto& row : view["tables"]["passes"]["rows"])
      if (text(row[0]) == name) return text(row[1]);
    return std::string("no such row");
  };
  EXPECT_EQ(launches("unattributed"), "") << "there is none";
  *d.totals.launches += 3;
  EXPECT_EQ(launches("unattributed"), "3");
  EXPECT_EQ(launches("idle"), "");
}

// The page of a CPU run explained GB/s and headroom, of which it has none.
TEST(Columns, ThePageExplainsWhatItsTablesHave) {
  const auto caption = [](const ProfileDocument& d, const char* table) {
    return nlohmann::json::parse(page_json(d))["tables"][table]["caption"].get<std::string>();
  };
  EXPECT_THAT(caption(documents::gpu(), "passes"), HasSubstr("GB/s is DRAM traffic of kernels, (max) its share of this device's"));
  EXPECT_THAT(caption(documents::gpu(), "kernels"), HasSubstr("Click a title to sort. Headroom: ms above"));
  EXPECT_THAT(caption(documents::cpu(), "passes"), HasSubstr("Times are per step; headroom and shares of ceilings need a GPU"));
  EXPECT_EQ(caption(documents::cpu(), "kernels"), "Click a title to sort.");
  ProfileDocument other = documents::gpu();
  other.missing.push_back({});
  other.missing.back().name = "ceilings_of_unknown_gpu";
  EXPECT_THAT(caption(other, "passes"), HasSubstr("its share of the measured ceiling"));
}

// Two GPUs have a stream 7 each, and the page drew the kernels of both in one row.
TEST(Columns, TheTimelineOfThePageHasARowForEachStreamOfEachDevice) {
  ProfileDocument d = documents::gpu();
  d.launches.resize(4);
  d.launches[1].stream = 9;
  d.launches[3].start_ns.reset();
  const auto lanes = [&] { return nlohmann::json::parse(page_json(d))["lanes"]; };
  EXPECT_EQ(lanes(), nlohmann::json::parse(R"({"names": ["stream 7", "stream 9"], "of_launch": [0, 1, 0, null]})"));
  d.launches[2].device = 1;
  EXPECT_EQ(lanes(), nlohmann::json::parse(
                         R"({"names": ["device 0, stream 7", "device 0, stream 9", "device 1, stream 7"], "of_launch": [0, 1, 2, null]})"));
}

TEST(Columns, EveryMemberOfNumbersHasARowOfItsOwn) {
  std::set<std::string> names;
  Numbers all;
  for (const NumberRow& n : number_rows()) {
    EXPECT_TRUE(names.insert(std::string(n.name)).second) << n.name << " stands twice";
    EXPECT_FALSE(all.*n.member) << n.name << " and another row name one member, so another member has no row";
    all.*n.member = 1;
    EXPECT_FALSE(n.help.empty()) << n.name;
    EXPECT_NE(n.of, nullptr) << n.name;
  }
}

// 1.2345 of whatever unit a table shows, so that a number is told from its neighbours in every format.
double odd_value(Format format) {
  switch (format) {
    case Format::milliseconds:
      return 1234567;
    case Format::gigabytes:
    case Format::gigabytes_per_s:
      return 4321e9;
    case Format::megahertz:
      return 4321e6;
    default:
      return 43.21;
  }
}

TEST(Columns, ANumberWithATitleStandsInEveryOutputWithTheSameDigits) {
  size_t shown = 0;
  for (const NumberRow& n : number_rows()) {
    if (!(n.shown.tables & kKernelTable)) continue;
    ProfileDocument d = documents::gpu();
    d.kernels.front().*n.member = odd_value(n.shown.format);
    const std::string text = text_of(n.shown.format, odd_value(n.shown.format)), title(n.shown.title);
    const std::string table = wide_table(d), markdown = markdown_text(d, 50);
    EXPECT_THAT(table, testing::AllOf(HasSubstr(title), HasSubstr(text))) << n.name;
    EXPECT_THAT(markdown, testing::AllOf(HasSubstr("| " + title + " |"), HasSubstr("| " + text + " |"))) << n.name;
    EXPECT_TRUE(page_cells(d, "kernels").contains(title) && page_cells(d, "kernels").contains(text)) << n.name;
    ++shown;
  }
  EXPECT_GE(shown, 3u);
}

TEST(Columns, ANumberOfALaunchIsInDocumentCsvAndTrace) {
  const ProfileDocument d = documents::gpu();
  const std::string launches = csv_text(d, CsvRows::launch), kernels = csv_text(d, CsvRows::kernel), trace = trace_text(d);
  for (const NumberRow& n : number_rows()) {
    const std::string name(n.name);
    EXPECT_THAT(kernels.substr(0, kernels.find('\n')), HasSubstr("," + name)) << name;
    if (!(n.beside & kLaunches)) continue;
    EXPECT_THAT(launches.substr(0, launches.find('\n')), HasSubstr("," + name)) << name;
    EXPECT_EQ(d.launches.front().*n.member ? trace.find("\"" + name + "\"") != std::string::npos : true, true) << name;
  }
}

TEST(Columns, ANumberOfTheTotalsIsInTheDocument) {
  std::set<std::string> names;
  for (const auto& f : fields_of<TotalsSection>()) names.insert(std::string(f.name));
  for (const NumberRow& n : number_rows()) EXPECT_EQ(names.contains(std::string(n.name)), (n.beside & kTotals) != 0) << n.name;
}

TEST(Columns, MillisecondsHaveTheSameDigitsInTablesMarkdownPageAndDiff) {
  ProfileDocument a = documents::gpu();
  KernelRow& k = a.kernels.front();
  a.passes.front().time_ns = k.time_ns = 25.7004e6;
  ProfileDocument b = a;
  EXPECT_EQ(milliseconds(25.7004e6), "25.70");
  const ProfileDiff diff = diff_profiles(a, b);
  DiffText by_kernel{"a", "b"};
  by_kernel.width = 300;
  by_kernel.top = 50;
  for (const std::string& text :
       {wide_table(a), markdown_text(a, 50), page_json(a), diff_table(diff, by_kernel), diff_markdown(diff, by_kernel)}) {
    EXPECT_THAT(text, HasSubstr("25.70"));
    EXPECT_THAT(text, Not(HasSubstr("25.700")));
  }
}

TEST(Columns, AHelpIsASentenceOfItsOwn) {
  for (const SectionDescription& s : describe_document())
    for (const FieldDescription& f : s.fields) EXPECT_FALSE(f.help.starts_with("of ")) << s.path << "." << f.name << ": " << f.help;
}

// Two diff columns for each number that has a title, in both prints, and each number by its key in the JSON.
TEST(Columns, ADiffShowsItsNumbersOfBothSides) {
  ProfileDocument a = documents::gpu(), b = a;
  PassRow& pass = b.passes.at(1);
  for (const NumberRow& n : number_rows()) pass.*n.member = 2 * (pass.*n.member).value_or(7);
  DiffText by_pass{"a", "b"};
  by_pass.by = DiffBy::pass;
  by_pass.width = 300;
  const ProfileDiff diff = diff_profiles(a, b);
  const std::string table = diff_table(diff, by_pass), markdown = diff_markdown(diff, by_pass);
  const auto json = diff_json(diff, by_pass);
  for (const DiffNumber& n : diff_numbers()) {
    const auto row = *std::find_if(json["passes"].begin(), json["passes"].end(), [&](const auto& r) { return r["pass"] == pass.name; });
    EXPECT_EQ(row["b"][std::string(n.key)], n.of(side_of(pass)).value()) << n.key;
    if (n.title.empty()) continue;
    for (const char* side : {"A ", "B "}) {
      EXPECT_THAT(table, HasSubstr(side + std::string(n.title)));
      EXPECT_THAT(markdown, HasSubstr("| " + (side + std::string(n.title)) + " |"));
    }
    EXPECT_THAT(markdown, HasSubstr("| " + text_of(n.format, n.of(side_of(pass))) + " |"));
  }
}

// As training counts them, from 1: behind ten steps of warm-up the first timed one is the eleventh.
TEST(Columns, StepsOfThePageHaveTheNumbersThatTrainingGaveThem) {
  ProfileDocument d;
  d.run.first_timed_step = 10;
  d.timing.step_time_ns.samples = {5e6, 6e6};
  const auto view = nlohmann::json::parse(page_json(d));
  const auto& rows = view["tables"]["steps"]["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0][0][1], 11);
  EXPECT_EQ(rows[1][0][1], 12);
}

}  // namespace

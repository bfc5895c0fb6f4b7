// The terminal tables: they fit, they align, and what has no answer shows none.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <sstream>

#include "profiler/report/table.h"
#include "profiler/report/text_table.h"
#include "profiler/report/views.h"
#include "tests/golden.h"
#include "tests/profiler/fixture.h"

namespace {

using namespace profiler;

ProfileDocument gpt2_profile() {
  return build_profile(fixture::gpt2_recording(), fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

TEST(Table, FitsTheWidthInEveryForm) {
  ProfileDocument d = gpt2_profile();
  d.missing.push_back({"counter_sequence_mismatch", "severe", "attribute", 3, std::string(200, 'x') + " and more words", "Advice."});
  for (const TableBy by : {TableBy::pass, TableBy::op, TableBy::kernel, TableBy::layer})
    for (const size_t width : {size_t{80}, size_t{100}, size_t{160}}) {
      TableOptions o;
      o.by = by;
      o.width = width;
      for (const std::string& line : lines(table_text(d, o))) EXPECT_LE(display_width(line), width) << line;
    }
}

TEST(Table, FitsWithLongNamesAndSevenDigitNumbers) {
  ProfileDocument d = gpt2_profile();
  d.environment.gpu = "Grafikkarte für Prüfzwecke " + std::string(90, 'G');
  d.run.trainer.reset();
  d.run.command = d.collection.program = std::string(300, 'c');
  const auto large = [](Measured& m) {
    m.launches = 7'654'321;
    m.time_ns = 1'234'567.8e6;
    m.share_pct = 100;
    m.dram_bytes_per_s = 1'234'567e9;
    m.dram_of_ceiling_pct = 1234567;
    m.tensor_active_pct = 1234567;
  };
  for (PassRow& p : d.passes) {
    large(p);
    p.name = std::string(200, 'p');
    p.headroom_ns = p.top_kernel_ns = p.time_ns;
    p.top_kernel = std::string(400, 'k');
  }
  for (OpRow& o : d.ops) {
    large(o);
    o.op = std::string(200, 'o');
    o.floor_ns = o.headroom_ns = o.time_ns;
  }
  for (LayerRow& l : d.layers) {
    large(l);
    l.floor_ns = l.headroom_ns = l.time_ns;
  }
  for (size_t i = 0; i < d.kernels.size(); ++i) {
    KernelRow& k = d.kernels[i];
    large(k);
    k.name = i % 2 ? std::string(500, 'k') : "カーネル_für_Aufmerksamkeit_" + std::string(80, 'x');
    k.op = std::string(100, 'o');
    k.headroom_ns = k.time_ns;
  }
  for (const TableBy by : {TableBy::pass, TableBy::op, TableBy::kernel, TableBy::layer})
    for (const size_t width : {size_t{60}, size_t{80}, size_t{200}}) {
      TableOptions o;
      o.by = by;
      o.width = width;
      const std::string text = table_text(d, o);
      for (const std::string& line : lines(text)) EXPECT_LE(display_width(line), width) << line;
      EXPECT_NE(text.find("1234567.8"), std::string::npos) << "numbers are never cut";
    }
}

TEST(Table, EveryViewWorksOnADocumentOfKernelsAlone) {
  ProfileDocument d;
  d.run.command = "ncu-report";
  KernelRow k;
  k.name = "lonely(float*)";
  k.launches = 3;
  k.time_ns = 5e6;
  d.kernels.push_back(k);
  EXPECT_NE(table_text(d, {TableBy::kernel, 12, 80, false}).find("lonely"), std::string::npos);
  EXPECT_NE(table_text(d, {TableBy::kernel, 12, 80, false}).find("3 kernel launches"), std::string::npos);
  EXPECT_NE(table_text(d, {TableBy::op, 12, 80, false}).find("No ops:"), std::string::npos);
  EXPECT_NE(table_text(d, {TableBy::layer, 12, 80, false}).find("No layers:"), std::string::npos);
  EXPECT_NE(table_text(d, {TableBy::pass, 12, 80, false}).find("No passes:"), std::string::npos);
  MissingRow reduced;
  reduced.name = "record_reduced";
  d.missing.push_back(reduced);
  EXPECT_NE(table_text(d, {TableBy::layer, 12, 80, false}).find("No layers: this document was cut down"), std::string::npos);
  for (const TableBy by : {TableBy::pass, TableBy::op, TableBy::kernel, TableBy::layer})
    EXPECT_FALSE(table_text({}, {by, 12, 80, false}).empty()) << "an empty document";
}

TEST(TextTable, AlignsByColumnsOfTheScreenNotByBytes) {
  TextTable t({{"name", TextTable::Align::left, true}, {"n"}});
  t.row({"plain", "1"});
  t.row({"größe", "2"});
  t.row({"核心", "3"});
  const std::vector<std::string> l = lines(t.text(80, false));
  for (const std::string& line : l) EXPECT_EQ(display_width(line), 7u) << line;
}

TEST(TextTable, WrapsAtBlanksAndAWordThatIsTooLongWhereTheLineEnds) {
  EXPECT_EQ(wrapped("one two three", 7, 2), "one two\n  three");
  EXPECT_EQ(wrapped("one two three", 9, 2), "one two\n  three");
  EXPECT_EQ(wrapped("abcdef", 4, 0), "abcd\nef") << "no empty line in front";
  EXPECT_EQ(wrapped("abcdefghij", 4, 2), "abcd\n  ef\n  gh\n  ij");
  EXPECT_EQ(wrapped("abc defg", 4, 2), "abc\n  de\n  fg");
}

TEST(TextTable, CutsWholeCharactersOnly) {
  TextTable t({{"name", TextTable::Align::left, true}, {"n"}});
  t.row({std::string("ääääääääääääääääääääääääääääää"), "1"});
  for (const size_t width : {size_t{10}, size_t{11}, size_t{12}, size_t{13}}) {
    const std::string line = lines(t.text(width, false))[1];
    EXPECT_EQ(display_width(line), width);
    EXPECT_EQ(line.find('\xc3') != std::string::npos, true);
    for (size_t i = 0; i < line.size(); ++i)
      if (line[i] == '\xc3') {
        EXPECT_EQ(line[i + 1], '\xa4') << line;
      }
  }
}

TEST(TextTable, SaysWhichColumnsItDropped) {
  TextTable t({{"a"}, {"b", TextTable::Align::right, false, 1}, {"c", TextTable::Align::right, false, 2}});
  t.row({std::string(20, '1'), std::string(20, '2'), std::string(20, '3')});
  EXPECT_EQ(t.text(70, false).find("Not shown"), std::string::npos);
  EXPECT_NE(t.text(50, false).find("Not shown at this width: c."), std::string::npos);
  EXPECT_NE(t.text(30, false).find("Not shown at this width: c, b."), std::string::npos) << t.text(30, false);
}

TEST(TextTable, ANameThatMayGoIsDroppedBeforeItSaysNothing) {
  TextTable t({{"pass", TextTable::Align::left}, {"ms"}, {"top kernel", TextTable::Align::left, true, 1}});
  t.row({"forward", "1.234", "0.261 gelu_forward_kernel"});
  EXPECT_EQ(t.text(31, false), "pass       ms  top kernel\nforward 1.234  0.261 gelu..rnel\n");
  EXPECT_EQ(t.text(30, false), "pass       ms\nforward 1.234\nNot shown at this width: top\nkernel.\n");
}

TEST(TextTable, RoomThatADroppedColumnLeavesGoesToCutNames) {
  TextTable t({{"pass", TextTable::Align::left}, {"ms"}, {"top kernel", TextTable::Align::left, true, 1}});
  t.row({"communication of ranks", "1.234", "0.261 gelu_forward_kernel"});
  EXPECT_EQ(t.text(34, false), "pass                      ms\ncommunication of ranks 1.234\nNot shown at this width: top\nkernel.\n");
}

// 20 s were not enough for the first: a kernel's name of an export, in the sentence about a missing row.
TEST(Wrapped, ALongWordAndManyWordsTakeTheTimeOfTheirLength) {
  EXPECT_EQ(wrapped(std::string(200'000, 'x'), 100, 0).size(), 200'000u + 1999);
  std::string words;
  for (int i = 0; i < 200'000; ++i) words += "a ";
  EXPECT_EQ(wrapped(words, 100, 0).size(), 400'000u);
}

TEST(Wrapped, AListLongerThanALineIsCutBehindItsCommas) {
  EXPECT_EQ(wrapped("take aaaaaaaa,bbbbbbbb,cccccccc now", 22, 2), "take\n  aaaaaaaa,bbbbbbbb,\n  cccccccc now");
  EXPECT_EQ(wrapped("aaaaaaaaaaaaaaaaaaaaaaaa,b", 20, 0), "aaaaaaaaaaaaaaaaaaaa\naaaa,b") << "one name longer than a line";
}

TEST(TextTable, OfColumnsThatMayGoEquallyWellTheFirstGoes) {
  TextTable t({{"name", TextTable::Align::left},
               {"one", TextTable::Align::right, false, 1},
               {"two", TextTable::Align::right, false, 2},
               {"also", TextTable::Align::right, false, 2}});
  t.row({"x", "1.00", "2.00", "3.00"});
  EXPECT_EQ(t.text(14, false), "name  one also\nx    1.00 3.00\nNot shown at\nthis width:\ntwo.\n");
}

TEST(TextTable, NoEscapeSequenceOfANameReachesTheTerminal) {
  TextTable t({{"name", TextTable::Align::left, true}});
  t.row({"evil\x1b[2Jname\n"});
  EXPECT_NE(t.text(80, false).find("evil?[2Jname?"), std::string::npos);
}

// A pseudo terminal, since a test has none of its own.
class Terminal : public ::testing::Test {
 protected:
  void SetUp() override {
    leader_ = posix_openpt(O_RDWR | O_NOCTTY);
    if (leader_ < 0 || grantpt(leader_) != 0 || unlockpt(leader_) != 0) GTEST_SKIP() << "no pseudo terminals here";
    terminal_ = open(ptsname(leader_), O_RDWR | O_NOCTTY);
    ASSERT_GE(terminal_, 0);
    unsetenv("COLUMNS");
    unsetenv("NO_COLOR");
    setenv("TERM", "xterm-256color", 1);
  }
  void TearDown() override {
    close(terminal_);
    close(leader_);
    for (const char* name : {"COLUMNS", "NO_COLOR", "TERM"}) unsetenv(name);
  }
  void width(unsigned short columns) const {
    winsize size{};
    size.ws_col = columns;
    ASSERT_EQ(ioctl(terminal_, TIOCSWINSZ, &size), 0);
  }
  int leader_ = -1, terminal_ = -1;
};

TEST_F(Terminal, HasColourUnlessNoColorOrADumbTerminalSaysOtherwise) {
  EXPECT_TRUE(color_wanted(terminal_));
  setenv("NO_COLOR", "", 1);
  EXPECT_TRUE(color_wanted(terminal_)) << "no-color.org: only when not empty";
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(color_wanted(terminal_));
  unsetenv("NO_COLOR");
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(color_wanted(terminal_));
  unsetenv("TERM");
  EXPECT_FALSE(color_wanted(terminal_));
}

TEST_F(Terminal, GivesTablesItsWidthButNeverBelow60) {
  width(132);
  EXPECT_EQ(table_width(terminal_), 132u);
  width(40);
  EXPECT_EQ(table_width(terminal_), 60u);
  width(0);
  EXPECT_EQ(table_width(terminal_), 80u) << "a terminal that does not know";
  EXPECT_EQ(table_width(-1), 80u) << "no terminal";
  setenv("COLUMNS", "100", 1);
  EXPECT_EQ(table_width(terminal_), 100u);
  EXPECT_EQ(table_width(-1), 100u);
  setenv("COLUMNS", "wide", 1);
  EXPECT_EQ(table_width(-1), 80u);
  setenv("COLUMNS", "-3", 1);
  EXPECT_EQ(table_width(-1), 80u);
}

TEST(Table, RowsOfPassesAddUpToTheStep) {
  const std::set<std::string> rows = {"encoder", "forward", "classifier", "backward", "optimizer", "other", "unattributed", "idle"};
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
  EXPECT_EQ(table_text(gpt2_profile(), {TableBy::kernel, 100, 80, false}).find("more kernels"), std::string::npos);
}

TEST(Table, JoulesOfAnOpAreInMillijoules) {
  ProfileDocument d = gpt2_profile();
  d.ops[0].energy_j = 0.3125;
  EXPECT_NE(table_text(d, {TableBy::op, 50, 400, false}).find(" 312.5"), std::string::npos);
}

TEST(Table, AStepWithoutPassesIsSplitIntoBusyAndIdleTime) {
  Recording r = fixture::recording({{"", "a", 30'000, 1e6, 1e6, 0}, {"", "b", 20'000, 1e6, 1e6, 0}});
  const std::string text = table_text(build_profile(r, std::nullopt, fixture::round_ceilings(), {}), {TableBy::kernel, 9, 400, false});
  EXPECT_NE(text.find("one step took 0.051 ms: busy 0.050 ms (98.0%), idle 0.001 ms (2.0%)"), std::string::npos) << text;
}

TEST(Table, WithoutCountersItShowsDashesNotZeros) {
  const std::string text = table_text(build_profile(fixture::cpu_recording(), fixture::cpu_run(), {}, fixture::options()), {});
  for (const std::string& line : lines(text))
    if (line.rfind("backward", 0) == 0) {
      EXPECT_NE(line.find(" -"), std::string::npos) << line;
    }
  EXPECT_NE(text.find("no_gpu_counters"), std::string::npos);
}

TEST(Table, MissingIsShownWithSeverityCountAndAdvice) {
  Recording r = fixture::gpt2_recording();
  r.missing.push_back({"dropped_activity_records", 7, "buffer"});
  const std::string text = table_text(build_profile(r, fixture::gpt2_run(), fixture::round_ceilings(), fixture::options()), {});
  EXPECT_NE(text.find("severe dropped_activity_records x 7: buffer. CUPTI ran out"), std::string::npos) << text;
}

TEST(Table, AProgramWithoutStepsListsItsKernels) {
  Recording r = fixture::recording({{"", "void a<int>(int)", 10'000, 1e6, 1e6, 0}, {"", "b(float)", 20'000, 1e6, 1e6, 0}});
  for (LaunchRecord& l : r.launches) l.step = -1;
  for (CounterRecord& c : r.counters) c.step = -1;
  r.steps.clear();
  const ProfileDocument d = build_profile(r, std::nullopt, fixture::round_ceilings(), {});
  const std::string text = table_text(d, {});
  EXPECT_NE(text.find("2 kernel launches"), std::string::npos) << text;
  EXPECT_EQ(text.find("unattributed"), std::string::npos) << text;
  EXPECT_EQ(text.find("timed steps"), std::string::npos) << "there were none:\n" << text;
  EXPECT_FALSE(has_severe_missing(d));
}

// What no pass has is known or not, and the sum stands only where it is.
TEST(Table, ATimeIsShownAlsoWhereNoKernelIsKnown) {
  ProfileDocument d = gpt2_profile();
  d.kernels.clear();
  TableOptions o;
  o.width = 100;
  expect_golden("report/data/without_kernels.txt", table_text(d, o));
  d.totals = {};
  d.passes.clear();
  d.ops.clear();
  expect_golden("report/data/nothing_but_steps.txt", table_text(d, o));
}

TEST(Table, ASumNeedsToKnowWhatIsUnattributed) {
  const auto starts_with = [](const ProfileDocument& d, const std::string& word) {
    const auto all = lines(table_text(d, {TableBy::pass, 12, 80, false}));
    return std::count_if(all.begin(), all.end(), [&](const std::string& line) { return line.starts_with(word + " "); });
  };
  ProfileDocument d = gpt2_profile();
  EXPECT_EQ(starts_with(d, "unattributed"), 1);
  EXPECT_EQ(starts_with(d, "sum"), 1);
  d.totals.unattributed_ns.reset();
  EXPECT_EQ(starts_with(d, "unattributed"), 0);
  EXPECT_EQ(starts_with(d, "sum"), 0);
}

// A record that was cut: rows and "N more kernels" did not reach the step, and the legend said that no ceilings had been measured.
TEST(Table, ACutRecordSaysWhatItDoesNotHold) {
  ProfileDocument d = gpt2_profile();
  const auto notes = [&] {
    std::string all;
    for (const std::string& note : kernel_view(d, Output::terminal, 100).notes) all += note + "\n";
    return all;
  };
  EXPECT_EQ(notes().find("does not hold"), std::string::npos) << notes();
  const double first = d.kernels.front().time_ns;
  d.kernels.erase(d.kernels.begin());
  d.ceilings = {};
  EXPECT_NE(notes().find(fmt::format("Kernels that this record does not hold: {:.3f} ms.", first * 1e-6)), std::string::npos) << notes();
  EXPECT_EQ(table_text(d, {}).find("need a GPU whose ceilings"), std::string::npos);
}

// A whole document was said to lack kernels of 0.256 ms: what medians of five steps fall short of a step by.
TEST(Table, WhatMediansDoNotAddUpToIsNoKernel) {
  ProfileDocument d = gpt2_profile();
  *d.totals.time_ns *= 1.004;
  for (const Output output : {Output::terminal, Output::markdown, Output::page}) EXPECT_TRUE(kernel_view(d, output, 100).notes.empty());
}

// The kernels of a report without passes are the rows: unattributed time is theirs, and has no row beside them.
TEST(Table, KernelsThatStandForPassesHoldWhatIsUnattributed) {
  ProfileDocument d = gpt2_profile();
  d.passes.clear();
  d.totals.passes_ns = 0;
  d.totals.unattributed_ns = 4e6;
  std::multiset<std::string> first;
  for (const ViewRow& row : pass_view(d, Output::terminal).rows) first.insert(row.cells[0].text);
  EXPECT_EQ(first.count("unattributed"), 0u);
  EXPECT_EQ(first.count("idle"), 1u);
  EXPECT_EQ(first.count("sum"), 1u);
}

}  // namespace

#include "profiler/report/markdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/report/documents.h"

namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Markdown, ShowsPassesKernelsAndWhatIsMissing) {
  const profiler::ProfileDocument d = documents::gpu();
  const std::string text = profiler::markdown_text(d, 3);
  for (const profiler::PassRow& p : d.passes) EXPECT_THAT(text, HasSubstr("| " + p.name + " |"));
  EXPECT_THAT(text, HasSubstr("| idle |"));
  EXPECT_THAT(text, HasSubstr(std::to_string(d.kernels.size() - 3) + " more kernels"));
  EXPECT_THAT(text, HasSubstr(" ms** ["));
}

TEST(Markdown, WhatIsNotKnownIsADash) {
  const std::string text = profiler::markdown_text(documents::cpu(), 3);
  EXPECT_THAT(text, HasSubstr("| - |"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
  EXPECT_THAT(text, HasSubstr("no\\_gpu\\_counters"));
}

TEST(Markdown, AStepWithoutPassesIsOneSentenceUnlessItTookNoTime) {
  profiler::ProfileDocument d;
  d.collection.shown_step = 4;
  d.totals.time_ns = 5e6;
  d.totals.idle_ns = 1e6;
  EXPECT_THAT(profiler::markdown_text(d, 3), HasSubstr("One step on the device: 5.000 ms, idle 1.000 ms of it (20.0%).\n"));
  d.totals.time_ns = d.totals.idle_ns = 0;
  EXPECT_THAT(profiler::markdown_text(d, 3), Not(HasSubstr("One step on the device")));
}

// The heading left the model, the rate of the products and the micro-batches out, and no other line has them.
TEST(Markdown, TheHeadingSaysWhatRanAsTheTableDoes) {
  profiler::ProfileDocument d = documents::gpu();
  d.run.accumulation = 4;
  EXPECT_THAT(profiler::markdown_text(d, 3),
              HasSubstr("### Profile: Test GPU, fp32 (matmul fp32), 2 layers x 128 channels, B 4 T 1024 x 4, SM 1500 MHz\n"));
  profiler::ProfileDocument ingested;
  ingested.environment.gpu = "Test GPU";
  ingested.collection.program = "python3 my_step.py";
  EXPECT_THAT(profiler::markdown_text(ingested, 3), HasSubstr("### Profile: Test GPU, python3 my\\_step.py\n"));
}

// `report --by op -o FILE.md` wrote the kernels.
TEST(Markdown, ItsSecondTableHasTheRowsThatWereAskedFor) {
  const profiler::ProfileDocument d = documents::gpu();
  const auto by = [&](profiler::TableBy rows) { return profiler::markdown_text(d, 3, rows); };
  EXPECT_THAT(by(profiler::TableBy::kernel), testing::AllOf(HasSubstr("| kernel |"), Not(HasSubstr("| op |"))));
  EXPECT_THAT(by(profiler::TableBy::op), testing::AllOf(HasSubstr("| op |"), HasSubstr("| bwd qkv |"), Not(HasSubstr("| kernel |"))));
  EXPECT_THAT(by(profiler::TableBy::layer), testing::AllOf(HasSubstr("| layer |"), HasSubstr("| bwd layer 0 |")));
  EXPECT_THAT(by(profiler::TableBy::pass), testing::AllOf(Not(HasSubstr("| kernel |")), Not(HasSubstr("| op |"))));
  profiler::ProfileDocument without = d;
  without.layers.clear();
  EXPECT_THAT(profiler::markdown_text(without, 3, profiler::TableBy::layer), HasSubstr("\nNo layers: no launch of this document"));
}

// A document that was edited by hand, or made by another program.
TEST(Markdown, TheNameOfACeilingCannotBreakTheHeadline) {
  profiler::ProfileDocument d = documents::gpu();
  d.timing.matmul_ceiling = "<b>fp32</b>";
  EXPECT_THAT(profiler::markdown_text(d, 3), testing::AllOf(HasSubstr("of the measured &lt;b>fp32&lt;/b> matmul"), Not(HasSubstr("<b>"))));
}

TEST(Markdown, TheLegendOfTheTableStandsBelowItsTablesToo) {
  EXPECT_THAT(
      profiler::markdown_text(documents::gpu(), 3),
      HasSubstr("\nGB/s is DRAM traffic of kernels, (max) its share of this device's measured ceiling, headroom the ms above the floor"));
  EXPECT_THAT(profiler::markdown_text(documents::cpu(), 3), HasSubstr("\nTimes are per step; headroom and shares of ceilings need a GPU"));
  EXPECT_THAT(profiler::markdown_text({}, 3), Not(HasSubstr("Times are")));
}

TEST(Markdown, NamesCannotBreakItsTables) {
  const std::string text = profiler::markdown_text(documents::hostile(), 100);
  EXPECT_THAT(text, Not(HasSubstr("<img")));
  for (std::string rest = text, line; !rest.empty(); rest.erase(0, line.size() + 1)) {
    line = rest.substr(0, rest.find('\n'));
    if (!line.starts_with("| ") || line.find("kernel") == 2) continue;
    size_t bars = 0;
    for (size_t i = 0; i < line.size(); ++i) bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\');
    EXPECT_TRUE(bars == 9 || bars == 10) << line;
  }
}

}  // namespace

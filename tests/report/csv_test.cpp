// CSV: one line per row, the document's own names as columns, nothing invented for what is absent.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "profiler/report/csv.h"
#include "profiler/report/views.h"
#include "tests/profiler/fixture.h"

namespace {

using namespace profiler;

// RFC 4180, one record.
std::vector<std::string> cells(const std::string& text, size_t& at) {
  std::vector<std::string> out(1);
  bool quoted = false;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted && c == '"' && at + 1 < text.size() && text[at + 1] == '"')
      out.back() += text[++at];
    else if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      out.emplace_back();
    else if (c == '\n' && !quoted) {
      ++at;
      break;
    } else
      out.back() += c;
  }
  return out;
}

std::vector<std::vector<std::string>> table(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  for (size_t at = 0; at < text.size();) rows.push_back(cells(text, at));
  return rows;
}

TEST(Csv, EveryRowHasACellPerColumnAndKeepsNamesWhole) {
  const ProfileDocument d = build_profile(fixture::gpt2_recording(), fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  for (const CsvRows kind : {CsvRows::pass, CsvRows::op, CsvRows::layer, CsvRows::kernel, CsvRows::launch, CsvRows::missing})
    for (const auto& row : table(csv_text(d, kind))) EXPECT_EQ(row.size(), table(csv_text(d, kind)).front().size());
  const auto kernels = table(csv_text(d, CsvRows::kernel));
  ASSERT_EQ(kernels.size(), d.kernels.size() + 1);
  EXPECT_EQ(kernels[0][0], "name");
  for (size_t i = 0; i < d.kernels.size(); ++i) EXPECT_EQ(kernels[i + 1][0], d.kernels[i].name);
}

// The times of the passes alone are less than the step, and nothing said what was left out.
TEST(Csv, PassesEndWithWhatMakesThemSumToTheStep) {
  const ProfileDocument d = build_profile(fixture::gpt2_recording(), fixture::gpt2_run(), fixture::round_ceilings(), fixture::options());
  const auto rows = table(csv_text(d, CsvRows::pass));
  ASSERT_EQ(rows.size(), d.passes.size() + 3);
  EXPECT_EQ(rows[rows.size() - 2][0], "unattributed");
  EXPECT_EQ(rows.back()[0], "idle");
  const auto column = [&](const char* title) {
    const auto at = static_cast<size_t>(std::find(rows[0].begin(), rows[0].end(), title) - rows[0].begin());
    double sum = 0;
    for (size_t i = 1; i < rows.size(); ++i) sum += std::stod(rows[i].at(at));
    return sum;
  };
  EXPECT_NEAR(column("time_ns"), *d.totals.time_ns, 1e-3);
  EXPECT_NEAR(column("share_pct"), 100, 1e-6);
  EXPECT_EQ(column("launches"), static_cast<double>(*d.totals.launches));
}

// Readers of CSV take a carriage return for the end of a row unless it stands in quotes.
// Bytes and headroom that were known stood in the sum and in no row, and the duration of half a step was 0.
TEST(Csv, WhatNoPassHoldsHasTheNumbersOfItsKernels) {
  ProfileDocument d;
  d.totals.time_ns = 100;
  d.totals.passes_ns = 30;
  d.totals.unattributed_ns = 60;
  d.totals.idle_ns = 10;
  d.totals.launches = 3;
  d.totals.copies = 1;
  d.ceilings.copy_bytes_per_s = 100e9;
  d.passes.resize(1);
  d.passes[0].launches = 1;
  const auto kernel = [&](const char* name, int64_t launches, int64_t copies, double ns) -> KernelRow& {
    KernelRow& k = d.kernels.emplace_back();
    k.name = name;
    k.launches = launches;
    k.copies = copies;
    k.time_ns = k.duration_ns = ns;
    return k;
  };
  kernel("in a pass", 1, 0, 30).pass = "forward";
  for (const double bytes : {1000.0, 500.0}) {
    KernelRow& k = kernel("elsewhere", 1, 0, 25);
    k.dram_read_bytes = bytes;
    k.dram_write_bytes = 0;
    k.headroom_ns = 4;
    k.dram_of_ceiling_pct = bytes / 20;  // each of the ceiling of its own mix of reads and writes
  }
  kernel("copy", 0, 1, 10);
  const auto u = unattributed_row(d);
  ASSERT_TRUE(u);
  EXPECT_EQ(u->launches, 2);
  EXPECT_EQ(u->copies, 1);
  EXPECT_EQ(u->duration_ns, 60);
  EXPECT_EQ(u->dram_read_bytes, 1500);
  EXPECT_EQ(u->kernel_headroom_ns, 8);
  EXPECT_DOUBLE_EQ(*u->dram_bytes_per_s, 1500 / 50e-9);  // the copy has no counters
  EXPECT_DOUBLE_EQ(*u->dram_of_ceiling_pct, 37.5);
  d.kernels[2].dram_of_ceiling_pct.reset();
  EXPECT_FALSE(unattributed_row(d)->dram_of_ceiling_pct);
  d.kernels[1].dram_read_bytes.reset();  // half of the bytes would look like an answer
  EXPECT_FALSE(unattributed_row(d)->dram_read_bytes);
  EXPECT_FALSE(unattributed_row(d)->dram_bytes_per_s);
}

TEST(Csv, ANameWithACarriageReturnIsQuoted) {
  ProfileDocument d;
  KernelRow k;
  k.name = "a\rb";
  d.kernels.push_back(k);
  EXPECT_NE(csv_text(d, CsvRows::kernel).find("\n\"a\rb\","), std::string::npos);
}

TEST(Csv, NumbersReadBackExactlyAndNoAnswerIsEmpty) {
  ProfileDocument d;
  KernelRow k;
  k.name = "a,\"b\"\nc";
  k.activity = "kernel";
  k.time_ns = 0.1 + 0.2;
  d.kernels.push_back(k);
  const auto rows = table(csv_text(d, CsvRows::kernel));
  EXPECT_EQ(rows[1][0], k.name);
  const auto column = [&](const std::string& name) {
    for (size_t i = 0; i < rows[0].size(); ++i)
      if (rows[0][i] == name) return rows[1][i];
    return std::string("no such column");
  };
  EXPECT_EQ(std::stod(column("time_ns")), k.time_ns);
  EXPECT_EQ(column("dram_read_bytes"), "");
  EXPECT_EQ(column("bound"), "");
}

}  // namespace

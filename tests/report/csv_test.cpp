// CSV: one line per row, the document's own names as columns, nothing invented for what is absent.
#include <gtest/gtest.h>

#include "profiler/report/csv.h"
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

// Readers of CSV take a carriage return for the end of a row unless it stands in quotes.
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

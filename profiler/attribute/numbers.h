// The numbers that counters and ceilings give to one launch, and to many launches together. Each is declared once: a member here, and its row
// in numbers.cpp with name, unit, source, help, formula and how it is shown. Attribution computes, the document writes and reads, and table,
// Markdown, page, CSV, trace and diff print by walking these rows.
#pragma once
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "profiler/attribute/shown.h"

namespace profiler {

struct AttributedLaunch;
using Launches = std::vector<const AttributedLaunch*>;

// Nothing but std::optional<double>: the compiler counts them against the rows. Absent: one of the launches has no answer.
struct Numbers {
  std::optional<double> dram_read_bytes, dram_write_bytes, dram_bytes_per_s, dram_of_ceiling_pct;
  std::optional<double> l2_bytes, instructions;
  std::optional<double> tensor_active_pct, tensor_instructions, tensor_while_busy_pct, tensor_of_ceiling_pct, fma_of_ceiling_pct;
  std::optional<double> occupancy_pct, sm_clock_hz;
};

// Where the document holds it, beside the rows of passes, ops, layers and kernels.
enum Beside : unsigned { kRowsOnly = 0, kLaunches = 1, kTotals = 2 };

struct NumberRow {
  std::string_view name, unit, source, help;
  std::optional<double> Numbers::*member;
  bool adds_up;  // over rows; the others are means or rates
  unsigned beside;
  std::optional<double> (*of)(const Launches& kernels);  // the formula; one launch is a list of one
  Shown shown = {};
};
std::span<const NumberRow> number_rows();

Numbers numbers_of(const Launches& kernels);

// Of two numbers that add up; absent when one of them is, since half a sum would look like an answer.
std::optional<double> sum_of(const std::optional<double>& a, const std::optional<double>& b);

}  // namespace profiler

// How people see a number: its title, its digits, the tables that have a column for it. A field of the document or a number of a launch
// says this once; terminal, Markdown, page and diff print what it says (profiler/report/cells.h turns a value and its format into text).
#pragma once
#include <string_view>

namespace profiler {

enum class Format {
  word,
  count,            // 834
  launches,         // the row's launches and copies together
  milliseconds,     // ns as ms: 25.70
  seconds,          // ns as s: 3.1
  thousands,        // 462.3k
  percent,          // 25.7
  in_brackets,      // (26%)
  gigabytes,        // bytes as GB: 4.80
  megabytes,        // bytes as MB: 28.4
  gigabytes_per_s,  // bytes/s as GB/s: 800
  tensor,           // 25.7, or "8.4M inst" where only instructions were counted
  megahertz,        // Hz as MHz: 1755
  watts,            // 692
  joules,           // 6.12
  millijoules,      // J as mJ: 312.5
};

// The tables that a row can stand in.
enum Table : unsigned {
  kNoTable = 0,
  kPassTable = 1,
  kGroupTable = 2,
  kKernelTable = 4,
  kLaunchTable = 8,
  kStateTable = 16,
  kRankTable = 32,
  kCollectiveTable = 64,
  kRowTables = 7
};

// A row of whole ops has two floors under one title: that of its mathematics, and that of its kernels where no work model is known.
enum class Floors { either, of_ops, of_kernels };

struct Shown {
  std::string_view title = {};  // of the column; "" = no table has one
  Format format = Format::word;
  unsigned tables = kNoTable;  // in every output
  unsigned page = kNoTable;    // in the HTML page besides, which has more room
  int drop = 0;                // on a narrow terminal the highest goes first; 0 never goes
  Floors floors = Floors::either;
  bool only_if_known = false;  // no column where no row has it
};

}  // namespace profiler

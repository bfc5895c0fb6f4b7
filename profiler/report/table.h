// The document as text for a terminal: what a step costs, where it goes, what could be won back, and what is
// missing.
//
// Units are scaled here and only here (ms, GB/s, k tokens/s). A number without an answer is "-".
#pragma once
#include <cstddef>
#include <string>

#include "profiler/document/profile.h"
#include "profiler/report/terminal.h"
#include "profiler/report/views.h"

namespace profiler {

enum class TableBy { pass, op, kernel, layer };

struct TableOptions {
  TableBy by = TableBy::kernel;  // the table below that of the passes; pass: none
  size_t top = 12;               // rows of that table; the rest is one row
  size_t width = 80;
  bool color = false;
};

std::string table_text(const ProfileDocument& document, const TableOptions& options);

// The table below that of the passes. A list that the document does not have is said in words: a header without rows looks like a mistake.
struct SecondTable {
  View view;            // without columns: no table
  std::string instead;  // "No ops: …."
};
SecondTable second_table(const ProfileDocument& document, TableBy by, Output output, size_t top);

}  // namespace profiler

// What the reader's terminal can show: colour, and how many columns.
#pragma once
#include <cstddef>

namespace profiler {

// True for a terminal, unless NO_COLOR (no-color.org) is set and not empty or TERM is "dumb" or unset.
bool color_wanted(int file_descriptor);

// Columns for tables: COLUMNS where it is a number, else the terminal's own width, else 80; never below 60
// (tables would lose their numbers) and never above 400.
size_t table_width(int file_descriptor);

}  // namespace profiler

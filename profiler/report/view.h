// A table before it is printed: columns, rows of cells, notes. views.cpp makes them from a document; terminal, Markdown and the HTML page
// print the same cells.
#pragma once
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace profiler {

struct ViewColumn {
  std::string title;
  bool text = false;       // left-aligned words, not a number
  bool elastic = false;    // gives way first where the terminal is narrow; at most one
  int drop = 0;            // as in Shown
  std::string field = {};  // of the document; "": made of several
};
struct ViewCell {
  std::string text;
  std::optional<double> number = {};  // by which the page sorts; absent: by the text, or no answer
  std::string full = {};              // a name before it was shortened
};
struct ViewRow {
  enum class Kind { plain, sum, faint, warning };
  std::vector<ViewCell> cells;
  Kind kind = Kind::plain;
};
struct View {
  std::vector<ViewColumn> columns;
  std::vector<ViewRow> rows;
  std::vector<std::string> notes;  // under the table
};

std::string terminal_text(const View& view, size_t width, bool color);
std::string markdown_text(const View& view);

}  // namespace profiler

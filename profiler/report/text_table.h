// Aligned columns of text that fit a width: the elastic column gives way first, then columns that may shrink,
// then whole columns go and a line says which.
//
// Widths are those of the screen: UTF-8 code points, wide ones two, combining ones none. Bytes are not
// columns.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace profiler {

class TextTable {
 public:
  enum class Align { left, right };
  struct Column {
    std::string header;
    Align align = Align::right;
    bool elastic = false;  // at most one
    int drop = 0;          // 0: never; among the others the highest goes first when the table is too wide
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell per column. `style` is an SGR parameter ("1" bold, "2" faint, "" none), used only when text() is
  // told to colour.
  void row(std::vector<std::string> cells, std::string style = "");
  // A line under the row before it that is not cut into columns; lines after the first begin with `indent`
  // spaces.
  void note(std::string text, size_t indent = 0) { rows_.push_back({{std::move(text)}, "", true, indent}); }

  // Every line ends with a newline and has at most `width` columns. Numbers are never cut: left-aligned cells
  // are, down to 4, and columns marked so are dropped.
  std::string text(size_t width, bool color) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    std::string style;
    bool is_note = false;
    size_t indent = 0;
  };
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

// Columns that UTF-8 text takes on a screen; a byte that is no UTF-8 takes one.
size_t display_width(std::string_view text);

// SGR around text, or the text alone.
std::string styled(const std::string& text, const std::string& style, bool color);

// Text broken at spaces to `width` columns; lines after the first begin with `indent` spaces. A word longer
// than a line is broken where the line ends.
std::string wrapped(const std::string& text, size_t width, size_t indent);

}  // namespace profiler

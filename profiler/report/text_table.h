// Aligned columns of text that fit a width: one column (the elastic one) gives way, all others have the width
// of their content.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace profiler {

class TextTable {
 public:
  enum class Align { left, right };
  struct Column {
    std::string header;
    Align align = Align::right;
    bool elastic = false;  // at most one
  };
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // One cell per column. `style` is an SGR parameter ("1" bold, "2" faint, "" none), used only when text() is
  // told to colour.
  void row(std::vector<std::string> cells, std::string style = "");
  // A line under the table that is not cut into columns.
  void note(std::string text) { rows_.push_back({{std::move(text)}, "", true}); }

  // Every line ends with a newline and has at most `width` columns, as long as the elastic column can give 8.
  std::string text(size_t width, bool color) const;

 private:
  struct Row {
    std::vector<std::string> cells;
    std::string style;
    bool is_note = false;
  };
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

// SGR around text, or the text alone.
std::string styled(const std::string& text, const std::string& style, bool color);

// Text broken at spaces to `width` columns; lines after the first begin with `indent` spaces.
std::string wrapped(const std::string& text, size_t width, size_t indent);

}  // namespace profiler

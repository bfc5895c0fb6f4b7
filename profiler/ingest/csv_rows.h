// An ncu table as text: where it begins among other output, in which encoding it is not, and its rows of cells.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace profiler::csv {

// The text cannot be read from here on; what stood before may be good.
struct Damage {
  int64_t line;
  std::string what;
};

// A line that opens a table, in ncu's own quotes or re-saved without them.
bool is_title_line(std::string_view rest);
// Position and line of the table's title row, wherever other output ended.
std::optional<std::pair<size_t, int64_t>> find_table(std::string_view text);
// The separator of a table that a spreadsheet program wrote in its own locale; 0: none is seen.
char other_separator(std::string_view text);
// A cell or line as a message shows it: short, and without control characters.
std::string shown(std::string_view text);

// RFC 4180: quoted cells may hold commas, doubled quotes and line ends.
class Rows {
 public:
  Rows(std::string_view text, size_t at, int64_t line) : text_(text), at_(at), line_(line) {}
  int64_t line() const { return row_line_; }
  // Of the row last read: its end is the end of the text, without a line end.
  bool cut() const { return cut_; }
  // ... in a cell without quotes, of which any number of characters may be lost.
  bool cut_in_cell() const { return cut_ && !quoted_; }

  bool at_end() const { return at_ >= text_.size(); }
  int64_t next_line() const { return line_; }
  std::string_view rest() const { return text_.substr(at_); }
  std::string_view peek_line() const;
  void skip_line();
  void skip_byte_order_mark();
  // False at the end of the text. Throws Damage.
  bool next(std::vector<std::string>& cells);

 private:
  void quoted(std::string& cell);

  std::string_view text_;
  size_t at_;
  int64_t line_, row_line_ = 0;
  bool cut_ = false, quoted_ = false;
};

}  // namespace profiler::csv

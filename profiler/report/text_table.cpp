#include "profiler/report/text_table.h"

#include <algorithm>
#include <stdexcept>

#include "profiler/report/names.h"

namespace profiler {

void TextTable::row(std::vector<std::string> cells, std::string style) {
  if (cells.size() != columns_.size()) throw std::logic_error("table row: a cell per column");
  rows_.push_back({std::move(cells), std::move(style), false});
}

std::string TextTable::text(size_t width, bool color) const {
  constexpr size_t kSmallest = 8;
  std::vector<size_t> widths;
  for (const Column& c : columns_) widths.push_back(c.header.size());
  for (const Row& r : rows_)
    for (size_t i = 0; !r.is_note && i < r.cells.size(); ++i)
      widths[i] = std::max(widths[i], r.cells[i].size());
  const auto gap = [&](size_t i) {
    return i == 0 ? size_t{0} : columns_[i].align == Align::left ? size_t{2} : size_t{1};
  };
  size_t total = 0;
  for (size_t i = 0; i < widths.size(); ++i) total += gap(i) + widths[i];
  for (size_t i = 0; i < columns_.size(); ++i)
    if (columns_[i].elastic && total > width)
      widths[i] -= std::min(total - width, widths[i] - std::min(widths[i], kSmallest));

  const auto line = [&](const std::vector<std::string>& cells, const std::string& style) {
    std::string out;
    for (size_t i = 0; i < cells.size(); ++i) {
      const std::string cell = elide(cells[i], widths[i]);
      const std::string pad(widths[i] - cell.size(), ' ');
      out += std::string(gap(i), ' ');
      out += columns_[i].align == Align::left ? cell + pad : pad + cell;
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return styled(out, style, color) + "\n";
  };
  std::vector<std::string> headers;
  for (const Column& c : columns_) headers.push_back(c.header);
  std::string out = line(headers, "1");
  for (const Row& r : rows_)
    out += r.is_note ? styled(wrapped(r.cells[0], width, 0), "2", color) + "\n" : line(r.cells, r.style);
  return out;
}

std::string styled(const std::string& text, const std::string& style, bool color) {
  return color && !style.empty() ? "\x1b[" + style + "m" + text + "\x1b[0m" : text;
}

std::string wrapped(const std::string& text, size_t width, size_t indent) {
  std::string out;
  size_t column = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const size_t word = end - at;
    if (column > indent && column + word > width) {
      out.erase(out.find_last_not_of(' ') + 1);
      out += "\n" + std::string(indent, ' ');
      column = indent;
    }
    out += text.substr(at, word);
    column += word;
    at = end;
    while (at < text.size() && text[at] == ' ') {
      out += ' ';
      ++column;
      ++at;
    }
  }
  return out;
}

}  // namespace profiler

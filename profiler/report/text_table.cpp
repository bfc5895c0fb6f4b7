#include "profiler/report/text_table.h"

#include <algorithm>
#include <stdexcept>

#include "base/text.h"
#include "profiler/report/names.h"
#include "profiler/report/utf8.h"

namespace profiler {

void TextTable::row(std::vector<std::string> cells, std::string style) {
  if (cells.size() != columns_.size()) throw std::logic_error("table row: a cell per column");
  for (std::string& cell : cells) cell = stepscope::printable(cell);
  rows_.push_back({std::move(cells), std::move(style), false, 0});
}

std::string TextTable::text(size_t width, bool color) const {
  // A name of which 16 columns are left still says which one it is.
  constexpr size_t kElasticLeast = 8, kDroppedElasticLeast = 16, kLeftLeast = 12, kLeast = 4;
  std::vector<size_t> widths;
  std::vector<bool> shown(columns_.size(), true);
  for (const Column& c : columns_) widths.push_back(display_width(c.header));
  for (const Row& r : rows_)
    for (size_t i = 0; !r.is_note && i < r.cells.size(); ++i) widths[i] = std::max(widths[i], display_width(r.cells[i]));
  const auto gap = [&](size_t i) { return i == 0 ? size_t{0} : columns_[i].align == Align::left ? size_t{2} : size_t{1}; };
  const auto taken = [&] {
    size_t total = 0;
    for (size_t i = 0; i < widths.size(); ++i)
      if (shown[i]) total += gap(i) + widths[i];
    return total;
  };
  const auto excess = [&] { return taken() - std::min(taken(), width); };
  const std::vector<size_t> wanted = widths;
  const auto shrink = [&](size_t i, size_t least) {
    if (shown[i]) widths[i] -= std::min(excess(), widths[i] - std::min(widths[i], least));
  };
  const auto shrink_left = [&](size_t least) {
    for (size_t i = 0; i < columns_.size(); ++i)
      if (columns_[i].align == Align::left && !columns_[i].elastic) shrink(i, least);
  };
  for (size_t i = 0; i < columns_.size(); ++i)
    if (columns_[i].elastic) shrink(i, columns_[i].drop > 0 ? kDroppedElasticLeast : kElasticLeast);
  shrink_left(kLeftLeast);
  std::string dropped;
  while (excess() > 0) {
    size_t last = columns_.size();
    for (size_t i = 0; i < columns_.size(); ++i)
      if (shown[i] && columns_[i].drop > 0 && (last == columns_.size() || columns_[i].drop > columns_[last].drop)) last = i;
    if (last == columns_.size()) break;
    shown[last] = false;
    dropped += (dropped.empty() ? "" : ", ") + columns_[last].header;
  }
  shrink_left(kLeast);
  for (size_t i = 0; i < columns_.size(); ++i)
    if (columns_[i].elastic) shrink(i, kLeast);
  // A column that went may have left more room than was missing.
  for (size_t i = 0; i < columns_.size(); ++i)
    if (shown[i]) widths[i] += std::min(width - std::min(taken(), width), wanted[i] - widths[i]);

  const auto line = [&](const std::vector<std::string>& cells, const std::string& style) {
    std::string out;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (!shown[i]) continue;
      const std::string cell = elide(cells[i], widths[i]);
      const std::string pad(widths[i] - std::min(widths[i], display_width(cell)), ' ');
      out += std::string(gap(i), ' ');
      out += columns_[i].align == Align::left ? cell + pad : pad + cell;
    }
    out.erase(out.find_last_not_of(' ') + 1);
    return styled(out, style, color) + "\n";
  };
  std::vector<std::string> headers;
  for (const Column& c : columns_) headers.push_back(c.header);
  std::string out = line(headers, "1");
  for (const Row& r : rows_) out += r.is_note ? styled(wrapped(r.cells[0], width, r.indent), "2", color) + "\n" : line(r.cells, r.style);
  if (!dropped.empty()) out += styled(wrapped("Not shown at this width: " + dropped + ".", width, 0), "2", color) + "\n";
  return out;
}

size_t display_width(std::string_view text) {
  size_t columns = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Character c = utf8_character(text, at);
    columns += c.columns;
    at += c.bytes;
  }
  return columns;
}

std::string styled(const std::string& text, const std::string& style, bool color) {
  return color && !style.empty() ? "\x1b[" + style + "m" + text + "\x1b[0m" : text;
}

std::string wrapped(const std::string& from_a_file, size_t width, size_t indent) {
  const std::string text = stepscope::printable(from_a_file);
  std::string out;
  size_t column = 0;
  const auto new_line = [&] {
    out.erase(out.find_last_not_of(' ') + 1);
    out += "\n" + std::string(indent, ' ');
    column = indent;
  };
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const size_t word = display_width(std::string_view(text).substr(at, end - at));
    if (column > indent && column + word > width) new_line();
    // Of a part that begins at `at`. Asked once a part: kernel names of megabytes are one part.
    const auto part_width = [&] {
      const std::string_view rest = std::string_view(text).substr(at, end - at);
      return display_width(rest.substr(0, std::min(rest.find(','), rest.size() - 1) + 1));
    };
    while (at < end) {
      // A word that is longer than a line is cut behind a comma where it has one: names in a list stay whole.
      if (column > indent && (at == 0 || text[at - 1] == ',') && column + part_width() > width) new_line();
      const Utf8Character c = utf8_character(text, at);
      if (column > indent && column + c.columns > width) new_line();
      out += text.substr(at, c.bytes);
      column += c.columns;
      at += c.bytes;
    }
    while (at < text.size() && text[at] == ' ') {
      out += ' ';
      ++column;
      ++at;
    }
  }
  return out;
}

}  // namespace profiler

#include "profiler/ingest/csv_rows.h"

#include <fmt/format.h>

namespace profiler::csv {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // of UTF-8: harmless, and stepped over

}  // namespace

bool is_title_line(std::string_view rest) {
  if (rest.starts_with(kByteOrderMark)) rest.remove_prefix(kByteOrderMark.size());
  return rest.starts_with("\"ID\",\"Process ID\"") || rest.starts_with("ID,Process ID");
}

std::string shown(std::string_view text) {
  constexpr size_t kMost = 40;
  std::string out;
  for (const char c : text.substr(0, kMost)) out += static_cast<unsigned char>(c) < ' ' ? '?' : c;
  return out + (text.size() > kMost ? "..." : "");
}

std::string_view Rows::peek_line() const {
  const std::string_view line = rest().substr(0, rest().find('\n'));
  return line.ends_with('\r') ? line.substr(0, line.size() - 1) : line;
}

void Rows::skip_line() {
  const size_t end = text_.find('\n', at_);
  at_ = end == std::string_view::npos ? text_.size() : end + 1;
  ++line_;
}

void Rows::skip_byte_order_mark() {
  if (rest().starts_with(kByteOrderMark)) at_ += kByteOrderMark.size();
}

bool Rows::next(std::vector<std::string>& cells) {
  cells.clear();
  if (at_ >= text_.size()) return false;
  row_line_ = line_;
  cut_ = false;
  std::string cell;
  for (;;) {
    quoted_ = at_ < text_.size() && text_[at_] == '"';
    if (quoted_) {
      quoted(cell);
    } else {
      while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '\n') cell += text_[at_++];
      if (!cell.empty() && cell.back() == '\r') cell.pop_back();
    }
    cells.push_back(std::move(cell));
    cell.clear();
    if (at_ >= text_.size()) {
      cut_ = true;
      return true;
    }
    const char c = text_[at_++];
    if (c == '\r' && at_ < text_.size() && text_[at_] == '\n') {
      ++at_;
      ++line_;
      return true;
    }
    if (c == '\n') {
      ++line_;
      return true;
    }
    if (c == '\r') throw Damage{line_, "lines end with a carriage return alone, expected a line feed (\\n or \\r\\n)"};
    if (c != ',') throw Damage{line_, fmt::format("'{}' behind a closing quote, expected ','", c)};
  }
}

void Rows::quoted(std::string& cell) {
  const int64_t opened = line_;
  for (++at_;; ++at_) {
    if (at_ >= text_.size()) throw Damage{opened, "a quote that is never closed"};
    if (text_[at_] == '"') {
      if (at_ + 1 >= text_.size() || text_[at_ + 1] != '"') break;
      ++at_;
    }
    if (text_[at_] == '\n') ++line_;
    cell += text_[at_];
  }
  ++at_;
}

std::optional<std::pair<size_t, int64_t>> find_table(std::string_view text) {
  int64_t line = 1;
  for (size_t at = 0; at < text.size(); ++line) {
    const std::string_view rest = text.substr(at);
    if (is_title_line(rest)) return std::pair{at, line};
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) break;
    at += end + 1;
  }
  return std::nullopt;
}

char other_separator(std::string_view text) {
  for (const char separator : {';', '\t'})
    for (const std::string_view quote : {"\"", ""}) {
      const std::string titles = fmt::format("{0}ID{0}{1}{0}Process ID{0}", quote, separator);
      const size_t at = text.find(titles);
      if (at != std::string_view::npos && (at == 0 || text[at - 1] == '\n' || text.substr(0, at) == kByteOrderMark)) return separator;
    }
  return 0;
}

}  // namespace profiler::csv

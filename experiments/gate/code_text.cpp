#include "experiments/gate/code_text.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

namespace gate {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

class CodeReader {
 public:
  explicit CodeReader(std::string_view source) : source_(source) {}

  std::string code() {
    while (at_ < source_.size()) {
      const char c = source_[at_];
      if (starts("//"))
        skip_line_comment();
      else if (starts("/*"))
        skip_block_comment();
      else if (c == '"')
        is_raw() ? copy_raw() : copy_literal('"');
      else if (c == '\'' && !separates_digits())
        copy_literal('\'');
      else if (c == '\n')
        end_line();
      else if (std::isspace(static_cast<unsigned char>(c)) != 0)
        space_after(at_ + 1);
      else
        copy(1);
    }
    end_line();
    return out_;
  }

 private:
  bool starts(std::string_view with) const { return source_.substr(at_).starts_with(with); }

  // Spaces are written before what follows them, so none end up at the end of a line.
  void space_after(size_t next) {
    space_ = true;
    at_ = next;
  }
  void copy(size_t count) {
    if (space_ && !line_is_empty()) out_ += ' ';
    space_ = false;
    out_ += source_.substr(at_, count);
    at_ = std::min(at_ + count, source_.size());
  }
  bool line_is_empty() const { return out_.empty() || out_.back() == '\n'; }
  void end_line() {
    if (!line_is_empty()) out_ += '\n';
    space_ = false;
    ++at_;
  }

  void skip_line_comment() {
    size_t end = at_;
    do {  // a backslash before the line's end continues the comment on the next
      end = source_.find('\n', end + 1);
    } while (end != std::string_view::npos && (source_[end - 1] == '\\' || (source_[end - 1] == '\r' && source_[end - 2] == '\\')));
    space_after(std::min(end, source_.size()));
  }
  void skip_block_comment() {
    const size_t end = source_.find("*/", at_ + 2);
    space_after(end == std::string_view::npos ? source_.size() : end + 2);
  }

  // The word that ends here, where a literal or a separator begins.
  std::string_view word_before() const {
    size_t first = at_;
    while (first > 0 && (is_word(source_[first - 1]) || source_[first - 1] == '\'')) --first;
    return source_.substr(first, at_ - first);
  }
  // As in 1'000; in u8'x' the word is no number.
  bool separates_digits() const {
    const std::string_view word = word_before();
    return !word.empty() && std::isdigit(static_cast<unsigned char>(word.front())) != 0;
  }
  bool is_raw() const {
    const std::string_view word = word_before();
    return word == "R" || word == "u8R" || word == "uR" || word == "UR" || word == "LR";
  }
  void copy_raw() {
    const size_t open = source_.find('(', at_);
    if (open == std::string_view::npos) return copy(source_.size() - at_);
    const std::string close = ")" + std::string(source_.substr(at_ + 1, open - at_ - 1)) + "\"";
    const size_t end = source_.find(close, open);
    copy(end == std::string_view::npos ? source_.size() - at_ : end + close.size() - at_);
  }
  void copy_literal(char quote) {
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote && source_[end] != '\n') end += source_[end] == '\\' ? 2 : 1;
    copy(end + 1 - at_);
  }

  std::string_view source_;
  size_t at_ = 0;
  bool space_ = false;
  std::string out_;
};

}  // namespace

std::string code_of(std::string_view source) { return CodeReader(source).code(); }

}  // namespace gate

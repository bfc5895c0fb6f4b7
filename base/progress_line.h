// One line on stderr, rewritten a few times a second where stderr is a terminal; nothing elsewhere. It goes when the object goes.
#pragma once
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "base/stderr_text.h"

namespace stepscope {

class ProgressLine {
 public:
  ProgressLine() : shown_(isatty(STDERR_FILENO) == 1) {}
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  // `text` is called only when the line is drawn.
  template <class Text>
  void show(const Text& text) {
    const auto now = std::chrono::steady_clock::now();
    if (!shown_ || now < next_) return;
    next_ = now + std::chrono::milliseconds(200);
    drawn_ = true;
    put_on_stderr(fmt::format("\r{}\x1b[K", text()));
  }
  // Before something else is printed.
  void clear() {
    if (drawn_) put_on_stderr("\r\x1b[K");
    drawn_ = false;
  }

 private:
  bool shown_, drawn_ = false;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace stepscope

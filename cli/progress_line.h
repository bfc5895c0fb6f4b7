// One line on stderr, rewritten a few times a second where stderr is a terminal; nothing elsewhere. It goes when the object goes.
#pragma once
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

namespace cli {

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
    fmt::print(stderr, "\r{}\x1b[K", text());
    std::fflush(stderr);
  }
  // Before something else is printed.
  void clear() {
    if (drawn_) fmt::print(stderr, "\r\x1b[K");
    drawn_ = false;
  }

 private:
  bool shown_, drawn_ = false;
  std::chrono::steady_clock::time_point next_{};
};

inline std::string eval_progress_text(int64_t done, int64_t correct, int64_t all) {
  const double accuracy = done > 0 ? static_cast<double>(correct) / static_cast<double>(done) : 0.0;
  return fmt::format("eval: {} of {} examples, accuracy {:.4f}", done, all, accuracy);
}

}  // namespace cli

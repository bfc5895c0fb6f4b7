#include "profiler/report/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace profiler {

bool color_wanted(int file_descriptor) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return isatty(file_descriptor) == 1 && !(no_color && *no_color) && terminal && std::strcmp(terminal, "dumb") != 0;
}

size_t table_width(int file_descriptor) {
  constexpr size_t kDefault = 80, kLeast = 60, kMost = 400;
  size_t columns = 0;
  if (const char* text = std::getenv("COLUMNS")) {
    const char* end = text + std::strlen(text);
    if (const auto read = std::from_chars(text, end, columns); read.ec != std::errc() || read.ptr != end) columns = 0;
  }
  // A terminal that does not know its size says 0.
  if (winsize size{}; columns == 0 && ioctl(file_descriptor, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  return columns == 0 ? kDefault : std::clamp(columns, kLeast, kMost);
}

}  // namespace profiler

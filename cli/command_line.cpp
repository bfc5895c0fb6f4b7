#include <filesystem>
#include <string>

#include "cli/commands.h"

namespace cli {

std::string CommandLine::text() const {
  std::string out;
  for (int i = 0; i < argc; ++i) {
    const std::string arg = argv[i];
    const bool plain = !arg.empty() && arg.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=/.,:@%") ==
                                           std::string::npos;
    std::string quoted = arg;
    if (!plain) {
      quoted = "'";
      for (const char ch : arg) quoted += ch == '\'' ? std::string("'\\''") : std::string(1, ch);
      quoted += "'";
    }
    out += (i ? " " : "") + quoted;
  }
  return out;
}

std::string CommandLine::program() const { return std::filesystem::read_symlink("/proc/self/exe").string(); }

}  // namespace cli

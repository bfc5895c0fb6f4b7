// What a command says beside its answer.
#pragma once
#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "base/text.h"

namespace cli {

// One line on stderr. What is wrong with a file may be said with the file's own bytes. A stderr that takes nothing (its disk is full, its
// terminal was closed) must not end a run before it has saved what it has, nor, from a handler, the program in an abort: fmt::print throws.
inline void say(std::string_view text) {
  if (std::fputs(fmt::format("stepscope: {}\n", stepscope::printable_lines(text)).c_str(), stderr) >= 0) return;
  std::clearerr(stderr);  // main.cpp takes an error there for one that fmt threw
}

}  // namespace cli

// What this program says beside its answer.
#pragma once
#include <fmt/format.h>

#include <string_view>

#include "base/stderr_text.h"
#include "base/text.h"

namespace stepscope {

// One line on stderr. What is wrong with a file may be said with the file's own bytes.
inline void say(std::string_view text) { put_on_stderr(fmt::format("stepscope: {}\n", printable_lines(text))); }

}  // namespace stepscope

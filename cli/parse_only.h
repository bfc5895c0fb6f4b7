// The command lines that the program takes, without running any. Hidden from --help; the tests of the flags
// and of the documents use it.
//
//   stepscope --list-flags    a line of JSON for each flag and argument of each command; "type" holds the range
//   stepscope --parse-only    reads command lines from stdin, words separated by tabs, and answers each by a
//                             line: exit status, tab, message
#pragma once
#include <functional>
#include <optional>

#include "cli/arguments.h"

namespace cli {

void list_flags(Command& app);

// `parse` gets the words of one line and answers as the program would: no code where a command would run. It may
// throw stepscope::InputError. Its commands must have no callbacks and must throw their messages
// (Command::forget_callbacks, keep_messages).
void parse_only(const std::function<std::optional<int>(int argc, const char* const* argv)>& parse);

}  // namespace cli

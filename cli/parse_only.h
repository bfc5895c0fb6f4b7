// The command lines that the program takes, without running any. Hidden from --help; the tests of the flags
// and of the documents use it.
//
//   stepscope --list-flags    a line of JSON for each flag and argument of each command; "type" holds the range
//   stepscope --parse-only    reads command lines from stdin, words separated by tabs, and answers each by a
//                             line: exit status, tab, message
#pragma once
#include <functional>

#include "cli/arguments.h"

namespace cli {

void list_flags(Command& app);

// `judge` gets the words of one line and answers as the program would, running nothing (Command::parse_only); it may
// throw stepscope::InputError.
void parse_only(const std::function<Command::Verdict(int argc, const char* const* argv)>& judge);

}  // namespace cli

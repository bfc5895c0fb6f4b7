// The command lines that the program takes, without running any. Hidden from --help; the tests of the flags
// and of the documents use it.
//
//   stepscope --list-flags    a line of JSON for each flag and argument of each command; "type" holds the range
//   stepscope --parse-only    reads command lines from stdin, words separated by tabs, and answers each by a
//                             line: exit status, tab, message
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace cli {

void list_flags(const CLI::App& app);

// `parse` gets the words of one line and throws as it would for the real one. Commands must have lost their
// callbacks: forget_callbacks().
void parse_only(const std::function<void(int argc, char** argv)>& parse);
void forget_callbacks(CLI::App& app);

}  // namespace cli

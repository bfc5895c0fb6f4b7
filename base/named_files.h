// The files that a command line names, by flag: which of them are one file.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace stepscope {

using NamedFiles = std::vector<std::pair<const char*, std::string>>;  // what named it ("--out"), the path; an empty path is none

// Throws stepscope::InputError naming both where an output is a file that is read, or two outputs are one file: the second would silently
// replace the first. One input named twice does no harm. Whatever lies under /dev is left out, and inputs that do not exist; outputs need
// not. Links are followed.
void check_files_differ(const NamedFiles& inputs, const NamedFiles& outputs);

}  // namespace stepscope

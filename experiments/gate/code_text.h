// What a compiler sees of a C++ file: comments and the width of its spaces make no other program.
#pragma once
#include <string>
#include <string_view>

namespace gate {

// `source` with one space for each comment and each run of spaces outside of literals, without space at either end of a line and without empty
// lines; line ends stay, because they end directives. Two sources with the same answer compile to the same code, but for what __LINE__ says.
std::string code_of(std::string_view source);

}  // namespace gate

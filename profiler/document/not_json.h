// Why a text is no JSON object, for the message about a file that a person named.
#pragma once
#include <string>
#include <string_view>

namespace profiler {

// "the file is empty", "UTF-16 text, expected UTF-8", "line 3, column 7: …", or that it holds another kind of value. Only for a text
// that could not be read as an object; reads it a second time.
std::string why_no_object(std::string_view text);

}  // namespace profiler

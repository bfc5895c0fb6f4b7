// The files of page/ and Chart.js as they were when this program was built (made by cmake/EmbedPage.cmake).
#pragma once
#include <string_view>

namespace profiler::page {

std::string_view html();
std::string_view css();
std::string_view script();
std::string_view charts();  // empty: Chart.js was not found

}  // namespace profiler::page

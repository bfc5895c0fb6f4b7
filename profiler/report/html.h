// A profile document as one HTML file that opens from disk, offline: the page of page/report.{html,css,js} with the document and the chart library
// in it. Its Content-Security-Policy forbids every request.
//
// Trap: kernel names are text from outside. The document goes into a <script type="application/json"> with '<' escaped, so that no name can
// end the element, and from there into the page only as text.
#pragma once
#include <string>

#include "profiler/document/profile.h"

namespace profiler {

std::string html_text(const ProfileDocument& document);
// JSON as it may stand in a script element: '<' and the two line separators are spelled by their numbers.
std::string for_script_element(const std::string& json);
// Chart.js was found when this program was built; without it the report has its tables and says so.
bool has_charts();

}  // namespace profiler

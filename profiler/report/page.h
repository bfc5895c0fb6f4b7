// What the script of the HTML page shows, as JSON: tables with their columns and cells as text, headline, sentences. The script draws; it
// knows no column, no digit and no unit.
#pragma once
#include <string>

#include "profiler/document/profile.h"

namespace profiler {

std::string page_json(const ProfileDocument& document);

}  // namespace profiler

// How the enums of records.h are spelled in files and reports. One table each; an unknown word is no answer,
// never a default.
#pragma once
#include <optional>
#include <string_view>

#include "profiler/records/records.h"

namespace profiler {

std::string_view name(Activity activity);
std::string_view name(Phase phase);
std::optional<Activity> activity_from_name(std::string_view text);
std::optional<Phase> phase_from_name(std::string_view text);

}  // namespace profiler

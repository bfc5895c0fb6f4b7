// The document as JSON text and back. Both walk the field lists; what is not in them can be neither written
// nor read.
#pragma once
#include <string>
#include <string_view>

#include "profiler/document/profile.h"

namespace profiler {

inline constexpr std::string_view kProfileSchema = "stepscope.profile/1";

// Throws stepscope::InputError naming the field when a number is not finite: such a document must not exist.
std::string to_json(const ProfileDocument& document);

// Throws stepscope::InputError naming `source` and the field: not JSON, another schema, an unknown or missing
// field, a wrong type, a number below zero where none can be, a share that is not its time's, an unknown severity,
// rows that their launches contradict, sections of ranks that contradict each other (checks.h).
ProfileDocument profile_from_json(std::string_view text, const std::string& source);
ProfileDocument load_profile(const std::string& path);

}  // namespace profiler

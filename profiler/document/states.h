// Fills timing.state and timing.states of a document: which of its steps ran on a cool device and which on a warm one.
#pragma once
#include <optional>
#include <string>

#include "profiler/document/build_profile.h"

namespace profiler {

// From the timed steps of the profile itself. Reports of other tools and runs on a CPU have no clock and power: their documents say nothing.
void fill_states(ProfileDocument& document, const Recording& recording, const std::optional<RunInfo>& run, const ProfileOptions& options);

// From a second run of the same program that did nothing but steps, long enough to settle. Its warm steps stand in the document beside the
// timed ones of the first; where it did not become warm, `missing` says why.
void add_sustained(ProfileDocument& document, const Recording& recording, const std::optional<RunInfo>& run, const ProfileOptions& options);
void sustained_not_measured(ProfileDocument& document, const std::string& why);

}  // namespace profiler

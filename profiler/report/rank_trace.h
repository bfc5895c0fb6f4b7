// The step of several ranks as a Chrome trace: one process per rank, one track per stream, all by one clock; a mark at the last rank's
// begin of each collective, so that who waited for whom is seen.
#pragma once
#include <string>

#include "profiler/document/profile.h"

namespace profiler {

std::string rank_trace_text(const ProfileDocument& document);

}  // namespace profiler

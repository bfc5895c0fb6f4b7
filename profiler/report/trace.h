// The step shown, as a Chrome trace (object form) that ui.perfetto.dev and chrome://tracing open. One track
// per stream; on it passes, in them ops with their layer, in them kernels; counters as counter tracks.
//
// Slices of one track must nest strictly or viewers drop them silently. So pass and op slices are made from
// the operations of that stream alone: they span runs of operations of one place, from the first start to the
// last end, never a host range.
#pragma once
#include <string>

#include "profiler/document/profile.h"

namespace profiler {

std::string trace_text(const ProfileDocument& document);

}  // namespace profiler

// Activity records: buffers in, plain events out. At most one instance per process is tracing, because
// CUPTI's callbacks carry no user data. Records arrive on CUPTI's worker or the flushing thread; no CUDA call
// is made there and no lock held across CUPTI.
#pragma once
#include "profiler/collect/events.h"

namespace profiler::collect {

// Enables kernel, copy and memset records for `observer`, which must live until the end of the process.
// Throws CuptiError. period_ms > 0: complete buffers are also flushed that often, for programs that may end
// without notice.
void start_activity(Observer& observer, unsigned period_ms);
// Disables, then flushes everything. The GPU must be idle: an unfinished kernel would come without an end,
// once and for all.
void stop_activity();

}  // namespace profiler::collect

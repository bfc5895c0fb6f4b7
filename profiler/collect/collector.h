// A collector: hears ranges (from NVTX) and launches (from the backend), decides what is switched on when,
// writes the recording. step_collector.h for programs with step ranges, program_collector.h for all others.
#pragma once
#include <string_view>

#include "profiler/collect/events.h"
#include "profiler/collect/range_stack.h"

namespace profiler::collect {

class Collector : public Observer {
 public:
  // Called by the thread that opens or closes the range; the results are what NVTX returns to the program
  // (level; negative = error).
  virtual int range_push(uint64_t domain, std::string_view name) = 0;
  virtual int range_pop(uint64_t domain) = 0;
  // CUDA is initialized or about to be; the backend may be used from now on.
  virtual void cuda_ready() = 0;
  virtual void process_ends() = 0;
  virtual void abandon() = 0;  // forked child
};

// Ranges open on the calling thread.
RangeStack& thread_ranges();

}  // namespace profiler::collect

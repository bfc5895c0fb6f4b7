// The collectives of one rank's traced step, in the order in which the trainer launched them. All ranks launch the same ones in the same
// order, so that the position in this list says which collective of one rank is which of another; times never do.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/attribute/timeline.h"
#include "profiler/attribute/traced_step.h"

namespace profiler {

struct CollectiveRun {
  std::string kind, type;         // all_reduce …, fp32 …; "" = not known
  std::string op;                 // reduce_gradients, gather_weights, norm_gather; "" = outside of our ranges
  std::optional<int64_t> bucket;  // which piece of the gradients or weights
  std::optional<int64_t> bytes;   // of the whole array; absent where no range tells it
  std::string kernel;             // full name of the first operation
  Interval time;                  // first start to last end
  std::vector<Interval> parts;    // the operations themselves: one kernel, or several copies
  // End of the work launched directly before it, which completes its bucket; absent at the head of the step.
  std::optional<int64_t> ready_ns;
  std::string during;  // pass of that work
};

// A NCCL kernel is a collective of its own. Copies (a copy-engine or staged communicator) belong together while they lie in the same range
// one behind the other. Other kernels of the pass `communication` (casts), memsets, and copies beside NCCL's kernels carry nothing between
// ranks and are left out.
// Operations without a time are left out.
std::vector<CollectiveRun> collectives_of(const TracedStep& step);

// 2(n-1)/n of an all_reduce, (n-1)/n of reduce_scatter and all_gather: bytes that cross the busiest link per byte of the whole array
// (nccl-tests, doc/PERFORMANCE.md). 0 for a kind that is not known. ranks >= 1.
double bus_factor(const std::string& kind, int64_t ranks);

}  // namespace profiler

// Recordings of ranks that never ran: one step each, times written by hand.
#pragma once
#include <string>
#include <vector>

#include "profiler/ranks/join_ranks.h"

namespace ranks {

// Stream 7 works, stream 9 communicates. Times are ns from the step's begin by the true clock; the recording of a rank has its own clock.
struct Op {
  std::string path;  // below "step/"
  int64_t begin_ns, end_ns;
  std::string name = "";  // "": a kernel named after the path
  int64_t stream = 7;
};
// An all_reduce of `mb` MB of fp32.
Op all_reduce(int64_t begin_ns, int64_t end_ns, int64_t mb, int64_t bucket);

struct RankShape {
  int64_t rank = 0, size = 2;
  std::vector<Op> ops;
  int64_t clock_ns = 0;  // what this rank's clock shows less than the true one
  std::string boot = "boot-a", job = "job-1", build = "build-1";
  double sm_clock_mhz = 1500;
  uint64_t throttle = 0;
  int64_t between_ns = 50'000;  // host time between steps
};
profiler::RankRecording recording(const RankShape& shape);

// Forward 0..400 us, backward 400..1200 us in two kernels, optimizer; a bucket of 40 MB beside the second half of the backward pass, one of
// 20 MB behind it, half hidden by nothing.
//   rank 0: works 0..400, 400..800, 800..1200, optimizer 1500..1700; reduces 800..1100 and 1200..1500
std::vector<Op> two_bucket_step();

profiler::ProfileDocument join(const std::vector<RankShape>& shapes, const profiler::JoinOptions& options = {});

}  // namespace ranks

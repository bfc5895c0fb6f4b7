// Communication of several ranks, cut into what it cost and what it did not, and into what each part of it waited for.
//
// Per rank, with C the union of its communication and K that of all its other work in the window of its step W:
//   hidden = |C and K|, exposed = |C without K|, idle = |W without C and K|, so that |W| = |K| + exposed + idle.
// Collective j on rank r, with all times by one clock:
//   arrive_j = the latest begin of any rank; queue = begin - ready; wait = [begin, arrive_j) for the last rank;
//   transfer = [arrive_j, earliest end of any rank); drain = behind that.
// Exposed and hidden time of a part are its share of the rank's: where two collectives of one rank run at once, half each.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/ranks/collectives.h"

namespace profiler {

struct RankWork {  // one operation that is no communication
  Interval time;
  Activity activity = Activity::kernel;
  int64_t index = 0;  // the same operation has the same activity and index on every rank
  std::string op;     // "" = outside of our ranges
};

struct RankStep {
  Interval window;
  std::vector<RankWork> work;
  std::vector<Interval> other_communication;  // in the pass, but part of no collective
  std::vector<CollectiveRun> collectives;
  double offset_ns = 0;  // to be added to all of its times
};

struct CollectivePart {
  double time_ns = 0, exposed_ns = 0;
};
struct CollectiveShare {            // of one collective on one rank
  double begin_ns = 0, end_ns = 0;  // by the common clock
  double exposed_ns = 0, hidden_ns = 0;
  std::optional<double> queue_ns;
  std::string queue_for;  // "collective": one before it was still running; "work": the SMs were busy; "" = no queue
  CollectivePart wait, transfer, drain;
};
struct RankExposure {
  double window_ns = 0, work_ns = 0, exposed_ns = 0, hidden_ns = 0, idle_ns = 0;
  std::vector<CollectiveShare> collectives;
};

// Every rank has the same number of collectives.
std::vector<RankExposure> exposure_of(const std::vector<RankStep>& ranks);

}  // namespace profiler

// How far the clocks of several recordings are apart, by cause and effect: no rank can finish a collective before every rank has begun it,
// because each needs all inputs. Every collective so bounds the offset of two clocks from both sides; together they leave a range.
//
// Recordings of one boot and one time namespace share a clock; what is left is the driver's conversion from the GPU's clock to the host's,
// and the same bounds tell how large it can be at most.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/attribute/timeline.h"

namespace profiler {

struct RankClock {
  double offset_ns = 0;                  // to be added to the rank's times
  std::optional<double> uncertainty_ns;  // the true offset lies within this of it; absent: nothing bounds it
};

struct ClockAlignment {
  std::vector<RankClock> ranks;
  // Largest error that the difference of two ranks' times can have; absent where some pair is not bounded.
  std::optional<double> uncertainty_ns;
  bool shared = false;         // all offsets are 0, as the clock is one
  bool contradictory = false;  // no offsets fulfil all bounds: clocks drifted, or the collectives are not the same ones
};

// times[r][j]: collective j on rank r, by the clock of rank r; every rank has as many. same_clock[r]: a word that is equal for ranks which
// share a clock. Ranks whose shared clock fulfils the bounds keep offset 0. Rank 0 is the reference.
ClockAlignment align_clocks(const std::vector<std::vector<Interval>>& times, const std::vector<std::string>& same_clock);

}  // namespace profiler

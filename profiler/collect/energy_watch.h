// When to read a GPU's energy counter, which moves in jumps of up to 100 ms: often enough to know when it jumped, seldom enough not to be
// seen in the step times.
#pragma once
#include <cstdint>
#include <optional>

#include "profiler/records/records.h"

namespace profiler::collect {

class EnergyWatch {
 public:
  static constexpr int64_t kPoll_ns = 4'000'000;       // while a jump is due
  static constexpr int64_t kIdlePoll_ns = 50'000'000;  // a counter that stands still
  static constexpr int64_t kStandsStill_ns = 500'000'000;

  // Whether to read in this phase: while steps warm up or are timed, until something else is done for the first time. Steps that are counted
  // take seconds at a much lower power, and a jump behind them would be interpolated back into the last tenth of a second of the timed ones.
  bool watches(Phase phase);
  // The counter stood at `energy_mj` when it was read at `now_ns`: the jump, if it has moved since the reading before.
  std::optional<EnergySample> read(int64_t now_ns, uint64_t energy_mj);
  // When to read again. After a jump nothing is due for four fifths of the distance between the last two.
  int64_t next_ns() const { return next_ns_; }

 private:
  std::optional<uint64_t> energy_mj_;
  int64_t read_ns_ = 0, jump_ns_ = 0, distance_ns_ = 0, next_ns_ = 0;
  bool jumped_ = false, ended_ = false;
};

}  // namespace profiler::collect

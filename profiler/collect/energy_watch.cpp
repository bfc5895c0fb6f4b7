#include "profiler/collect/energy_watch.h"

namespace profiler::collect {

bool EnergyWatch::watches(Phase phase) {
  ended_ = ended_ || (phase != Phase::warmup && phase != Phase::timed);
  return !ended_;
}

std::optional<EnergySample> EnergyWatch::read(int64_t now_ns, uint64_t energy_mj) {
  const bool first = !energy_mj_;
  const bool moved = !first && energy_mj != *energy_mj_;
  const int64_t before_ns = read_ns_;
  energy_mj_ = energy_mj;
  read_ns_ = now_ns;
  if (first) jump_ns_ = now_ns;
  if (!moved) {
    next_ns_ = now_ns + (now_ns - jump_ns_ > kStandsStill_ns ? kIdlePoll_ns : kPoll_ns);
    return std::nullopt;
  }
  const EnergySample jump{before_ns + (now_ns - before_ns) / 2, energy_mj};
  if (jumped_) distance_ns_ = jump.time_ns - jump_ns_;
  jumped_ = true;
  jump_ns_ = jump.time_ns;
  next_ns_ = now_ns + kPoll_ns;
  // A distance over which it stood still says nothing about the next one.
  if (distance_ns_ <= kStandsStill_ns && jump_ns_ + distance_ns_ / 5 * 4 > next_ns_) next_ns_ = jump_ns_ + distance_ns_ / 5 * 4;
  return jump;
}

}  // namespace profiler::collect

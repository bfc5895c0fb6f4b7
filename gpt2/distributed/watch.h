// The judgement of a watchdog: who is gone, silent, stuck or different, from what was heard of each rank. A state machine without
// clocks, threads or sockets (socket_channel.cpp has those), so that tests make up the time.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpt2/distributed/communicator.h"

namespace gpt2::distributed {

// What a rank says of itself several times a second, by a thread that no step can hold up.
struct Beat {
  int64_t step = 0;
  Phase phase = Phase::start;
  bool waits = false;  // its main thread waits for another rank or for its GPU
  double quiet_s = 0;  // since its main thread last said anything
  double limit_s = 0;  // how long it may be quiet in this phase; 0: as long as it likes
};

struct WatchLimits {
  double silence_s = 5;  // no beat for so long: the process is stopped or its host is gone
  double stall_s = 5;    // a step without progress for so long, or for 20 steps of mean length
};

class Watch {
 public:
  // `names[rank]` as messages call it. `watched`: the ranks that this one hears directly.
  Watch(std::vector<std::string> names, std::vector<int> watched, WatchLimits limits, double now_s);

  void beat(int rank, const Beat& beat, double now_s);
  void finished(int rank, int64_t step, uint64_t loss_bits, uint64_t norm_bits);
  void closed(int rank);   // its connection ended
  void goodbye(int rank);  // it said that it is done, so that the end of its connection means nothing
  // This process did not run for a while (stopped, or the machine slept): silence of others in that time proves nothing.
  void was_away(double now_s);

  // The first thing that is wrong.
  std::optional<Failure> judge(double now_s) const;
  Beat last(int rank) const { return ranks_[static_cast<size_t>(rank)].beat; }

 private:
  struct Rank {
    std::string name;
    bool watched = false, closed = false, done = false;
    double heard_s = 0;
    Beat beat;
  };
  struct Bits {
    std::optional<uint64_t> loss, norm;
  };
  std::optional<Failure> stalled(double now_s) const;
  void compare(int64_t step);

  std::vector<Rank> ranks_;
  WatchLimits limits_;
  std::map<int64_t, std::vector<Bits>> reports_;  // of steps that some ranks have not reported yet
  std::optional<Failure> different_;
};

// "in step 412", "while it saved step 400".
std::string place_of(const Beat& beat);

// Whether it says only that the connection of a rank ended: whoever waits for that process knows more.
bool ended_without_a_word(const Failure& failure);

}  // namespace gpt2::distributed

// Which copy of a case's operands a launch is timed on. Launches go through the copies in turn, and there are so many that a copy has left L2
// when its turn comes again: from one of its launches to the next, three times as much memory is touched as L2 holds. A small case would need
// thousands of copies and gets 64, so one of less than 1/64 of L2 finds its operands there.
#pragma once
#include <algorithm>
#include <cstddef>

namespace experiments {

class OperandTurns {
 public:
  OperandTurns(double l2_bytes, double case_bytes) : copies_(static_cast<size_t>(std::clamp(3 * l2_bytes / case_bytes + 1, 1.0, 64.0))) {}
  size_t copies() const { return copies_; }
  size_t next() { return turn_++ % copies_; }

 private:
  size_t copies_, turn_ = 0;
};

}  // namespace experiments

// The oracle's answers, for all gates that one process of tests asks: most of a gate's time is the oracle's, and trainers with different
// defects are asked about the same weights and tokens. An answer is found by everything that it depends on, so a defect that moves the
// weights gets answers of its own (ModelGate.SharedAnswersChangeNoVerdict). Suites that use them are one ctest each (TOGETHER in
// CMakeLists.txt), since a process shares with itself alone.
#pragma once
#include "experiments/gate/expected.h"

namespace gate_test {

inline gate::ExpectedCache& shared_answers() {
  static gate::ExpectedCache answers;
  return answers;
}

}  // namespace gate_test

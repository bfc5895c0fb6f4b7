// Does the interval of a verdict hold what a user gets? Work of known kind is planted into one arm. Long runs, warm and each alone on the
// device, say what it really costs, then the procedure decides as it always does. All planted arms share the processes of the baseline.
#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experiments/session/session.h"

namespace experiments {

struct CoverageOptions {
  std::string what;                    // "mixed d12, B=4, T=1024"
  std::vector<std::string> arguments;  // of the trainer
  std::vector<std::string> plants;     // "tensor:1", "dram:0.5", "idle:1", "host:1": percent of a step (run_planted())
  int truth_rounds = 12;               // of long processes, each arm once in a round; at least 2
  double truth_settle_s = 5, truth_s = 5;
  std::filesystem::path record;  // a stepscope.coverage/1 document, renewed after every round; "" = none
};

// What long runs say of a plant. Fresh processes of one program differ, however long they run, so this is an estimate too.
struct Truth {
  Estimate rounds;
  double half = 0;  // rounds.mean +- half holds the truth with 98%; the spread is of the rounds of all plants
};

// One planted arm. Its intervals are of ln(B / A), as is the truth.
struct CoverageRow {
  std::string plant;
  Decision decision;                        // by the procedure
  std::optional<EqualClocks> equal_clocks;  // its witness
  std::optional<Truth> truth;               // nullopt before there are two rounds
  std::string truth_failed;                 // why the long runs of this plant are no evidence; "" = they are

  // Whether the interval, as much wider as the truth is uncertain, holds the mean of the long runs: its middle is nearer to that mean than
  // sqrt(half of the interval^2 + truth->half^2). nullopt where one of the two is missing, where the long runs are less certain than the
  // interval that they should judge, or where the run was invalid or interrupted.
  std::optional<bool> held() const;
  std::optional<bool> held_at_equal_clocks() const;
};
// One log of each for each plant.
std::vector<CoverageRow> coverage_rows(std::span<const std::string> plants, std::span<const RunLog> verdicts,
                                       std::span<const RunLog> truths);

// 1: an invalid run, or more than one interval in twelve missed (of twelve that hold in 98% of cases two miss 2.3% of the time). 4: not every
// row could be judged. Else 0.
int coverage_exit_code(std::span<const CoverageRow> rows);

// Prints a line for each plant and the count. Throws stepscope::InputError for plants that are none, and what the session throws. Checks no
// gate: both arms run the same code. Returns the exit code.
int run_coverage(SessionOptions options, const CoverageOptions& coverage);

}  // namespace experiments

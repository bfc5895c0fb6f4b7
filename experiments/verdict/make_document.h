// From a run to its verdict document.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/plan/experiment_file.h"
#include "experiments/verdict/document.h"
#include "experiments/verdict/ledger.h"
#include "profiler/diff/waterfall.h"

namespace experiments {

struct WorkloadResult {
  Workload workload;
  ArmReport a, b;
  RunLog log;
  std::optional<profiler::Waterfall> waterfall;
  std::string waterfall_absent;  // why there is none
  std::optional<SameCode> same_code;
  double planted_pct = 0;
  int64_t a_gpus = 1, b_gpus = 1;
  std::optional<WorkloadSection> decided_before;  // by a command that this one goes on from; the rest is then empty

  // Whatever was measured: its numbers stay, and decide nothing. `reason`: one of decision.h.
  void make_invalid(std::string_view reason, std::string sentence);
};

struct RunFacts {
  std::string at;  // UTC
  std::string git_revision, device, driver;
  std::string a_sources_sha256, b_sources_sha256, a_revision, patch_sha256;  // as in CodeSection
  std::vector<std::string> earlier_revisions;
  LedgerSummary ledger;
  Thresholds thresholds;
  std::string command;
  std::optional<PredictionProof> prediction;  // absent: nobody looked
};

// `experiment` absent: two commands, or an A/A run.
VerdictDocument verdict_document(const std::string& name, const std::optional<Experiment>& experiment,
                                 const std::vector<WorkloadResult>& results, const RunFacts& facts);

// Made from the recorded processes alone, so that a check can make it again: arms, and ratios at level `alpha`. A ratio at equal clocks that
// is there and is of the processes' first steps is made again too.
void fill_sustained(WorkloadSection& workload, double alpha);
// What the decision saves of a step of arm A, with its interval.
void fill_saving(WorkloadSection& workload, const Decision& decision);

}  // namespace experiments

// Several experiments as one campaign: every verdict is written as soon as it is decided, and at the end all are corrected together.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/session/session.h"

namespace experiments {

// The A/A ledger of a folder of verdicts.
std::filesystem::path ledger_file(const std::filesystem::path& folder);
// `folder`/NAME/verdict.json, else that of the studies in the source tree. Throws stepscope::InputError for one that cannot be read.
std::optional<VerdictDocument> last_verdict(const std::string& name, const std::filesystem::path& folder,
                                            const std::filesystem::path& studies);
// Leaves out those whose last verdict still holds for this code and device. A verdict that cannot be read is none, and stderr says so.
void keep_changed(std::vector<Experiment>& experiments, const std::filesystem::path& folder, const std::filesystem::path& root,
                  const std::filesystem::path& studies, const std::string& device);

// Leaves out those of which an arm trains on more GPUs than `gpus`, and says of each why: run all the same, that arm would fail, which reads
// as an invalid change. The CPU reference needs none.
std::vector<std::string> keep_those_with_enough_gpus(std::vector<Experiment>& experiments, int gpus);

struct CampaignOptions {
  std::filesystem::path folder, studies;  // of the new verdicts; of those in the source tree
  bool planted = false;                   // a slowdown was planted: the results are no verdicts of the experiments
  bool rerun = false;                     // of --changed: only what became worse counts against the exit code
  bool go_on = false;                     // where a command before this one was stopped; what it decided is left out
  bool json = false;                      // stdout gets one JSON array instead of the summaries
  std::vector<std::string> again{};       // of go_on: workloads that are measured anew where they are decided, as asks_for reads them
};
// Whether `words` stand in a workload's text, whole: "B=4" in "d12 B=4 T=1024", and not in "d12 B=64 T=1024".
bool asks_for(std::string_view words, std::string_view workload);
// Returns the exit code. Throws stepscope::InputError where a verdict could not be written; where there is one experiment only, also what
// keeps it from running.
int run_campaign(ExperimentSession& session, const std::vector<Experiment>& experiments, const CampaignOptions& options);

}  // namespace experiments

// Verdicts after they were measured: what follows from the recorded pairs, the correction over a campaign, and what became worse.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "experiments/verdict/document.h"

namespace experiments {

// A reason: at equal clocks B would be called different, and alone it is the same or different the other way, because at the power cap
// the arm that draws less is given more clock.
inline constexpr std::string_view kGivenBackAsClock = "given_back_as_clock";

// Verdict, reason and sentence of a workload, from its statistics: those of the statistics, or `same` when both arms ran the same code with
// nothing planted. The same code that was measured faster or slower is undecided: either a kernel's arguments differ, or this is one of the
// false claims that the ledger counts.
void conclude(WorkloadSection& workload, const Thresholds& thresholds);

// Decides again from the recorded processes and pairs, as the thresholds in the document say, and takes back what the correction of a
// campaign had made of it; what measured nothing stays as it is. Says of rounds of several commands whether they agree.
void decide_again(VerdictDocument& document);

// Holm over all claims of those documents that are of one device (a campaign), so that what a laptop measures takes no claim about a GPU
// back. Changed ones get their new verdicts. True for each that changed.
std::vector<bool> correct_campaign(std::vector<VerdictDocument>& documents, const Thresholds& thresholds);

// Worse than before, in any workload: invalid; slower where it was not, or no longer faster where it was; or, against a frozen
// baseline, a ratio whose interval lies above the old one by at least the minimum effect. `before` counts only when it is
// of the same device, experiment file and procedure and not invalid: without one, only an invalid verdict is a regression.
bool is_regression(const std::optional<VerdictDocument>& before, const VerdictDocument& now);
// Nothing was decided for a reason that has nothing to do with the arms: ctrl-C, somebody else on the device.
bool was_cut_short(const WorkloadSection& workload);
bool was_cut_short(const VerdictDocument& document);  // one of its workloads

}  // namespace experiments

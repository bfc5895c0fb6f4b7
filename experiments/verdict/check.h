// Does a verdict file say what its own measurements say?
//
// load_verdict refuses a file whose content does not fit the hash inside. This asks more: the ratio of every pair is made again from its
// blocks or processes, the statistics from the pairs, and the verdict from the statistics, with steps, savings and sentences; and an arm that
// did not pass its gate has no verdict. Who edits a number and makes the hash anew is found unless every number below it was changed to fit.
#pragma once
#include <string>
#include <vector>

#include "experiments/verdict/document.h"

namespace experiments {

// One sentence for each contradiction; empty = none.
std::vector<std::string> contradictions(const VerdictDocument& document);

}  // namespace experiments

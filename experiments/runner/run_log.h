// Recordings of a run: pairs and processes as JSON, which campaigns of identical code are resampled from; and the worst of its audits.
// What verdict.json keeps of them is in experiments/verdict.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "experiments/runner/pair_runner.h"

namespace experiments {

nlohmann::ordered_json pairs_to_json(const RunLog& log);
// One object per process that ran alone, in the order of measurement.
nlohmann::ordered_json runs_to_json(std::span<const AloneRun> runs);
// Reads that back. Throws stepscope::InputError naming `source` and the field.
std::vector<AloneRun> runs_from_json(const nlohmann::ordered_json& runs, const std::string& source);
// What the arms had to answer for: of every measure of every arm the worst, in the order in which they came. Empty for commands.
std::vector<ArmFinding> worst_findings(const RunLog& log);

// The pair values of such a list. Throws stepscope::InputError naming `source` and the field.
std::vector<PairValue> pair_values_from_json(const nlohmann::ordered_json& pairs, const std::string& source);

}  // namespace experiments

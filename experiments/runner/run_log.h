// A run as JSON: the part of verdict.json that keeps what was measured, and the A/A recordings that tests
// resample.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "experiments/runner/pair_runner.h"

namespace experiments {

nlohmann::ordered_json to_json(const Decision& decision);
nlohmann::ordered_json pairs_to_json(const RunLog& log);
// One object per process that ran alone, in the order of measurement.
nlohmann::ordered_json runs_to_json(std::span<const AloneRun> runs);
// Reads that back. Throws stepscope::InputError naming `source` and the field.
std::vector<AloneRun> runs_from_json(const nlohmann::ordered_json& runs, const std::string& source);
// What the arms had to answer for: steps taken again, and of every measure of every arm the worst pair. Null for commands.
nlohmann::ordered_json audit_to_json(const RunLog& log);

// The pair values of such a list. Throws stepscope::InputError naming `source` and the field.
std::vector<PairValue> pair_values_from_json(const nlohmann::ordered_json& pairs, const std::string& source);
// Reads back what to_json(Decision) wrote, as far as a campaign and an index need it.
Decision decision_from_json(const nlohmann::ordered_json& json, const std::string& source);

}  // namespace experiments

// Was the prediction written before the measurement? Git knows: a commit that the measured revision contains holds the experiment file with
// the very hash that the verdict names, and its date is before the measurement.
//
// What it does not prove: a history can be rewritten and a commit's date chosen. It proves that whoever did not do that did not see the result.
#pragma once
#include <filesystem>
#include <string>

#include "experiments/verdict/document.h"

namespace experiments {

inline constexpr std::string_view kNotShownEarlier = "prediction not shown to be earlier";

// `file`: the experiment file, inside `root`. `revision`: the measured one, a "-dirty" behind it is ignored: what it names was committed.
// `measured_at`: UTC, "2026-11-22T08:00:00Z". Never throws for a tree without git or history: the sentence says why nothing is shown.
PredictionProof prove_prediction(const std::filesystem::path& root, const std::filesystem::path& file, const std::string& file_sha256,
                                 const std::string& revision, const std::string& measured_at);

// For a verdict that stands: proves again where this copy of the history knows the measured revision; otherwise the recorded proof
// stays. True when the document changed. `studies`: the folder of the experiment files.
bool renew_prediction_proof(VerdictDocument& document, const std::filesystem::path& root, const std::filesystem::path& studies);

}  // namespace experiments

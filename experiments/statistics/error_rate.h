// How often this procedure calls identical code different: exact bounds from counted trials, and resampling
// of one long A/A recording.
#pragma once
#include <cstdint>
#include <optional>
#include <span>

#include "experiments/statistics/decision.h"

namespace experiments {

// Upper 95% bound (one-sided, Clopper & Pearson 1934) on the rate behind `events` of `trials`; 1 for no
// trials. 0 of 59 is the first run of zeros that proves "at most 5%". Throws std::invalid_argument unless 0
// <= events <= trials.
double rate_upper_bound(int64_t events, int64_t trials, double confidence = 0.95);

struct ResampledRates {
  int64_t trials = 0;
  int64_t called_different = 0;  // faster or slower
  int64_t same = 0;
  int64_t undecided = 0;
  double rate() const { return trials ? static_cast<double>(called_different) / static_cast<double>(trials) : 0.0; }
};

// Trials made of one recording of A/A pairs: each draws the planned number of pairs without replacement,
// swaps the labels of each with probability 1/2 (identical code has none) and goes through the looks.
// `planted` is added to every log ratio: 0 gives the false positive rate, ln(1.01) the power for 1%.
// Deterministic in `seed`. nullopt when the recording has fewer pairs than the first look needs; later looks
// that it has too few for are left out.
std::optional<ResampledRates> resample_trials(std::span<const PairValue> recorded, const Thresholds& thresholds, int64_t trials,
                                              double planted_log_ratio, uint64_t seed);

// Two-sided p of "the mean of the A/A pairs is 0": a bias of the procedure itself (B always second, say).
std::optional<double> slot_bias_p_value(std::span<const PairValue> recorded);

}  // namespace experiments

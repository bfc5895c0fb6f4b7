// Every comparison of identical code that was ever made, one JSON object per line, appended: how often the
// procedure itself was wrong. Reports quote its 95% bound. Trials with a planted slowdown are in it too, as
// the power actually seen.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "experiments/statistics/decision.h"

namespace experiments {

struct LedgerEntry {
  std::string at;      // UTC, ISO 8601
  std::string device;  // "NVIDIA H200", "CPU, 2 threads"
  std::string what;    // "fp32 d12 B=4 T=1024 tf32"
  double planted_pct = 0;
  Verdict verdict = Verdict::undecided;  // what the statistics said, not what "same code" made of it
  int pairs = 0;
  double log_ratio_mean = 0, log_ratio_sd = 0;
  std::string procedure;            // "looks 12/24, 24 quads of 0.015 s"; "" in old entries
  double minimum_effect_pct = 0.3;  // less than this was not called different
};

struct LedgerSummary {
  int64_t trials = 0;         // of identical code, with a verdict or undecided
  int64_t false_claims = 0;   // called faster or slower
  double bound_95_pct = 100;  // upper bound on the rate of false claims
  std::string text() const;   // "A/A ledger: 0 of 59 trials called identical code different (95% bound 4.95%)"
};

// Entries of a file that does not exist: none. Throws stepscope::InputError naming file and line.
std::vector<LedgerEntry> read_ledger(const std::filesystem::path& file);
// One line, appended in one write: of several writers at once none is lost.
void append_to_ledger(const std::filesystem::path& file, const LedgerEntry& entry);
// Of one device, whose noise is its own, and only trials that could have claimed something: at least kFewestPairs pairs, a minimum
// effect of at most kMostMinimumEffect_pct.
inline constexpr int kFewestPairs = 6;
inline constexpr double kMostMinimumEffect_pct = 1;
LedgerSummary summarize(const std::vector<LedgerEntry>& entries, const std::string& device);

}  // namespace experiments

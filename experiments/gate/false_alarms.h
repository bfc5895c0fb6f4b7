// How often does the gate refuse a trainer that is right? The checks that depend on the seed, for many seeds, and what
// share of its budget each used: the largest, and an estimate of how often it would be more than all of it.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "experiments/gate/report.h"

namespace gate {

struct CheckOverSeeds {
  std::string name;
  double worst = 0;  // largest error / budget of any seed; infinite for a missed budget of zero or NaN
  uint64_t worst_seed = 0;
  std::string worst_tensor;
  int64_t refusals = 0;  // seeds
  // Of a run: the largest share per seed follows a law of largest values (Gumbel), fitted by mean and deviation.
  // 0 for fewer than 5 seeds and for checks that always use the same share.
  double false_alarm_rate = 0;
};

struct SeedsReport {
  std::string configuration, device;
  int64_t seeds = 0, refused = 0;  // seeds of which any check failed
  std::vector<CheckOverSeeds> checks;
  std::vector<std::string> notes;
  // Any check of a run: at most the sum of the checks' own.
  double false_alarm_rate() const;
};

// One report per seed, of one configuration.
SeedsReport over_seeds(const std::string& configuration, std::span<const GateReport> reports);
// Of the configurations that ran. 1: a seed of one was refused. 2: none ran, so nothing was checked.
int exit_code_of(std::span<const SeedsReport> reports);
std::string to_table(const SeedsReport& report);
nlohmann::ordered_json to_json(const SeedsReport& report);

}  // namespace gate

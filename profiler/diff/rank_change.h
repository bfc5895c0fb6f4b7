// Why a step of several ranks takes longer than one of fewer, from the device times of both: the parts sum to the difference.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "profiler/document/profile.h"

namespace profiler {

struct RankChange {
  int64_t a_ranks = 1, b_ranks = 1;
  double step_ns = 0;     // B - A, on the device
  double exposed_ns = 0;  // communication that nothing hides
  double work_ns = 0;     // all other passes but the optimizer: work is slower beside communication
  double work_pct = 0;    // of A's
  double update_ns = 0;   // the optimizer: shorter where each rank updates a part
  double idle_ns = 0;
  double rest_ns = 0;  // unattributed, and what the documents' own sums miss
  // B's own exposed time and its parts. It is of B's step as the rank saw it, so it may differ a little from what its rows have.
  Number b_exposed_ns, wait_ns, transfer_ns, drain_ns;
  Number hidden_ns;  // B's communication beside other work
};

// How many ranks ran together; those of the CPU reference are no GPUs.
int64_t ranks_of(const ProfileDocument& document);
// nullopt: neither is of several ranks, or one has no device time of a step.
std::optional<RankChange> rank_change(const ProfileDocument& a, const ProfileDocument& b);
std::string rank_words(const RankChange& change);
nlohmann::ordered_json to_json(const RankChange& change);

}  // namespace profiler

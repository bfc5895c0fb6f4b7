// From the step of A to the step of B, kernel by kernel: two profile documents as a list of changes that
// sums.
//
// The sum is exact by construction: every kernel row of either document is in one row here, and what the
// documents themselves leave over (unattributed time, conservation error) is a row of its own, never spread
// over the others. Times are device time of traced steps; the verdict's time is that of untraced ones, so
// both are shown.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/diff/side.h"

namespace profiler {

// Kernel names of several tools as one: without casts, inner scopes, spaces, const and the parameters of templates; unnamed namespaces and
// literals spelled alike.
std::string comparable_kernel_name(std::string_view name);

struct WaterfallRow {
  std::string change;  // gone | new | changed
  std::string pass, op, kernel;
  Side a, b;
  double delta_ns() const { return b.time_ns - a.time_ns; }
};

struct WaterfallOp {  // kernels of one pass and op together: what an idea did, when it changed the kernels'
                      // names
  std::string pass, op;
  double a_ns = 0, b_ns = 0;
  double delta_ns() const { return b_ns - a_ns; }
};

struct Waterfall {
  double a_total_ns = 0, b_total_ns = 0;  // device time of a step
  double a_idle_ns = 0, b_idle_ns = 0;
  double a_rest_ns = 0, b_rest_ns = 0;  // unattributed, and what the rows of the document miss
  std::vector<WaterfallRow> kernels;    // sorted by |delta|, all of them
  std::vector<WaterfallOp> ops;         // sorted by |delta|
  double delta_ns() const { return b_total_ns - a_total_ns; }
};

// nullopt when a document has no device time of a step (nothing was traced).
std::optional<Waterfall> make_waterfall(const ProfileDocument& a, const ProfileDocument& b);

// Rows whose change is below `least_ns` are added up in one row "other", so that the list still sums.
nlohmann::ordered_json to_json(const Waterfall& waterfall, double least_ns = 1000);

}  // namespace profiler

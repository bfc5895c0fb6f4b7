#include "profiler/ingest/read_metrics.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "profiler/attribute/counters.h"
#include "profiler/ingest/metric_units.h"

namespace profiler {
namespace {

// 11 days: no kernel that a profiler waited for.
constexpr double kLongest_ns = 1e15;

bool is_duration(std::string_view metric) {
  return std::find(kDurationMetrics.begin(), kDurationMetrics.end(), metric) != kDurationMetrics.end();
}

std::set<std::string_view> all_read() {
  std::set<std::string_view> names(kDurationMetrics.begin(), kDurationMetrics.end());
  for (const CounterQuantity& q : counter_quantities()) names.insert(q.metrics.begin(), q.metrics.end());
  for (const TensorMetric& t : tensor_metrics()) names.insert(t.metric);
  names.insert({kRegisters, kSharedStatic, kSharedDynamic});
  return names;
}

}  // namespace

bool is_read(std::string_view metric) {
  static const std::set<std::string_view> names = all_read();
  return names.contains(metric);
}

bool is_percentage(std::string_view metric) { return metric.find(".pct") != std::string_view::npos || metric.ends_with("_pct"); }

std::string implausible(std::string_view metric, double value) {
  if (!is_read(metric)) return "";
  if (is_duration(metric)) return value > 0 && value <= kLongest_ns ? "" : "a time above 0 and at most 1e15 ns";
  // A percentage that ncu takes as the difference of two counters may read slightly below 0, one of a short kernel above 100.
  if (is_percentage(metric)) return value > -1 && value <= 1000 ? "" : "a percentage above -1 and at most 1000";
  if (metric == kRegisters && value != std::floor(value)) return "a whole number";
  return value >= 0 && value < 9e18 ? "" : value < 0 ? "0 or more" : "less than 9e18";
}

std::string unfit_unit(std::string_view metric, std::string_view unit) {
  if (!is_read(metric)) return "";
  const Dimension d = dimension(unit);
  if (is_duration(metric)) return d == Dimension::time ? "" : "a unit of time (ns, us, ms or s)";
  if (is_percentage(metric)) return d == Dimension::percent ? "" : "%";
  if (metric.ends_with(".per_second")) return d == Dimension::rate ? "" : "a unit per second (hz)";
  if (metric.find("shared_mem") != std::string_view::npos) return d == Dimension::bytes ? "" : "a unit of bytes";
  if (metric.find("_bytes") != std::string_view::npos)
    return d == Dimension::bytes && unit.find('/') == std::string_view::npos ? "" : "a unit of bytes";
  return is_known_count(unit) ? "" : "a count";
}

}  // namespace profiler

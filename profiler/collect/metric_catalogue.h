// From a quantity ("DRAM bytes read") to the CUPTI metric that says it on a chip, and from a wish list to a
// set that fits ONE pass of the range profiler. Which names exist and how many passes a list needs is asked
// of CUPTI's host API through the two functions handed in (cupti_host.h), so the rules here are tested
// without it, and the lists with it but without a GPU.
//
// The trap: whether a metric fits depends on its company, not on itself, and existing is not the same as
// being schedulable.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace profiler::collect {

struct Quantity {
  std::string name;                     // "dram_read_bytes"
  std::vector<std::string> candidates;  // CUPTI metrics, the best first; the first that exists on the chip is taken
};

// In order of importance: what does not fit one pass is dropped from the end. `set` is one of
//   "portable"  15 metrics, one pass on every chip from GA100 on
//   "bf16"      the 24 of GH100 with the bf16 wgmma operations (cuptiProfilerHost says 1 pass)
//   "tf32"      the same with the tf32 operations in their place: both do not fit
// Throws std::runtime_error for another name.
std::vector<Quantity> metric_set(std::string_view set);

// plan.metrics of a collect plan → what to ask for: empty = "bf16"; {"set:tf32"} = that set; else the names
// as they stand.
std::vector<Quantity> wanted_metrics(const std::vector<std::string>& plan_metrics);
// Whether they are the user's own: any may be a ratio without a value. Each of our sets is a number of every kernel.
bool asked_by_name(const std::vector<std::string>& plan_metrics);

struct MetricQueries {
  std::function<bool(const std::string&)> exists;
  // nullopt: cannot be scheduled together at all.
  std::function<std::optional<size_t>(const std::vector<std::string>&)> passes;
};

struct MetricChoice {
  std::vector<std::string> metrics;                           // need exactly one pass; may be empty
  std::vector<std::pair<std::string, std::string>> left_out;  // quantity or metric, and why
};
// Takes the whole list when it fits one pass, otherwise adds in order while it does.
MetricChoice choose_metrics(const std::vector<Quantity>& wanted, const MetricQueries& queries);

}  // namespace profiler::collect

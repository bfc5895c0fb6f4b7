#include "experiments/verdict/same_launches.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "profiler/records/names.h"

namespace experiments {
namespace {

using Operation = std::tuple<profiler::Activity, std::string, std::array<int64_t, 3>, std::array<int64_t, 3>, int64_t, int64_t>;
using Counts = std::map<Operation, int64_t>;

std::string words(const Operation& o) {
  const auto& [activity, name, grid, block, shared, bytes] = o;
  if (activity != profiler::Activity::kernel) return fmt::format("{} {} of {} bytes", profiler::name(activity), name, bytes);
  return fmt::format("kernel {} ({} x {})", name, fmt::join(grid, ","), fmt::join(block, ","));
}

// "" when they are the same.
std::string first_difference(const Counts& step, const Counts& checked) {
  for (const auto& [operation, count] : checked) {
    const auto found = step.find(operation);
    const int64_t n = found == step.end() ? 0 : found->second;
    if (n != count) return fmt::format("{} times instead of {}: {}", n, count, words(operation));
  }
  for (const auto& [operation, count] : step)
    if (!checked.contains(operation)) return fmt::format("{} times instead of 0: {}", count, words(operation));
  return "";
}

}  // namespace

SameLaunches same_launches(std::span<const profiler::LaunchRecord> launches, int64_t first_checked) {
  std::map<int64_t, Counts> steps;
  for (const profiler::LaunchRecord& l : launches)
    if (l.step >= 0) ++steps[l.step][{l.activity, l.name, l.grid, l.block, l.shared_static_bytes + l.shared_dynamic_bytes, l.bytes}];
  SameLaunches out;
  for (const auto& [step, counts] : steps) ++(step < first_checked ? out.timed_steps : out.checked_steps);
  if (out.timed_steps == 0 || out.checked_steps == 0) {
    out.sentence = fmt::format("{} timed and {} checked steps were traced: nothing to compare", out.timed_steps, out.checked_steps);
    return out;
  }
  const Counts& checked = steps.lower_bound(first_checked)->second;
  for (const auto& [operation, count] : checked) out.operations += count;
  for (const auto& [step, counts] : steps)
    if (const std::string why = first_difference(counts, checked); !why.empty()) {
      out.sentence = fmt::format("launches: {} step {} launches other operations than the checked step {}: {}",
                                 step < first_checked ? "timed" : "checked", step, steps.lower_bound(first_checked)->first, why);
      return out;
    }
  out.same = true;
  out.sentence = fmt::format("{} timed steps launch the same operations as {} checked steps, {} each", out.timed_steps, out.checked_steps,
                             out.operations);
  return out;
}

}  // namespace experiments

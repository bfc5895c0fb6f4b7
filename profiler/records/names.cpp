#include "profiler/records/names.h"

#include <array>
#include <cstddef>

namespace profiler {
namespace {

// In the order of the enums.
constexpr std::array<std::string_view, 4> kActivities = {"kernel", "copy", "memset", "cpu_op"};
constexpr std::array<std::string_view, 6> kPhases = {"warmup", "timed", "activity", "counters", "pass_counters", "program"};
static_assert(static_cast<size_t>(Activity::cpu_op) + 1 == kActivities.size());
static_assert(static_cast<size_t>(Phase::program) + 1 == kPhases.size());

template <class Enum, size_t N>
std::optional<Enum> find(const std::array<std::string_view, N>& table, std::string_view text) {
  for (size_t i = 0; i < N; ++i)
    if (table[i] == text) return static_cast<Enum>(i);
  return std::nullopt;
}

}  // namespace

std::string_view name(Activity activity) { return kActivities.at(static_cast<size_t>(activity)); }
std::string_view name(Phase phase) { return kPhases.at(static_cast<size_t>(phase)); }
std::optional<Activity> activity_from_name(std::string_view text) { return find<Activity>(kActivities, text); }
std::optional<Phase> phase_from_name(std::string_view text) { return find<Phase>(kPhases, text); }

}  // namespace profiler

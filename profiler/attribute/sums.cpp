#include "profiler/attribute/sums.h"

#include <algorithm>

namespace profiler {
namespace {

using Launches = std::vector<const AttributedLaunch*>;

// Sum of value(l) over all, absent when one is.
template <class F>
std::optional<double> sum_all(const Launches& launches, F value) {
  if (launches.empty()) return std::nullopt;
  double sum = 0;
  for (const AttributedLaunch* l : launches) {
    const std::optional<double> v = value(*l);
    if (!v) return std::nullopt;
    sum += *v;
  }
  return sum;
}

std::optional<double> ratio(std::optional<double> over, std::optional<double> under) {
  if (!over || !under || !(*under > 0)) return std::nullopt;
  return *over / *under;
}

using Member = std::optional<double> KernelCounters::*;

std::optional<double> sum_of(const Launches& l, Member m) {
  return sum_all(l, [m](const AttributedLaunch& a) { return a.counters.*m; });
}

std::optional<double> weighted(const Launches& launches, Member value, Member weight) {
  const auto product = sum_all(launches, [&](const AttributedLaunch& a) -> std::optional<double> {
    if (!(a.counters.*value) || !(a.counters.*weight)) return std::nullopt;
    return *(a.counters.*value) * *(a.counters.*weight);
  });
  return ratio(product, sum_of(launches, weight));
}

// A report may hold percentages without any cycles: kernels that ran at one clock (ncu locks it) have cycles
// as their times.
std::optional<double> weighted_by_time(const Launches& launches, Member value) {
  const auto product = sum_all(launches, [&](const AttributedLaunch& a) -> std::optional<double> {
    if (!(a.counters.*value)) return std::nullopt;
    return *(a.counters.*value) * a.duration_ns;
  });
  return ratio(product, sum_all(launches, [](const AttributedLaunch& a) { return std::optional(a.duration_ns); }));
}

std::optional<double> tensor_use(const Launches& kernels) {
  using K = KernelCounters;
  const bool of_active = std::any_of(kernels.begin(), kernels.end(), [](const AttributedLaunch* l) {
    return l->counters.tensor_active_pct && l->counters.tensor_is == K::TensorIs::active_cycles;
  });
  const auto by_cycles = weighted(kernels, &K::tensor_active_pct, of_active ? &K::sm_active_cycles : &K::sm_cycles);
  return by_cycles ? by_cycles : weighted_by_time(kernels, &K::tensor_active_pct);
}

// Share of the ceiling, in percent: the time needed at the ceiling over the time taken.
std::optional<double> of_ceiling(const Launches& kernels, std::optional<double> KernelRoofline::*needed, double taken_ns) {
  const auto sum = sum_all(kernels, [&](const AttributedLaunch& a) { return a.roofline.*needed; });
  const auto share = ratio(sum, taken_ns);
  return share ? std::optional(*share * 100) : std::nullopt;
}

std::optional<Bound> prevailing_bound(const Launches& launches) {
  std::array<double, 4> time{};
  double without = 0, all = 0;
  for (const AttributedLaunch* l : launches) {
    all += l->time_ns;
    if (l->roofline.bound)
      time[static_cast<size_t>(*l->roofline.bound)] += l->time_ns;
    else
      without += l->time_ns;
  }
  const auto most = std::max_element(time.begin(), time.end());
  if (!(*most > without) || !(all > 0)) return std::nullopt;
  return static_cast<Bound>(most - time.begin());
}

}  // namespace

std::optional<double> AttributedLaunch::headroom_ns() const {
  if (!roofline.floor_ns || !(duration_ns > 0)) return std::nullopt;
  return std::max(0.0, duration_ns - *roofline.floor_ns) * (time_ns / duration_ns);
}

std::optional<double> AttributedLaunch::dram_bytes_per_s() const {
  if (!counters.dram_read_bytes || !counters.dram_write_bytes || !(duration_ns > 0)) return std::nullopt;
  return (*counters.dram_read_bytes + *counters.dram_write_bytes) / duration_ns * 1e9;
}

LaunchSums sum_launches(const Launches& launches) {
  using K = KernelCounters;
  LaunchSums s;
  Launches kernels, bounded;
  for (const AttributedLaunch* l : launches) {
    const Activity a = l->record->activity;
    const bool kernel = a == Activity::kernel || a == Activity::cpu_op;
    (kernel ? s.launches : s.copies) += 1;
    s.time_ns += l->time_ns;
    s.duration_ns += l->duration_ns;
    if (kernel) {
      kernels.push_back(l);
      s.kernel_duration_ns += l->duration_ns;
    }
    if (kernel || l->roofline.floor_ns) bounded.push_back(l);  // copies over PCIe have no floor and must not hide the rest
  }
  s.dram_read_bytes = sum_of(kernels, &K::dram_read_bytes);
  s.dram_write_bytes = sum_of(kernels, &K::dram_write_bytes);
  s.l2_bytes = sum_of(kernels, &K::l2_bytes);
  s.instructions = sum_of(kernels, &K::instructions);
  s.tensor_active_pct = tensor_use(kernels);
  s.tensor_instructions = sum_of(kernels, &K::tensor_instructions);
  s.tensor_while_busy_pct = weighted(kernels, &K::tensor_while_busy_pct, &K::sm_active_cycles);
  s.occupancy_pct = weighted(kernels, &K::occupancy_pct, &K::sm_active_cycles);
  s.sm_clock_hz = weighted(kernels, &K::sm_clock_hz, &K::counted_time_ns);
  if (s.dram_read_bytes && s.dram_write_bytes)
    s.dram_bytes_per_s = ratio((*s.dram_read_bytes + *s.dram_write_bytes) * 1e9, s.kernel_duration_ns);
  s.dram_of_ceiling_pct = of_ceiling(kernels, &KernelRoofline::dram_ns, s.kernel_duration_ns);
  s.tensor_of_ceiling_pct = of_ceiling(kernels, &KernelRoofline::tensor_ns, s.kernel_duration_ns);
  s.fma_of_ceiling_pct = of_ceiling(kernels, &KernelRoofline::fma_ns, s.kernel_duration_ns);
  s.floor_ns = sum_all(bounded, [](const AttributedLaunch& a) { return a.roofline.floor_ns; });
  s.headroom_ns = sum_all(bounded, [](const AttributedLaunch& a) { return a.headroom_ns(); });
  s.bound = prevailing_bound(bounded);
  return s;
}

}  // namespace profiler

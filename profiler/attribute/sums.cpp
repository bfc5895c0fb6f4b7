#include "profiler/attribute/sums.h"

#include <algorithm>

namespace profiler {
namespace {

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

MeasuredKernels sum_launches(const Launches& launches) {
  MeasuredKernels s;
  Launches kernels, bounded;
  for (const AttributedLaunch* l : launches) {
    const Activity a = l->record->activity;
    const bool kernel = a == Activity::kernel || a == Activity::cpu_op;
    (kernel ? s.launches : s.copies) += 1;
    s.time_ns += l->time_ns;
    s.duration_ns += l->duration_ns;
    if (kernel) kernels.push_back(l);
    if (kernel || l->roofline.floor_ns) bounded.push_back(l);  // copies over PCIe have no floor and must not hide the rest
  }
  static_cast<Numbers&>(s) = numbers_of(kernels);
  s.floor_ns = sum_all(bounded, [](const AttributedLaunch& a) { return a.roofline.floor_ns; });
  s.headroom_ns = sum_all(bounded, [](const AttributedLaunch& a) { return a.headroom_ns(); });
  if (const auto bound = prevailing_bound(bounded)) s.bound = std::string(name(*bound));
  return s;
}

}  // namespace profiler

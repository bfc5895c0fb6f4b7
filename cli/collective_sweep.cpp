#include "cli/collective_sweep.h"

#include <algorithm>
#include <chrono>

#include "base/statistics.h"

namespace cli {
namespace {

namespace dist = gpt2::distributed;

// In a row, so that launching is not what is measured. A number that every rank finds by itself: how long one took differs among them.
int64_t times_in_a_row(int64_t bytes) { return std::clamp<int64_t>((8 << 20) / std::max<int64_t>(bytes, 1), 1, 20); }

}  // namespace

std::string word(dist::CollectiveKind kind) {
  switch (kind) {
    case dist::CollectiveKind::all_reduce:
      return "all_reduce";
    case dist::CollectiveKind::reduce_scatter:
      return "reduce_scatter";
    case dist::CollectiveKind::all_gather:
      return "all_gather";
  }
  return "";
}

std::string word(dist::Element type) {
  switch (type) {
    case dist::Element::fp32:
      return "fp32";
    case dist::Element::bf16:
      return "bf16";
    case dist::Element::fp64:
      return "fp64";
  }
  return "";
}

int64_t sweep_bytes(const SweepOptions& o, int ranks) {
  const int64_t unit = 8LL * ranks;
  return (o.most_bytes + unit - 1) / unit * unit;
}

std::vector<profiler::LinkPoint> sweep_collectives(dist::Communicator& communicator, SweepDevice& device, const SweepOptions& o) {
  const int64_t ranks = communicator.world().size;
  std::vector<profiler::LinkPoint> points;
  for (const dist::CollectiveKind kind : o.kinds)
    for (const dist::Element type : o.types)
      for (int64_t bytes = o.least_bytes; bytes <= o.most_bytes; bytes *= 2) {
        dist::Collective c;
        c.kind = kind;
        c.type = type;
        c.elements = std::max<int64_t>(1, bytes / dist::bytes_of(type) / ranks) * ranks;
        const double ns =
            device.time_ns([&] { communicator.enqueue(c, device.memory(), device.stream()); }, times_in_a_row(bytes), o.samples);
        points.push_back({word(kind), word(type), ranks, c.elements * dist::bytes_of(type), ns});
      }
  return points;
}

double HostSweepDevice::time_ns(const std::function<void()>& enqueue, int64_t times, int samples) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> all;
  for (int s = -1; s < samples; ++s) {
    const auto begin = Clock::now();
    for (int64_t i = 0; i < times; ++i) enqueue();
    const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
    if (s >= 0) all.push_back(static_cast<double>(ns) / static_cast<double>(times));
  }
  return stepscope::median(std::move(all));
}

}  // namespace cli

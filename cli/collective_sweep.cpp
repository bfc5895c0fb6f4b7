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

namespace {

class Sweeping {
 public:
  Sweeping(dist::Communicator& communicator, SweepDevice& device, const SweepOptions& o)
      : communicator_(communicator), device_(device), o_(o) {}

  Sweep run() {
    const bool copies = communicator_.name() == "peer";
    const int64_t bytes = sweep_bytes(o_, communicator_.world().size);
    communicator_.reserve(bytes / communicator_.world().size);
    if (o_.meet_on_host) sweep_.awake = device_.awake(queued(smallest()), o_.meet_on_host);
    for (const dist::CollectiveKind kind : o_.kinds) of_kind(kind, word(kind));
    if (!copies) return std::move(sweep_);
    communicator_.share(device_.memory(), bytes);
    of_kind(dist::CollectiveKind::all_gather, "all_gather_in_place");
    communicator_.unshare();
    return std::move(sweep_);
  }

 private:
  void of_kind(dist::CollectiveKind kind, const std::string& name) {
    for (const dist::Element type : o_.types) {
      for (int64_t bytes = o_.least_bytes; bytes <= o_.most_bytes; bytes *= 2)
        sweep_.points.push_back({communicator_word_, name, word(type), communicator_.world().size, bytes_of(of(kind, type, bytes)),
                                 alone(of(kind, type, bytes), bytes)});
      for (const int64_t bytes : o_.beside_bytes)
        if (bytes <= o_.most_bytes) beside(of(kind, type, bytes), name);
    }
  }

  dist::Collective of(dist::CollectiveKind kind, dist::Element type, int64_t bytes) const {
    const int64_t ranks = communicator_.world().size;
    dist::Collective c;
    c.kind = kind;
    c.type = type;
    c.elements = std::max<int64_t>(1, bytes / dist::bytes_of(type) / ranks) * ranks;
    return c;
  }
  // In which ranks meet.
  dist::Collective smallest() const { return of(dist::CollectiveKind::all_gather, dist::Element::fp32, o_.least_bytes); }
  static int64_t bytes_of(const dist::Collective& c) { return c.elements * dist::bytes_of(c.type); }
  std::function<void()> queued(const dist::Collective& c) const {
    return [this, c] { communicator_.enqueue(c, device_.memory(), device_.stream()); };
  }
  double alone(const dist::Collective& c, int64_t bytes) const { return device_.time_ns(queued(c), times_in_a_row(bytes), o_.samples); }

  void beside(const dist::Collective& c, const std::string& name) {
    const std::vector<SweepWork> works = device_.works();
    if (works.empty()) return;
    const double alone_ns = alone(c, bytes_of(c));
    for (const SweepWork& w : works) {
      const auto times = device_.beside(w, queued(c), queued(smallest()), alone_ns, o_.samples);
      if (!times) {
        ++sweep_.outlasted;
        continue;
      }
      sweep_.beside.push_back({communicator_word_, name, word(c.type), communicator_.world().size, bytes_of(c), w.work, w.rows, alone_ns,
                               times->collective_ns, times->slowed_ns});
    }
  }

  dist::Communicator& communicator_;
  SweepDevice& device_;
  const SweepOptions& o_;
  const std::string communicator_word_ = profiler::communicator_word(communicator_.name());
  Sweep sweep_;
};

}  // namespace

Sweep sweep_collectives(dist::Communicator& communicator, SweepDevice& device, const SweepOptions& o) {
  return Sweeping(communicator, device, o).run();
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

// Every collective at every size, alone and beside work like a training step's: what the links between the ranks do, and what that costs. Run by
// all ranks at once; it knows neither NCCL nor CUDA.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpt2/distributed/communicator.h"
#include "profiler/ranks/link_model.h"

namespace cli {

struct SweepWork {
  std::string work;  // "product", "memory", as profiler::BesidePoint calls it
  int64_t rows = 0;
};

// A stretch of products at the power limit, with links that sleep and with links that do not.
struct AwakeTimes {
  double asleep_ns = 0, awake_ns = 0;
};

// Collectives that ran one behind the other beside work that lasted longer.
struct BesideTimes {
  double collective_ns = 0;  // of one
  double slowed_ns = 0;      // by which one made the work longer
};

// Memory and clock of the place where the communicator's data lie.
class SweepDevice {
 public:
  virtual ~SweepDevice() = default;
  virtual void* memory() = 0;  // of at least SweepOptions::most_bytes
  virtual void* stream() = 0;
  // Runs `enqueue` `times` times in a row, `samples` times over; the median of the time that one took, ns. The first run is not counted.
  virtual double time_ns(const std::function<void()>& enqueue, int64_t times, int samples) = 0;
  // What this place can do beside collectives; empty: nothing.
  virtual std::vector<SweepWork> works() { return {}; }
  // `enqueue` kBeside times in a row beside a stretch of that work, and the stretch without them, in turns; medians. `meet` is a collective in
  // which the ranks wait for each other before each. The stretch is made long enough for collectives of `alone_ns`; nullopt where they outlasted
  // it all the same. Every rank queues the same collectives, however long its work is.
  static constexpr int64_t kBeside = 4;
  virtual std::optional<BesideTimes> beside(const SweepWork& /*work*/, const std::function<void()>& /*enqueue*/,
                                            const std::function<void()>& /*meet*/, double /*alone_ns*/, int /*samples*/) {
    return std::nullopt;
  }
  // For some ten seconds: without collectives, with `touch`, a small one, before each stretch, twice more, without. The first third of each
  // does not count. Every rank runs as many stretches, and `meet_on_host` before each, so that a rank that is faster waits as long either way.
  virtual std::optional<AwakeTimes> awake(const std::function<void()>& /*touch*/, const std::function<void()>& /*meet_on_host*/) {
    return std::nullopt;
  }
};

struct SweepOptions {
  int64_t least_bytes = 4 << 10, most_bytes = 512 << 20;  // each size is double the one before it
  std::vector<int64_t> beside_bytes{8 << 20, 32 << 20, 128 << 20};
  std::vector<gpt2::distributed::Element> types{gpt2::distributed::Element::fp32, gpt2::distributed::Element::bf16};
  std::vector<gpt2::distributed::CollectiveKind> kinds{gpt2::distributed::CollectiveKind::all_reduce,
                                                       gpt2::distributed::CollectiveKind::reduce_scatter,
                                                       gpt2::distributed::CollectiveKind::all_gather};
  int samples = 20;
  // Of all ranks, not over their links; empty: awake links are not measured.
  std::function<void()> meet_on_host;
};

// How many bytes `device` must hold: most_bytes, rounded up so that every rank has an equal slice.
int64_t sweep_bytes(const SweepOptions& options, int ranks);

struct Sweep {
  std::vector<profiler::LinkPoint> points;
  std::vector<profiler::BesidePoint> beside;
  std::optional<AwakeTimes> awake;
  int64_t outlasted = 0;  // pairs of a collective and work that are not in `beside`, because the work ended first
};
// All ranks must give the same options. Each rank gets the times that it saw. Ranks that copy to each other gather once through their windows,
// as the embedding's rows travel, and once in place, as weights do.
Sweep sweep_collectives(gpt2::distributed::Communicator& communicator, SweepDevice& device, const SweepOptions& options);

std::string word(gpt2::distributed::CollectiveKind kind);  // "all_reduce", as profile documents spell it
std::string word(gpt2::distributed::Element type);         // "fp32"

// Host memory and the host's clock: for a staged communicator, and for tests.
class HostSweepDevice : public SweepDevice {
 public:
  explicit HostSweepDevice(int64_t bytes) : memory_(static_cast<size_t>(bytes)) {}
  void* memory() override { return memory_.data(); }
  void* stream() override { return nullptr; }
  double time_ns(const std::function<void()>& enqueue, int64_t times, int samples) override;

 private:
  std::vector<unsigned char> memory_;
};

}  // namespace cli

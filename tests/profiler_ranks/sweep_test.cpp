// The sweep against a communicator that does nothing and a clock that follows a formula.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "cli/collective_sweep.h"
#include "profiler/ranks/collectives.h"

namespace {

namespace dist = gpt2::distributed;

class Counting final : public dist::Communicator {
 public:
  explicit Counting(int size) {
    world_.size = size;
    world_.rank = 1;
  }
  const dist::World& world() const override { return world_; }
  void enqueue(const dist::Collective& c, void* data, void*) override {
    EXPECT_EQ(c.elements % world_.size, 0);
    EXPECT_NE(data, nullptr);
    last = c;
    ++calls;
    const int64_t bytes = c.elements * dist::bytes_of(c.type);
    most_bytes = std::max(most_bytes, bytes);
  }
  bool memory_is_host() const override { return true; }
  bool is_asynchronous() const override { return false; }
  std::string name() const override { return "counting"; }
  std::optional<dist::Failure> failure() override { return std::nullopt; }
  void abort() noexcept override {}
  dist::Collective last;
  int64_t calls = 0, most_bytes = 0;

 private:
  dist::World world_;
};

// 10 us and 100 GB/s over the busiest link.
class Formula final : public cli::SweepDevice {
 public:
  Formula(Counting& communicator, int64_t bytes) : communicator_(communicator), memory_(static_cast<size_t>(bytes)) {}
  void* memory() override { return memory_.data(); }
  void* stream() override { return nullptr; }
  double time_ns(const std::function<void()>& enqueue, int64_t times, int samples) override {
    EXPECT_GE(times, 1);
    EXPECT_EQ(samples, 3);
    enqueue();
    const dist::Collective& c = communicator_.last;
    return 10'000 + profiler::bus_factor(cli::word(c.kind), communicator_.world().size) *
                        static_cast<double>(c.elements * dist::bytes_of(c.type)) / 100e9 * 1e9;
  }

 private:
  Counting& communicator_;
  std::vector<unsigned char> memory_;
};

TEST(Sweep, MeasuresEveryKindAndTypeAtEverySizeWithinItsMemory) {
  for (const int ranks : {2, 3, 8}) {
    Counting communicator(ranks);
    cli::SweepOptions options;
    options.most_bytes = 4 << 20;
    options.samples = 3;
    Formula device(communicator, cli::sweep_bytes(options, ranks));
    const auto points = cli::sweep_collectives(communicator, device, options);
    EXPECT_EQ(points.size(), 3u * 2 * 11);  // 4 KiB to 4 MiB
    EXPECT_LE(communicator.most_bytes, cli::sweep_bytes(options, ranks));
    std::map<std::string, std::set<int64_t>> sizes;
    for (const auto& p : points) sizes[p.kind + " " + p.type].insert(p.bytes);
    EXPECT_EQ(sizes.size(), 6u);
    for (const auto& [what, bytes] : sizes) EXPECT_EQ(bytes.size(), 11u) << what;
    // And the fit finds the formula again.
    for (const profiler::LinkFit& fit : profiler::fit_links(points)) {
      EXPECT_NEAR(fit.large.latency_ns, 10'000, 1) << fit.kind;
      EXPECT_NEAR(fit.large.bus_bytes_per_s, 100e9, 1e6) << fit.kind;
    }
  }
}

TEST(Sweep, TheHostsClockCountsOnlyTheSamples) {
  cli::HostSweepDevice device(16);
  int64_t calls = 0;
  EXPECT_GE(device.time_ns([&] { ++calls; }, 5, 3), 0);
  EXPECT_EQ(calls, 5 * 4);
}

}  // namespace

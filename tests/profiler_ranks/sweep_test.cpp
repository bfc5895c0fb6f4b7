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
  std::string name() const override { return named; }
  void reserve(int64_t slice_bytes) override { reserved = slice_bytes; }
  void share(void* memory, int64_t bytes) override {
    EXPECT_NE(memory, nullptr);
    shared = bytes;
  }
  void unshare() noexcept override { shared = 0; }
  std::optional<dist::Failure> failure() override { return std::nullopt; }
  void abort() noexcept override {}
  dist::Collective last;
  int64_t calls = 0, most_bytes = 0, reserved = 0, shared = 0;
  std::string named = "counting 1.0";

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
    const auto points = cli::sweep_collectives(communicator, device, options).points;
    EXPECT_EQ(points.size(), 3u * 2 * 11);  // 4 KiB to 4 MiB
    EXPECT_LE(communicator.most_bytes, cli::sweep_bytes(options, ranks));
    std::map<std::string, std::set<int64_t>> sizes;
    for (const auto& p : points) sizes[p.kind + " " + p.type].insert(p.bytes);
    EXPECT_EQ(sizes.size(), 6u);
    for (const auto& [what, bytes] : sizes) EXPECT_EQ(bytes.size(), 11u) << what;
    // And the fit finds the formula again.
    for (const profiler::LinkFit& fit : profiler::fit_links(points)) {
      EXPECT_EQ(fit.communicator, "counting");
      EXPECT_NEAR(fit.large.latency_ns, 10'000, 1) << fit.kind;
      EXPECT_NEAR(fit.large.bus_bytes_per_s, 100e9, 1e6) << fit.kind;
    }
  }
}

TEST(Sweep, RanksThatCopyGatherThroughWindowsAndInPlace) {
  Counting communicator(2);
  communicator.named = "peer";
  cli::SweepOptions options;
  options.most_bytes = 1 << 20;
  options.samples = 3;
  Formula device(communicator, cli::sweep_bytes(options, 2));
  const auto sweep = cli::sweep_collectives(communicator, device, options);
  EXPECT_EQ(communicator.reserved, options.most_bytes / 2);
  EXPECT_EQ(communicator.shared, 0) << "what was shared is no longer when the memory goes";
  std::map<std::string, int> kinds;
  for (const auto& p : sweep.points) {
    ++kinds[p.kind];
    EXPECT_EQ(p.communicator, "peer");
  }
  EXPECT_EQ(kinds,
            (std::map<std::string, int>{{"all_gather", 18}, {"all_gather_in_place", 18}, {"all_reduce", 18}, {"reduce_scatter", 18}}));
  EXPECT_TRUE(sweep.beside.empty()) << "a place that does no work";
}

// Work that loses 3 us and a tenth of the collective's time to it; beside "memory" the collectives outlast it.
class Working final : public cli::SweepDevice {
 public:
  Working(Counting& communicator, int64_t bytes) : formula_(communicator, bytes), communicator_(communicator) {}
  void* memory() override { return formula_.memory(); }
  void* stream() override { return nullptr; }
  double time_ns(const std::function<void()>& enqueue, int64_t times, int samples) override {
    return formula_.time_ns(enqueue, times, samples);
  }
  std::vector<cli::SweepWork> works() override { return {{"product", 4096}, {"memory", 0}}; }
  std::optional<cli::BesideTimes> beside(const cli::SweepWork& work, const std::function<void()>& enqueue,
                                         const std::function<void()>& meet, double alone_ns, int samples) override {
    EXPECT_EQ(samples, 3);
    meet();
    EXPECT_EQ(communicator_.last.elements, 1024) << "ranks meet in a small collective";
    enqueue();
    bytes_beside.insert(communicator_.last.elements * gpt2::distributed::bytes_of(communicator_.last.type));
    if (work.work == "memory") return std::nullopt;
    return cli::BesideTimes{1.2 * alone_ns, 3'000 + 0.1 * alone_ns};
  }
  std::optional<cli::AwakeTimes> awake(const std::function<void()>& touch, const std::function<void()>& meet_on_host) override {
    meet_on_host();
    touch();
    EXPECT_EQ(communicator_.last.elements, 1024);
    return cli::AwakeTimes{100, 102};
  }
  std::set<int64_t> bytes_beside;

 private:
  Formula formula_;
  Counting& communicator_;
};

TEST(Sweep, MeasuresWhatWorkLosesToEveryKind) {
  Counting communicator(2);
  cli::SweepOptions options;
  options.most_bytes = 32 << 20;
  options.samples = 3;
  Working device(communicator, cli::sweep_bytes(options, 2));
  EXPECT_FALSE(cli::sweep_collectives(communicator, device, options).awake) << "where ranks cannot meet but over their links";
  int meets = 0;
  options.meet_on_host = [&] { ++meets; };
  const auto sweep = cli::sweep_collectives(communicator, device, options);
  EXPECT_EQ(meets, 1);
  ASSERT_TRUE(sweep.awake);
  EXPECT_EQ(sweep.awake->awake_ns, 102);
  EXPECT_EQ(device.bytes_beside, (std::set<int64_t>{8 << 20, 32 << 20})) << "those that its memory holds";
  EXPECT_EQ(sweep.outlasted, 3 * 2 * 2);
  ASSERT_EQ(sweep.beside.size(), 3u * 2 * 2);
  const profiler::BesidePoint& b = sweep.beside.back();
  EXPECT_EQ(b.communicator + " " + b.kind + " " + b.type + " " + b.work, "counting all_gather bf16 product");
  EXPECT_EQ(b.rows, 4096);
  EXPECT_EQ(b.bytes, 32 << 20);
  EXPECT_NEAR(b.alone_ns, 10'000 + 0.5 * (32 << 20) / 100.0, 1);
  EXPECT_DOUBLE_EQ(b.time_ns, 1.2 * b.alone_ns);
  EXPECT_DOUBLE_EQ(b.slowed_ns, 3'000 + 0.1 * b.alone_ns);
}

TEST(Sweep, TheHostsClockCountsOnlyTheSamples) {
  cli::HostSweepDevice device(16);
  int64_t calls = 0;
  EXPECT_GE(device.time_ns([&] { ++calls; }, 5, 3), 0);
  EXPECT_EQ(calls, 5 * 4);
}

}  // namespace

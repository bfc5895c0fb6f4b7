// Counters of ranks: their counted step exchanges nothing (cli/silent_steps.h) and so lacks the kernels of the collectives.
#include <gtest/gtest.h>

#include "cli/silent_steps.h"
#include "profiler/attribute/communication.h"
#include "profiler/attribute/counters.h"

namespace {

using namespace profiler;
namespace dist = gpt2::distributed;

// A step of four kernels: work, a cast, NCCL's, work.
struct Step {
  Recording recording;
  std::vector<const LaunchRecord*> kernels;

  Step() {
    recording.rank = RankRecord{1, 2, "job", "host", "boot", "time", "build"};
    const std::string exchange = "step/communication/0/reduce_gradients";
    for (const auto& [name, path] : {std::pair<std::string, std::string>{"qkv()", "step/backward/0/qkv"},
                                     {"narrow()", exchange},
                                     {"ncclDevKernel_ReduceScatter()", exchange + "/reduce_scatter bf16 4096 bucket 0"},
                                     {"adamw()", "step/optimizer/-/adamw"}}) {
      LaunchRecord l;
      l.index = static_cast<int64_t>(recording.launches.size());
      l.name = name;
      l.path = path;
      l.grid = {1, 1, 1};
      recording.launches.push_back(l);
    }
    CounterSet set;
    set.name = "core";
    set.metrics = {"dram__bytes_read.sum"};
    set.launches = set.ranges = 3;
    recording.counter_sets.push_back(set);
    for (const size_t of : {0u, 1u, 3u}) {
      CounterRecord c;
      c.set = "core";
      c.step = 7;
      c.index = static_cast<int64_t>(recording.counters.size());
      c.kernel = recording.launches[of].name;
      c.path = recording.launches[of].path;
      c.grid = {1, 1, 1};
      c.values = {100.0 * static_cast<double>(of)};
      recording.counters.push_back(c);
    }
    for (const LaunchRecord& l : recording.launches) kernels.push_back(&l);
  }
};

TEST(CountedRanks, EveryKernelButThoseOfCollectivesHasItsCounters) {
  const Step step;
  const MergedCounters merged = merge_counters(step.recording, step.kernels);
  ASSERT_EQ(merged.per_kernel.size(), 4u);
  EXPECT_EQ(merged.per_kernel[0].dram_read_bytes, 0);
  EXPECT_EQ(merged.per_kernel[1].dram_read_bytes, 100) << "the trainer's own kernel beside the collective";
  EXPECT_FALSE(merged.per_kernel[2].dram_read_bytes) << "NCCL's kernel was not launched";
  EXPECT_EQ(merged.per_kernel[3].dram_read_bytes, 300) << "and those behind it keep theirs";
  EXPECT_EQ(merged.counted_steps, 1);
  for (const MissingRecord& m : merged.missing) EXPECT_NE(m.name, "counter_sequence_mismatch") << m.detail;
}

TEST(CountedRanks, AProgramOfOneProcessIsHeldToItsWholeSequence) {
  Step step;
  step.recording.rank.reset();
  const MergedCounters merged = merge_counters(step.recording, step.kernels);
  EXPECT_TRUE(merged.per_kernel.empty());
  ASSERT_FALSE(merged.missing.empty());
  EXPECT_EQ(merged.missing[0].name, "counter_sequence_mismatch");
}

TEST(CountedRanks, WhatLiesInTheRangeOfACollectiveIsKnownByIt) {
  LaunchRecord l;
  l.path = "step/communication/0/reduce_gradients/all_reduce fp32 4096 bucket 3";
  EXPECT_TRUE(is_inside_collective(l));
  l.path = "step/communication/0/reduce_gradients";
  EXPECT_FALSE(is_inside_collective(l));
  l.path = "";
  EXPECT_FALSE(is_inside_collective(l));
}

// ---- the steps themselves

class Noted final : public dist::Communicator {
 public:
  const dist::World& world() const override { return world_; }
  void enqueue(const dist::Collective& c, void*, void*) override { buckets.push_back(c.bucket); }
  bool memory_is_host() const override { return true; }
  bool is_asynchronous() const override { return false; }
  std::string name() const override { return "noted"; }
  std::optional<dist::Failure> failure() override { return std::nullopt; }
  void abort() noexcept override { aborted = true; }
  std::vector<int> buckets;
  bool aborted = false;

 private:
  dist::World world_;
};

class NotedChannel final : public dist::ControlChannel {
 public:
  const dist::World& world() const override { return world_; }
  std::vector<dist::Bytes> all_gather(const dist::Bytes& mine) override { return {mine}; }
  void now(dist::Phase, int64_t step) override { steps.push_back(step); }
  void finished(int64_t, double loss, double) override { losses.push_back(loss); }
  std::vector<int64_t> steps;
  std::vector<double> losses;

 private:
  dist::World world_;
};

TEST(SilentSteps, DropTheCollectivesOfTheirOwnStepsAlone) {
  Noted communicator;
  NotedChannel channel;
  cli::SilentSteps silent(communicator, channel, 3, 2);
  const auto exchange = [&](int bucket) {
    silent.communicator().enqueue({dist::CollectiveKind::all_reduce, dist::Element::fp32, 4, bucket}, nullptr, nullptr);
  };
  exchange(0);  // before the first step: a trainer connects then
  for (int step = 1; step <= 6; ++step) {
    silent.channel().now(dist::Phase::step, step);
    exchange(step);
    if (step > 1) silent.channel().finished(step - 1, 10.0 + step - 1, 1);
  }
  silent.channel().now(dist::Phase::checkpoint, 4);
  exchange(7);
  EXPECT_EQ(communicator.buckets, (std::vector<int>{0, 1, 2, 5, 6, 7}));
  EXPECT_EQ(channel.steps, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 4}));
  EXPECT_EQ(channel.losses, (std::vector<double>{11, 12, 0, 0, 15})) << "a loss of one rank is compared with no other";
  silent.communicator().abort();
  EXPECT_TRUE(communicator.aborted);
}

}  // namespace

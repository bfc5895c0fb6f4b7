// Floors and bounds, with answers worked out by hand.
#include <gtest/gtest.h>

#include "tests/profiler/fixture.h"

namespace {

using namespace profiler;

LaunchRecord kernel(int64_t blocks = 1000) {
  LaunchRecord l;
  l.grid = {blocks, 1, 1};
  return l;
}

KernelCounters counters(double read, double write, double tensor_pct = 0, double cycles = 0) {
  KernelCounters c;
  c.dram_read_bytes = read;
  c.dram_write_bytes = write;
  c.tensor_active_pct = tensor_pct;
  c.sm_cycles = cycles;
  return c;
}

RooflineInput rules() { return fixture::input().roofline; }

TEST(Roofline, TheDramCeilingFollowsTheMixOfReadsAndWrites) {
  Ceilings c;
  EXPECT_FALSE(dram_ceiling_bytes_per_s(c, 1, 1));
  c.copy_bytes_per_s = 4.28e12;
  EXPECT_DOUBLE_EQ(*dram_ceiling_bytes_per_s(c, 1, 0), 4.28e12);
  c.read_bytes_per_s = 4.40e12;
  c.write_bytes_per_s = 4.68e12;
  EXPECT_DOUBLE_EQ(*dram_ceiling_bytes_per_s(c, 10, 0), 4.40e12);
  EXPECT_DOUBLE_EQ(*dram_ceiling_bytes_per_s(c, 0, 10), 4.68e12);
  EXPECT_DOUBLE_EQ(*dram_ceiling_bytes_per_s(c, 10, 10), 4.28e12);
  EXPECT_DOUBLE_EQ(*dram_ceiling_bytes_per_s(c, 75, 25), 4.34e12);
  EXPECT_DOUBLE_EQ(*dram_ceiling_bytes_per_s(c, 0, 0), 4.28e12);
}

TEST(Roofline, AKernelNearTheBandwidthIsBoundByMemory) {
  const auto r = kernel_roofline(kernel(), 100'000, counters(40e6, 30e6), rules());  // 70 us at 1 TB/s
  EXPECT_DOUBLE_EQ(*r.floor_ns, 70'000);
  EXPECT_EQ(r.bound, Bound::memory);
  EXPECT_EQ(kernel_roofline(kernel(), 120'000, counters(40e6, 30e6), rules()).bound, Bound::neither) << "58% of the ceiling";
}

TEST(Roofline, TensorCyclesBecomeTimeAtTheMeasuredMatmulRate) {
  RooflineInput in = rules();
  in.precision = "tf32";
  // 30% of 100'000 cycles x 100 SMs x 2048 FLOP = 6.144e9 FLOP; at 4e13 FLOP/s: 153.6 us
  const auto r = kernel_roofline(kernel(), 200'000, counters(1e6, 1e6, 30, 100'000), in);
  EXPECT_DOUBLE_EQ(*r.tensor_ns, 153'600);
  EXPECT_DOUBLE_EQ(*r.floor_ns, 153'600);
  EXPECT_EQ(r.bound, Bound::tensor);
}

TEST(Roofline, TheNearerCeilingIsTheBoundWhenBothAreNear) {
  RooflineInput in = rules();
  in.precision = "tf32";
  // 153.6 us of tensor work as above, in 200 us: 77%
  const auto bound = [&](double bytes) {
    return kernel_roofline(kernel(), 200'000, counters(bytes / 2, bytes / 2, 30, 100'000), in).bound;
  };
  EXPECT_EQ(bound(130e6), Bound::tensor) << "65% of the bandwidth";
  EXPECT_EQ(bound(150e6), Bound::tensor) << "75%";
  EXPECT_EQ(bound(160e6), Bound::memory) << "80%";
  EXPECT_EQ(bound(60e6), Bound::tensor) << "30%";
}

TEST(Roofline, PackedHalfFmasBelowTwoPercentAreNoTensorWork) {
  EXPECT_DOUBLE_EQ(*kernel_roofline(kernel(), 1e5, counters(1e6, 1e6, 1.9, 1e5), rules()).tensor_ns, 0);
  RooflineInput in = rules();
  in.precision = "tf32";
  // 2% of 100'000 cycles x 100 SMs x 2048 FLOP = 4.096e8 FLOP; at 4e13 FLOP/s: 10.24 us
  EXPECT_DOUBLE_EQ(*kernel_roofline(kernel(), 1e5, counters(1e6, 1e6, 2, 1e5), in).tensor_ns, 10'240);
}

TEST(Roofline, ASimtMatmulHasAnFmaFloorAndIsBoundByNeither) {
  KernelCounters c = counters(1e6, 1e6);
  c.fma_instructions = 1.25e7;  // x 64 = 8e8 FLOP at 1e13: 80 us
  const auto r = kernel_roofline(kernel(), 100'000, c, rules());
  EXPECT_DOUBLE_EQ(*r.fma_ns, 80'000);
  EXPECT_DOUBLE_EQ(*r.floor_ns, 80'000);
  EXPECT_EQ(r.bound, Bound::neither);
}

TEST(Roofline, ShortKernelsAndThoseThatDoNotFillTheDeviceAreBoundByLatency) {
  EXPECT_EQ(kernel_roofline(kernel(), 4'900, counters(1e5, 1e5), rules()).bound, Bound::latency);
  EXPECT_EQ(kernel_roofline(kernel(99), 50'000, counters(1e5, 1e5), rules()).bound, Bound::latency);
  EXPECT_FALSE(kernel_roofline(kernel(0), 50'000, counters(1e5, 1e5), rules()).bound) << "the number of blocks is not known";
  EXPECT_EQ(kernel_roofline(kernel(0), 4'900, counters(1e5, 1e5), rules()).bound, Bound::latency);
  EXPECT_EQ(kernel_roofline(kernel(100), 50'000, counters(1e5, 1e5), rules()).bound, Bound::neither);
  LaunchRecord deep = kernel(10);
  deep.grid[2] = 10;
  EXPECT_EQ(kernel_roofline(deep, 50'000, counters(1e5, 1e5), rules()).bound, Bound::neither) << "10 x 1 x 10 blocks";
  EXPECT_EQ(kernel_roofline(kernel(), 4'000, counters(2e6, 1e6), rules()).bound, Bound::memory) << "short, but at 75% of the ceiling";
}

// `neither` was said of a kernel of one block.
TEST(Roofline, WithoutTheNumberOfSmsNobodyKnowsWhetherAKernelFillsThem) {
  RooflineInput in = rules();
  in.sm_count.reset();
  for (const int64_t blocks : {1, 1000}) EXPECT_FALSE(kernel_roofline(kernel(blocks), 50'000, counters(1e5, 1e5), in).bound) << blocks;
  EXPECT_EQ(kernel_roofline(kernel(), 4'900, counters(1e5, 1e5), in).bound, Bound::latency);
  EXPECT_EQ(kernel_roofline(kernel(), 100'000, counters(40e6, 30e6), in).bound, Bound::memory);
}

TEST(Roofline, WithoutCountersOrCeilingsThereIsNoFloorAndNoBound) {
  EXPECT_FALSE(kernel_roofline(kernel(), 1e5, KernelCounters{}, rules()).floor_ns);
  EXPECT_FALSE(kernel_roofline(kernel(), 1e5, KernelCounters{}, rules()).bound);
  EXPECT_FALSE(kernel_roofline(kernel(), 1e5, counters(1e6, 1e6), RooflineInput{}).floor_ns);
}

TEST(Roofline, AChipOutsideTheTableHasNoTensorTimeRatherThanAnother) {
  RooflineInput in = rules();
  in.chip = "XY123";
  const auto r = kernel_roofline(kernel(), 100'000, counters(1e6, 1e6, 50, 100'000), in);
  EXPECT_FALSE(r.tensor_ns);
  EXPECT_FALSE(r.bound) << "neither would be a guess";
  EXPECT_FALSE(r.floor_ns) << "that of its traffic alone is too low";
  EXPECT_TRUE(kernel_roofline(kernel(), 100'000, counters(1e6, 1e6, 1, 100'000), in).floor_ns) << "no tensor work";
}

// A wgmma product that fills a quarter of the tensor cycles issues 1% of the instructions: it counted as one without tensor work.
TEST(Roofline, AFewTensorInstructionsAreTensorWorkHoweverFew) {
  KernelCounters c = counters(1e6, 1e6, 1, 100'000);
  c.tensor_is = KernelCounters::TensorIs::instructions;
  const auto r = kernel_roofline(kernel(), 1e5, c, rules());
  EXPECT_TRUE(r.tensor_unknown);
  EXPECT_FALSE(r.tensor_ns);
  EXPECT_FALSE(r.floor_ns);
  EXPECT_FALSE(r.bound) << "neither would be a guess";
  c.tensor_active_pct = 0;
  EXPECT_DOUBLE_EQ(*kernel_roofline(kernel(), 1e5, c, rules()).floor_ns, 2'000);
}

// A product had the floor of its bytes: 0.021 ms of headroom in 0.026 ms.
TEST(Roofline, UnknownTensorWorkLeavesNoFloor) {
  RooflineInput in = rules();
  KernelCounters c = counters(1e6, 1e6, 50, 100'000);
  c.tensor_is = KernelCounters::TensorIs::active_cycles;
  EXPECT_FALSE(kernel_roofline(kernel(), 1e5, c, in).floor_ns);
  EXPECT_TRUE(kernel_roofline(kernel(), 1e5, c, in).tensor_unknown);
  c.tensor_active_pct.reset();
  c.tensor_instructions = 4096;
  EXPECT_FALSE(kernel_roofline(kernel(), 1e5, c, in).floor_ns) << "a count of instructions";
  c.tensor_instructions = 0;
  EXPECT_DOUBLE_EQ(*kernel_roofline(kernel(), 1e5, c, in).tensor_ns, 0);
  EXPECT_DOUBLE_EQ(*kernel_roofline(kernel(), 1e5, c, in).floor_ns, 2'000);
  c.tensor_instructions.reset();
  EXPECT_DOUBLE_EQ(*kernel_roofline(kernel(), 1e5, c, in).floor_ns, 2'000) << "a recording that has no tensor use at all says so";
  in.tensor_measured = true;
  EXPECT_FALSE(kernel_roofline(kernel(), 1e5, c, in).floor_ns) << "others have it, this one may use the tensor cores";
  LaunchRecord memset;
  memset.activity = Activity::memset;
  memset.bytes = 80'000'000;
  EXPECT_TRUE(kernel_roofline(memset, 1e5, {}, in).floor_ns);
}

TEST(Roofline, MemsetsAndDeviceCopiesHaveAFloorFromTheirSize) {
  LaunchRecord memset;
  memset.activity = Activity::memset;
  memset.bytes = 80'000'000;
  EXPECT_DOUBLE_EQ(*kernel_roofline(memset, 100'000, {}, rules()).floor_ns, 80'000);
  LaunchRecord copy = memset;
  copy.activity = Activity::copy;
  copy.name = "copy DtoD";
  EXPECT_DOUBLE_EQ(*kernel_roofline(copy, 200'000, {}, rules()).floor_ns, 160'000);
  copy.name = "copy HtoD";
  EXPECT_FALSE(kernel_roofline(copy, 200'000, {}, rules()).floor_ns);
}

// They have no blocks, so that nothing of the SMs can be unused.
TEST(Roofline, ALongMemsetFarFromTheBandwidthIsBoundByNeither) {
  LaunchRecord memset;
  memset.activity = Activity::memset;
  memset.bytes = 10'000'000;  // 10 us at 1 TB/s
  EXPECT_EQ(kernel_roofline(memset, 100'000, {}, rules()).bound, Bound::neither);
  EXPECT_EQ(kernel_roofline(memset, 11'000, {}, rules()).bound, Bound::memory);
}

TEST(Roofline, AnOpsFloorIsTheLargerOfBytesAndFlops) {
  const Ceilings c = fixture::round_ceilings();
  EXPECT_DOUBLE_EQ(*work_floor_ns(4e8, 1e7, c, "fp32"), 40'000);
  EXPECT_DOUBLE_EQ(*work_floor_ns(4e8, 1e7, c, "tf32"), 10'000);
  EXPECT_DOUBLE_EQ(*work_floor_ns(0, 1e7, c, "fp8"), 10'000);
  EXPECT_FALSE(work_floor_ns(1, 1e7, c, "fp8"));
  EXPECT_FALSE(work_floor_ns(1, 1e7, Ceilings{}, "fp32"));
}

}  // namespace

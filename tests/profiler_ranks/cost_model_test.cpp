// Step times on N GPUs, worked out by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/errors.h"
#include "profiler/ranks/cost_model.h"

namespace {

using namespace profiler;

// Forward pass 10 ms: 1 for the embedding, 4 layers of 2, 1 behind them; backward pass 15 ms: 2 before the layers, 4 layers of 3, 1 behind; update
// 1 ms. 7 M parameters a layer, 40 M in the embedding.
StepParts parts() {
  StepParts p;
  p.embed_ns = 1e6;
  p.forward_layer_ns = {2e6, 2e6, 2e6, 2e6};
  p.loss_ns = 1e6;
  p.head_ns = 2e6;
  p.backward_layer_ns = {3e6, 3e6, 3e6, 3e6};
  p.embed_backward_ns = 1e6;
  p.update_ns = 1e6;
  p.tokens = 4096;
  p.rows = 4096;
  return p;
}

// A bucket for each layer, then the embedding's.
std::vector<GradientBucket> buckets(const std::string& type = "fp32") {
  return {{7'000'000, type, 3}, {7'000'000, type, 2}, {7'000'000, type, 1}, {7'000'000, type, 0}, {40'000'000, "fp32", -1}};
}

ExchangePlan plan(const std::string& communication, int64_t ranks = 2, bool gathered_rows = false) {
  ExchangeOptions o;
  o.communication = communication;
  o.gathered_rows = gathered_rows;
  o.ranks = ranks;
  o.tokens = 1000;
  o.row_bytes = 3072;
  return exchange_plan(buckets(), o);
}
ExchangePlan overlapped(int64_t ranks = 2) { return plan("all_reduce_overlapped", ranks); }

// 20 us and 100 GB/s, whatever the size; two ranks.
LinkCeilings links() {
  LinkCeilings l;
  for (const char* kind : {"all_reduce", "reduce_scatter", "all_gather"})
    for (const char* type : {"fp32", "bf16"}) l.fits.push_back({"nccl", kind, type, 2, 0, {}, {20'000, 100e9}, 0});
  return l;
}

TEST(CostModel, OneGpuIsTheProfileItself) {
  const ScaledStep s = scaled_step(parts(), plan("zero1_ahead", 1), links(), {}, {}, 1);
  EXPECT_DOUBLE_EQ(s.time_ns, 26e6);
  EXPECT_DOUBLE_EQ(s.communication_ns, 0);
}

TEST(CostModel, OnlyTheTailOfAStepThatHidesItsBucketsIsPaid) {
  // A layer: 28 MB fp32 over 100 GB/s = 280 us and 20 us of latency, well inside the 3 ms of the next layer. The tail: 160 MB = 1620 us,
  // begun when the backward pass ends. Both losses, 16 bytes for the
  // norm, take a latency.
  const ScaledStep s = scaled_step(parts(), overlapped(), links(), {}, {}, 2);
  EXPECT_NEAR(s.communication_ns, 4 * 300e3 + 1620e3 + 20e3 + 0.08, 1e-3);
  EXPECT_NEAR(s.hidden_ns, 4 * 300e3, 1e-3);
  EXPECT_NEAR(s.tail_ns, 1620e3, 1e-3);
  EXPECT_NEAR(s.norm_ns, 20e3 + 0.08, 1e-3);
  EXPECT_DOUBLE_EQ(s.head_ns, 0);
  EXPECT_NEAR(s.time_ns, 26e6 + 1640e3 + 0.08, 1e-3);
  EXPECT_NEAR(s.tokens_per_s, 2 * 4096 / 27.64e-3, 1e-3);
}

TEST(CostModel, CommunicationBehindTheBackwardPassIsPaidAsAWhole) {
  const ScaledStep s = scaled_step(parts(), plan("all_reduce"), links(), {}, {}, 2);
  EXPECT_NEAR(s.tail_ns, 4 * 300e3 + 1620e3, 1e-3);
  EXPECT_DOUBLE_EQ(s.hidden_ns, 0);
}

TEST(CostModel, GradientsInBf16AreHalfTheBytesWhereTheyTravelSo) {
  ExchangeOptions o;
  o.communication = "all_reduce_overlapped";
  o.ranks = 2;
  const ScaledStep s = scaled_step(parts(), exchange_plan(buckets("bf16"), o), links(), {}, {}, 2);
  EXPECT_NEAR(s.communication_ns, 4 * 160e3 + 1620e3 + 20e3 + 0.08, 1e-3);  // the layers alone
}

TEST(CostModel, ExchangesAreThoseOfTheMostMeasuredRanksThatAreNoMore) {
  LinkCeilings two = links(), rising = links();
  for (const LinkFit& f : two.fits) {
    LinkFit of_four = f;
    of_four.ranks = 4;
    of_four.large.bus_bytes_per_s = 50e9;
    rising.fits.push_back(of_four);
  }
  LinkCeilings falling = rising;
  std::reverse(falling.fits.begin(), falling.fits.end());
  const auto time = [](const LinkCeilings& l, int64_t ranks) {
    return scaled_step(parts(), overlapped(ranks), l, {}, {}, ranks).communication_ns;
  };
  EXPECT_GT(time(rising, 4), time(two, 4));
  EXPECT_EQ(time(falling, 4), time(rising, 4));
  for (const LinkCeilings& l : {rising, falling}) EXPECT_EQ(time(l, 3), time(two, 3));
}

TEST(CostModel, WhatIsNoPassIsPartOfTheWork) {
  StepParts p = parts();
  p.rest_ns = 2e6;
  EXPECT_DOUBLE_EQ(scaled_step(p, overlapped(), links(), {}, {}, 2).work_ns, 28e6);
  EXPECT_DOUBLE_EQ(scaled_step(p, overlapped(1), links(), {}, {}, 1).time_ns, 28e6);
}

TEST(CostModel, BucketsThatTakeLongerThanALayerQueueUp) {
  StepParts p = parts();
  p.head_ns = p.embed_backward_ns = 0;
  p.backward_layer_ns = {100e3, 100e3, 100e3, 100e3};
  // Ready at 100, 200, 300, 400 us; each takes 300: ends at 400, 700, 1000, 1300; the tail ends at 2920, 2520 us behind the backward pass.
  EXPECT_NEAR(scaled_step(p, overlapped(), links(), {}, {}, 2).tail_ns, 2520e3, 1e-3);
}

TEST(CostModel, ADividedUpdateIsHalvedAndWeightsAreGatheredAheadOfTheLayersThatReadThem) {
  const ExchangePlan zero = plan("zero1_ahead");
  StepParts p = parts();
  p.norm_ns = 200e3;
  // reduce_scatter: half a byte crosses the link; the tail is 160 MB / 2 / 100 GB/s = 800 + 20 us. The next step begins with the embedding's
  // weights, 80 MB of bf16 / 2 / 100 GB/s = 400 + 20 us, and those of layer 0: 14 MB, 90 us. Both are gathered beside the update of the other
  // three layers, 21/68 of 500 us, and the rest is waited for. Those of the three, 90 us each, hide beside the embedding. Sums of the norm: 3418 blocks of each layer's half and 9765 of the embedding's (whole blocks) and the loss, of both ranks, in 8 bytes.
  const ScaledStep s = scaled_step(p, zero, links(), {}, {}, 2);
  EXPECT_NEAR(s.tail_ns, 820e3, 1e-3);
  const double others = 500e3 * 21 / 68, head = 420e3 + 90e3 - others;
  EXPECT_NEAR(s.head_ns, head, 1e-3);
  const double norm = 20e3 + (4 * 1708 + 9765 + 1) * 8 / 100.0;
  EXPECT_NEAR(s.norm_ns, norm, 1e-3);
  EXPECT_NEAR(s.hidden_ns, 3 * 90e3 + others + 4 * 160e3, 1e-3);
  EXPECT_NEAR(s.time_ns, 26.2e6 - 0.6e6 + 820e3 + head + norm, 1e-3);
  // Layers shorter than the gathers of those behind them: these wait 40 us each.
  p.embed_ns = 0;
  p.forward_layer_ns = {50e3, 50e3, 50e3, 50e3};
  EXPECT_NEAR(scaled_step(p, zero, links(), {}, {}, 2).head_ns, head + 3 * 40e3, 1e-3);
}

TEST(CostModel, BesideTheUpdateACollectiveIsAsSlowAsBesideMemorysWork) {
  LinkCeilings l = links();
  l.beside.push_back({"nccl", "all_gather", "bf16", 2, 80'000'000, "product", 4096, 100e3, 100e3, 0});
  l.beside.push_back({"nccl", "all_gather", "bf16", 2, 80'000'000, "memory", 0, 100e3, 200e3, 0});
  StepParts p = parts();
  p.product_share_pct = 100;  // of forward and backward pass, beside which gathers are as fast as alone
  // As above, but of the 510 us only half of the update's time is done beside it.
  const double others = 500e3 * 21 / 68;
  EXPECT_NEAR(scaled_step(p, plan("zero1_ahead"), l, {}, {}, 2).head_ns, 420e3 + 90e3 - others / 2, 1e-3);
}

TEST(CostModel, WeightsGatheredAtTheEndHideBesideTheUpdateOfTheOtherBuckets) {
  // The update of one rank is 500 us, of which the embedding has 40/68 and comes first. Then 780 us of gathers (420 and 4 x 90) run beside what
  // is left of it.
  const ScaledStep s = scaled_step(parts(), plan("zero1"), links(), {}, {}, 2);
  const double first = 500e3 * 40 / 68;
  EXPECT_NEAR(s.head_ns, first + 780e3 - 500e3, 1e-3);
  EXPECT_NEAR(s.tail_ns, 820e3, 1e-3);
}

TEST(CostModel, GatheredRowsSendTheEmbeddingFirstAndAddUpTheRowsOfAll) {
  const ScaledStep s = scaled_step(parts(), plan("zero1_ahead", 2, true), links(), {}, {}, 2);
  // Rows: 2 x 1000 x 3072 bytes, half of them over the link: 30.72 + 20 us, and the embedding's backward waits. It adds up twice the rows, beside
  // the bucket of layer 0. The embedding's bucket has gone behind the head's backward.
  EXPECT_NEAR(s.tail_ns, 50'720, 1e-3);
  EXPECT_NEAR(s.work_ns, 26e6 + 1e6 - 0.5e6, 1e-3);
  EXPECT_NEAR(s.hidden_ns, 3 * 90e3 + 500e3 * 21 / 68 + 820e3 + 4 * 160e3 + 20'040, 1e-3);
}

TEST(CostModel, RowsThatAreNeededSoonWaitForTheBucketsBeforeThem) {
  LinkCeilings slow = links();
  for (LinkFit& f : slow.fits) f.large.bus_bytes_per_s = 2e9;
  ExchangeOptions o;
  o.communication = "zero1_ahead";
  o.gathered_rows = true;
  o.ranks = 2;
  o.tokens = 1000;
  o.row_bytes = 3072;
  std::vector<GradientBucket> small_last = buckets();
  small_last[3].elements = 1000;
  const ScaledStep s = scaled_step(parts(), exchange_plan(small_last, o), slow, {}, {}, 2);
  // In this order: the embedding's bucket 80 MB over the link, those of three layers 14 MB each, the rows 3.072 MB, the last layer's bucket. The
  // norm alone needs buckets, but the embedding's backward needs the rows behind them, of all of which four layers of the backward pass hide
  // 12 ms. Beside itself it has the last bucket alone, which takes 21 us.
  EXPECT_NEAR(s.tail_ns, 40.02e6 + 3 * 7.02e6 + 1.556e6 - 12e6, 1e-3);
}

TEST(CostModel, InflationByHandIsPaidForHiddenCommunicationAlone) {
  ScalingOptions o;
  o.inflation = 0.1;
  EXPECT_NEAR(scaled_step(parts(), overlapped(), links(), {}, o, 2).inflation_ns, 0.1 * 4 * 300e3, 1e-3);
}

// Of an all_reduce of 28 MB: alone 300 us; beside products 400, and 100 of these are lost; beside memory's work 300, and 60 are lost.
LinkCeilings with_beside() {
  LinkCeilings l = links();
  l.beside.push_back({"nccl", "all_reduce", "fp32", 2, 28'000'000, "product", 4096, 300e3, 400e3, 100e3});
  l.beside.push_back({"nccl", "all_reduce", "fp32", 2, 28'000'000, "memory", 0, 300e3, 300e3, 60e3});
  return l;
}

TEST(CostModel, WorkAndCommunicationAreSlowerWhereTheyRunAtOnce) {
  // Products alone: a bucket takes 400 us beside them and 100 are lost. What nothing runs beside is as fast as ever.
  const ScaledStep s = scaled_step(parts(), overlapped(), with_beside(), {}, {}, 2);
  EXPECT_NEAR(s.hidden_ns, 4 * 400e3, 1e-3);
  EXPECT_NEAR(s.inflation_ns, 4 * 100e3, 1e-3);
  EXPECT_NEAR(s.tail_ns, 1620e3, 1e-3);
  EXPECT_NEAR(s.time_ns, 26e6 + 1640e3 + 400e3 + 0.08, 1e-3);
  StepParts half = parts();
  half.product_share_pct = 50;
  // Work keeps 0.75 and 0.8 of its speed, collectives 0.75 and 1.
  const ScaledStep mixed = scaled_step(half, overlapped(), with_beside(), {}, {}, 2);
  EXPECT_NEAR(mixed.hidden_ns, 4 * 300e3 / 0.875, 1e-3);
  EXPECT_NEAR(mixed.inflation_ns, 4 * 300e3 / 0.875 * 0.225, 1e-3);
  ScalingOptions none;
  none.inflation = 0;
  EXPECT_DOUBLE_EQ(scaled_step(parts(), overlapped(), with_beside(), {}, none, 2).inflation_ns, 0);
}

// Products have the rows of one micro-batch, however many of them make a step. Beside those of twice the rows a bucket would take 600 us and
// 300 be lost.
TEST(CostModel, WhatRunsBesideACollectiveAreTheProductsOfOneMicroBatch) {
  LinkCeilings l = with_beside();
  l.beside.push_back({"nccl", "all_reduce", "fp32", 2, 28'000'000, "product", 8192, 300e3, 600e3, 300e3});
  StepParts p = scaled(parts(), 2);  // each of two micro-batches is then as long as the step of one
  p.micro_batches = 2;
  p.rows = p.tokens / 2;
  const ScaledStep s = scaled_step(p, overlapped(), l, {}, {}, 2);
  EXPECT_NEAR(s.hidden_ns, 4 * 400e3, 1e-3);
  EXPECT_NEAR(s.inflation_ns, 4 * 100e3, 1e-3);
  p.micro_batches = 1;
  p.rows = p.tokens;
  EXPECT_NEAR(scaled_step(p, overlapped(), l, {}, {}, 2).inflation_ns, 4 * 300e3, 1e-3);
}

TEST(CostModel, LinksThatDoNotSleepTakePowerFromAStepAtTheLimit) {
  LinkCeilings l = with_beside();
  l.awake = {2, 24e6, 24.48e6};  // 2%
  StepParts p = parts();
  EXPECT_DOUBLE_EQ(scaled_step(p, overlapped(), l, {}, {}, 2).awake_ns, 0) << "a step below the limit";
  p.power_limited = true;
  const ScaledStep s = scaled_step(p, overlapped(), l, {}, {}, 2);
  EXPECT_NEAR(s.awake_ns, 0.02 * (26e6 + 400e3), 1) << "of work and of what is slower, not of waits, which leave power to spare";
  EXPECT_NEAR(s.time_ns, 1.02 * (26e6 + 400e3) + 1640e3, 1);
  const ScaledStep eight = scaled_step(p, overlapped(8), l, {}, {}, 8);
  EXPECT_NEAR(eight.awake_ns, 0.02 * (eight.work_ns + eight.inflation_ns), 1);
  EXPECT_DOUBLE_EQ(scaled_step(p, plan("zero1_ahead", 1), l, {}, {}, 1).awake_ns, 0) << "one GPU has none";
  l.awake->awake_ns = 23.9e6;  // noise
  EXPECT_DOUBLE_EQ(scaled_step(p, overlapped(), l, {}, {}, 2).awake_ns, 0);
  l.awake.reset();
  EXPECT_DOUBLE_EQ(scaled_step(p, overlapped(), l, {}, {}, 2).awake_ns, 0);
}

// Ten times the rows. The first bucket leaves 150 ms after the begin of the step, and the last transfer is over 1 ms before its end: 151 ms of quiet,
// step after step, of which the links sleep 101. Between the buckets lie 29.7 ms, too short for sleep. 251 - 101 = 150 ms of work pay for awake links.
TEST(CostModel, LinksSleepInALongStretchWithoutTrafficAlsoAcrossTheEndOfAStep) {
  LinkCeilings l = links();
  l.awake = {2, 24e6, 24.48e6};  // 2%
  StepParts p = scaled(parts(), 10);
  p.power_limited = true;
  EXPECT_NEAR(scaled_step(p, overlapped(), l, {}, {}, 2).awake_ns, 0.02 * 150e6, 1);
  // Gathers at the head of the step: quiet from there to 150 ms, and only 1 ms behind the rest.
  const ScaledStep ahead = scaled_step(p, plan("zero1_ahead"), l, {}, {}, 2);
  EXPECT_GT(ahead.awake_ns, 0.02 * 150e6);
  EXPECT_LT(ahead.awake_ns, 0.02 * 153e6);
}

TEST(CostModel, WhatIsLeftOfATransferWhenItsWorkEndsIsPaidAtFullSpeed) {
  StepParts p = parts();
  p.embed_backward_ns = 300e3;
  LinkCeilings l = with_beside();
  // Layer 0's bucket: 300 us of work last 400 beside it, in which the bucket is done. Then the embedding's.
  EXPECT_NEAR(scaled_step(p, overlapped(), l, {}, {}, 2).tail_ns, 1620e3, 1e-3);
  p.embed_backward_ns = 150e3;
  // 150 us of work last 200 beside it, in which 150 us of the bucket are done.
  EXPECT_NEAR(scaled_step(p, overlapped(), l, {}, {}, 2).tail_ns, 150e3 + 1620e3, 1e-3);
}

TEST(CostModel, TheLatestOfManyRanksIsLaterThanTheLatestOfTwo) {
  // The expected largest of normal values, as tables of order statistics have it.
  EXPECT_NEAR(expected_largest(1), 0, 1e-6);
  EXPECT_NEAR(expected_largest(2), 0.56419, 1e-5);
  EXPECT_NEAR(expected_largest(3), 0.84628, 1e-5);
  EXPECT_NEAR(expected_largest(100), 2.50759, 1e-5);
  StepParts p = parts();
  p.jitter_ns = 1000;
  EXPECT_NEAR(scaled_step(p, overlapped(), links(), {}, {}, 2).straggler_ns, 564.19, 0.01);
}

TEST(CostModel, AMeasuredSizeTakesTheTimeThatWasMeasured) {
  LinkCeilings l = links();
  l.points.push_back({"nccl", "all_reduce", "fp32", 2, 28'000'000, 333e3});
  l.points.push_back({"peer", "all_reduce", "fp32", 2, 28'000'000, 111e3});
  EXPECT_DOUBLE_EQ(collective_ns(l, {}, "nccl", "all_reduce", "fp32", 2, 28'000'000), 333e3);
  EXPECT_THROW(collective_ns(l, {}, "peer", "all_reduce", "fp32", 2, 28'000'000), stepscope::InputError)
      << "nothing was fitted to one point";
}

TEST(CostModel, WhatWasNotMeasuredIsAsWhatItIsLike) {
  LinkCeilings l = links();
  EXPECT_NEAR(collective_ns(l, {}, "nccl", "all_gather", "fp64", 2, 2'000'000), 30e3, 1e-3);
  EXPECT_NEAR(collective_ns(l, {}, "nccl", "all_gather_in_place", "bf16", 2, 2'000'000), 30e3, 1e-3);
  l.fits.push_back({"nccl", "all_gather_in_place", "bf16", 2, 0, {}, {10'000, 100e9}, 0});
  EXPECT_NEAR(collective_ns(l, {}, "nccl", "all_gather_in_place", "bf16", 2, 2'000'000), 20e3, 1e-3);
}

TEST(CostModel, MoreRanksThanMeasuredAddTheStepsOfALongerRing) {
  ClusterShape shape;
  shape.hop_ns = 1000;
  shape.network_hop_ns = 10'000;
  shape.network_bytes_per_s = 50e9;
  const int64_t bytes = 80'000'000;
  // 8 ranks: 2 * 7/8 * 80 MB / 100 GB/s = 1400 us, latency 20 us; the ring has 14 steps, of which 2 were measured: 12 us more. The tree is
  // 2 * 7 hops long: as long.
  EXPECT_NEAR(collective_ns(links(), shape, "nccl", "all_reduce", "fp32", 8, bytes), 1432e3, 1e-3);
  // 16 ranks on 2 nodes: 2 * 15/16 * 80 MB / 50 GB/s = 3000 us. Ring: 30 steps, 4 between nodes: 26 + 40 - 2 us. Tree: 2 * (7 + 10) - 2.
  EXPECT_NEAR(collective_ns(links(), shape, "nccl", "all_reduce", "fp32", 16, bytes), 3000e3 + 20e3 + 32e3, 1e-3);
  // reduce_scatter has no tree: 15 steps, 2 between nodes: 13 + 20 - 1 us; 15/16 * 80 MB / 50 GB/s = 1500 us.
  EXPECT_NEAR(collective_ns(links(), shape, "nccl", "reduce_scatter", "fp32", 16, bytes), 1500e3 + 20e3 + 32e3, 1e-3);
  EXPECT_THROW(collective_ns(links(), {}, "nccl", "all_reduce", "fp32", 16, bytes), stepscope::InputError);
  EXPECT_THROW(collective_ns({}, shape, "nccl", "all_reduce", "fp32", 2, bytes), stepscope::InputError);
}

TEST(CostModel, AMeasuredNumberOfRanksOnTwoNodesNeedsTheNetworkAndIsNoFasterThanIt) {
  LinkCeilings l = links();
  ClusterShape apart;
  apart.gpus_per_node = 1;
  apart.hop_ns = 1000;
  apart.network_hop_ns = 10'000;
  const int64_t bytes = 80'000'000;
  EXPECT_THROW(collective_ns(l, apart, "nccl", "all_reduce", "fp32", 2, bytes), stepscope::InputError);
  // 80 MB / 10 GB/s = 8000 us and 20 us of latency; both steps of the ring, and of the tree, cross: 20 us where 2 were measured.
  apart.network_bytes_per_s = 10e9;
  EXPECT_NEAR(collective_ns(l, apart, "nccl", "all_reduce", "fp32", 2, bytes), 8000e3 + 20e3 + 18e3, 1e-3);
  // Four ranks: 6 steps of the ring, all between nodes; the tree has log2(4) levels, up and down: 40 us. 1.5 x 80 MB / 10 GB/s.
  EXPECT_NEAR(collective_ns(l, apart, "nccl", "all_reduce", "fp32", 4, bytes), 12000e3 + 20e3 + 38e3, 1e-3);
  // The point of this size, measured inside one node, took longer than that.
  l.points.push_back({"nccl", "all_reduce", "fp32", 2, bytes, 9000e3});
  EXPECT_NEAR(collective_ns(l, apart, "nccl", "all_reduce", "fp32", 2, bytes), 9000e3, 1e-3);
}

TEST(CostModel, OnlyTheLastMicroBatchHidesGradientsAndOnlyTheFirstWaitsForWeights) {
  StepParts p = parts();
  p.head_ns = p.embed_backward_ns = 0;
  p.backward_layer_ns = {400e3, 400e3, 400e3, 400e3};
  // One micro-batch: each layer's 400 us hide the 300 of the bucket before, the tail is that of layer 0 and the embedding's.
  const ScaledStep whole = scaled_step(p, overlapped(), links(), {}, {}, 2);
  EXPECT_NEAR(whole.tail_ns, 300e3 + 1620e3, 1e-3);
  // Two: the second's layers take 200 us. Ready at 200, 400, 600, 800 of its backward pass, the buckets end at 500, 800, 1100, 1400.
  p.micro_batches = 2;
  const ScaledStep halves = scaled_step(p, overlapped(), links(), {}, {}, 2);
  EXPECT_NEAR(halves.tail_ns, 600e3 + 1620e3, 1e-3);
  EXPECT_NEAR(halves.hidden_ns, 600e3, 1e-3);
  EXPECT_NEAR(halves.work_ns, whole.work_ns, 1e-3) << "all micro-batches are work";
  EXPECT_NEAR(scaled_step(p, overlapped(1), links(), {}, {}, 1).time_ns, whole.work_ns, 1e-3);
  // Weights: gathers of 90 us beside layers of 100 us each in two micro-batches, so 50 in the first, which waits.
  p.embed_ns = 0;
  p.forward_layer_ns = {100e3, 100e3, 100e3, 100e3};
  const double others = 500e3 * 21 / 68;
  EXPECT_NEAR(scaled_step(p, plan("zero1_ahead"), links(), {}, {}, 2).head_ns, 420e3 + 90e3 - others + 3 * 40e3, 1e-3);
  // Rows of all ranks: the last micro-batch's half of the embedding's backward is done for both.
  p.embed_backward_ns = 1e6;
  const double dense = scaled_step(p, plan("zero1_ahead"), links(), {}, {}, 2).work_ns;
  EXPECT_NEAR(scaled_step(p, plan("zero1_ahead", 2, true), links(), {}, {}, 2).work_ns, dense + 0.5e6, 1e-3);
}

TEST(CostModel, FewerRowsMakeForwardAndBackwardShorterAndNothingElse) {
  const StepParts half = scaled(parts(), 0.5);
  EXPECT_DOUBLE_EQ(half.forward_ns(), 5e6);
  EXPECT_DOUBLE_EQ(half.backward_ns(), 7.5e6);
  EXPECT_DOUBLE_EQ(half.update_ns, 1e6);
  EXPECT_DOUBLE_EQ(half.tokens, 2048);
  EXPECT_DOUBLE_EQ(half.rows, 2048);
}

ProfileDocument document() {
  ProfileDocument d;
  d.run.layers = 2;
  d.run.channels = 10;
  d.run.parameters = 2 * 1330 + 500;
  d.run.tokens_per_step = 128;
  d.run.batch_size = 2;
  d.run.seq_len = 64;
  d.run.accumulation = 1;
  d.totals.time_ns = 100;
  d.timing.step_time_ns.median = 110;
  const auto pass = [&](const char* name, double ns) {
    PassRow p;
    p.name = name;
    p.time_ns = ns;
    d.passes.push_back(p);
  };
  pass("encoder", 1);
  pass("forward", 20);
  pass("classifier", 9);
  pass("backward", 60);
  pass("optimizer", 5);
  for (const char* of : {"forward", "backward"})
    for (int64_t l = 0; l < 2; ++l) {
      LayerRow row;
      row.pass = of;
      row.layer = l;
      row.time_ns = (row.pass == "backward" ? 20 : 8) + static_cast<double>(l);
      d.layers.push_back(row);
    }
  const auto op = [&](const char* of, const char* name, double ns) {
    OpRow row;
    row.pass = of;
    row.op = name;
    row.time_ns = ns;
    d.ops.push_back(row);
  };
  op("backward", "lm_head", 9);
  op("backward", "lnf", 1);
  op("backward", "qkv", 17);
  op("forward", "gelu", 14);
  for (const char* product : {"attention", "attproj", "mlp_up", "mlp_down"}) op("backward", product, 1);
  for (const char* product : {"qkv", "attention", "attproj", "mlp_up", "mlp_down", "lm_head"}) op("forward", product, 1);
  op("optimizer", "grad_norm", 1);
  op("optimizer", "adamw", 3);
  return d;
}

TEST(CostModel, PartsOfAProfileSumToItsUntracedStep) {
  const StepParts p = step_parts(document());
  EXPECT_DOUBLE_EQ(p.embed_ns, 1);
  EXPECT_EQ(p.forward_layer_ns, (std::vector<double>{8, 9}));
  EXPECT_DOUBLE_EQ(p.loss_ns, 12);
  EXPECT_DOUBLE_EQ(p.forward_ns(), 30);
  EXPECT_EQ(p.backward_layer_ns, (std::vector<double>{20, 21}));
  EXPECT_DOUBLE_EQ(p.head_ns, 10);
  EXPECT_DOUBLE_EQ(p.embed_backward_ns, 9);
  EXPECT_DOUBLE_EQ(p.norm_ns, 1);
  EXPECT_DOUBLE_EQ(p.update_ns, 3);
  EXPECT_DOUBLE_EQ(p.rest_ns, 16);
  EXPECT_DOUBLE_EQ(p.total_ns(), 110);
  EXPECT_DOUBLE_EQ(p.product_share_pct, 40);  // 36 of 90: lm_head 9, the other products 21 and 6
  EXPECT_DOUBLE_EQ(p.rows, 128);
  EXPECT_DOUBLE_EQ(p.micro_batches, 1);
  ProfileDocument accumulated = document();
  accumulated.run.accumulation = 2;
  accumulated.run.tokens_per_step = 256;
  EXPECT_DOUBLE_EQ(step_parts(accumulated).micro_batches, 2);
  EXPECT_DOUBLE_EQ(step_parts(accumulated).tokens, 256);
  EXPECT_DOUBLE_EQ(step_parts(accumulated).rows, 128);
  ProfileDocument several = document();
  several.ranks.emplace_back();
  EXPECT_THROW(step_parts(several), stepscope::InputError);
  EXPECT_THROW(step_parts(ProfileDocument{}), stepscope::InputError);
  // Without its layers the whole backward pass would be the embedding's, which every rank does for all rows.
  ProfileDocument reduced = document();
  reduced.layers.clear();
  EXPECT_THROW(step_parts(reduced), stepscope::InputError);
  reduced = document();
  reduced.ops.clear();
  EXPECT_THROW(step_parts(reduced), stepscope::InputError);
}

TEST(CostModel, TracedPassesThatAreLongerThanTheUntracedStepAreMadeAsLong) {
  ProfileDocument d = document();
  d.timing.step_time_ns.median = 47;  // half of 94
  const StepParts p = step_parts(d);
  EXPECT_DOUBLE_EQ(p.total_ns(), 47);
  EXPECT_DOUBLE_EQ(p.rest_ns, 0);
  EXPECT_DOUBLE_EQ(p.backward_layer_ns[1], 10.5);
  EXPECT_DOUBLE_EQ(p.update_ns, 1.5);
}

TEST(CostModel, JitterIsNotThatOfAFewStepsWhichSomethingHeldUp) {
  ProfileDocument d = document();
  d.timing.step_time_ns.samples = {98, 100, 100, 100, 102, 102, 102, 104, 900};  // quartiles 100 and 102
  EXPECT_NEAR(step_parts(d).jitter_ns, 2 / 1.349, 1e-9);
}

// What step_parts says of a document that `change` has changed.
template <class Change>
std::string refused(Change change) {
  ProfileDocument d = document();
  change(d);
  try {
    step_parts(d);
    return "no error";
  } catch (const stepscope::InputError& e) {
    return e.what();
  }
}

TEST(CostModel, AProfileThatLacksOneNumberOfTheModelIsRefused) {
  const std::string expected = "the profile has no passes of a GPT-2 trainer; expected one that `stepscope profile` made of a trainer";
  EXPECT_EQ(refused([](ProfileDocument& d) { d.passes.clear(); }), expected);
  EXPECT_EQ(refused([](ProfileDocument& d) { d.totals.time_ns.reset(); }), expected);
  EXPECT_EQ(refused([](ProfileDocument& d) { d.run.layers.reset(); }), expected);
  EXPECT_EQ(refused([](ProfileDocument& d) { d.run.channels.reset(); }), expected);
  EXPECT_EQ(refused([](ProfileDocument& d) { d.run.parameters.reset(); }), expected);
  EXPECT_EQ(refused([](ProfileDocument& d) { d.run.tokens_per_step.reset(); }), expected);
}

TEST(CostModel, AProfileThatLacksARowOfTheModelIsRefusedWithItsName) {
  EXPECT_EQ(refused([](ProfileDocument&) {}), "no error");
  const std::string layers = "; expected layers 0 to 1 once in forward and backward pass, as run.layers is 2";
  EXPECT_EQ(refused([](ProfileDocument& d) { d.layers.erase(d.layers.begin() + 3); }),
            "layers: no row of layer 1 in the backward pass" + layers);
  EXPECT_EQ(refused([](ProfileDocument& d) { d.layers.erase(d.layers.begin()); }),
            "layers: no row of layer 0 in the forward pass" + layers);
  EXPECT_EQ(refused([](ProfileDocument& d) { d.layers.push_back(d.layers[2]); }),
            "layers: two rows of layer 0 in the backward pass" + layers);
  EXPECT_EQ(refused([](ProfileDocument& d) { d.run.layers = 1; }),
            "layers: a row of layer 1 in the forward pass; expected layers 0 to 0 once in forward and backward pass, as run.layers is 1");
  EXPECT_EQ(refused([](ProfileDocument& d) { d.run.layers = 3; }),
            "layers: no row of layer 2 in the forward pass; expected layers 0 to 2 once in forward and backward pass, as run.layers is 3");
  EXPECT_EQ(refused([](ProfileDocument& d) { d.layers[1].layer = -1; }), "layers: a row of layer -1 in the forward pass" + layers);
  for (size_t i = 0; i < document().ops.size(); ++i) {
    const OpRow op = document().ops[i];
    const std::string words = refused([&](ProfileDocument& d) { d.ops.erase(d.ops.begin() + static_cast<std::ptrdiff_t>(i)); });
    if (op.op == "gelu")
      EXPECT_EQ(words, "no error") << "the model does not read it";
    else
      EXPECT_EQ(words,
                "ops: no row of " + op.pass + "/" + op.op + ", which a prediction is made of; expected a whole profile of a trainer");
  }
  for (size_t i = 0; i < document().passes.size(); ++i) {
    const std::string words = refused([&](ProfileDocument& d) { d.passes.erase(d.passes.begin() + static_cast<std::ptrdiff_t>(i)); });
    EXPECT_EQ(words,
              "passes: no row of " + document().passes[i].name + ", which a prediction is made of; expected a whole profile of a trainer");
  }
}

TEST(CostModel, NumbersThatNoStepHasAreRefusedWithTheirName) {
  static constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(refused([](ProfileDocument& d) { d.run.layers = 1'000'000'000; }), "run.layers: found 1000000000, expected 1 to 65536");
  EXPECT_EQ(refused([](ProfileDocument& d) { d.run.layers = 0; }), "run.layers: found 0, expected 1 to 65536");
  const std::string range = ", expected 1 to 1099511627776";
  EXPECT_EQ(refused([](ProfileDocument& d) { d.run.tokens_per_step = 0; }), "run.tokens_per_step: found 0" + range);
  EXPECT_EQ(refused([](ProfileDocument& d) { d.run.batch_size = 0; }), "run.batch_size: found 0" + range);
  EXPECT_EQ(refused([](ProfileDocument& d) { d.run.batch_size = kMost; }), "run.batch_size: found 9223372036854775807" + range);
  EXPECT_EQ(refused([](ProfileDocument& d) { d.run.seq_len = -64; }), "run.seq_len: found -64" + range);
  EXPECT_EQ(refused([](ProfileDocument& d) { d.run.accumulation = 0; }), "run.accumulation: found 0" + range);
  EXPECT_EQ(refused([](ProfileDocument& d) { d.run.seq_len.reset(); }), "run.seq_len: not there" + range);
  EXPECT_EQ(refused([](ProfileDocument& d) { d.run.tokens_per_step = 256; }),
            "run.tokens_per_step: found 256, expected 128: batch_size 2 x seq_len 64 x accumulation 1");
  EXPECT_EQ(refused([](ProfileDocument& d) { d.run.batch_size = d.run.seq_len = int64_t{1} << 40; }).substr(0, 49),
            "run.tokens_per_step: found 128, expected 1.208925");
  EXPECT_EQ(refused([](ProfileDocument& d) { d.timing.step_time_ns.median = 0; }),
            "timing.step_time_ns.median: found 0, expected a time above 0");
}

TEST(CostModel, AStepIsAtThePowerLimitWhenTheDriverSaysSoAndItsClockIsLower) {
  ProfileDocument d = document();
  d.environment.throttle_reasons = {"hw_slowdown", "power_cap"};
  d.environment.samples = 3;
  d.environment.throttled_samples = 2;
  d.environment.sm_clock_mhz_median = 1785;
  d.environment.sm_clock_mhz_max = 1980;
  EXPECT_TRUE(step_parts(d).power_limited);
  EXPECT_FALSE(step_parts(d).power_cap_alone);
  const auto with = [&](auto change) {
    ProfileDocument changed = d;
    change(changed);
    return step_parts(changed);
  };
  const StepParts full_clock = with([](ProfileDocument& c) { c.environment.sm_clock_mhz_median = 1951; });
  EXPECT_FALSE(full_clock.power_limited);
  EXPECT_TRUE(full_clock.power_cap_alone);
  EXPECT_TRUE(with([](ProfileDocument& c) { c.environment.sm_clock_mhz_median = 1950; }).power_limited);
  EXPECT_FALSE(with([](ProfileDocument& c) { c.environment.throttled_samples = 1; }).power_limited) << "of three";
  EXPECT_FALSE(with([](ProfileDocument& c) { c.environment.sm_clock_mhz_median.reset(); }).power_limited);
  const StepParts other_reason = with([](ProfileDocument& c) { c.environment.throttle_reasons = {"hw_thermal"}; });
  EXPECT_FALSE(other_reason.power_limited);
  EXPECT_FALSE(other_reason.power_cap_alone);
  // The highest clock may stand in what ran beside the timed steps: the traced ones, or a stretch before.
  const auto warm = [](ProfileDocument& c) { c.environment.sm_clock_mhz_max = 1800; };
  EXPECT_FALSE(with(warm).power_limited);
  EXPECT_TRUE(with([&](ProfileDocument& c) {
                warm(c);
                c.timeline.environment.push_back({0, 1980, 0, 0, 0});
              }).power_limited);
  EXPECT_TRUE(with([&](ProfileDocument& c) {
                warm(c);
                c.timing.states.emplace_back().sm_clock_mhz = 1900;
              }).power_limited);
}

}  // namespace

// Step times on N GPUs, worked out by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/errors.h"
#include "profiler/ranks/cost_model.h"

namespace {

using namespace profiler;

// Forward 10 ms; backward 2 ms before the layers, 4 layers of 3 ms, 1 ms behind; update 1 ms. 7 M parameters a layer, 40 M in the tail.
StepParts parts() {
  StepParts p;
  p.forward_ns = 10e6;
  p.before_layers_ns = 2e6;
  p.layer_ns = {3e6, 3e6, 3e6, 3e6};
  p.after_layers_ns = 1e6;
  p.update_ns = 1e6;
  p.layer_parameters = 7'000'000;
  p.tail_parameters = 40'000'000;
  p.tokens = 4096;
  return p;
}

// 20 us and 100 GB/s, whatever the size; two ranks.
LinkCeilings links() {
  LinkCeilings l;
  for (const char* kind : {"all_reduce", "reduce_scatter", "all_gather"})
    for (const char* type : {"fp32", "bf16"}) l.fits.push_back({kind, type, 2, 0, {}, {20'000, 100e9}, 0});
  return l;
}

TEST(CostModel, OneGpuIsTheProfileItself) {
  const ScaledStep s = scaled_step(parts(), links(), {}, {}, 1);
  EXPECT_DOUBLE_EQ(s.time_ns, 26e6);
  EXPECT_DOUBLE_EQ(s.communication_ns, 0);
}

TEST(CostModel, OnlyTheTailOfAStepThatHidesItsBucketsIsPaid) {
  // A layer: 28 MB fp32 over 100 GB/s = 280 us and 20 us of latency, well inside the 3 ms of the next layer. The tail: 160 MB = 1620 us,
  // begun when the backward pass ends.
  const ScaledStep s = scaled_step(parts(), links(), {}, {}, 2);
  EXPECT_NEAR(s.communication_ns, 4 * 300e3 + 1620e3, 1e-3);
  EXPECT_NEAR(s.tail_ns, 1620e3, 1e-3);
  EXPECT_NEAR(s.time_ns, 26e6 + 1620e3, 1e-3);
  EXPECT_NEAR(s.tokens_per_s, 2 * 4096 / 27.62e-3, 1e-3);
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
  const auto time = [](const LinkCeilings& l, int64_t ranks) { return scaled_step(parts(), l, {}, {}, ranks).communication_ns; };
  EXPECT_GT(time(rising, 4), time(two, 4));
  EXPECT_EQ(time(falling, 4), time(rising, 4));
  for (const LinkCeilings& l : {rising, falling}) EXPECT_EQ(time(l, 3), time(two, 3));
}

TEST(CostModel, WhatIsNoPassIsPartOfTheWork) {
  StepParts p = parts();
  p.rest_ns = 2e6;
  EXPECT_DOUBLE_EQ(scaled_step(p, links(), {}, {}, 2).work_ns, 28e6);
  EXPECT_DOUBLE_EQ(scaled_step(p, links(), {}, {}, 1).time_ns, 28e6);
}

TEST(CostModel, BucketsThatTakeLongerThanALayerQueueUp) {
  StepParts p = parts();
  p.before_layers_ns = p.after_layers_ns = 0;
  p.layer_ns = {100e3, 100e3, 100e3, 100e3};
  // Ready at 100, 200, 300, 400 us; each takes 300: ends at 400, 700, 1000, 1300; the tail ends at 2920, 2520 us behind the backward pass.
  EXPECT_NEAR(scaled_step(p, links(), {}, {}, 2).tail_ns, 2520e3, 1e-3);
}

TEST(CostModel, ABucketHoldsWholeLayersOfAtLeastItsSize) {
  ScalingOptions two;
  two.bucket_bytes = 50'000'000;  // two layers are 56 MB
  // 580 us each, twice.
  EXPECT_NEAR(scaled_step(parts(), links(), {}, two, 2).communication_ns, 2 * 580e3 + 1620e3, 1e-3);
  two.bucket_bytes = 100'000'000;  // four layers: 112 MB
  EXPECT_NEAR(scaled_step(parts(), links(), {}, two, 2).communication_ns, 1140e3 + 1620e3, 1e-3);
}

TEST(CostModel, AShardedUpdateIsHalvedAndItsGatherHidesBesideTheForwardPass) {
  ScalingOptions zero;
  zero.shard_update = true;
  // reduce_scatter: half a byte crosses the link; the tail is 160 MB / 2 / 100 GB/s = 800 + 20 us. all_gather of 68 M bf16 weights:
  // 136 MB / 2 / 100 GB/s = 680 + 20 us, below 10 ms of forward pass.
  const ScaledStep s = scaled_step(parts(), links(), {}, zero, 2);
  EXPECT_NEAR(s.tail_ns, 820e3, 1e-3);
  EXPECT_DOUBLE_EQ(s.head_ns, 0);
  EXPECT_NEAR(s.time_ns, 26e6 - 0.5e6 + 820e3, 1e-3);
  StepParts p = parts();
  p.forward_ns = 200e3;
  EXPECT_NEAR(scaled_step(p, links(), {}, zero, 2).head_ns, 500e3, 1e-3);
  // What the forward pass does not hide of the gather is paid once, and slows no work down.
  zero.inflation = 0.1;
  const double beside_backward = scaled_step(parts(), links(), {}, zero, 2).inflation_ns - 0.1 * 700e3;
  EXPECT_NEAR(scaled_step(p, links(), {}, zero, 2).inflation_ns, beside_backward + 0.1 * 200e3, 1e-3);
}

TEST(CostModel, InflationIsPaidForHiddenCommunicationAlone) {
  ScalingOptions o;
  o.inflation = 0.1;
  EXPECT_NEAR(scaled_step(parts(), links(), {}, o, 2).inflation_ns, 0.1 * 4 * 300e3, 1e-3);
}

TEST(CostModel, TheLatestOfManyRanksIsLaterThanTheLatestOfTwo) {
  StepParts p = parts();
  p.jitter_ns = 1000;
  EXPECT_NEAR(scaled_step(p, links(), {}, {}, 2).straggler_ns, 1000 * std::sqrt(2 * std::log(2.0)), 1e-6);
}

TEST(CostModel, MoreRanksThanMeasuredAddTheStepsOfALongerRing) {
  ClusterShape shape;
  shape.hop_ns = 1000;
  shape.network_hop_ns = 10'000;
  shape.network_bytes_per_s = 50e9;
  const int64_t bytes = 80'000'000;
  // 8 ranks: 2 * 7/8 * 80 MB / 100 GB/s = 1400 us, latency 20 us; the ring has 14 steps, of which 2 were measured: 12 us more. The tree is
  // 2 * 7 hops long: as long.
  EXPECT_NEAR(collective_ns(links(), shape, "all_reduce", "fp32", 8, bytes), 1432e3, 1e-3);
  // 16 ranks on 2 nodes: 2 * 15/16 * 80 MB / 50 GB/s = 3000 us. Ring: 30 steps, 4 between nodes: 26 + 40 - 2 us. Tree: 2 * (7 + 10) - 2.
  EXPECT_NEAR(collective_ns(links(), shape, "all_reduce", "fp32", 16, bytes), 3000e3 + 20e3 + 32e3, 1e-3);
  // reduce_scatter has no tree: 15 steps, 2 between nodes: 13 + 20 - 1 us; 15/16 * 80 MB / 50 GB/s = 1500 us.
  EXPECT_NEAR(collective_ns(links(), shape, "reduce_scatter", "fp32", 16, bytes), 1500e3 + 20e3 + 32e3, 1e-3);
  EXPECT_THROW(collective_ns(links(), {}, "all_reduce", "fp32", 16, bytes), stepscope::InputError);
  EXPECT_THROW(collective_ns({}, shape, "all_reduce", "fp32", 2, bytes), stepscope::InputError);
}

TEST(CostModel, FewerRowsMakeForwardAndBackwardShorterAndNothingElse) {
  const StepParts half = scaled(parts(), 0.5);
  EXPECT_DOUBLE_EQ(half.forward_ns, 5e6);
  EXPECT_DOUBLE_EQ(half.backward_ns(), 7.5e6);
  EXPECT_DOUBLE_EQ(half.update_ns, 1e6);
  EXPECT_DOUBLE_EQ(half.tokens, 2048);
}

ProfileDocument document() {
  ProfileDocument d;
  d.run.layers = 2;
  d.run.channels = 10;
  d.run.parameters = 2 * 1330 + 500;
  d.run.tokens_per_step = 256;
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
  for (int64_t l = 0; l < 2; ++l) {
    LayerRow row;
    row.pass = "backward";
    row.layer = l;
    row.time_ns = 20 + static_cast<double>(l);
    d.layers.push_back(row);
  }
  OpRow head;
  head.pass = "backward";
  head.op = "lm_head";
  head.time_ns = 10;
  d.ops.push_back(head);
  return d;
}

TEST(CostModel, PartsOfAProfileSumToItsUntracedStep) {
  const StepParts p = step_parts(document());
  EXPECT_DOUBLE_EQ(p.forward_ns, 30);
  EXPECT_EQ(p.layer_ns, (std::vector<double>{21, 20}));
  EXPECT_DOUBLE_EQ(p.before_layers_ns, 10);
  EXPECT_DOUBLE_EQ(p.after_layers_ns, 9);
  EXPECT_DOUBLE_EQ(p.rest_ns, 15);
  EXPECT_DOUBLE_EQ(p.total_ns(), 110);
  EXPECT_EQ(p.layer_parameters, 1330);
  EXPECT_EQ(p.tail_parameters, 500);
  ProfileDocument several = document();
  several.ranks.emplace_back();
  EXPECT_THROW(step_parts(several), stepscope::InputError);
  EXPECT_THROW(step_parts(ProfileDocument{}), stepscope::InputError);
}

TEST(CostModel, AProfileThatLacksOneNumberOfTheModelIsRefused) {
  const auto refused = [](auto take_away) {
    ProfileDocument d = document();
    take_away(d);
    try {
      step_parts(d);
      return std::string("no error");
    } catch (const stepscope::InputError& e) {
      return std::string(e.what());
    }
  };
  const std::string expected = "the profile has no passes of a GPT-2 trainer; expected one that `stepscope profile` made of a trainer";
  EXPECT_EQ(refused([](ProfileDocument& d) { d.passes.clear(); }), expected);
  EXPECT_EQ(refused([](ProfileDocument& d) { d.totals.time_ns.reset(); }), expected);
  EXPECT_EQ(refused([](ProfileDocument& d) { d.run.layers.reset(); }), expected);
  EXPECT_EQ(refused([](ProfileDocument& d) { d.run.channels.reset(); }), expected);
  EXPECT_EQ(refused([](ProfileDocument& d) { d.run.parameters.reset(); }), expected);
  EXPECT_EQ(refused([](ProfileDocument& d) { d.run.tokens_per_step.reset(); }), expected);
}

}  // namespace

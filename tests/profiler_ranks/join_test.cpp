// Several recordings become one document: who is accepted, what is exposed, who is late and why. All times are added up on paper.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "base/errors.h"
#include "base/nvml.h"
#include "profiler/document/json.h"
#include "profiler/document/missing_rows.h"
#include "tests/profiler/fixture.h"
#include "tests/profiler_ranks/ranks_fixture.h"

namespace {

using namespace profiler;
using ranks::all_reduce;
using ranks::Op;
using ranks::RankShape;

RankShape rank(int64_t number, std::vector<Op> ops = ranks::two_bucket_step()) {
  RankShape s;
  s.rank = number;
  s.ops = std::move(ops);
  return s;
}

std::string refusal(const std::vector<RankShape>& shapes, const JoinOptions& options = {}) {
  try {
    ranks::join(shapes, options);
  } catch (const stepscope::InputError& e) {
    return e.what();
  }
  return "accepted";
}

const CollectiveRankRow& on_rank(const ProfileDocument& d, int64_t sequence, int64_t rank) {
  for (const CollectiveRankRow& c : d.collective_ranks)
    if (c.sequence == sequence && c.rank == rank) return c;
  throw std::logic_error("no such collective");
}

const PassRow& pass(const ProfileDocument& d, const std::string& name) {
  for (const PassRow& p : d.passes)
    if (p.name == name) return p;
  throw std::logic_error("no pass " + name);
}

// The second rank computes 50 us longer in its first backward kernel, so that everything behind it is 50 us late there; both reductions
// end on both ranks at the same time.
std::vector<Op> slow_backward() {
  return {{"forward/0/qkv", 0, 400'000},          {"backward/1/qkv", 400'000, 850'000},    all_reduce(850'000, 1'100'000, 40, 0),
          {"backward/0/qkv", 850'000, 1'250'000}, all_reduce(1'250'000, 1'500'000, 20, 1), {"optimizer/-/adamw", 1'500'000, 1'700'000}};
}

TEST(Join, WorkKeepsItsFullTimeAndCommunicationOnlyWhatNothingHides) {
  const ProfileDocument d = ranks::join({rank(0), rank(1)});
  // 300 us beside the backward pass, 300 us alone.
  EXPECT_DOUBLE_EQ(d.world.exposed_ns.value(), 300'000);
  EXPECT_DOUBLE_EQ(d.world.hidden_ns.value(), 300'000);
  EXPECT_DOUBLE_EQ(pass(d, "backward").time_ns, 800'000);
  EXPECT_DOUBLE_EQ(pass(d, "communication").time_ns, 300'000);
  EXPECT_DOUBLE_EQ(pass(d, "communication").duration_ns, 600'000);
  EXPECT_NEAR(d.totals.conservation_error_pct.value(), 0, 1e-9);
  EXPECT_DOUBLE_EQ(d.ranks[1].work_ns.value() + *d.ranks[1].exposed_ns + *d.ranks[1].idle_ns, 1'700'000);
}

TEST(Join, ExposedTimeIsCutIntoWaitingTransferAndDraining) {
  const ProfileDocument d = ranks::join({rank(0), rank(1, slow_backward())});
  ASSERT_EQ(d.collectives.size(), 2u);
  // Rank 0 begins the second reduction at 1200, rank 1 at 1250; both end at 1500.
  const CollectiveRankRow &early = on_rank(d, 1, 0), &late = on_rank(d, 1, 1);
  EXPECT_DOUBLE_EQ(early.wait_ns.value(), 50'000);
  EXPECT_DOUBLE_EQ(early.transfer_ns.value(), 250'000);
  EXPECT_DOUBLE_EQ(early.exposed_wait_ns.value(), 50'000);
  EXPECT_DOUBLE_EQ(early.exposed_transfer_ns.value(), 250'000);
  EXPECT_DOUBLE_EQ(late.wait_ns.value(), 0);
  EXPECT_DOUBLE_EQ(late.exposed_ns, 250'000);
  // The first one is hidden as a whole on both.
  EXPECT_DOUBLE_EQ(on_rank(d, 0, 0).exposed_ns, 0);
  EXPECT_DOUBLE_EQ(on_rank(d, 0, 0).hidden_ns, 300'000);
  // Begun as soon as the work before it had ended.
  EXPECT_DOUBLE_EQ(early.queue_ns.value(), 0);
}

std::vector<RankShape> with_short_collective(std::vector<RankShape> shapes) {
  for (RankShape& s : shapes) s.ops.insert(s.ops.begin(), all_reduce(-30'000, -10'000, 1, 9));
  return shapes;
}

TEST(Join, BandwidthIsBytesOverTheBusiestLinkByTheTimeOfTransfer) {
  const auto shapes = with_short_collective({rank(0), rank(1, slow_backward())});
  const ProfileDocument d = ranks::join(shapes);
  // Two ranks: 2 * (2 - 1) / 2 = 1 byte over the link per byte; 20 MB in 250 us, and in the median of 300 and 250 us.
  EXPECT_DOUBLE_EQ(d.collectives[2].bus_bytes_per_s.value(), 20e6 / 250e-6);
  EXPECT_DOUBLE_EQ(d.collectives[2].paid_bytes_per_s.value(), 20e6 / 275e-6);
  EXPECT_DOUBLE_EQ(d.world.bytes.value(), 61e6);
  double paid_ns = 0, transfer_ns = 0;
  for (const CollectiveRow& c : d.collectives) paid_ns += c.time_ns, transfer_ns += c.transfer_ns.value();
  EXPECT_DOUBLE_EQ(d.world.paid_bytes_per_s.value(), 61e6 / paid_ns * 1e9);
  EXPECT_DOUBLE_EQ(d.world.bus_bytes_per_s.value(), 61e6 / transfer_ns * 1e9);
  EXPECT_GT(paid_ns, transfer_ns);
  EXPECT_FALSE(d.collectives[2].of_link_ceiling_pct);
  JoinOptions with;
  with.links = LinkCeilings{};
  // By copies it would take half.
  with.links->points = {{"nccl", "all_reduce", "fp32", 2, 20'000'000, 200'000},
                        {"nccl", "all_reduce", "fp32", 2, 40'000'000, 250'000},
                        {"peer", "all_reduce", "fp32", 2, 20'000'000, 100'000}};
  EXPECT_DOUBLE_EQ(ranks::join(shapes, with).collectives[2].of_link_ceiling_pct.value(), 80);
  // The short one took 20 us, which the clocks of this step cannot resolve.
  EXPECT_FALSE(d.collectives[0].bus_bytes_per_s);
  // Without it they are 300 us apart, and 250 and 300 us of transfer together say no more.
  const ProfileDocument apart = ranks::join({rank(0), rank(1, slow_backward())});
  EXPECT_DOUBLE_EQ(apart.world.clock_uncertainty_ns.value(), 300'000);
  EXPECT_TRUE(apart.world.paid_bytes_per_s);
  EXPECT_FALSE(apart.world.bus_bytes_per_s);
}

TEST(Join, TheRankThatComesLastIsNamedWithTheOpThatTookLonger) {
  std::vector<RankShape> three{rank(0), rank(1, slow_backward()), rank(2)};
  // A short collective at the head bounds the clocks to 20 us.
  for (RankShape& s : three) {
    s.size = 3;
    s.ops.insert(s.ops.begin(), all_reduce(-30'000, -10'000, 1, 9));
  }
  const ProfileDocument d = ranks::join(three);
  EXPECT_EQ(d.world.clock, "shared");
  EXPECT_DOUBLE_EQ(d.world.clock_uncertainty_ns.value(), 20'000);
  EXPECT_FALSE(d.collectives[0].last_rank);
  EXPECT_EQ(d.collectives[1].last_rank, 1);
  EXPECT_DOUBLE_EQ(d.collectives[1].late_ns.value(), 50'000);
  EXPECT_EQ(d.collectives[1].late_because, "qkv");
  EXPECT_EQ(d.ranks[1].last_arrivals, 2);
  EXPECT_DOUBLE_EQ(d.ranks[1].late_ns.value(), 100'000);
  EXPECT_EQ(d.world.slowest_rank, 1);
  EXPECT_EQ(d.world.slowest_why, "op qkv");
  EXPECT_DOUBLE_EQ(d.world.slowest_late_ns.value(), 50'000);
}

TEST(Join, TheLastRankIsLateBehindTheLastButOne) {
  auto between = ranks::two_bucket_step();
  between[3].end_ns += 20'000;
  between[4].begin_ns += 20'000;
  std::vector<RankShape> three = with_short_collective({rank(0), rank(1, slow_backward()), rank(2, between)});
  for (RankShape& s : three) s.size = 3;
  const ProfileDocument d = ranks::join(three);
  EXPECT_EQ(d.collectives[2].last_rank, 1);
  EXPECT_DOUBLE_EQ(d.collectives[2].late_ns.value(), 30'000);  // 1250 us against 1220, not 1200
}

TEST(Join, ALowerClockIsTheReasonAndPowerWhereItWasTheLimit) {
  auto shapes = with_short_collective({rank(0), rank(1, slow_backward())});
  shapes[1].sm_clock_mhz = 1478;  // 1.5% below the other, 0.7% below the middle of both
  EXPECT_EQ(ranks::join(shapes).world.slowest_why, "clock");
  shapes[1].sm_clock_mhz = 1300;
  EXPECT_EQ(ranks::join(shapes).world.slowest_why, "clock");
  shapes[1].throttle = 4;  // nvmlClocksEventReasonSwPowerCap
  ASSERT_EQ(stepscope::nvml::throttle_words(4), std::vector<std::string>{"power_cap"});
  EXPECT_EQ(ranks::join(shapes).world.slowest_why, "power");
}

TEST(Join, ARankThatBeginsLateWaitedForItsDataOrItsHost) {
  auto shapes = with_short_collective({rank(0), rank(1)});
  // The first collective holds rank 0 until rank 1 has come, 60 us late; from then on both are in step.
  shapes[0].ops.front().end_ns += 60'000;
  shapes[1].ops.front().begin_ns += 60'000;
  shapes[1].ops.front().end_ns += 60'000;
  for (size_t r = 0; r < 2; ++r)
    for (size_t i = 1; i < shapes[r].ops.size(); ++i) {
      shapes[r].ops[i].begin_ns += 60'000;
      shapes[r].ops[i].end_ns += 60'000;
    }
  for (RankShape& s : shapes) s.ops.push_back(all_reduce(1'800'000, 1'820'000, 1, 8));
  EXPECT_EQ(ranks::join(shapes).world.slowest_rank, 1);
  EXPECT_EQ(ranks::join(shapes).world.slowest_why, "host");
  EXPECT_EQ(ranks::join(shapes).collectives[0].late_because, "host");
  shapes[1].between_ns += 55'000;
  EXPECT_EQ(ranks::join(shapes).world.slowest_why, "data");
}

TEST(Join, ASkewBelowTheUncertaintyOfTheClocksIsNoAnswer) {
  // Without the short collective the clocks are bounded by 300 us only.
  const ProfileDocument d = ranks::join({rank(0), rank(1, slow_backward())});
  EXPECT_DOUBLE_EQ(d.world.clock_uncertainty_ns.value(), 300'000);
  EXPECT_FALSE(d.collectives[1].last_rank);
  EXPECT_FALSE(d.world.slowest_rank);
  for (const RankRow& r : d.ranks) {
    EXPECT_FALSE(r.late_ns) << "not 0: nobody knows it";
    EXPECT_FALSE(r.last_arrivals);
  }
}

TEST(Join, ClocksOfOtherHostsAreBroughtTogetherByTheCollectives) {
  auto shapes = with_short_collective({rank(0), rank(1, slow_backward())});
  shapes[1].clock_ns = -11'000'000'000;  // ahead of the other
  shapes[1].boot = "boot-b";
  const ProfileDocument d = ranks::join(shapes);
  EXPECT_EQ(d.world.clock, "causality");
  ASSERT_TRUE(d.ranks[1].clock_offset_ns && d.ranks[1].clock_uncertainty_ns);
  EXPECT_NEAR(*d.ranks[1].clock_offset_ns, -11e9, *d.ranks[1].clock_uncertainty_ns);
  EXPECT_LE(*d.ranks[1].clock_uncertainty_ns, 20'000);
  EXPECT_EQ(d.collectives[2].last_rank, 1);
  for (const LaneRow& l : d.lanes) EXPECT_LT(std::abs(l.start_ns), 3e6) << "a lane by its own clock";
}

TEST(Join, AClockThatCannotBeSharedIsNotTrustedThoughItSaysSo) {
  auto shapes = with_short_collective({rank(0), rank(1)});
  shapes[1].clock_ns = 400'000;  // the same boot id, and yet each rank ends collectives before the other has begun them
  const ProfileDocument d = ranks::join(shapes);
  EXPECT_EQ(d.world.clock, "causality");
  EXPECT_NEAR(d.ranks[1].clock_offset_ns.value(), 400'000, d.ranks[1].clock_uncertainty_ns.value());
}

TEST(Join, TwoCollectivesAtOnceShareTheExposedTime) {
  std::vector<Op> ops{{"forward/0/qkv", 0, 100'000}, all_reduce(100'000, 300'000, 10, 0), all_reduce(200'000, 400'000, 10, 1)};
  ops.back().stream = 10;
  const ProfileDocument d = ranks::join({rank(0, ops), rank(1, ops)});
  EXPECT_DOUBLE_EQ(d.world.exposed_ns.value(), 300'000);
  EXPECT_DOUBLE_EQ(d.collectives[0].exposed_ns, 150'000);
  EXPECT_DOUBLE_EQ(d.collectives[1].exposed_ns, 150'000);
  EXPECT_EQ(on_rank(d, 1, 0).queue_for, "collective");
}

TEST(Join, CopiesOfOneRangeAreOneCollective) {
  std::vector<Op> ops = ranks::two_bucket_step();
  const std::string path = "communication/1/copy/all_reduce fp32 5000000 bucket 1";  // a range of its own, without a NCCL kernel
  ops[4] = {path, 1'200'000, 1'300'000, "copy PtoP", 9};
  ops.insert(ops.begin() + 5, {path, 1'350'000, 1'500'000, "copy PtoP", 9});
  const ProfileDocument d = ranks::join({rank(0, ops), rank(1, ops)});
  ASSERT_EQ(d.collectives.size(), 2u);
  EXPECT_DOUBLE_EQ(d.collectives[1].time_ns, 300'000);
  EXPECT_DOUBLE_EQ(d.collectives[1].exposed_ns, 250'000);  // nothing runs in the 50 us between the copies
  EXPECT_DOUBLE_EQ(d.ranks[0].idle_ns.value(), 50'000);
}

// Ranks copy tokens and rows into the buffer from which they are gathered. Neither waits there for the other: taken for collectives, one that rank 0
// made first and one that rank 1 made first say that the clocks contradict each other.
TEST(Join, ACopyThatARankMakesForItselfIsNoCollective) {
  const auto with_copies = [](int64_t tokens_ns, int64_t rows_ns) {
    std::vector<Op> ops = ranks::two_bucket_step();
    ops.push_back({"communication/-/copy", tokens_ns, tokens_ns + 1'000, "copy DtoD", 9});
    ops.push_back({"communication/2/copy", rows_ns, rows_ns + 1'000, "copy DtoD", 9});
    ops.push_back({"communication/-/copy/all_gather bf16 1000000", 1'510'000, 1'560'000, "wait_for_ranks_kernel(Meeting)", 9});
    return ops;
  };
  const ProfileDocument d = ranks::join({rank(0, with_copies(1'501'000, 1'508'000)), rank(1, with_copies(1'506'000, 1'503'000))});
  EXPECT_FALSE(profiler::is_missing(d, "clocks_not_aligned"));
  EXPECT_FALSE(profiler::is_missing(d, "collective_size_unknown"));
  ASSERT_EQ(d.collectives.size(), 3u);
  EXPECT_EQ(d.collectives[2].kind, "all_gather");
  EXPECT_EQ(d.collectives[2].bytes, 2'000'000);
  EXPECT_FALSE(d.collectives[2].bucket) << "rows are of no bucket";
}

// A rank arrives where it first waits for the others, and is done where it last did; the sum behind them is communication of its own.
TEST(Join, CopiesBetweenGpusBeginAndEndWhereRanksMeet) {
  const std::string path = "communication/1/copy/reduce_scatter fp32 5000000 bucket 1", meet = "wait_for_ranks_kernel(Meeting)";
  const auto step = [&](int64_t arrives_ns) {
    std::vector<Op> ops = ranks::two_bucket_step();
    ops[4] = {path, arrives_ns, 1'200'000, meet, 9};
    const std::vector<Op> more{{path, 1'200'000, 1'400'000, "copy PtoP", 9},
                               {path, 1'400'000, 1'410'000, meet, 9},
                               {path, 1'410'000, 1'450'000, "add_parts_kernel<float, 4>(float*)", 9}};
    ops.insert(ops.begin() + 5, more.begin(), more.end());
    return ops;
  };
  const ProfileDocument d = ranks::join({rank(0, step(1'190'000)), rank(1, step(1'150'000))});
  ASSERT_EQ(d.collectives.size(), 2u);
  EXPECT_EQ(d.collectives[1].kind, "reduce_scatter");
  EXPECT_EQ(d.collectives[1].bytes, 20'000'000);
  EXPECT_DOUBLE_EQ(on_rank(d, 1, 0).wait_ns.value(), 0);
  EXPECT_DOUBLE_EQ(on_rank(d, 1, 1).wait_ns.value(), 40'000);
  EXPECT_DOUBLE_EQ(on_rank(d, 1, 0).transfer_ns.value(), 220'000);
}

TEST(Join, ACastBesideNcclIsCommunicationButNoCollective) {
  std::vector<Op> ops = ranks::two_bucket_step();
  ops.insert(ops.begin() + 4, {"communication/7/copy", 1'200'000, 1'250'000, "narrow_kernel()", 9});
  ops[5].begin_ns = 1'250'000;
  const ProfileDocument d = ranks::join({rank(0, ops), rank(1, ops)});
  ASSERT_EQ(d.collectives.size(), 2u);
  EXPECT_DOUBLE_EQ(d.collectives[1].time_ns, 250'000);
  EXPECT_DOUBLE_EQ(d.world.exposed_ns.value(), 300'000);
  EXPECT_DOUBLE_EQ(d.ranks[0].work_ns.value(), 1'400'000);
}

// Packed beside NCCL's kernel of the same layer: another range, but the same leaf, and nothing that crosses a link.
TEST(Join, ACopyBesideNcclIsNoCollectiveWhateverTheRangesInsideItsLeaf) {
  std::vector<Op> ops = ranks::two_bucket_step();
  ops.insert(ops.begin() + 4, {"communication/0/copy/pack", 1'200'000, 1'250'000, "copy DtoD", 9});
  ops[5].begin_ns = 1'250'000;
  const ProfileDocument d = ranks::join({rank(0, ops), rank(1, ops)});
  ASSERT_EQ(d.collectives.size(), 2u);
  EXPECT_EQ(d.collectives[1].bytes, 20'000'000);
  EXPECT_DOUBLE_EQ(d.collectives[1].time_ns, 250'000);
}

TEST(Join, ACollectiveOfAnUnknownKindHasATimeButNoBandwidth) {
  std::vector<Op> ops = ranks::two_bucket_step();
  ops[4].name = "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
  ops[4].path = "communication/0/copy/broadcast";
  const ProfileDocument d = ranks::join({rank(0, ops), rank(1, ops)});
  ASSERT_EQ(d.collectives.size(), 2u);
  EXPECT_DOUBLE_EQ(d.collectives[1].time_ns, 300'000);
  EXPECT_FALSE(d.collectives[1].kind);
  EXPECT_FALSE(d.collectives[1].paid_bytes_per_s);
  EXPECT_FALSE(d.collectives[1].bus_bytes_per_s);
}

// "The tables show one traced step instead" was said of rank 0 in the tables of rank 1, which are medians.
TEST(Join, ThatAnotherRankHasNoMediansIsNotSaidOfTheTables) {
  const auto with_varying_steps_of = [](size_t varying) {
    std::vector<RankRecording> both{ranks::recording(rank(0)), ranks::recording(rank(1))};
    for (int64_t i = 0; i < 6; ++i) both[varying].recording.stats.push_back({Activity::kernel, i, 5, 900'000, 900'000, 1, 900'000});
    return join_ranks(both, std::nullopt, {}, {}, {});
  };
  const ProfileDocument own = with_varying_steps_of(0), other = with_varying_steps_of(1);
  for (const ProfileDocument* d : {&own, &other}) EXPECT_EQ(d->world.main_rank, 0);
  EXPECT_EQ(own.collection.time_basis, "one_traced_step");
  EXPECT_TRUE(is_missing(own, "traced_steps_vary"));
  EXPECT_EQ(other.collection.time_basis, "median_over_traced_steps");
  EXPECT_FALSE(is_missing(other, "traced_steps_vary"));
}

TEST(Join, CeilingsAreOfAnotherGpuWhereTheyAreNotOfTheRankOfTheTables) {
  const auto with_ceilings_of = [](const char* uuid) {
    Ceilings ceilings = fixture::round_ceilings();
    ceilings.uuid = uuid;
    return join_ranks({ranks::recording(rank(0)), ranks::recording(rank(1))}, std::nullopt, ceilings, {}, {});
  };
  const ProfileDocument own = with_ceilings_of("GPU-0"), other = with_ceilings_of("GPU-1");
  for (const ProfileDocument* d : {&own, &other}) EXPECT_EQ(d->world.main_rank, 0);
  EXPECT_FALSE(is_missing(own, "ceilings_of_other_gpu"));
  ASSERT_TRUE(fixture::missing_row(other, "ceilings_of_other_gpu"));
  EXPECT_EQ(fixture::missing_row(other, "ceilings_of_other_gpu")->detail, "measured on Test GPU GPU-1, the step ran on Test GPU GPU-0");
}

TEST(Join, WhatDoesNotBelongTogetherIsRefusedWithFilesAndDifference) {
  auto other = rank(1);
  other.job = "job-2";
  EXPECT_EQ(refusal({rank(0), other}), "rank0.jsonl and rank1.jsonl do not belong together: job 'job-1' and 'job-2'");
  other = rank(1);
  other.build = "build-2";
  EXPECT_EQ(refusal({rank(0), other}), "rank0.jsonl and rank1.jsonl do not belong together: build 'build-1' and 'build-2'");
  other = rank(1);
  other.size = 4;
  EXPECT_EQ(refusal({rank(0), other}), "rank0.jsonl and rank1.jsonl do not belong together: number of ranks '2' and '4'");
  EXPECT_EQ(refusal({rank(0), rank(0)}), "rank0.jsonl and rank0.jsonl are both of rank 0");
  EXPECT_EQ(refusal({}), "no recording to join");
}

TEST(Join, AMissingRankIsRefusedUnlessPartialWhichKnowsNoSkew) {
  auto shapes = with_short_collective({rank(0), rank(1, slow_backward())});
  for (RankShape& s : shapes) s.size = 4;
  EXPECT_EQ(refusal(shapes), "no recording of ranks 2, 3 of 4; --partial shows the others, without who waited for whom");
  for (RankShape& s : shapes) s.size = 512;
  EXPECT_EQ(refusal(shapes), "no recording of ranks 2-511 of 512; --partial shows the others, without who waited for whom");
  for (RankShape& s : shapes) s.size = 4;
  JoinOptions partial;
  partial.partial = true;
  const ProfileDocument d = ranks::join(shapes, partial);
  EXPECT_EQ(d.ranks.size(), 2u);
  EXPECT_TRUE(fixture::missing_row(d, "rank_missing"));
  EXPECT_FALSE(d.collectives[2].last_rank);
  EXPECT_FALSE(d.collectives[2].transfer_ns);
  EXPECT_FALSE(d.world.exposed_wait_ns);
  EXPECT_GT(d.collectives[2].exposed_ns, 0);
}

TEST(Join, AStepThatIsNotTheSameStepIsRefused) {
  RankRecording a = ranks::recording(rank(0)), b = ranks::recording(rank(1));
  for (LaunchRecord& l : b.recording.launches) l.step = 11;
  EXPECT_THROW(join_ranks({a, b}, std::nullopt, {}, {}, {}), stepscope::InputError);
}

TEST(Join, AnOperationThatStandsTwiceIsRefusedWithItsFile) {
  RankRecording a = ranks::recording(rank(0)), b = ranks::recording(rank(1));
  b.recording.launches.push_back(b.recording.launches.front());
  try {
    join_ranks({a, b}, std::nullopt, {}, {}, {});
    ADD_FAILURE() << "accepted";
  } catch (const stepscope::InputError& e) {
    EXPECT_EQ(e.what(), b.source + ": kernel 0 of step 12 is there twice in the recording");
  }
}

TEST(Join, ARankThatWasKilledBeforeItsTracedStepLeavesTheOthersInTheDocument) {
  RankRecording a = ranks::recording(rank(0)), b = ranks::recording(rank(1));
  b.recording.launches.clear();
  b.recording.missing.push_back({"truncated_recording", 1, "rank1.jsonl ends after line 4"});
  const ProfileDocument d = join_ranks({a, b}, std::nullopt, {}, {}, {});
  EXPECT_EQ(d.world.main_rank, 0);
  EXPECT_TRUE(fixture::missing_row(d, "rank_not_traced"));
  ASSERT_TRUE(fixture::missing_row(d, "truncated_recording"));
  EXPECT_EQ(fixture::missing_row(d, "truncated_recording")->detail, "rank 1: rank1.jsonl ends after line 4");
  EXPECT_TRUE(d.collectives.empty());
  EXPECT_DOUBLE_EQ(d.world.exposed_ns.value(), 300'000);
}

TEST(Join, RanksThatLaunchedOtherCollectivesAreNotJoined) {
  auto ops = ranks::two_bucket_step();
  ops.erase(ops.begin() + 4);
  const ProfileDocument d = ranks::join({rank(0), rank(1, ops)});
  ASSERT_TRUE(fixture::missing_row(d, "collectives_not_joined"));
  EXPECT_EQ(fixture::missing_row(d, "collectives_not_joined")->detail, "2 collectives on rank 0, 1 on rank 1");
  EXPECT_TRUE(d.collectives.empty());
}

TEST(Join, CollectivesAreJoinedByTheirPlaceInTheStepAndNotByTime) {
  // On rank 1 the second reduction runs before the first one has begun, on another stream.
  auto ops = ranks::two_bucket_step();
  ops[4].begin_ns = 700'000;
  ops[4].end_ns = 1'250'000;
  const ProfileDocument d = ranks::join({rank(0), rank(1, ops)});
  ASSERT_EQ(d.collectives.size(), 2u);
  EXPECT_EQ(d.collectives[1].bucket, 1);
  EXPECT_DOUBLE_EQ(on_rank(d, 1, 1).start_ns, 700'000);
}

TEST(Join, CollectivesOfOneGraphFollowItsNodesAndNotTheOrderOfTheirRecords) {
  std::vector<RankRecording> both{ranks::recording(rank(0)), ranks::recording(rank(1))};
  for (RankRecording& r : both) {
    int64_t node = 0;
    for (LaunchRecord& l : r.recording.launches) {
      l.launch_ns = r.recording.launches.front().launch_ns;
      l.correlation = 100;
      l.graph_node = ++node;
    }
    std::swap(r.recording.launches[2].index, r.recording.launches[4].index);
  }
  const ProfileDocument d = join_ranks(both, std::nullopt, {}, {}, {});
  ASSERT_EQ(d.collectives.size(), 2u);
  EXPECT_EQ(d.collectives[0].bytes, 40'000'000);
  EXPECT_EQ(d.collectives[1].bytes, 20'000'000);
}

TEST(Join, TokensOfAllRanksCountThoseWhoseRecordingIsMissing) {
  std::vector<RankRecording> half;
  for (RankShape s : {rank(0), rank(1)}) {
    s.size = 4;
    half.push_back(ranks::recording(s));
  }
  JoinOptions partial;
  partial.partial = true;
  const ProfileDocument d = join_ranks(half, fixture::gpt2_run(), {}, fixture::options(), partial);
  EXPECT_DOUBLE_EQ(d.world.tokens_per_s.value(), 4 * d.timing.tokens_per_s.value());
}

TEST(Join, TheDocumentReadsBackAsItWasWritten) {
  const ProfileDocument d = ranks::join(with_short_collective({rank(0), rank(1, slow_backward())}));
  EXPECT_EQ(to_json(profile_from_json(to_json(d), "test")), to_json(d));
}

TEST(Join, TheRanksLineOfARecordingReadsBack) {
  const RankRecording a = ranks::recording(rank(1));
  const std::string file = testing::TempDir() + "/rank1.jsonl";
  save_recording(a.recording, file);
  const Recording back = load_recording(file);
  ASSERT_TRUE(back.rank);
  EXPECT_EQ(back.rank->rank, 1);
  EXPECT_EQ(back.rank->boot_id, "boot-a");
  std::ifstream in(file);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  std::istringstream twice(text.substr(0, text.rfind("{\"type\":\"end\"}")) +
                           R"({"type":"rank","rank":0,"size":2,"job":"","host":"","boot_id":"","time_namespace":"","build":""})" + "\n");
  EXPECT_THROW(read_recording(twice, "twice"), stepscope::InputError);
}

}  // namespace

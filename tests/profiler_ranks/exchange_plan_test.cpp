// Which collectives a step makes, in which order, against the orders that gpt2/ops/gradient_exchange.cpp has: written down by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"
#include "cli/rank_exchange.h"
#include "profiler/ranks/exchange_plan.h"

namespace {

using namespace profiler;
using testing::DoubleEq;
using testing::ElementsAre;

std::string spelled(const StepPlace& place) {
  constexpr const char* kWords[] = {"begin",    "embed",          "forward", "between", "loss", "head",
                                    "backward", "embed_backward", "norm",    "update",  "end"};
  const std::string word = kWords[static_cast<int>(place.kind)];
  const bool numbered = word == "forward" || word == "backward" || word == "update";
  return numbered ? word + std::to_string(place.layer) : word;
}

// "kind type MB ready>needed"
std::vector<std::string> spelled(const ExchangePlan& plan) {
  std::vector<std::string> lines;
  for (const PlannedCollective& c : plan.collectives)
    lines.push_back(c.kind + " " + c.type + " " + std::to_string(c.bytes / 1'000'000) + " " + spelled(c.ready) + ">" + spelled(c.needed));
  return lines;
}

// Two layers in one bucket, one in the next, then the embedding.
const std::vector<GradientBucket> kBuckets{{20'000'000, "bf16", 1}, {10'000'000, "bf16", 0}, {40'000'000, "fp32", -1}};

ExchangeOptions of(const std::string& communication, bool gathered_rows = false) {
  ExchangeOptions o;
  o.communication = communication;
  o.gathered_rows = gathered_rows;
  o.ranks = 2;
  o.tokens = 1'000'000;
  o.row_bytes = 4;
  return o;
}

TEST(ExchangePlan, Zero1AheadGathersWhatAStepBeginsWithBesideTheUpdateAndTheOtherLayersAtTheHeadOfTheStep) {
  const ExchangePlan plan = exchange_plan(kBuckets, of("zero1_ahead"));
  EXPECT_THAT(spelled(plan),
              ElementsAre("all_gather bf16 40 begin>forward1", "reduce_scatter bf16 40 backward1>norm",
                          "reduce_scatter bf16 20 backward0>norm", "reduce_scatter fp32 160 embed_backward>norm",
                          "all_gather fp64 0 norm>update0", "all_gather bf16 80 update0>end", "all_gather bf16 20 update0>end"));
  EXPECT_THAT(plan.update_pieces, ElementsAre(DoubleEq(5.0 / 7), DoubleEq(2.0 / 7)));
  const ExchangePlan whole = exchange_plan({{30'000'000, "bf16", 0}, {40'000'000, "fp32", -1}}, of("zero1_ahead"));
  EXPECT_THAT(whole.update_pieces, ElementsAre(1)) << "with one bucket of layers nothing is left for a second piece";
  EXPECT_EQ(spelled(whole).back(), "all_gather bf16 60 update0>end");
}

TEST(ExchangePlan, GatheredRowsSendTheEmbeddingsBucketFirstAndTheLastOfTheLayersBehindTheRows) {
  const ExchangePlan plan = exchange_plan(kBuckets, of("zero1_ahead", true));
  const std::vector<std::string> lines = spelled(plan);
  EXPECT_THAT(
      std::vector<std::string>(lines.begin() + 1, lines.end() - 2),
      ElementsAre("all_gather fp32 8 loss>embed_backward", "reduce_scatter fp32 160 head>norm", "reduce_scatter bf16 40 backward1>norm",
                  "all_gather bf16 8 backward0>embed_backward", "reduce_scatter bf16 20 backward0>norm", "all_gather fp64 0 norm>update0"));
  EXPECT_DOUBLE_EQ(plan.embed_backward_share, 2);
  EXPECT_DOUBLE_EQ(plan.update_share, 0.5);
}

TEST(ExchangePlan, AllThatLayerZeroCompletesGoesBehindTheRows) {
  std::vector<GradientBucket> buckets = kBuckets;
  buckets.insert(buckets.begin() + 2, {1'000'000, "fp32", 0});  // biases and norms of all layers
  const std::vector<std::string> lines = spelled(exchange_plan(buckets, of("zero1_ahead", true)));
  EXPECT_THAT(
      std::vector<std::string>(lines.begin() + 1, lines.end() - 3),
      ElementsAre("all_gather fp32 8 loss>embed_backward", "reduce_scatter fp32 160 head>norm", "reduce_scatter bf16 40 backward1>norm",
                  "all_gather bf16 8 backward0>embed_backward", "reduce_scatter bf16 20 backward0>norm",
                  "reduce_scatter fp32 4 backward0>norm", "all_gather fp64 0 norm>update0"));
  EXPECT_THAT(std::vector<std::string>(lines.end() - 3, lines.end()),
              ElementsAre("all_gather bf16 80 update0>end", "all_gather bf16 2 update0>end", "all_gather bf16 20 update0>end"));
}

TEST(ExchangePlan, Zero1GathersBehindEachPieceOfTheUpdate) {
  const ExchangePlan plan = exchange_plan(kBuckets, of("zero1"));
  const std::vector<std::string> lines = spelled(plan);
  EXPECT_THAT(std::vector<std::string>(lines.begin() + 4, lines.end()),
              ElementsAre("all_gather bf16 80 update0>end", "all_gather bf16 20 update1>end", "all_gather bf16 40 update2>end"));
  EXPECT_THAT(plan.update_pieces, ElementsAre(4.0 / 7, 1.0 / 7, 2.0 / 7));
}

TEST(ExchangePlan, AnAllReduceLeavesTheUpdateWholeAndGathersLossesAlone) {
  const ExchangePlan plan = exchange_plan(kBuckets, of("all_reduce_overlapped"));
  EXPECT_THAT(spelled(plan), ElementsAre("all_reduce bf16 40 backward1>norm", "all_reduce bf16 20 backward0>norm",
                                         "all_reduce fp32 160 embed_backward>norm", "all_gather fp64 0 norm>update0"));
  EXPECT_DOUBLE_EQ(plan.update_share, 1);
  EXPECT_EQ(plan.collectives.back().bytes, 2 * 8);
  EXPECT_THAT(spelled(exchange_plan(kBuckets, of("all_reduce"))),
              ElementsAre("all_reduce bf16 40 embed_backward>norm", "all_reduce bf16 20 embed_backward>norm",
                          "all_reduce fp32 160 embed_backward>norm", "all_gather fp64 0 norm>update0"));
}

TEST(ExchangePlan, OneRankSaysNothingAndUnknownWaysAreRefused) {
  ExchangeOptions one = of("zero1_ahead", true);
  one.ranks = 1;
  EXPECT_TRUE(exchange_plan(kBuckets, one).collectives.empty());
  EXPECT_DOUBLE_EQ(exchange_plan(kBuckets, one).embed_backward_share, 1);
  EXPECT_THROW(exchange_plan(kBuckets, of("zero3")), stepscope::InputError);
  EXPECT_THROW(exchange_plan(kBuckets, of("all_reduce", true)), stepscope::InputError);
}

// ---- the trainers' buckets of a profiled model

ProfileDocument d12(const std::string& trainer) {
  ProfileDocument d;
  d.run.trainer = trainer;
  d.run.layers = d.run.heads = 12;
  d.run.channels = 768;
  d.run.vocab_size = 50257;
  d.run.padded_vocab = 50304;
  d.run.max_seq_len = 1024;
  d.run.variants = {{"weight_gradients", "fp32"}};
  return d;
}

TEST(RankExchange, TheBucketsOfD12AreThoseThatTheTrainersMake) {
  cli::RankExchange exchange;
  exchange.communication = "all_reduce_overlapped";
  exchange.embedding = "dense";
  const auto bytes = [&] {
    std::vector<int64_t> list;
    for (const PlannedCollective& c : cli::exchange_of(d12("mixed"), exchange, 2, 4096).collectives) list.push_back(c.bytes);
    return list;
  };
  // 12 layers of 7,087,872 parameters, of which the first to be sent has the final norm too; wpe and wte. In whole blocks of 2,048 for two ranks.
  const std::vector<int64_t> each = bytes();
  ASSERT_EQ(each.size(), 14u);
  EXPECT_NEAR(static_cast<double>(each[1]), 28.4e6, 0.1e6);
  EXPECT_NEAR(static_cast<double>(each[12]), 157.7e6, 0.1e6);
  for (size_t i = 0; i < 13; ++i) EXPECT_EQ(each[i] % (2 * 2048 * 4), 0) << i;
  exchange.bucket_mib = 55;  // three layers
  EXPECT_EQ(bytes().size(), 4u + 1 + 1);
}

TEST(RankExchange, GradientsOfTheBlocksMatricesTravelInBf16AsTheyLie) {
  ProfileDocument d = d12("mixed");
  d.run.variants.clear();  // bf16 is the first
  cli::RankExchange exchange;
  exchange.communication = "all_reduce_overlapped";
  exchange.embedding = "dense";
  int64_t bf16 = 0, fp32 = 0;
  for (const PlannedCollective& c : cli::exchange_of(d, exchange, 2, 4096).collectives)
    (c.type == "bf16" ? bf16 : c.type == "fp32" ? fp32 : bf16) += c.type == "fp64" ? 0 : c.bytes;
  // 12 layers of 12 * 768 * 768 matrix elements; what else there is are 0.1% of a layer and the embeddings' 39.4 M parameters.
  EXPECT_NEAR(static_cast<double>(bf16), 12.0 * 12 * 768 * 768 * 2, 1e5);
  EXPECT_NEAR(static_cast<double>(fp32), (12.0 * 13 * 768 + 2 * 768 + (50304.0 + 1024) * 768) * 4, 2e6);
  d.run.trainer = "fp32";
  for (const PlannedCollective& c : cli::exchange_of(d, exchange, 2, 4096).collectives) EXPECT_NE(c.type, "bf16");
}

TEST(RankExchange, RowsAreGatheredWhereTheyAreFewerBytesThanTheEmbeddingsGradient) {
  const auto gathers = [](const char* trainer, double rows, const char* communication = "zero1_ahead") {
    cli::RankExchange exchange;
    exchange.communication = communication;
    return cli::exchange_of(d12(trainer), exchange, 2, rows).embed_backward_share == 2;
  };
  EXPECT_TRUE(gathers("mixed", 4096));
  EXPECT_TRUE(gathers("mixed", 49 * 1024));
  EXPECT_FALSE(gathers("mixed", 50 * 1024)) << "two ranks of d12: above 49 sequences of 1024 each in bf16";
  EXPECT_FALSE(gathers("mixed", 4096, "all_reduce"));
  EXPECT_FALSE(gathers("fp32", 4096)) << "it has no such slot";
  const auto bytes = [](const char* embedding, const char* residual_gradient) {
    cli::RankExchange exchange;
    exchange.embedding = embedding;
    ProfileDocument d = d12("mixed");
    d.run.variants["residual_gradient"] = residual_gradient;
    for (const PlannedCollective& c : cli::exchange_of(d, exchange, 2, 4096).collectives)
      if (c.needed.kind == StepPlace::Kind::embed_backward && c.type == "bf16") return c.bytes;
    return int64_t{0};
  };
  constexpr int64_t kRows = 2 * 4096 * 768;
  EXPECT_EQ(bytes("auto", "fp32"), kRows * 2);
  EXPECT_EQ(bytes("gathered_bf16_rows", "fp32"), kRows * 2);
  EXPECT_EQ(bytes("gathered_rows", "fp32"), kRows * 4);
  EXPECT_EQ(bytes("gathered_rows", "bf16"), kRows * 2);
  EXPECT_EQ(bytes("dense", "fp32"), 0);
}

TEST(RankExchange, WeightsAreAsWideAsTheTrainerHasThem) {
  for (const auto& [trainer, type] : {std::pair("mixed", "bf16"), std::pair("fp32", "fp32")}) {
    const ExchangePlan plan = cli::exchange_of(d12(trainer), {}, 2, 4096);
    EXPECT_EQ(plan.collectives.front().type, type);
    EXPECT_EQ(plan.collectives.front().op, "gather_weights");
  }
  cli::RankExchange copies;
  copies.communicator = "peer";
  EXPECT_EQ(cli::exchange_of(d12("mixed"), copies, 2, 4096).collectives.front().kind, "all_gather_in_place");
  ProfileDocument unknown = d12("mixed");
  unknown.run.heads.reset();
  EXPECT_THROW(cli::exchange_of(unknown, {}, 2, 4096), stepscope::InputError);
}

// Two layers of d12 in 25 MiB of bf16, layer 1, layer 0, biases and norms, the embedding; or all but layer 0 at once.
TEST(RankExchange, BucketsAreThoseThatTrainTakesByItself) {
  const auto buckets = [](const char* communicator, double rows, int64_t bucket_mib = 0, int64_t accumulation = 1) {
    cli::RankExchange exchange;
    exchange.communicator = communicator;
    exchange.bucket_mib = bucket_mib;
    ProfileDocument d = d12("mixed");
    d.run.accumulation = accumulation;
    if (accumulation == 1) d.run.variants.clear();  // several micro-batches add up in fp32
    const auto plan = cli::exchange_of(d, exchange, 2, rows).collectives;
    return std::count_if(plan.begin(), plan.end(), [](const PlannedCollective& c) { return c.kind == "reduce_scatter"; });
  };
  EXPECT_EQ(buckets("peer", 16 * 1024), 9);
  EXPECT_EQ(buckets("peer", 64 * 1024), 4);
  EXPECT_EQ(buckets("peer", 64 * 1024, 25), 9);
  EXPECT_EQ(buckets("nccl", 64 * 1024), 9);
  EXPECT_EQ(buckets("peer", 64 * 1024, 0, 2), 3) << "a step of two micro-batches, whose gradients are fp32";
}

}  // namespace

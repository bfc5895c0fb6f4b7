// The floors of communication, counted by hand for one block of parameters per bucket and two ranks.
#include "gpt2/ops/rank_work.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpt2/distributed/peer_communicator.h"

namespace gpt2::ops {
namespace {

// lnf and one layer, then the embedding: two buckets.
ModelConfig small() { return {.max_seq_len = 4, .vocab_size = 8, .padded_vocab = 8, .layers = 1, .heads = 1, .channels = 8}; }

RankPlan plan(Communication communication, GradientReduction reduction = GradientReduction::as_stored,
              EmbeddingExchange embedding = EmbeddingExchange::dense, unsigned narrow = 0) {
  RankPlan p{distributed::BucketPlan(small(), 2, 1, narrow), communication, reduction, 0};
  p.embedding = embedding;
  p.embedding_rows = 10;
  p.embedding_row_bytes = 32;
  return p;
}

double bytes(const std::vector<OpWork>& work, Pass pass, int layer, Op op) {
  double sum = -1;
  for (const OpWork& w : work)
    if (w.pass == pass && w.layer == layer && w.op == op) {
      EXPECT_EQ(sum, -1) << "two entries";
      sum = w.min_bytes;
    }
  return sum;
}

const std::vector<OpWork> kAlone{{Pass::optimizer, kNoLayer, Op::adamw, 0, 1000}, {Pass::backward, kNoLayer, Op::embedding, 0, 500}};
// Twelve tensors of a layer and lnf's two fill a block of 2048 each; wpe and wte one each.
constexpr double kLayer = 14 * 2048, kEmbedding = 2 * 2048;

TEST(RankWork, AnAllReduceReadsAndWritesABucketOnce) {
  const auto work = work_of_rank(kAlone, plan(Communication::all_reduce_overlapped), 2);
  EXPECT_EQ(bytes(work, Pass::communication, 0, Op::reduce_gradients), 2 * 4 * kLayer);
  EXPECT_EQ(bytes(work, Pass::communication, kNoLayer, Op::reduce_gradients), 2 * 4 * kEmbedding);
  EXPECT_EQ(bytes(work, Pass::communication, 0, Op::gather_weights), -1);
  EXPECT_EQ(bytes(work, Pass::communication, kNoLayer, Op::norm_gather), 16);  // a loss is read, another written
  EXPECT_EQ(bytes(work, Pass::optimizer, kNoLayer, Op::adamw), 1000);
}

TEST(RankWork, ADividedUpdateWritesHalfOfTheSumsAndGathersWeights) {
  for (const Communication c : {Communication::zero1, Communication::zero1_ahead}) {
    const auto work = work_of_rank(kAlone, plan(c), 2);
    EXPECT_EQ(bytes(work, Pass::communication, 0, Op::reduce_gradients), 1.5 * 4 * kLayer);
    EXPECT_EQ(bytes(work, Pass::communication, 0, Op::gather_weights), 2 * kLayer);
    EXPECT_EQ(bytes(work, Pass::communication, kNoLayer, Op::gather_weights), 2 * kEmbedding);
    EXPECT_EQ(bytes(work, Pass::communication, kNoLayer, Op::norm_gather), 2 * 8 * ((14 + 2) / 2 + 1));
    EXPECT_EQ(bytes(work, Pass::optimizer, kNoLayer, Op::adamw), 500);
  }
}

TEST(RankWork, Bf16IsRoundedReducedAndWidened) {
  const auto work = work_of_rank(kAlone, plan(Communication::all_reduce, GradientReduction::as_bf16), 2);
  EXPECT_EQ(bytes(work, Pass::communication, 0, Op::reduce_gradients), (4 + 2 + 2 + 2 + 2 + 4) * kLayer);
}

// Of the layer's matrices, a block each; what is left of the layer, with lnf, is a bucket in fp32.
constexpr unsigned kMatrices = 1u << static_cast<unsigned>(Tensor::qkvw) | 1u << static_cast<unsigned>(Tensor::attprojw) |
                               1u << static_cast<unsigned>(Tensor::fcw) | 1u << static_cast<unsigned>(Tensor::fcprojw);

TEST(RankWork, GradientsThatLieInBf16AreHalfTheBytesAndNotRoundedAgain) {
  for (const GradientReduction reduction : {GradientReduction::as_stored, GradientReduction::as_bf16}) {
    const auto work = work_of_rank(kAlone, plan(Communication::zero1, reduction, EmbeddingExchange::dense, kMatrices), 2);
    const double wide = reduction == GradientReduction::as_stored ? 1.5 * 4 : 4 + 2 + 2 + 1 + (2 + 4) / 2.0;
    EXPECT_EQ(bytes(work, Pass::communication, 0, Op::reduce_gradients), 1.5 * 2 * 4 * 2048 + wide * 10 * 2048);
    EXPECT_EQ(bytes(work, Pass::communication, 0, Op::gather_weights), 2 * kLayer);
  }
}

TEST(RankPlan, RoundsForTheWayWhatIsStoredInFp32Alone) {
  EXPECT_EQ(plan(Communication::zero1, GradientReduction::as_bf16).rounded_elements(), static_cast<int64_t>(kLayer));
  const RankPlan narrow = plan(Communication::zero1, GradientReduction::as_bf16, EmbeddingExchange::dense, kMatrices);
  EXPECT_EQ(narrow.rounded_elements(), 10 * 2048);
  EXPECT_EQ(plan(Communication::zero1).rounded_elements(), 0);
}

// A state that is no fp32 vector passes through the buffer even where every rank has all of it.
TEST(RankPlan, HasABufferForSplitStates) {
  RankPlan p = plan(Communication::all_reduce);
  EXPECT_EQ(p.gather_elements(), 0);
  p.split_states = true;
  EXPECT_EQ(p.gather_elements(), static_cast<int64_t>(kLayer) / 2);
  EXPECT_EQ(plan(Communication::zero1).gather_elements(), static_cast<int64_t>(kLayer) / 2);
}

TEST(RankWork, RowsAreCopiedGatheredAndRead) {
  const auto work =
      work_of_rank(kAlone, plan(Communication::all_reduce_overlapped, GradientReduction::as_stored, EmbeddingExchange::gathered_rows), 2);
  const double own = 10 * (32 + 4);
  EXPECT_EQ(bytes(work, Pass::communication, kNoLayer, Op::reduce_gradients), 2 * 4 * kEmbedding + 2 * own + own + own);
  EXPECT_EQ(bytes(work, Pass::backward, kNoLayer, Op::embedding), 500 + own);
}

// Receives like the peer communicator: as many bytes as one slice has, and three.
struct Receiver final : distributed::Communicator {
  distributed::World of;
  const distributed::World& world() const override { return of; }
  void enqueue(const distributed::Collective&, void*, void*) override {}
  int64_t receive_bytes(int64_t slice_bytes) const override { return slice_bytes + 3; }
  bool memory_is_host() const override { return false; }
  bool is_asynchronous() const override { return true; }
  std::string name() const override { return "receiver"; }
  std::optional<distributed::Failure> failure() override { return std::nullopt; }
  void abort() noexcept override {}
};

// The layer's bucket has the largest slice, unless rows are gathered that are more.
TEST(RankPlan, HoldsWhatTheCommunicatorReceivesTheLargestSliceIn) {
  Receiver receiver;
  const auto slice = static_cast<int64_t>(kLayer) / 2 * 4;
  for (const auto communication : {Communication::all_reduce, Communication::zero1, Communication::zero1_ahead}) {
    RankPlan p = plan(communication);
    EXPECT_EQ(p.slice_bytes(), slice);
    const int64_t without = p.buffer_bytes();
    p.communicator = &receiver;
    EXPECT_EQ(p.buffer_bytes(), without + slice + 3);
  }
  RankPlan rows = plan(Communication::zero1, GradientReduction::as_stored, EmbeddingExchange::gathered_rows);
  EXPECT_EQ(rows.slice_bytes(), slice);
  rows.embedding_rows = 1 << 20;
  EXPECT_EQ(rows.slice_bytes(), int64_t{32} << 20);
}

TEST(PeerCommunicator, RefusesRanksThatItsCopiesDoNotReach) {
  distributed::World world;
  world.size = 2;
  EXPECT_EQ(distributed::why_no_peer(world), std::nullopt);
  world.nodes = 2;
  EXPECT_THAT(distributed::why_no_peer(world).value_or(""), ::testing::HasSubstr("2 hosts"));
  world.nodes = 1;
  world.size = 17;
  EXPECT_THAT(distributed::why_no_peer(world).value_or(""), ::testing::HasSubstr("at most 16"));
}

}  // namespace
}  // namespace gpt2::ops

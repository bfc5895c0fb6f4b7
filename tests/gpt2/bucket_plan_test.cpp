// The plan of buckets and slices as arithmetic: every element once, at any number of ranks.
#include "gpt2/distributed/bucket_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <set>
#include <vector>

#include "gpt2/distributed/bucket_size.h"

namespace gpt2::distributed {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;

std::vector<ModelConfig> models() {
  return {model_from_name("tiny"),
          model_from_name("d12"),
          {.max_seq_len = 33, .vocab_size = 509, .padded_vocab = 512, .layers = 3, .heads = 5, .channels = 45},
          {.max_seq_len = 7, .vocab_size = 11, .padded_vocab = 128, .layers = 1, .heads = 1, .channels = 3}};
}

unsigned bits_of(std::initializer_list<Tensor> tensors) {
  unsigned bits = 0;
  for (const Tensor t : tensors) bits |= 1u << static_cast<unsigned>(t);
  return bits;
}
const unsigned kMatrices = bits_of({Tensor::qkvw, Tensor::attprojw, Tensor::fcw, Tensor::fcprojw});

struct Shape {
  int ranks;
  int64_t bucket_bytes;
  unsigned narrow;
};
std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const int ranks : {1, 2, 3, 4, 5, 8, 64})
    for (const int64_t bytes : {int64_t{1}, 25 * kMib, int64_t{1} << 40})
      for (const unsigned narrow : {0u, kMatrices, bits_of({Tensor::fcb})}) all.push_back({ranks, bytes, narrow});
  return all;
}

template <class Check>
void for_all_plans(const Check& check) {
  for (const ModelConfig& model : models())
    for (const Shape& shape : shapes()) {
      SCOPED_TRACE(describe(model) + ", ranks " + std::to_string(shape.ranks) + ", bucket bytes " + std::to_string(shape.bucket_bytes) +
                   ", narrow " + std::to_string(shape.narrow));
      check(model, BucketPlan(model, shape.ranks, shape.bucket_bytes, shape.narrow));
    }
}

TEST(BucketPlan, EveryElementOfTheFileHasOnePlaceInTheArena) {
  for_all_plans([](const ModelConfig& model, const BucketPlan& plan) {
    std::vector<Segment> by_file = plan.segments();
    std::sort(by_file.begin(), by_file.end(), [](const Segment& a, const Segment& b) { return a.file < b.file; });
    int64_t file = 0;
    for (const Segment& s : by_file) {
      ASSERT_EQ(s.file, file);
      file += s.size;
    }
    EXPECT_EQ(file, tensor_layout(model).total);
    for (size_t i = 1; i < plan.segments().size(); ++i)
      ASSERT_LE(plan.segments()[i - 1].arena + plan.segments()[i - 1].size, plan.segments()[i].arena);
    EXPECT_LE(plan.segments().back().arena + plan.segments().back().size, plan.elements());
    for (const Segment& s : plan.segments()) ASSERT_EQ(plan.at(s.tensor, s.layer), s.arena);
  });
}

TEST(BucketPlan, BucketsFollowEachOtherAndHoldWholeTensors) {
  for_all_plans([](const ModelConfig&, const BucketPlan& plan) {
    int64_t end = 0;
    for (const Bucket& b : plan.buckets()) {
      ASSERT_EQ(b.begin, end);
      ASSERT_GT(b.elements, 0);
      end += b.elements;
    }
    EXPECT_EQ(end, plan.elements());
    for (const Segment& s : plan.segments()) {
      const auto holds = [&](const Bucket& b) { return b.begin <= s.arena && s.arena + s.size <= b.begin + b.elements; };
      ASSERT_EQ(std::count_if(plan.buckets().begin(), plan.buckets().end(), holds), 1);
    }
  });
}

// A bucket that is sent before its last gradient is written would send zeros or old sums.
TEST(BucketPlan, ABucketIsReadyNoEarlierThanItsTensors) {
  for_all_plans([](const ModelConfig& model, const BucketPlan& plan) {
    const auto done_after = [&](const Segment& s) {  // counted from the begin of the backward pass
      if (s.tensor == Tensor::wte || s.tensor == Tensor::wpe) return model.layers;
      return s.tensor == Tensor::lnfw || s.tensor == Tensor::lnfb ? int64_t{0} : model.layers - 1 - s.layer;
    };
    int64_t last = -1;
    for (const Bucket& b : plan.buckets()) {
      const int64_t ready = b.ready_after == kAfterEmbedding ? model.layers : model.layers - 1 - b.ready_after;
      // Layer 0 completes the last narrow bucket and the wide one behind it.
      EXPECT_TRUE(plan.narrow_elements() > 0 ? ready >= last : ready > last);
      last = ready;
      for (const Segment& s : plan.segments())
        if (s.arena >= b.begin && s.arena < b.begin + b.elements) {
          ASSERT_LE(done_after(s), ready);
        }
    }
    EXPECT_EQ(plan.buckets().back().ready_after, kAfterEmbedding);
  });
}

// Kernels find a gradient in bf16 by its place in the arena alone.
TEST(BucketPlan, GradientsInBf16ComeFirstAndHaveBucketsOfTheirOwn) {
  for (const ModelConfig& model : models())
    for (const Shape& shape : shapes()) {
      const BucketPlan plan(model, shape.ranks, shape.bucket_bytes, shape.narrow);
      for (const Segment& s : plan.segments()) {
        const bool narrow = (shape.narrow >> static_cast<unsigned>(s.tensor) & 1u) != 0;
        ASSERT_EQ(s.arena < plan.narrow_elements(), narrow) << static_cast<int>(s.tensor);
      }
      for (const Bucket& b : plan.buckets()) ASSERT_EQ(b.narrow, b.begin + b.elements <= plan.narrow_elements());
      const auto wide = std::count_if(plan.buckets().begin(), plan.buckets().end(), [](const Bucket& b) { return !b.narrow; });
      if (shape.narrow != 0)
        EXPECT_EQ(wide, 2);  // what is left of the layers, and the embedding
      else
        EXPECT_EQ(plan.narrow_elements(), 0);
    }
}

TEST(BucketPlan, SlicesOfAllRanksCoverEachBlockOnce) {
  for_all_plans([](const ModelConfig& model, const BucketPlan& plan) {
    std::set<int64_t> seen;
    int64_t valid = 0;
    for (int rank = 0; rank < plan.ranks(); ++rank) {
      const auto owned = plan.owned_blocks(rank);
      ASSERT_EQ(static_cast<int64_t>(owned.size()) * kBlock, plan.owned_elements());
      for (const ArenaBlock& b : owned) {
        ASSERT_TRUE(seen.insert(b.arena).second);
        ASSERT_EQ(b.arena % kBlock, 0);
        valid += b.valid;
      }
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()) * kBlock, plan.elements());
    EXPECT_EQ(valid, tensor_layout(model).total);
  });
}

TEST(BucketPlan, ABlockKnowsItsTensor) {
  const ModelConfig model = models()[2];
  const BucketPlan plan(model, 3, 1);
  const TensorLayout layout = tensor_layout(model);
  for (const ArenaBlock& block : plan.blocks(0, plan.elements())) {
    if (block.valid == 0) continue;
    for (const TensorRow& row : kTensorTable) {
      const TensorSpan& span = layout[row.id];
      if (block.file < span.offset || block.file >= span.offset + span.size) continue;
      EXPECT_EQ(block.decayed != 0, row.decayed) << row.name;
      const int64_t layer = row.per_layer ? (block.file - span.offset) / span.per_layer : 0;
      EXPECT_EQ(block.arena - plan.at(row.id, layer), block.file - span.offset - layer * span.per_layer) << row.name;
      EXPECT_LE(block.file + block.valid, span.offset + (layer + 1) * span.per_layer) << row.name;
    }
  }
}

// Norm and update walk blocks in the arena's order, and must do so in the same one however many ranks there are.
TEST(BucketPlan, TheOrderOfTheBlocksDoesNotDependOnTheRanks) {
  const auto order = [](const ModelConfig& model, int ranks) {
    const BucketPlan plan(model, ranks, 25 * kMib);
    std::vector<int64_t> files;
    for (const ArenaBlock& b : plan.blocks(0, plan.elements()))
      if (b.valid > 0) files.push_back(b.file);
    return files;
  };
  for (const ModelConfig& model : models())
    for (const int ranks : {2, 3, 8}) EXPECT_EQ(order(model, 1), order(model, ranks));
}

TEST(BucketPlan, PiecesOfAnyCutCoverTheFileOnce) {
  const ModelConfig model = models()[2];
  const BucketPlan plan(model, 4, 1);
  std::vector<int> seen(static_cast<size_t>(tensor_layout(model).total));
  for (int64_t begin = 0; begin < plan.elements(); begin += 1000)
    plan.pieces(begin, std::min<int64_t>(1000, plan.elements() - begin), [&](int64_t file, int64_t arena, int64_t count) {
      EXPECT_GE(arena, begin);
      EXPECT_LE(arena + count, begin + 1000);
      for (int64_t i = 0; i < count; ++i) ++seen[static_cast<size_t>(file + i)];
    });
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<int64_t>(seen.size()));
}

// d12: a layer has 7,087,872 parameters, 27.04 MiB of fp32; wte and wpe 39,419,904.
TEST(BucketPlan, BucketsOfD12AreOneLayerEachAtTheDefaultSize) {
  const BucketPlan plan(model_from_name("d12"), 2, 25 * kMib);
  ASSERT_EQ(plan.buckets().size(), 13u);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(plan.buckets()[static_cast<size_t>(i)].ready_after, 11 - i);
  EXPECT_GE(plan.buckets()[1].elements, 7087872);
  EXPECT_LT(plan.buckets()[1].elements, 7087872 + 13 * kBlock + 2 * kBlock);
  EXPECT_GE(plan.buckets()[12].elements, 39419904);
}

// In bf16 two layers of d12 reach the default size, 27.0 MiB; layer 0 is sent by itself, so layer 1 is too. Biases and norms of all layers,
// with lnf, are 121,344 parameters.
TEST(BucketPlan, BucketsOfD12InBf16AreTwoLayersEachAtTheDefaultSizeAndLayer0) {
  const BucketPlan plan(model_from_name("d12"), 2, 25 * kMib, kMatrices);
  ASSERT_EQ(plan.buckets().size(), 9u);
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(plan.buckets()[i].ready_after, i < 5 ? 10 - 2 * static_cast<int>(i) : 6 - static_cast<int>(i));
    EXPECT_EQ(plan.buckets()[i].elements, int64_t{(i < 5 ? 2 : 1) * 12 * 768 * 768});
  }
  EXPECT_EQ(plan.narrow_elements(), int64_t{12 * 12 * 768 * 768});
  EXPECT_EQ(plan.buckets()[7].ready_after, 0);
  EXPECT_GE(plan.buckets()[7].elements, 121344);
  EXPECT_LT(plan.buckets()[7].elements, 121344 + (12 * 8 + 2) * kBlock + 2 * kBlock);
  EXPECT_GE(plan.buckets()[8].elements, 39419904);
}

TEST(BucketPlan, OtherPlansHaveOtherFingerprints) {
  const ModelConfig model = models()[2];
  const uint64_t one = BucketPlan(model, 2, 1).fingerprint();
  EXPECT_EQ(one, BucketPlan(model, 2, 1).fingerprint());
  EXPECT_NE(one, BucketPlan(model, 4, 1).fingerprint());
  EXPECT_NE(one, BucketPlan(model, 2, 1 << 30).fingerprint());
  EXPECT_NE(one, BucketPlan(model, 2, 1, kMatrices).fingerprint());
  EXPECT_NE(one, BucketPlan(models()[0], 2, 1).fingerprint());
}

// Ranks that count each other differently must not exchange, though where their buckets lie may be the same.
TEST(BucketPlan, AnotherNumberOfRanksIsAnotherFingerprintAlsoWhereTheLayoutIsTheSame) {
  const auto layout = [](const BucketPlan& plan) {
    std::vector<std::pair<int64_t, int64_t>> out;
    for (const Bucket& b : plan.buckets()) out.emplace_back(b.begin, b.elements);
    return out;
  };
  int same = 0;
  for (const ModelConfig& model : models()) {
    const BucketPlan one(model, 1, int64_t{1} << 40);
    for (const int ranks : {2, 3, 4, 5, 8}) {
      const BucketPlan several(model, ranks, int64_t{1} << 40);
      EXPECT_NE(one.fingerprint(), several.fingerprint()) << describe(model) << " " << ranks;
      same += layout(one) == layout(several);
    }
  }
  EXPECT_GT(same, 0);
}

constexpr StepSize kLong{.rows = 64 * 1024, .micro_batches = 1, .ranks = 2};

// d12 in a step that is long enough: one bucket of layers 11 to 1, and layer 0 by itself, whatever type its gradients have. A bucket that layer 0
// completed would hide behind nothing.
TEST(BucketSize, OneBucketOfAllLayersButLayer0WhereLinksCanSleepMeanwhile) {
  const ModelConfig d12 = model_from_name("d12");
  const int64_t mib = bucket_mib_for(d12, kLong, "peer");
  EXPECT_EQ(mib, 297);  // 11 x 27.04
  for (const unsigned narrow : {0u, kMatrices}) {
    const BucketPlan plan(d12, 2, mib * kMib, narrow);
    ASSERT_EQ(plan.buckets().size(), narrow != 0 ? 4u : 3u);
    EXPECT_EQ(plan.buckets()[0].ready_after, 1);
    EXPECT_EQ(plan.buckets()[1].ready_after, 0);
    EXPECT_GE(plan.buckets()[0].elements, int64_t{11 * 12 * 768 * 768});
    EXPECT_LT(plan.buckets()[1].elements, 7087872 + 14 * kBlock);
  }
  for (const char* name : {"d24", "d36", "d48"}) {
    const ModelConfig model = model_from_name(name);
    const BucketPlan plan(model, 2, bucket_mib_for(model, kLong, "peer") * kMib);
    ASSERT_EQ(plan.buckets().size(), 3u) << name;
    EXPECT_EQ(plan.buckets()[0].ready_after, 1) << name;
  }
  EXPECT_EQ(bucket_mib_for(d12, {.rows = 64 * 1024, .micro_batches = 4, .ranks = 2}, "peer"), 297);
  EXPECT_EQ(bucket_mib_for(d12, {.rows = 64 * 1024, .micro_batches = 1, .ranks = 8}, "peer"), 297);
}

TEST(BucketSize, SmallBucketsWhereAStepIsTooShortForLinksToSleepOrALayerToHideTheRest) {
  const ModelConfig d12 = model_from_name("d12"), d48 = model_from_name("d48");
  const auto of = [](const ModelConfig& model, int64_t batch, int64_t micro_batches, int64_t ranks) {
    return bucket_mib_for(model, {batch * 1024, micro_batches, ranks}, "peer");
  };
  EXPECT_EQ(of(d12, 4, 1, 2), kBucketMib);
  EXPECT_EQ(of(d12, 16, 1, 2), kBucketMib) << "27 ms on an H200";
  EXPECT_EQ(of(d12, 39, 1, 8), kBucketMib) << "3e13 FLOP are 39.3 sequences of 1024";
  EXPECT_EQ(of(d12, 40, 1, 8), 297);
  // The embedding's rows, and wte's bucket before the layers': as many bytes as wte's gradient at 2 x 50,304 tokens of all ranks.
  EXPECT_EQ(of(d12, 16, 4, 2), kBucketMib);
  EXPECT_EQ(of(d12, 49, 1, 2), kBucketMib);
  EXPECT_EQ(of(d12, 50, 1, 2), 297);
  // 500e12 / 4 / 270e9 = 463 rows for each byte and layer: 47 layers, 4 bytes, 7 of 8 slices, twice: 152,366.
  EXPECT_EQ(of(d48, 148, 2, 8), kBucketMib);
  EXPECT_GT(of(d48, 149, 2, 8), kBucketMib);
  EXPECT_GT(of(d48, 75, 1, 8), kBucketMib) << "in bf16";
  EXPECT_EQ(bucket_mib_for(d12, kLong, "nccl 2.28.9"), kBucketMib);
  // One layer is all there is, and small models have less than a bucket.
  EXPECT_EQ(of(models()[3], 1 << 20, 1 << 20, 2), kBucketMib);
  EXPECT_EQ(of(model_from_name("tiny"), 1 << 20, 1, 2), kBucketMib);
}

}  // namespace
}  // namespace gpt2::distributed

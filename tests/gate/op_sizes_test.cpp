// That the shapes which train turn every loop over a capped grid more than once. A launcher's query of
// scratch tells its grid: one partial result per block. The grids that have a cap (grep gridDim in
// fp32/kernels and mixed/kernels):
//   layernorm_backward=fused_rows   min(rows / 4, cap) blocks stride over groups of 4 rows (mixed also: warps
//   over rows) grad_norm                       min(n / (threads * pack), cap) blocks stride over the
//   gradients; one block then adds up the blocks
// and those that cut rows into a number of slabs that stops growing, whose loop within a slab does then:
//   layernorm_backward=separate_columns, column sums of a bias gradient
// Loops of one block over a long row or column (classifier, mean_loss, sums of partials) turn with the sizes
// alone.
#include "experiments/gate/op_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "base/errors.h"
#include "experiments/gate/op_launch.h"
#include "experiments/gate/op_stretches.h"

namespace gate {
namespace {

// Largest size whose query is still below that of `size`: one more, and the grid has reached its cap.
int64_t last_below_cap(const std::function<int64_t(int64_t)>& scratch, int64_t size) {
  int64_t low = 0, high = size;
  while (low + 1 < high) {
    const int64_t middle = (low + high) / 2;
    (scratch(middle) < scratch(size) ? low : high) = middle;
  }
  return low;
}

// The grid is at its cap at `size`, and a loop over it turns at least `turns` times.
::testing::AssertionResult turns(const std::function<int64_t(int64_t)>& scratch, int64_t size, int64_t turns) {
  if (scratch(size) != scratch(8 * size)) return ::testing::AssertionFailure() << "the grid still grows at " << size;
  const int64_t capped = last_below_cap(scratch, size) + 1;
  if (size < (turns - 1) * capped + 1)
    return ::testing::AssertionFailure() << "capped from " << capped << " on, so " << size << " makes fewer than " << turns << " turns";
  return ::testing::AssertionSuccess();
}

class Sizes : public ::testing::TestWithParam<const OpTrainer*> {
 protected:
  const OpTrainer& ops() const { return *GetParam(); }
  std::function<int64_t(int64_t)> layernorm(const char* variant) const {
    return [this, variant](int64_t rows) { return ops().layernorm_backward_scratch(variant, rows, 768); };
  }
  static int64_t most_rows(const OpSizes& z) {
    int64_t rows = 0;
    for (const auto& n : z.norms)
      if (n.C == 768) rows = std::max(rows, n.rows);
    return rows;
  }
  static int64_t most_gradients(const OpSizes& z) { return *std::max_element(z.gradients.begin(), z.gradients.end()); }
  std::function<int64_t(int64_t)> norm() const {
    return [this](int64_t n) { return ops().grad_norm_scratch("whole", n); };
  }
};

TEST_P(Sizes, RealOnesGoRoundEveryCappedGridMoreThanOnce) {
  const OpSizes z = real_sizes();
  EXPECT_TRUE(turns(layernorm("fused_rows"), most_rows(z), 3));
  EXPECT_TRUE(turns(layernorm("separate_columns"), most_rows(z), 2));
  EXPECT_TRUE(turns(norm(), most_gradients(z), 10));
  for (const auto& p : z.products)
    if (p.rows > 16384) {
      EXPECT_TRUE(turns(
          [&](int64_t rows) {
            return ops().linear_backward_scratch("as_stored", {rows, p.in, p.out});
          },
          p.rows, 1))
          << p.place;
    }
}

TEST_P(Sizes, ReducedOnesGoRoundTwice) {
  const OpSizes z = reduced_sizes();
  EXPECT_TRUE(turns(layernorm("fused_rows"), most_rows(z), 2));
  EXPECT_TRUE(turns(norm(), most_gradients(z), 2));
}

TEST_P(Sizes, OddOnesDoNotWhichIsWhyThereAreOthers) { EXPECT_FALSE(turns(layernorm("fused_rows"), most_rows(odd_sizes()), 2)); }

INSTANTIATE_TEST_SUITE_P(OfBothTrainers, Sizes, ::testing::Values(&fp32_ops(), &mixed_ops()),
                         [](const auto& of) { return of.param->name(); });

TEST(SizesThatTrain, HaveTheVocabularyTheRowsAndTheParametersOfD12) {
  const OpSizes z = real_sizes();
  for (const int64_t rows : {4096, 16421}) {
    EXPECT_TRUE(std::any_of(z.classifiers.begin(), z.classifiers.end(), [&](const auto& c) { return c.rows == rows && c.V == 50257; }));
    EXPECT_TRUE(std::any_of(z.norms.begin(), z.norms.end(), [&](const auto& n) { return n.rows == rows; }));
    EXPECT_EQ(std::count_if(z.products.begin(), z.products.end(), [&](const auto& p) { return p.rows == rows && p.bias; }), 4);
  }
  EXPECT_TRUE(std::any_of(z.products.begin(), z.products.end(), [](const auto& p) { return p.out == 50304; })) << "lm_head";
  for (const auto& e : z.embeddings) EXPECT_EQ(e.V, 50257);
  EXPECT_TRUE(std::any_of(z.attentions.begin(), z.attentions.end(), [](const auto& a) { return a.T == 1024; }));
  const auto odd_count = [](int64_t n) { return n > 124'000'000 && n % 2 == 1; };
  EXPECT_TRUE(std::any_of(z.gradients.begin(), z.gradients.end(), odd_count));
}

// Every op with rows or heads has a shape with more of them than 16 bits count; logits one with more elements than 31 bits do.
TEST(SizesThatTrain, GoBeyondWhatShortNumbersCount) {
  const OpSizes z = real_sizes();
  static constexpr int64_t k16 = 1 << 16;
  const auto any = [](const auto& shapes, const auto& is) { return std::any_of(shapes.begin(), shapes.end(), is); };
  EXPECT_TRUE(any(z.embeddings, [](const auto& e) { return e.B * e.T > k16; }));
  EXPECT_TRUE(any(z.norms, [](const auto& n) { return n.rows > k16; }));
  EXPECT_TRUE(any(z.products, [](const auto& p) { return p.rows > k16 && p.place.empty(); }));
  EXPECT_TRUE(any(z.attentions, [](const auto& a) { return a.B * a.NH > k16; }));
  EXPECT_TRUE(any(z.losses, [](int64_t rows) { return rows > k16; }));
  EXPECT_TRUE(any(z.classifiers, [](const auto& s) { return s.rows > k16; }));
  EXPECT_TRUE(any(z.heads, [](const auto& s) { return s.rows > k16 && !s.hurt; }));
  EXPECT_TRUE(any(huge_sizes().classifiers, [](const auto& s) { return s.rows * s.Vp > int64_t{1} << 31; }));
  EXPECT_TRUE(any(huge_sizes().heads, [](const auto& s) { return s.rows * s.Vp > int64_t{1} << 31; }));
}

// The own product's ring has 4 places and turns K / 64 times a tile: an even and an odd number of whole rounds, and parts of one. 132
// multiprocessors, tiles of 128 x 192: more tiles than CTAs.
TEST(SizesThatTrain, HaveProductsOfSeveralDepthsWithMoreTilesThanMultiprocessors) {
  std::set<int64_t> rounds;
  for (const auto& p : real_sizes().products)
    if (p.place == "mlp_up" && (p.rows + 127) / 128 * ((p.out + 191) / 192) > 2 * 132)
      rounds.insert(p.in / 64 / 4 * 2 + (p.in / 64 % 4 != 0));
  EXPECT_TRUE(rounds.contains(2 * 2)) << "two whole rounds";
  EXPECT_TRUE(rounds.contains(2 * 3)) << "three: d12";
  EXPECT_TRUE(rounds.contains(2 * 1 + 1)) << "one and a part";
}

// fp32 has packs of 4 and bf16 of 8; a block of 512 threads holds a row in one pack each or in several. 528 and 396 blocks of 4 rows.
TEST(SizesThatTrain, GoRoundEveryKernelOfLayernormTwice) {
  const OpSizes z = real_sizes();
  const auto twice = [&](const auto& is) {
    return std::any_of(z.norms.begin(), z.norms.end(), [&](const auto& n) { return n.rows > 528 * 4 && is(n.C); });
  };
  EXPECT_TRUE(twice([](int64_t C) { return C % 4 != 0 && C <= 512; }));
  EXPECT_TRUE(twice([](int64_t C) { return C % 4 != 0 && C > 512; }));
  EXPECT_TRUE(twice([](int64_t C) { return C % 8 == 0 && C > 1024 && C <= 2048; }));
  EXPECT_TRUE(twice([](int64_t C) { return C % 8 == 0 && C > 2048; }));
  EXPECT_TRUE(std::any_of(z.attentions.begin(), z.attentions.end(), [](const auto& a) { return a.T > 2048; }));
}

// Of d36, d48 and gpt3:c2560: more channels than a block of 256 threads takes in one round of packs of 4, and of 8; and a width that no pack
// divides. Tiles of the own product have 192 columns.
TEST(SizesThatTrain, HaveTheChannelsOfWiderModels) {
  const OpSizes odd = odd_sizes(), real = real_sizes();
  std::set<int64_t> embeddings, norms, heads, rest_of_a_tile;
  for (const auto& e : odd.embeddings) embeddings.insert(e.C);
  for (const auto& n : real.norms) norms.insert(n.C);
  for (const auto& h : real.heads) heads.insert(h.C);
  for (const auto& p : real.products)
    if (p.out > 1024 && std::max(p.in, p.out) > 3072) rest_of_a_tile.insert(p.out % 192);
  for (const int64_t C : {1280, 1600, 2560}) {
    EXPECT_TRUE(embeddings.contains(C)) << C;
    EXPECT_TRUE(norms.contains(C)) << C;
    EXPECT_TRUE(heads.contains(C)) << C;
    EXPECT_TRUE(std::any_of(real.products.begin(), real.products.end(), [&](const auto& p) { return p.in == C || p.out == C; })) << C;
  }
  EXPECT_TRUE(embeddings.contains(1282));
  for (const int64_t rest : {0, 64, 128}) EXPECT_TRUE(rest_of_a_tile.contains(rest)) << rest;
}

// Heads between 64 and 128 channels are padded; 80 and 96 are those of gpt3:c2560 and gpt3:c1536.
TEST(SizesThatTrain, HaveHeadsThatLeaveARestOfTheirTile) {
  const OpSizes real = real_sizes();
  for (const int64_t HS : {80, 96}) {
    const auto of = [&](bool hurt) {
      return std::count_if(real.attentions.begin(), real.attentions.end(),
                           [&](const auto& a) { return a.HS == HS && a.hurt == hurt && a.with_cudnn != hurt && !a.low && a.NH > 1; });
    };
    EXPECT_EQ(of(false), 1) << HS;
    EXPECT_EQ(of(true), HS == 80 ? 1 : 0);
  }
}

// mixed/hopper/attention_forward.cu takes three warpgroups from 8 items of three tiles of 64 rows for each of 132 multiprocessors on, and
// attention.cu 66 heads at a time.
TEST(SizesThatTrain, HaveHeadsEnoughForTheThirdWarpgroupOfAttention) {
  const OpSizes real = real_sizes();
  EXPECT_TRUE(std::any_of(real.attentions.begin(), real.attentions.end(), [](const auto& a) {
    const int64_t tiles = (a.T + 63) / 64, heads = a.B * a.NH;
    return a.HS == 64 && !a.hurt && tiles > 3 && tiles % 3 != 0 && a.T % 64 != 0 && heads * ((tiles + 2) / 3) >= 8 * 132 && heads > 2 * 66;
  }));
}

TEST(SizesThatTrain, HaveMoreParametersThan31BitsCount) {
  const OpSizes z = huge_sizes();
  ASSERT_EQ(z.updates.size(), 1u);
  const OpSizes::Update& u = z.updates.front();
  constexpr int64_t k31 = int64_t{1} << 31;
  const int64_t parameters = gpt2::tensor_layout(u.config).total;
  EXPECT_GT(parameters, k31 + u.each);
  const Stretches s = stretches_of(parameters, u.each, u.places);
  EXPECT_LE(s.count(), 8 << 20) << "the answers are held whole";
  for (const int64_t element : {int64_t{0}, k31 / 2 - 1, k31 / 2, k31 - 1, k31, parameters - 1})
    EXPECT_TRUE(std::any_of(s.all.begin(), s.all.end(), [&](const Stretch& p) {
      return element >= p.first && element < p.first + p.count;
    })) << element;
  for (const Stretch& p : s.all) EXPECT_EQ(p.first % 8, 0) << "looked at 16 bytes at a time";
}

TEST(SizesThatTrain, LeaveOutWhatADeviceCannotHold) {
  OpSizes z = huge_sizes(), real = real_sizes();
  EXPECT_TRUE(leave_out_what_needs_more(z, int64_t{130} << 30).empty());
  EXPECT_EQ(z.classifiers.size() + z.heads.size() + z.updates.size(), 3u);
  EXPECT_EQ(leave_out_what_needs_more(z, int64_t{60} << 30).size(), 1u);
  EXPECT_EQ(z.updates.size(), 0u);
  EXPECT_EQ(leave_out_what_needs_more(z, int64_t{40} << 30).size(), 2u);
  EXPECT_EQ(z.classifiers.size() + z.heads.size(), 0u);
  EXPECT_TRUE(leave_out_what_needs_more(real, int64_t{40} << 30).empty());
}

TEST(SizesThatTrain, OfAModelAreItsOwn) {
  const OpSizes z = model_sizes({64, 509, 512, 2, 2, 128}, 2, 8);
  ASSERT_EQ(z.products.size(), 5u);
  EXPECT_EQ(z.products[2].out, 512);
  EXPECT_FALSE(z.products[4].bias) << "lm_head";
  EXPECT_EQ(z.attentions.at(0).HS, 64);
  EXPECT_THROW(sizes_of("large"), stepscope::InputError);
}

}  // namespace
}  // namespace gate

// Which tiles a search asks for beside the library's offers, held against what was the fastest of all on an H200.
#include "mixed/product_tiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace mixed {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kH200 = 132;

struct Measured {
  const char* product;
  int64_t rows, columns, k;  // in the library's order
  int tile_rows, tile_columns, parts;
};

// The fastest of what was timed of cuBLASLt of CUDA 13.0 (2026-11-30, docs/study/tiles-that-fit.md), of four products every configuration: those of
// d12 at B=16 and B=4. The constants of the cost were fitted to these.
constexpr Measured kFastest[] = {
    {"qkv dW, B=16", 768, 2304, 16384, 112, 128, 1},      {"qkv dW, B=4", 768, 2304, 4096, 128, 112, 1},
    {"attproj dW, B=16", 768, 768, 16384, 96, 192, 4},    {"attproj dW, B=4", 768, 768, 4096, 96, 64, 1},
    {"mlp_up dW, B=16", 768, 3072, 16384, 96, 192, 1},    {"mlp_up dW, B=4", 768, 3072, 4096, 96, 192, 1},
    {"mlp_down dW, B=16", 3072, 768, 16384, 96, 192, 1},  {"mlp_down dW, B=4", 3072, 768, 4096, 96, 192, 1},
    {"qkv, B=16", 2304, 16384, 768, 128, 152, 1},         {"qkv, B=4", 2304, 4096, 768, 128, 144, 1},
    {"attproj, B=16", 768, 16384, 768, 128, 152, 1},      {"attproj, B=4", 768, 4096, 768, 128, 192, 1},
    {"mlp_down, B=16", 768, 16384, 3072, 128, 152, 1},    {"mlp_down, B=4", 768, 4096, 3072, 128, 192, 1},
    {"qkv dX, B=16", 768, 16384, 2304, 128, 152, 1},      {"qkv dX, B=4", 768, 4096, 2304, 192, 128, 1},
    {"attproj dX, B=16", 768, 16384, 768, 128, 128, 1},   {"attproj dX, B=4", 768, 4096, 768, 192, 128, 1},
    {"mlp_up dX, B=16", 768, 16384, 3072, 128, 152, 1},   {"mlp_up dX, B=4", 768, 4096, 3072, 192, 128, 1},
    {"lm_head dW, B=16", 768, 50304, 16384, 256, 128, 1}, {"lm_head dW, B=4", 768, 50304, 4096, 128, 256, 1},
    {"lm_head dX, B=4", 768, 4096, 50304, 192, 128, 1},
};

TEST(ProductTiles, TheFastestOfAllIsAmongThoseThatFit) {
  if (tiles_that_fit(768, 768, 768, kH200).empty()) GTEST_SKIP() << "this toolkit has no list of tiles";
  for (const Measured& m : kFastest) {
    const auto tiles = tiles_that_fit(m.rows, m.columns, m.k, kH200);
    EXPECT_TRUE(std::ranges::any_of(tiles, [&](const ProductTile& t) {
      return t.rows == m.tile_rows && t.columns == m.tile_columns && t.parts == m.parts;
    })) << m.product;
  }
}

// 768 x 2304 results by 112 x 128 are 126 tiles for 132 multiprocessors, by 128 x 128 108, by 128 x 256 54.
TEST(ProductTiles, AWaveThatIsNearlyFullComesBeforeOneThatIsHalfEmpty) {
  if (tiles_that_fit(768, 768, 768, kH200).empty()) GTEST_SKIP() << "this toolkit has no list of tiles";
  const auto tiles = tiles_that_fit(768, 2304, 4096, kH200);
  const auto place = [&](int rows, int columns) {
    return std::ranges::find_if(tiles, [&](const ProductTile& t) { return t.rows == rows && t.columns == columns && t.parts == 1; }) -
           tiles.begin();
  };
  EXPECT_LT(place(112, 128), place(128, 128));
  EXPECT_EQ(place(128, 256), static_cast<std::ptrdiff_t>(tiles.size())) << "is not asked for";
}

TEST(ProductTiles, AreFewTheCheapestFirstAndNoneMuchDearer) {
  if (tiles_that_fit(768, 768, 768, kH200).empty()) GTEST_SKIP() << "this toolkit has no list of tiles";
  for (const Measured& m : kFastest) {
    const auto tiles = tiles_that_fit(m.rows, m.columns, m.k, kH200);
    ASSERT_GE(tiles.size(), 2u) << m.product;
    EXPECT_LE(tiles.size(), 12u) << m.product;
    EXPECT_LE(tiles.back().cost, 1.15 * tiles.front().cost) << m.product;
    EXPECT_TRUE(std::ranges::is_sorted(tiles, {}, &ProductTile::cost)) << m.product;
    for (const ProductTile& t : tiles) EXPECT_TRUE(t.parts == 1 || m.k / t.parts >= 512) << m.product;
  }
}

TEST(ProductTiles, AreOfHopperAlone) {
  for (const int major : {8, 10, 12}) EXPECT_THAT(why_no_tiles(major).value_or(""), HasSubstr("another GPU")) << major;
  if (!tiles_that_fit(768, 768, 768, kH200).empty()) {
    EXPECT_EQ(why_no_tiles(9), std::nullopt);
  }
}

}  // namespace
}  // namespace mixed

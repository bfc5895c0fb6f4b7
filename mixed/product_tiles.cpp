#include "mixed/product_tiles.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>

namespace mixed {
namespace {

struct Tile {
  int id, rows, columns;
};

// Those with 64 to 256 rows and columns and at least 64 x 96 values of which cublasLtMatmulAlgoCheck takes one with some other fields (cuBLASLt
// of CUDA 13.0, H200). Toolkits before 13.0 were not asked.
#if CUBLAS_VERSION >= 130000
#define TILE(rows, columns) \
  Tile { CUBLASLT_MATMUL_TILE_##rows##x##columns, rows, columns }
constexpr std::array kTiles = {
    TILE(64, 96),   TILE(64, 104),  TILE(64, 112),  TILE(64, 120),  TILE(64, 128),  TILE(64, 136),  TILE(64, 144),  TILE(64, 152),
    TILE(64, 160),  TILE(64, 168),  TILE(64, 176),  TILE(64, 184),  TILE(64, 192),  TILE(64, 200),  TILE(64, 208),  TILE(64, 216),
    TILE(64, 224),  TILE(64, 232),  TILE(64, 240),  TILE(64, 248),  TILE(64, 256),  TILE(72, 128),  TILE(72, 192),  TILE(72, 256),
    TILE(80, 128),  TILE(80, 192),  TILE(80, 256),  TILE(88, 128),  TILE(88, 192),  TILE(88, 256),  TILE(96, 64),   TILE(96, 128),
    TILE(96, 192),  TILE(96, 256),  TILE(104, 64),  TILE(104, 128), TILE(104, 192), TILE(104, 256), TILE(112, 64),  TILE(112, 128),
    TILE(112, 192), TILE(112, 256), TILE(120, 64),  TILE(120, 128), TILE(120, 256), TILE(128, 64),  TILE(128, 72),  TILE(128, 80),
    TILE(128, 88),  TILE(128, 96),  TILE(128, 104), TILE(128, 112), TILE(128, 120), TILE(128, 128), TILE(128, 136), TILE(128, 144),
    TILE(128, 152), TILE(128, 160), TILE(128, 168), TILE(128, 176), TILE(128, 184), TILE(128, 192), TILE(128, 200), TILE(128, 208),
    TILE(128, 216), TILE(128, 224), TILE(128, 232), TILE(128, 240), TILE(128, 248), TILE(128, 256), TILE(136, 64),  TILE(136, 128),
    TILE(136, 256), TILE(144, 64),  TILE(144, 128), TILE(144, 192), TILE(144, 256), TILE(152, 64),  TILE(152, 128), TILE(152, 256),
    TILE(160, 64),  TILE(160, 128), TILE(160, 192), TILE(160, 256), TILE(168, 64),  TILE(168, 128), TILE(168, 256), TILE(176, 64),
    TILE(176, 128), TILE(176, 192), TILE(176, 256), TILE(184, 64),  TILE(184, 128), TILE(192, 64),  TILE(192, 72),  TILE(192, 80),
    TILE(192, 88),  TILE(192, 96),  TILE(192, 104), TILE(192, 112), TILE(192, 128), TILE(192, 144), TILE(192, 160), TILE(192, 176),
    TILE(192, 192), TILE(192, 208), TILE(192, 224), TILE(200, 64),  TILE(200, 128), TILE(208, 64),  TILE(208, 128), TILE(208, 192),
    TILE(216, 64),  TILE(216, 128), TILE(224, 64),  TILE(224, 128), TILE(224, 192), TILE(232, 64),  TILE(232, 128), TILE(240, 64),
    TILE(240, 128), TILE(248, 64),  TILE(248, 128), TILE(256, 64),  TILE(256, 72),  TILE(256, 80),  TILE(256, 88),  TILE(256, 96),
    TILE(256, 104), TILE(256, 112), TILE(256, 120), TILE(256, 128), TILE(256, 136), TILE(256, 144), TILE(256, 152), TILE(256, 160),
    TILE(256, 168), TILE(256, 176),
};
#undef TILE
#else
constexpr std::array<Tile, 0> kTiles{};
#endif

constexpr size_t kMost = 12;
constexpr double kDearest = 1.15;
constexpr int kParts[] = {1, 2, 3, 4, 5, 6, 8};
constexpr int64_t kShortestPart = 512;  // of the long sum

// What a tile costs beside its multiply-adds, in multiply-adds of a multiprocessor (2,048 a cycle). Fitted by hand to the fastest of all
// configurations of 21 products of d12 at B=4 and B=16, each of which is among the first nine in this order.
constexpr double kLoad = 16;      // a value that the tensor cores read from shared memory
constexpr double kEnd = 120;      // a value of a tile so large that two warpgroups share it: nobody multiplies while it is stored
constexpr double kAlone = 20480;  // the largest tile that one warpgroup holds while the other multiplies
constexpr double kSecondKernel = 1e7, kPartialSum = 5.2;  // parts are added by a kernel behind, and pass through the L2

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

double cost_of(const Tile& t, int parts, int64_t rows, int64_t columns, int64_t k, int64_t multiprocessors) {
  const double values = static_cast<double>(t.rows) * t.columns;
  const int64_t waves = ceil_div(ceil_div(rows, t.rows) * ceil_div(columns, t.columns) * parts, multiprocessors);
  double wave = static_cast<double>(ceil_div(k, int64_t{64} * parts) * 64) * (values + kLoad * (t.rows + t.columns));
  if (values > kAlone) wave += kEnd * values;
  double cost = static_cast<double>(waves) * wave;
  if (parts > 1) cost += kSecondKernel + kPartialSum * parts * static_cast<double>(rows * columns);
  return cost;
}

}  // namespace

std::vector<ProductTile> tiles_that_fit(int64_t rows, int64_t columns, int64_t k, int64_t multiprocessors) {
  std::vector<ProductTile> out;
  for (const Tile& t : kTiles)
    for (const int parts : kParts)
      if (parts == 1 || k / parts >= kShortestPart)
        out.push_back({t.id, t.rows, t.columns, parts, cost_of(t, parts, rows, columns, k, multiprocessors)});
  std::stable_sort(out.begin(), out.end(), [](const ProductTile& a, const ProductTile& b) { return a.cost < b.cost; });
  if (out.size() > kMost) out.resize(kMost);
  std::erase_if(out, [dearest = out.empty() ? 0 : kDearest * out.front().cost](const ProductTile& t) { return t.cost > dearest; });
  return out;
}

std::optional<std::string> why_no_tiles(int compute_capability_major) {
  if (compute_capability_major != 9) return "it names tiles of cuBLASLt's kernels for Hopper, and this is another GPU";
  if (kTiles.empty()) return "this program was built with a cuBLASLt older than that of CUDA 13.0, whose tiles nobody has listed";
  // A number that the library does not know ends its check with a signal.
  if (cublasLtGetVersion() < CUBLAS_VERSION) return "the cuBLASLt that runs is older than the one that this program was built with";
  return std::nullopt;
}

}  // namespace mixed

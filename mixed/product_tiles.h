// Tiles of cuBLASLt's kernels for Hopper that suit the size of a product and the number of multiprocessors. The library offers about eight
// kernels for a product and has some hundred tiles for which it compiled some; which of them leave few multiprocessors idle in the last wave is
// arithmetic (docs/study/tiles-that-fit.md). Apart from the library's descriptors so that it is tested without a GPU.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mixed {

struct ProductTile {
  int id = 0;                 // cublasLtMatmulTile_t
  int rows = 0, columns = 0;  // of the library's column-major result: our columns and our rows
  int parts = 1;              // into which the long sum is split
  double cost = 0;            // multiply-adds of one multiprocessor, waits among them counted in the same unit: an order, not a time
};

// For a result of `rows` x `columns` in the library's order, each a sum of `k` products: at most twelve, the cheapest first, none dearer than
// 1.15 times the first. Empty where the library of this build has no such list.
std::vector<ProductTile> tiles_that_fit(int64_t rows, int64_t columns, int64_t k, int64_t multiprocessors);

// Why a search may not ask for tiles by name here: another architecture, a build without the list, an older library at run time.
std::optional<std::string> why_no_tiles(int compute_capability_major);

}  // namespace mixed

// Scheme: Goto & van de Geijn 2008, "Anatomy of high-performance matrix multiplication". A panel of kTileRows
// rows of `a` and one of kVectors vectors of columns of `b` meet in a register tile; panels are zero-padded,
// so that every tile runs the same arithmetic and only the store knows the edge. The order of sums over the
// depth is fixed by kDepthBlock.
#include "gpt2/reference/gemm.h"

#include <algorithm>
#include <cstring>
#include <utility>

#if defined(__clang__)
#define STEPSCOPE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define STEPSCOPE_UNROLL _Pragma("GCC unroll 16")
#endif

namespace gpt2::reference {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
constexpr int kTileRows = 8;  // 8 x 3 accumulators + 3 of b: 27 of 32 registers
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
constexpr int kTileRows = 4;  // 4 x 3 accumulators + 3 of b + 1: all 16 registers
#else
constexpr int kVectorBytes = 16;
constexpr int kTileRows = 4;
#endif
// A panel of b (kDepthBlock x 3 vectors) shares the first-level cache with one of a: 3 x 64 x 192 bytes = 36
// KiB.
constexpr int64_t kDepthBlock = 192;
constexpr int64_t kLeastParallelProduct = 512 * 1024;  // multiply-adds
constexpr int64_t kTaskRows = 64;                      // rows of a that reuse one panel of b before the next task

template <typename Real>
struct Simd {
  static constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(Real));
  typedef Real Vector __attribute__((vector_size(kVectorBytes)));
};

constexpr int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// ---- packing
// -----------------------------------------------------------------------------------------------------------

template <typename Real, int kDistance, size_t... kLane>
[[gnu::always_inline]] inline void exchange_lanes(typename Simd<Real>::Vector& low, typename Simd<Real>::Vector& high,
                                                  std::index_sequence<kLane...>) {
  constexpr int n = static_cast<int>(sizeof...(kLane));
  const auto new_low = __builtin_shufflevector(
      low, high, ((static_cast<int>(kLane) & kDistance) ? n + static_cast<int>(kLane) - kDistance : static_cast<int>(kLane))...);
  const auto new_high = __builtin_shufflevector(
      low, high, ((static_cast<int>(kLane) & kDistance) ? n + static_cast<int>(kLane) : static_cast<int>(kLane) + kDistance)...);
  low = new_low;
  high = new_high;
}

// Transposes a square of kLanes vectors in registers: log2(kLanes) rounds that exchange ever larger
// off-diagonal blocks.
template <typename Real, int kDistance = 1>
[[gnu::always_inline]] inline void transpose_square(typename Simd<Real>::Vector (&rows)[Simd<Real>::kLanes]) {
  constexpr int n = Simd<Real>::kLanes;
  if constexpr (kDistance < n) {
    STEPSCOPE_UNROLL
    for (int i = 0; i < n; ++i)
      if ((i & kDistance) == 0)
        exchange_lanes<Real, kDistance>(rows[i], rows[i + kDistance], std::make_index_sequence<static_cast<size_t>(n)>{});
    transpose_square<Real, 2 * kDistance>(rows);
  }
}

// dst[k * kWidth + i] = src[i * lane_stride + k * depth_stride] for i < lanes, zero for lanes <= i < kWidth:
// one panel, whose lanes are rows of a or columns of b.
template <typename Real, int kWidth>
void pack_panel(Real* dst, const Real* src, int64_t lanes, int64_t depth, int64_t lane_stride, int64_t depth_stride) {
  constexpr int n = Simd<Real>::kLanes;
  if (lane_stride == 1 && lanes == kWidth) {
    for (int64_t k = 0; k < depth; ++k) std::memcpy(dst + k * kWidth, src + k * depth_stride, kWidth * sizeof(Real));
    return;
  }
  int64_t first = 0;  // lanes below are done
  if (depth_stride == 1 && kWidth % n == 0) {
    for (; first + n <= lanes; first += n) {
      int64_t k = 0;
      for (; k + n <= depth; k += n) {
        typename Simd<Real>::Vector square[n];
        STEPSCOPE_UNROLL
        for (int i = 0; i < n; ++i) std::memcpy(&square[i], src + (first + i) * lane_stride + k, kVectorBytes);
        transpose_square<Real>(square);
        STEPSCOPE_UNROLL
        for (int i = 0; i < n; ++i) std::memcpy(dst + (k + i) * kWidth + first, &square[i], kVectorBytes);
      }
      for (; k < depth; ++k)
        for (int64_t i = first; i < first + n; ++i) dst[k * kWidth + i] = src[i * lane_stride + k];
    }
  }
  if (first == 0 && lanes == kWidth) {
    for (int64_t k = 0; k < depth; ++k)
      for (int i = 0; i < kWidth; ++i) dst[k * kWidth + i] = src[i * lane_stride + k * depth_stride];
    return;
  }
  for (int64_t k = 0; k < depth; ++k) {
    for (int64_t i = first; i < lanes; ++i) dst[k * kWidth + i] = src[i * lane_stride + k * depth_stride];
    for (int64_t i = lanes; i < kWidth; ++i) dst[k * kWidth + i] = Real(0);
  }
}

// ---- the register tile
// --------------------------------------------------------------------------------------------------

// One tile of the output: what the panels give over this block of the depth, stored or added.
template <typename Real, int kVectors>
void compute_tile(const Real* a, const Real* b, int64_t depth, Real* out, int64_t out_stride, int64_t rows, int64_t columns,
                  const Real* bias, bool add) {
  using Vector = typename Simd<Real>::Vector;
  constexpr int n = Simd<Real>::kLanes;
  constexpr int width = n * kVectors;
  Vector sum[kTileRows][kVectors] = {};
  for (int64_t k = 0; k < depth; ++k) {
    Vector column[kVectors];
    STEPSCOPE_UNROLL
    for (int j = 0; j < kVectors; ++j) std::memcpy(&column[j], b + k * width + j * n, kVectorBytes);
    STEPSCOPE_UNROLL
    for (int i = 0; i < kTileRows; ++i) {
      STEPSCOPE_UNROLL
      for (int j = 0; j < kVectors; ++j) sum[i][j] += column[j] * a[k * kTileRows + i];
    }
  }
  if (rows == kTileRows && columns == width) {
    STEPSCOPE_UNROLL
    for (int i = 0; i < kTileRows; ++i) {
      STEPSCOPE_UNROLL
      for (int j = 0; j < kVectors; ++j) {
        Real* place = out + i * out_stride + j * n;
        Vector value = sum[i][j], other;
        if (bias != nullptr) {
          std::memcpy(&other, bias + j * n, kVectorBytes);
          value += other;
        }
        if (add) {
          std::memcpy(&other, place, kVectorBytes);
          value += other;
        }
        std::memcpy(place, &value, kVectorBytes);
      }
    }
    return;
  }
  Real tile[kTileRows][width];
  std::memcpy(tile, sum, sizeof tile);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      Real value = tile[i][j];
      if (bias != nullptr) value += bias[j];
      if (add) value += out[i * out_stride + j];
      out[i * out_stride + j] = value;
    }
}

// ---- drivers
// -------------------------------------------------------------------------------------------------------------

// One packed block: rows [row, row + rows) x columns [column, column + columns) x depth [depth_begin,
// +depth).
template <typename Real, int kVectors>
struct Block {
  static constexpr int kWidth = Simd<Real>::kLanes * kVectors;
  const Product<Real>& p;
  PackBuffers<Real>& buffers;
  int64_t row, rows, column, columns, depth_begin, depth;

  int64_t a_panels() const { return (rows + kTileRows - 1) / kTileRows; }
  int64_t b_panels() const { return (columns + kWidth - 1) / kWidth; }
  int64_t row_tasks() const { return (rows + kTaskRows - 1) / kTaskRows; }

  void pack_a(int64_t panel) const {
    const int64_t first = panel * kTileRows;
    pack_panel<Real, kTileRows>(buffers.a() + panel * kTileRows * depth,
                                p.a.data + (row + first) * p.a.row_stride + depth_begin * p.a.column_stride,
                                std::min<int64_t>(kTileRows, rows - first), depth, p.a.row_stride, p.a.column_stride);
  }
  void pack_b(int64_t panel) const {
    const int64_t first = panel * kWidth;
    pack_panel<Real, kWidth>(buffers.b() + panel * kWidth * depth,
                             p.b.data + depth_begin * p.b.row_stride + (column + first) * p.b.column_stride,
                             std::min<int64_t>(kWidth, columns - first), depth, p.b.column_stride, p.b.row_stride);
  }
  // Task: kTaskRows rows against one panel of b.
  void run(int64_t task) const {
    const int64_t b_panel = task % b_panels(), first_row = task / b_panels() * kTaskRows;
    const int64_t last_row = std::min(rows, first_row + kTaskRows);
    const int64_t first_column = b_panel * kWidth;
    const int64_t width = std::min<int64_t>(kWidth, columns - first_column);
    for (int64_t k = 0; k < depth; k += kDepthBlock) {
      const bool first_sum = depth_begin + k == 0;
      const Real* bias = first_sum && p.bias != nullptr ? p.bias + column + first_column : nullptr;
      const Real* b = buffers.b() + (b_panel * depth + k) * kWidth;
      for (int64_t r = first_row; r < last_row; r += kTileRows)
        compute_tile<Real, kVectors>(buffers.a() + r * depth + k * kTileRows, b, std::min(kDepthBlock, depth - k),
                                     p.out + (row + r) * p.out_stride + column + first_column, p.out_stride,
                                     std::min<int64_t>(kTileRows, last_row - r), width, bias, p.accumulate || !first_sum);
    }
  }
};
static_assert(kTaskRows % kTileRows == 0, "a task begins at a panel of a");

// As much depth at a time as both buffers hold, in whole depth blocks: fewer, larger blocks mean fewer
// barriers. The sums do not change with it, because every tile still adds up kDepthBlock at a time.
template <typename Real>
int64_t packed_depth(const Product<Real>& p, const PackBuffers<Real>& buffers) {
  const int64_t rows = round_up(std::min(p.rows, buffers.block_rows()), kTaskRows);
  const int64_t columns = round_up(std::min(p.columns, buffers.block_columns()), 6 * Simd<Real>::kLanes);
  const int64_t depth = std::min(buffers.a_size() / rows, buffers.b_size() / columns);
  return std::max(kDepthBlock, depth / kDepthBlock * kDepthBlock);
}

// Three vectors of columns by default; two where the padding of three would cost more than the tile's better
// reuse gains.
template <typename Real>
bool two_vectors_are_better(int64_t columns) {
  const int64_t n = Simd<Real>::kLanes;
  return round_up(columns, 3 * n) * 19 > round_up(columns, 2 * n) * 20;
}

template <typename Real, int kVectors>
void multiply_blocks(const Product<Real>& p, PackBuffers<Real>& buffers) {
  const int64_t depth_step = packed_depth(p, buffers);
  for (int64_t j = 0; j < p.columns; j += buffers.block_columns()) {
    for (int64_t k = 0; k < p.depth; k += depth_step) {
      for (int64_t i = 0; i < p.rows; i += buffers.block_rows()) {
        const Block<Real, kVectors> block{p, buffers,
                                          i, std::min(buffers.block_rows(), p.rows - i),
                                          j, std::min(buffers.block_columns(), p.columns - j),
                                          k, std::min(depth_step, p.depth - k)};
        if (i == 0)
          for (int64_t n = 0; n < block.b_panels(); ++n) block.pack_b(n);
        for (int64_t n = 0; n < block.a_panels(); ++n) block.pack_a(n);
        for (int64_t n = 0; n < block.row_tasks() * block.b_panels(); ++n) block.run(n);
      }
    }
  }
}

// Every thread walks the same blocks; the work-sharing loops divide each, and their barriers keep a buffer
// from being packed anew while somebody reads it.
template <typename Real, int kVectors>
void multiply_blocks_in_parallel(const Product<Real>& p, PackBuffers<Real>& buffers) {
  const int64_t depth_step = packed_depth(p, buffers);
#pragma omp parallel
  for (int64_t j = 0; j < p.columns; j += buffers.block_columns()) {
    for (int64_t k = 0; k < p.depth; k += depth_step) {
      for (int64_t i = 0; i < p.rows; i += buffers.block_rows()) {
        const Block<Real, kVectors> block{p, buffers,
                                          i, std::min(buffers.block_rows(), p.rows - i),
                                          j, std::min(buffers.block_columns(), p.columns - j),
                                          k, std::min(depth_step, p.depth - k)};
        const int64_t b_panels = i == 0 ? block.b_panels() : 0, packs = b_panels + block.a_panels();
        const int64_t tasks = block.row_tasks() * block.b_panels();
#pragma omp for schedule(static)
        for (int64_t n = 0; n < packs; ++n) {
          if (n < b_panels)
            block.pack_b(n);
          else
            block.pack_a(n - b_panels);
        }
#pragma omp for schedule(dynamic, 4)
        for (int64_t n = 0; n < tasks; ++n) block.run(n);
      }
    }
  }
}

template <typename Real>
void scale_output_only(const Product<Real>& p) {
  for (int64_t i = 0; i < p.rows; ++i)
    for (int64_t j = 0; j < p.columns; ++j) {
      Real& place = p.out[i * p.out_stride + j];
      place = (p.accumulate ? place : Real(0)) + (p.bias != nullptr ? p.bias[j] : Real(0));
    }
}

}  // namespace

template <typename Real>
PackBuffers<Real>::PackBuffers(int64_t block_rows, int64_t block_columns, int64_t depth_blocks)
    : block_rows_(round_up(block_rows, kTaskRows)),
      block_columns_(round_up(block_columns, 6 * Simd<Real>::kLanes)),  // whole panels of two and of three vectors
      a_(block_rows_ * kDepthBlock * depth_blocks),
      b_(block_columns_ * kDepthBlock * depth_blocks) {}

template <typename Real>
void multiply(const Product<Real>& p, PackBuffers<Real>& buffers) {
  // Some 10 us of work: less than what waking the other threads takes, and far less on a busy machine.
  if (p.rows * p.columns * p.depth < kLeastParallelProduct) return multiply_on_one_thread(p, buffers);
  if (two_vectors_are_better<Real>(p.columns))
    multiply_blocks_in_parallel<Real, 2>(p, buffers);
  else
    multiply_blocks_in_parallel<Real, 3>(p, buffers);
}

template <typename Real>
void multiply_on_one_thread(const Product<Real>& p, PackBuffers<Real>& buffers) {
  if (p.depth == 0) return scale_output_only(p);
  if (two_vectors_are_better<Real>(p.columns))
    multiply_blocks<Real, 2>(p, buffers);
  else
    multiply_blocks<Real, 3>(p, buffers);
}

template <typename Real>
void linear_forward(const Linear<Real>& s, Real* out, const Real* x, const Real* weight, const Real* bias, PackBuffers<Real>& buffers) {
  multiply<Real>({s.rows, s.outputs, s.inputs, {x, s.inputs, 1}, {weight, 1, s.inputs}, out, s.output_stride, bias, false}, buffers);
}

template <typename Real>
void linear_backward(const Linear<Real>& s, Real* dx, Real* dweight, const Real* dout, const Real* x, const Real* weight, bool accumulate,
                     PackBuffers<Real>& buffers) {
  multiply<Real>({s.rows, s.inputs, s.outputs, {dout, s.output_stride, 1}, {weight, s.inputs, 1}, dx, s.inputs}, buffers);
  multiply<Real>({s.outputs, s.inputs, s.rows, {dout, 1, s.output_stride}, {x, s.inputs, 1}, dweight, s.inputs, nullptr, accumulate},
                 buffers);
}

#define STEPSCOPE_INSTANTIATE(Real)                                                                                          \
  template class PackBuffers<Real>;                                                                                          \
  template void multiply<Real>(const Product<Real>&, PackBuffers<Real>&);                                                    \
  template void multiply_on_one_thread<Real>(const Product<Real>&, PackBuffers<Real>&);                                      \
  template void linear_forward<Real>(const Linear<Real>&, Real*, const Real*, const Real*, const Real*, PackBuffers<Real>&); \
  template void linear_backward<Real>(const Linear<Real>&, Real*, Real*, const Real*, const Real*, const Real*, bool, PackBuffers<Real>&);
STEPSCOPE_INSTANTIATE(float)
STEPSCOPE_INSTANTIATE(double)

}  // namespace gpt2::reference

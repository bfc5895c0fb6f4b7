// Rows of a head are taken kRowBlock at a time, and only the columns that the block can see are computed: the
// products cost little more than the causal half. Inside the block the columns behind a row's own position
// are set to zero.
#include "gpt2/reference/attention.h"

#include <algorithm>
#include <cmath>

#include "gpt2/reference/elementary.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace gpt2::reference {
namespace {

constexpr int64_t kRowBlock = 128;

// As in layers.cpp: less work than this is done sooner by one thread.
[[maybe_unused]] bool worth_threads(const AttentionShape& s) { return s.batch * s.seq_len * s.seq_len * s.channels() >= 512 * 1024; }

int thread_index() {
#ifdef _OPENMP
  return omp_get_thread_num();
#else
  return 0;
#endif
}

// One head of one sequence.
template <typename Real>
struct Head {
  const AttentionShape& s;
  const Real* qkv;      // its q at position 0
  int64_t row, column;  // of its first element in (M, C)
  int64_t lse;          // of its first element in (B, NH, T)

  Head(const AttentionShape& shape, const Real* all, int64_t index) : s(shape) {
    const int64_t b = index / s.heads, h = index % s.heads;
    row = b * s.seq_len;
    column = h * s.head_size;
    qkv = all + row * 3 * s.channels() + column;
    lse = index * s.seq_len;
  }
  int64_t stride() const { return 3 * s.channels(); }
  const Real* part(int which, int64_t t) const { return qkv + which * s.channels() + t * stride(); }
  Operand<Real> rows_of(int which, int64_t t) const { return {part(which, t), stride(), 1}; }
  Operand<Real> transposed(int which, int64_t t) const { return {part(which, t), 1, stride()}; }
};

}  // namespace

template <typename Real>
AttentionScratch<Real>::AttentionScratch(const AttentionShape& shape)
    : scores_(std::min(kRowBlock, shape.seq_len) * shape.seq_len),
      score_gradients_(std::min(kRowBlock, shape.seq_len) * shape.seq_len),
      buffers_(kRowBlock, std::min<int64_t>(shape.seq_len, 1024)) {}

template <typename Real>
void attention_forward(const AttentionShape& s, Real* out, Real* log_sum_exp, const Real* qkv,
                       std::vector<AttentionScratch<Real>>& scratch) {
  const int64_t C = s.channels(), T = s.seq_len, HS = s.head_size, blocks = (T + kRowBlock - 1) / kRowBlock;
  const Real scale = static_cast<Real>(1 / std::sqrt(static_cast<double>(HS)));
#pragma omp parallel for schedule(dynamic) num_threads(static_cast <int>(scratch.size())) if (worth_threads(s))
  for (int64_t task = 0; task < s.batch * s.heads * blocks; ++task) {
    AttentionScratch<Real>& mine = scratch[static_cast<size_t>(thread_index())];
    const Head<Real> head(s, qkv, task / blocks);
    const int64_t first = (blocks - 1 - task % blocks) * kRowBlock;  // the longest rows first: they end the loop evenly
    const int64_t seen = std::min(T, first + kRowBlock), rows = seen - first;
    Real* p = mine.scores();
    multiply_on_one_thread<Real>({rows, seen, HS, head.rows_of(0, first), head.transposed(1, 0), p, seen}, mine.buffers());
    for (int64_t i = 0; i < rows; ++i) {
      Real* z = p + i * seen;
      const int64_t n = first + i + 1;
      Real top = z[0];
#pragma omp simd reduction(max : top)
      for (int64_t j = 0; j < n; ++j) top = std::max(top, z[j]);
      Real sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < n; ++j) {
        z[j] = exponential((z[j] - top) * scale);
        sum += z[j];
      }
      const Real inverse = Real(1) / sum;
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) z[j] *= inverse;
      std::fill(z + n, z + seen, Real(0));
      log_sum_exp[head.lse + first + i] = top * scale + std::log(sum);
    }
    multiply_on_one_thread<Real>({rows, HS, seen, {p, seen, 1}, head.rows_of(2, 0), out + (head.row + first) * C + head.column, C},
                                 mine.buffers());
  }
}

template <typename Real>
void attention_backward(const AttentionShape& s, Real* dqkv, const Real* dout, const Real* out, const Real* log_sum_exp, const Real* qkv,
                        std::vector<AttentionScratch<Real>>& scratch) {
  const int64_t C = s.channels(), T = s.seq_len, HS = s.head_size, blocks = (T + kRowBlock - 1) / kRowBlock;
  const Real scale = static_cast<Real>(1 / std::sqrt(static_cast<double>(HS)));
#pragma omp parallel for schedule(dynamic) num_threads(static_cast <int>(scratch.size())) if (worth_threads(s))
  for (int64_t index = 0; index < s.batch * s.heads; ++index) {
    AttentionScratch<Real>& mine = scratch[static_cast<size_t>(thread_index())];
    PackBuffers<Real>& buffers = mine.buffers();
    const Head<Real> head(s, qkv, index);
    Real* dq = dqkv + head.row * 3 * C + head.column;
    Real* dk = dq + C;
    Real* dv = dk + C;
    Real* p = mine.scores();
    Real* ds = mine.score_gradients();
    // From the last block of rows to the first: the last sees every position, so it writes dk and dv and the
    // others add.
    for (int64_t block = blocks - 1; block >= 0; --block) {
      const int64_t first = block * kRowBlock, seen = std::min(T, first + kRowBlock), rows = seen - first;
      const bool add = block != blocks - 1;
      const Real* grad = dout + (head.row + first) * C + head.column;
      const Real* result = out + (head.row + first) * C + head.column;
      multiply_on_one_thread<Real>({rows, seen, HS, head.rows_of(0, first), head.transposed(1, 0), p, seen}, buffers);
      multiply_on_one_thread<Real>({rows, seen, HS, {grad, C, 1}, head.transposed(2, 0), ds, seen}, buffers);
      for (int64_t i = 0; i < rows; ++i) {
        Real* pi = p + i * seen;
        Real* di = ds + i * seen;
        const int64_t n = first + i + 1;
        const Real lse = log_sum_exp[head.lse + first + i];
        Real dot = 0;  // sum of p * dp over the row, as dout · out
#pragma omp simd reduction(+ : dot)
        for (int64_t j = 0; j < HS; ++j) dot += grad[i * C + j] * result[i * C + j];
#pragma omp simd
        for (int64_t j = 0; j < n; ++j) {
          pi[j] = exponential(pi[j] * scale - lse);
          di[j] = pi[j] * (di[j] - dot) * scale;
        }
        std::fill(pi + n, pi + seen, Real(0));
        std::fill(di + n, di + seen, Real(0));
      }
      multiply_on_one_thread<Real>({rows, HS, seen, {ds, seen, 1}, head.rows_of(1, 0), dq + first * 3 * C, 3 * C}, buffers);
      multiply_on_one_thread<Real>({seen, HS, rows, {ds, 1, seen}, head.rows_of(0, first), dk, 3 * C, nullptr, add}, buffers);
      multiply_on_one_thread<Real>({seen, HS, rows, {p, 1, seen}, {grad, C, 1}, dv, 3 * C, nullptr, add}, buffers);
    }
  }
}

#define STEPSCOPE_INSTANTIATE(Real)                                                                                              \
  template class AttentionScratch<Real>;                                                                                         \
  template void attention_forward<Real>(const AttentionShape&, Real*, Real*, const Real*, std::vector<AttentionScratch<Real>>&); \
  template void attention_backward<Real>(const AttentionShape&, Real*, const Real*, const Real*, const Real*, const Real*,       \
                                         std::vector<AttentionScratch<Real>>&);
STEPSCOPE_INSTANTIATE(float)
STEPSCOPE_INSTANTIATE(double)

}  // namespace gpt2::reference

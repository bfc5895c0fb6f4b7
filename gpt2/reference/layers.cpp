#include "gpt2/reference/layers.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gpt2/reference/elementary.h"

namespace gpt2::reference {
namespace {

constexpr int64_t kColumns = 32;       // of one task of a sum over rows
constexpr int64_t kRows = 64;          // summed before they join the total: rounding grows with 64 + M/64, not with M
constexpr int64_t kChunk = 16 * 1024;  // elements of one task of an elementwise op
constexpr double kLayernormEps = 1e-5;

// Below this many elements one thread is done before a second has woken up. It matters most on a busy
// machine, where every barrier can cost a time slice.
[[maybe_unused]] bool worth_threads(int64_t elements) { return elements >= 8 * 1024; }

// out[c] (+)= sum over r of value(r, c), a task per block of columns
template <typename Real, typename Value>
void sum_rows(Real* out, int64_t rows, int64_t columns, bool accumulate, const Value& value) {
#pragma omp parallel for schedule(static) if (worth_threads(rows * columns))
  for (int64_t first = 0; first < columns; first += kColumns) {
    const int64_t n = std::min(kColumns, columns - first);
    Real total[kColumns] = {};
    for (int64_t begin = 0; begin < rows; begin += kRows) {
      const int64_t end = std::min(rows, begin + kRows);
      Real part[kColumns] = {};
      for (int64_t r = begin; r < end; ++r) {
#pragma omp simd
        for (int64_t c = 0; c < n; ++c) part[c] += value(r, first + c);
      }
      for (int64_t c = 0; c < n; ++c) total[c] += part[c];
    }
    for (int64_t c = 0; c < n; ++c) out[first + c] = accumulate ? out[first + c] + total[c] : total[c];
  }
}

}  // namespace

template <typename Real>
void embedding_forward(Real* out, std::span<const int32_t> tokens, const Real* wte, const Real* wpe, int64_t seq_len, int64_t C) {
  const int64_t M = static_cast<int64_t>(tokens.size());
#pragma omp parallel for schedule(static) if (worth_threads(M * C))
  for (int64_t row = 0; row < M; ++row) {
    const Real* word = wte + tokens[static_cast<size_t>(row)] * C;
    const Real* place = wpe + row % seq_len * C;
    for (int64_t c = 0; c < C; ++c) out[row * C + c] = word[c] + place[c];
  }
}

template <typename Real>
void embedding_backward(Real* dwte, Real* dwpe, const Real* dout, std::span<const int32_t> tokens, int64_t seq_len, int64_t max_seq_len,
                        int64_t C, bool accumulate) {
  const int64_t M = static_cast<int64_t>(tokens.size());
  // A token may stand anywhere, so tasks are columns: each column of dwte is summed in the order of the
  // tokens.
#pragma omp parallel for schedule(static) if (worth_threads(M * C))
  for (int64_t first = 0; first < C; first += kColumns) {
    const int64_t n = std::min(kColumns, C - first);
    for (int64_t row = 0; row < M; ++row) {
      Real* word = dwte + tokens[static_cast<size_t>(row)] * C + first;
      for (int64_t c = 0; c < n; ++c) word[c] += dout[row * C + first + c];
    }
  }
#pragma omp parallel for schedule(static) if (worth_threads(M * C))
  for (int64_t t = 0; t < max_seq_len; ++t) {
    Real* place = dwpe + t * C;
    if (!accumulate) std::fill(place, place + C, Real(0));
    if (t >= seq_len) continue;
    for (int64_t row = t; row < M; row += seq_len)
      for (int64_t c = 0; c < C; ++c) place[c] += dout[row * C + c];
  }
}

template <typename Real>
void layernorm_forward(Real* out, Real* mean, Real* rstd, const Real* x, const Real* weight, const Real* bias, int64_t M, int64_t C) {
#pragma omp parallel for schedule(static) if (worth_threads(M * C))
  for (int64_t row = 0; row < M; ++row) {
    const Real* in = x + row * C;
    Real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < C; ++c) sum += in[c];
    const Real mu = sum / static_cast<Real>(C);
    Real squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t c = 0; c < C; ++c) squares += (in[c] - mu) * (in[c] - mu);
    const Real scale = Real(1) / std::sqrt(squares / static_cast<Real>(C) + static_cast<Real>(kLayernormEps));
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) out[row * C + c] = (in[c] - mu) * scale * weight[c] + bias[c];
    mean[row] = mu;
    rstd[row] = scale;
  }
}

template <typename Real>
void layernorm_backward(Real* dx, bool add_to_dx, Real* dweight, Real* dbias, bool accumulate, const Real* dout, const Real* x,
                        const Real* mean, const Real* rstd, const Real* weight, int64_t M, int64_t C) {
  sum_rows(dweight, M, C, accumulate, [=](int64_t r, int64_t c) { return dout[r * C + c] * (x[r * C + c] - mean[r]) * rstd[r]; });
  bias_backward(dbias, dout, M, C, accumulate);
#pragma omp parallel for schedule(static) if (worth_threads(M * C))
  for (int64_t row = 0; row < M; ++row) {
    const Real* in = x + row * C;
    const Real* grad = dout + row * C;
    Real* result = dx + row * C;
    const Real mu = mean[row], scale = rstd[row];
    Real sum = 0, dot = 0;  // over C, of dnorm = dout * weight, and of dnorm * normalized
#pragma omp simd reduction(+ : sum, dot)
    for (int64_t c = 0; c < C; ++c) {
      const Real dnorm = grad[c] * weight[c];
      sum += dnorm;
      dot += dnorm * ((in[c] - mu) * scale);
    }
    const Real mean_dnorm = sum / static_cast<Real>(C), mean_dot = dot / static_cast<Real>(C);
#pragma omp simd
    for (int64_t c = 0; c < C; ++c) {
      const Real value = (grad[c] * weight[c] - mean_dnorm - (in[c] - mu) * scale * mean_dot) * scale;
      result[c] = add_to_dx ? result[c] + value : value;
    }
  }
}

template <typename Real>
void residual_forward(Real* out, const Real* a, const Real* b, int64_t count) {
#pragma omp parallel for simd schedule(static) if (parallel : worth_threads(count))
  for (int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

template <typename Real>
void gelu_forward(Real* out, const Real* x, int64_t count) {
#pragma omp parallel for simd schedule(static) if (parallel : worth_threads(count))
  for (int64_t i = 0; i < count; ++i) out[i] = gelu(x[i]);
}

template <typename Real>
void gelu_backward(Real* grad, const Real* x, int64_t count) {
#pragma omp parallel for simd schedule(static) if (parallel : worth_threads(count))
  for (int64_t i = 0; i < count; ++i) grad[i] *= gelu_derivative(x[i]);
}

template <typename Real>
void bias_backward(Real* dbias, const Real* dout, int64_t rows, int64_t columns, bool accumulate) {
  sum_rows(dbias, rows, columns, accumulate, [=](int64_t r, int64_t c) { return dout[r * columns + c]; });
}

template <typename Real>
double softmax_cross_entropy(Real* logits, std::span<const int32_t> targets, int64_t V, int64_t Vp, double gradient_scale) {
  constexpr int64_t kPart = 1024;  // exponentials summed in Real before they join a double
  const int64_t M = static_cast<int64_t>(targets.size());
  std::vector<double> losses(targets.size());
#pragma omp parallel for schedule(static) if (worth_threads(M * V))
  for (int64_t row = 0; row < M; ++row) {
    Real* z = logits + row * Vp;
    const int64_t target = targets[static_cast<size_t>(row)];
    const double target_logit = static_cast<double>(z[target]);
    Real top = z[0];
#pragma omp simd reduction(max : top)
    for (int64_t i = 0; i < V; ++i) top = std::max(top, z[i]);
    double sum = 0;
    for (int64_t begin = 0; begin < V; begin += kPart) {
      const int64_t end = std::min(V, begin + kPart);
      Real part = 0;
      if (gradient_scale != 0) {
#pragma omp simd reduction(+ : part)
        for (int64_t i = begin; i < end; ++i) {
          z[i] = exponential(z[i] - top);
          part += z[i];
        }
      } else {
#pragma omp simd reduction(+ : part)
        for (int64_t i = begin; i < end; ++i) part += exponential(z[i] - top);
      }
      sum += static_cast<double>(part);
    }
    losses[static_cast<size_t>(row)] = std::log(sum) + (static_cast<double>(top) - target_logit);
    if (gradient_scale != 0) {
      const Real factor = static_cast<Real>(gradient_scale / sum);
#pragma omp simd
      for (int64_t i = 0; i < V; ++i) z[i] *= factor;
      z[target] -= static_cast<Real>(gradient_scale);
    }
  }
  double total = 0;
  for (double loss : losses) total += loss;
  return total / static_cast<double>(M);
}

template <typename Real>
double norm(std::span<const Real> values) {
  const int64_t count = static_cast<int64_t>(values.size()), chunks = (count + kChunk - 1) / kChunk;
  std::vector<double> parts(static_cast<size_t>(chunks));
#pragma omp parallel for schedule(static) if (worth_threads(count))
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const int64_t begin = chunk * kChunk, end = std::min(count, begin + kChunk);
    const Real* x = values.data();
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = begin; i < end; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    parts[static_cast<size_t>(chunk)] = sum;
  }
  double sum = 0;
  for (double part : parts) sum += part;
  return std::sqrt(sum);
}

template <typename Real>
void adamw(std::span<Real> parameters, std::span<Real> m, std::span<Real> v, std::span<const Real> gradients, const AdamWNumbers& numbers,
           bool decayed) {
  const int64_t count = static_cast<int64_t>(parameters.size());
  const double t = static_cast<double>(numbers.t);
  const Real b1 = static_cast<Real>(numbers.beta1), b2 = static_cast<Real>(numbers.beta2);
  const Real rest1 = static_cast<Real>(1 - numbers.beta1), rest2 = static_cast<Real>(1 - numbers.beta2);
  const Real correction1 = static_cast<Real>(1 - std::pow(numbers.beta1, t));
  const Real correction2 = static_cast<Real>(1 - std::pow(numbers.beta2, t));
  const Real rate = static_cast<Real>(numbers.learning_rate), eps = static_cast<Real>(numbers.eps);
  const Real decay = decayed ? static_cast<Real>(numbers.weight_decay) : Real(0);
  const Real scale = static_cast<Real>(numbers.gradient_scale);
  Real* pp = parameters.data();
  Real* mm = m.data();
  Real* vv = v.data();
  const Real* gg = gradients.data();
#pragma omp parallel for simd schedule(static) if (parallel : worth_threads(count))
  for (int64_t i = 0; i < count; ++i) {
    const Real g = gg[i] * scale;
    const Real first = b1 * mm[i] + rest1 * g;
    const Real second = b2 * vv[i] + rest2 * g * g;
    mm[i] = first;
    vv[i] = second;
    pp[i] -= rate * ((first / correction1) / (std::sqrt(second / correction2) + eps) + decay * pp[i]);
  }
}

#define STEPSCOPE_INSTANTIATE(Real)                                                                                                        \
  template void embedding_forward<Real>(Real*, std::span<const int32_t>, const Real*, const Real*, int64_t, int64_t);                      \
  template void embedding_backward<Real>(Real*, Real*, const Real*, std::span<const int32_t>, int64_t, int64_t, int64_t, bool);            \
  template void layernorm_forward<Real>(Real*, Real*, Real*, const Real*, const Real*, const Real*, int64_t, int64_t);                     \
  template void layernorm_backward<Real>(Real*, bool, Real*, Real*, bool, const Real*, const Real*, const Real*, const Real*, const Real*, \
                                         int64_t, int64_t);                                                                                \
  template void residual_forward<Real>(Real*, const Real*, const Real*, int64_t);                                                          \
  template void gelu_forward<Real>(Real*, const Real*, int64_t);                                                                           \
  template void gelu_backward<Real>(Real*, const Real*, int64_t);                                                                          \
  template void bias_backward<Real>(Real*, const Real*, int64_t, int64_t, bool);                                                           \
  template double softmax_cross_entropy<Real>(Real*, std::span<const int32_t>, int64_t, int64_t, double);                                  \
  template double norm<Real>(std::span<const Real>);                                                                                       \
  template void adamw<Real>(std::span<Real>, std::span<Real>, std::span<Real>, std::span<const Real>, const AdamWNumbers&, bool);
STEPSCOPE_INSTANTIATE(float)
STEPSCOPE_INSTANTIATE(double)

}  // namespace gpt2::reference

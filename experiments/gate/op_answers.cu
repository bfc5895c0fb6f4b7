#include "experiments/gate/op_answers.h"

#include <cmath>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "experiments/gate/op_chunks.cuh"
#include "experiments/gate/rounded_at_random.h"

namespace gate::answer {
namespace {

GATE_ANYWHERE double square(double x) { return x * x; }

}  // namespace

Memory doubles(Space space, int64_t n) { return Memory(space, n * 8); }

// ---- values
// ---------------------------------------------------------------------------------------------------------
namespace {

struct Store {
  double* out;
  View in;
  Element element;
  GATE_ANYWHERE void operator()(int64_t i) const {
    double value = in[i];
    if (element == Element::f32) value = static_cast<double>(static_cast<float>(value));
    if (element == Element::bf16) {
      const uint16_t bits = bf16_bits(static_cast<float>(value));
      value = bf16_value(bits);
    }
    if (element == Element::split) {
      const Parts parts = parts_of(static_cast<float>(value));
      value = value_of(parts);
    }
    out[i] = value;
  }
};
struct OfBits {
  double* out;
  View in;
  int bits;
  GATE_ANYWHERE void operator()(int64_t i) const { out[i] = nearest(in[i], bits); }
};
struct Add {
  double* out;
  View a, b;
  GATE_ANYWHERE void operator()(int64_t i) const { out[i] = a[i] + b[i]; }
};
struct Summand {
  View in;
  bool squares;
  GATE_ANYWHERE void operator()(double& sum, int64_t, int64_t i) const { sum += squares ? square(in[i]) : in[i]; }
};

double sum_of(Space space, View values, int64_t n, bool squares) {
  double sum = 0;
  for (double x : list_chunks<double>(space, n, Summand{values, squares})) sum += x;
  return sum;
}

}  // namespace

Memory stored(Space space, View values, Element element, int64_t n) {
  Memory out = doubles(space, n);
  for_each_index(space, n, Store{out.as<double>(), values, element});
  return out;
}
Memory of_bits(Space space, View values, int bits, int64_t n) {
  Memory out = doubles(space, n);
  for_each_index(space, n, OfBits{out.as<double>(), values, bits});
  return out;
}
Memory sum(Space space, View a, View b, int64_t n) {
  Memory out = doubles(space, n);
  for_each_index(space, n, Add{out.as<double>(), a, b});
  return out;
}
double total(Space space, View values, int64_t n) { return sum_of(space, values, n, false); }
double norm(Space space, View values, int64_t n) { return std::sqrt(sum_of(space, values, n, true)); }

// ---- embedding
// ------------------------------------------------------------------------------------------------------
namespace {

struct Embed {
  double* out;
  const int32_t* tokens;
  View wte, wpe;
  int64_t T, C;
  GATE_ANYWHERE void operator()(int64_t i) const {
    const int64_t row = i / C, c = i % C;
    out[i] = wte[tokens[row] * C + c] + wpe[row % T * C + c];
  }
};
// rows[first[v]], … rows[first[v + 1] - 1]: where token v stands.
struct TokenGradient {
  double* out;
  View before, dout;
  const int64_t *first, *rows;
  int64_t C;
  GATE_ANYWHERE void operator()(int64_t i) const {
    const int64_t v = i / C, c = i % C;
    double sum = before[i];
    for (int64_t k = first[v]; k < first[v + 1]; ++k) sum += dout[rows[k] * C + c];
    out[i] = sum;
  }
};
struct PositionGradient {
  double* out;
  View dout;
  int64_t B, T, C;
  GATE_ANYWHERE void operator()(int64_t i) const {
    const int64_t t = i / C, c = i % C;
    double sum = 0;
    if (t < T)
      for (int64_t b = 0; b < B; ++b) sum += dout[(b * T + t) * C + c];
    out[i] = sum;
  }
};

}  // namespace

Memory embedding_forward(Space space, const int32_t* tokens, View wte, View wpe, int64_t rows, int64_t T, int64_t C) {
  Memory out = doubles(space, rows * C);
  for_each_index(space, rows * C, Embed{out.as<double>(), tokens, wte, wpe, T, C});
  return out;
}

EmbeddingGradients embedding_backward(Space space, View dwte_before, View dout, const Memory& tokens, int64_t B, int64_t T, int64_t C,
                                      int64_t Vp, int64_t max_seq_len) {
  const std::vector<int32_t> words = values_of<int32_t>(tokens);
  std::vector<int64_t> first(static_cast<size_t>(Vp + 1), 0), rows(words.size());
  for (int32_t w : words) ++first[static_cast<size_t>(w) + 1];
  for (size_t v = 0; v + 1 < first.size(); ++v) first[v + 1] += first[v];
  std::vector<int64_t> next(first.begin(), first.end() - 1);
  for (size_t r = 0; r < words.size(); ++r) rows[static_cast<size_t>(next[static_cast<size_t>(words[r])]++)] = static_cast<int64_t>(r);
  const Memory first_there = memory_of(space, first), rows_there = memory_of(space, rows);
  EmbeddingGradients g{doubles(space, Vp * C), doubles(space, max_seq_len * C)};
  for_each_index(space, Vp * C,
                 TokenGradient{g.dwte.as<double>(), dwte_before, dout, first_there.as<int64_t>(), rows_there.as<int64_t>(), C});
  for_each_index(space, max_seq_len * C, PositionGradient{g.dwpe.as<double>(), dout, B, T, C});
  return g;
}

// ---- layernorm
// ------------------------------------------------------------------------------------------------------
namespace {

struct RowStatistics {
  double *mean, *rstd;
  View x;
  int64_t C;
  GATE_ANYWHERE void operator()(int64_t r) const {
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < C; ++c) sum += x[r * C + c];
    const double m = sum / static_cast<double>(C);
    for (int64_t c = 0; c < C; ++c) squares += square(x[r * C + c] - m);
    mean[r] = m;
    rstd[r] = 1 / sqrt(squares / static_cast<double>(C) + 1e-5);
  }
};
struct Normalize {
  double* out;
  View x, mean, rstd, weight, bias;
  int64_t C;
  GATE_ANYWHERE void operator()(int64_t i) const {
    const int64_t r = i / C, c = i % C;
    out[i] = (x[i] - mean[r]) * rstd[r] * weight[c] + bias[c];
  }
};
// Means over a row of dnorm = dout * weight, and of dnorm times the normalized row.
struct RowMeans {
  double *of_dnorm, *of_product;
  View dout, x, mean, rstd, weight;
  int64_t C;
  GATE_ANYWHERE void operator()(int64_t r) const {
    double sum = 0, products = 0;
    for (int64_t c = 0; c < C; ++c) {
      const double dnorm = dout[r * C + c] * weight[c];
      sum += dnorm;
      products += dnorm * (x[r * C + c] - mean[r]) * rstd[r];
    }
    of_dnorm[r] = sum / static_cast<double>(C);
    of_product[r] = products / static_cast<double>(C);
  }
};
struct NormInputGradient {
  double* dx;
  const double *of_dnorm, *of_product;
  View dout, x, mean, rstd, weight;
  int64_t C;
  GATE_ANYWHERE void operator()(int64_t i) const {
    const int64_t r = i / C, c = i % C;
    dx[i] = (dout[i] * weight[c] - of_dnorm[r] - (x[i] - mean[r]) * rstd[r] * of_product[r]) * rstd[r];
  }
};
struct WeightTerms {
  double* out;
  View dout, x, mean, rstd;
  int64_t C;
  GATE_ANYWHERE void operator()(int64_t i) const { out[i] = dout[i] * (x[i] - mean[i / C]) * rstd[i / C]; }
};
struct ColumnSummand {
  View values;
  int64_t columns;
  GATE_ANYWHERE void operator()(double& sum, int64_t r, int64_t c) const { sum += values[r * columns + c]; }
};
struct ColumnTotal {
  double* out;
  const double* parts;
  int64_t chunk_count, columns;
  GATE_ANYWHERE void operator()(int64_t c) const {
    double sum = 0;
    for (int64_t k = 0; k < chunk_count; ++k) sum += parts[k * columns + c];
    out[c] = sum;
  }
};

}  // namespace

Memory column_sums(Space space, View values, int64_t rows, int64_t columns) {
  const Memory parts = column_chunks<double>(space, rows, columns, ColumnSummand{values, columns});
  Memory out = doubles(space, columns);
  for_each_index(space, columns, ColumnTotal{out.as<double>(), parts.as<double>(), chunks(rows), columns});
  return out;
}

Normed layernorm_forward(Space space, View x, View weight, View bias, int64_t rows, int64_t C) {
  Normed n{doubles(space, rows * C), doubles(space, rows), doubles(space, rows)};
  for_each_index(space, rows, RowStatistics{n.mean.as<double>(), n.rstd.as<double>(), x, C});
  for_each_index(space, rows * C, Normalize{n.out.as<double>(), x, view(n.mean), view(n.rstd), weight, bias, C});
  return n;
}

NormGradients layernorm_backward(Space space, View dout, View x, View mean, View rstd, View weight, int64_t rows, int64_t C) {
  const Memory of_dnorm = doubles(space, rows), of_product = doubles(space, rows), terms = doubles(space, rows * C);
  NormGradients g;
  g.dx = doubles(space, rows * C);
  for_each_index(space, rows, RowMeans{of_dnorm.as<double>(), of_product.as<double>(), dout, x, mean, rstd, weight, C});
  for_each_index(space, rows * C,
                 NormInputGradient{g.dx.as<double>(), of_dnorm.as<double>(), of_product.as<double>(), dout, x, mean, rstd, weight, C});
  for_each_index(space, rows * C, WeightTerms{terms.as<double>(), dout, x, mean, rstd, C});
  g.dweight = column_sums(space, view(terms), rows, C);
  g.dbias = column_sums(space, dout, rows, C);
  return g;
}

// ---- products
// -------------------------------------------------------------------------------------------------------
namespace {

constexpr int kTile = 8;

// Index: a tile of kTile x kTile results, tiles of one row of tiles in turn.
template <class T>
struct ProductTile {
  double* out;
  const T *a, *b;
  int64_t a_row, a_term, b_row, b_term;
  View bias;  // data null: none
  int64_t m, n, k;
  GATE_ANYWHERE static double wide(float x) { return static_cast<double>(x); }
  GATE_ANYWHERE static double wide(uint16_t x) { return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(x) << 16)); }
  GATE_ANYWHERE static double wide(double x) { return x; }
  GATE_ANYWHERE void operator()(int64_t i) const {
    const int64_t across = (n + kTile - 1) / kTile;
    const int64_t first_m = i / across * kTile, first_n = i % across * kTile;
    double sums[kTile][kTile] = {};
    // Beyond the edge the last row is computed again, and not stored.
    int64_t a_at[kTile], b_at[kTile];
    for (int y = 0; y < kTile; ++y) {
      a_at[y] = least(first_m + y, m - 1) * a_row;
      b_at[y] = least(first_n + y, n - 1) * b_row;
    }
    for (int64_t term = 0; term < k; ++term) {
      double x[kTile];
      for (int y = 0; y < kTile; ++y) x[y] = wide(b[b_at[y] + term * b_term]);
      for (int y = 0; y < kTile; ++y) {
        const double left = wide(a[a_at[y] + term * a_term]);
        for (int z = 0; z < kTile; ++z) sums[y][z] += left * x[z];
      }
    }
    for (int y = 0; y < kTile; ++y)
      for (int z = 0; z < kTile; ++z)
        if (first_m + y < m && first_n + z < n)
          out[(first_m + y) * n + first_n + z] = sums[y][z] + (bias.data == nullptr ? 0 : bias[first_n + z]);
  }
};

template <class T>
void run_product(Space space, const Memory& out, const Factor& a, const Factor& b, int64_t m, int64_t n, int64_t k, View bias) {
  const int64_t tiles = gpt2::cuda::ceil_div<int64_t>(m, kTile) * gpt2::cuda::ceil_div<int64_t>(n, kTile);
  for_each_index(space, tiles,
                 ProductTile<T>{out.as<double>(), static_cast<const T*>(a.values.data), static_cast<const T*>(b.values.data), a.row, a.term,
                                b.row, b.term, bias, m, n, k});
}

}  // namespace

Memory product(Space space, const Factor& a, const Factor& b, int64_t m, int64_t n, int64_t k, View bias) {
  if (a.values.element != b.values.element) throw std::logic_error("product: factors of two types");
  Memory out = doubles(space, m * n);
  switch (a.values.element) {
    case Element::f32:
      run_product<float>(space, out, a, b, m, n, k, bias);
      break;
    case Element::bf16:
      run_product<uint16_t>(space, out, a, b, m, n, k, bias);
      break;
    case Element::f64:
      run_product<double>(space, out, a, b, m, n, k, bias);
      break;
    case Element::i32:
    case Element::split:
      throw std::logic_error("product: factors of integers, or split");
  }
  return out;
}

// ---- attention
// ------------------------------------------------------------------------------------------------------
namespace {

struct Heads {
  int64_t T, C, NH;
  GATE_ANYWHERE int64_t size() const { return C / NH; }
  // Offset of query (part 0), key (1) or value (2) of token t of head `bh` = b NH + h.
  GATE_ANYWHERE int64_t at(int64_t bh, int64_t t, int64_t part) const { return (bh / NH * T + t) * 3 * C + part * C + bh % NH * size(); }
  GATE_ANYWHERE int64_t out(int64_t bh, int64_t t) const { return (bh / NH * T + t) * C + bh % NH * size(); }
};

// Matrices are (B NH, T, T), row t column `past`; nothing above the diagonal is written or read.
struct Scores {
  double* s;
  View qkv;
  Heads h;
  GATE_ANYWHERE void operator()(int64_t i) const {
    const int64_t past = i % h.T, t = i / h.T % h.T, bh = i / (h.T * h.T);
    if (past > t) return;
    double sum = 0;
    for (int64_t k = 0; k < h.size(); ++k) sum += qkv[h.at(bh, t, 0) + k] * qkv[h.at(bh, past, 1) + k];
    s[i] = sum / sqrt(static_cast<double>(h.size()));
  }
};
struct LogSumExp {
  double* lse;
  const double* s;
  int64_t T;
  GATE_ANYWHERE void operator()(int64_t row) const {
    double largest = s[row * T], sum = 0;  // without it exponentials of scores near -1,000 are 0
    for (int64_t past = 1; past <= row % T; ++past) largest = fmax(largest, s[row * T + past]);
    for (int64_t past = 0; past <= row % T; ++past) sum += exp(s[row * T + past] - largest);
    lse[row] = largest + log(sum);
  }
};
struct Probabilities {
  double* s;  // in place
  View lse;
  int64_t T;
  GATE_ANYWHERE void operator()(int64_t i) const {
    const int64_t row = i / T;
    if (i % T <= row % T) s[i] = exp(s[i] - lse[row]);
  }
};
struct AttentionOut {
  double* out;
  const double* p;
  View qkv;
  Heads h;
  GATE_ANYWHERE void operator()(int64_t i) const {
    const int64_t k = i % h.size(), t = i / h.size() % h.T, bh = i / (h.size() * h.T);
    double sum = 0;
    for (int64_t past = 0; past <= t; ++past) sum += p[(bh * h.T + t) * h.T + past] * qkv[h.at(bh, past, 2) + k];
    out[h.out(bh, t) + k] = sum;
  }
};
struct RowDot {
  double* d;
  View dout, out;
  Heads h;
  GATE_ANYWHERE void operator()(int64_t row) const {
    double sum = 0;
    const int64_t at = h.out(row / h.T, row % h.T);
    for (int64_t k = 0; k < h.size(); ++k) sum += dout[at + k] * out[at + k];
    d[row] = sum;
  }
};
struct ScoreGradients {
  double* ds;
  const double *p, *row_dot;
  View dout, qkv;
  Heads h;
  GATE_ANYWHERE void operator()(int64_t i) const {
    const int64_t past = i % h.T, row = i / h.T, t = row % h.T, bh = row / h.T;
    if (past > t) return;
    double dp = 0;
    for (int64_t k = 0; k < h.size(); ++k) dp += dout[h.out(bh, t) + k] * qkv[h.at(bh, past, 2) + k];
    ds[i] = p[i] * (dp - row_dot[row]) / sqrt(static_cast<double>(h.size()));
  }
};
struct QkvGradient {
  double* dqkv;
  const double *p, *ds;
  View dout, qkv;
  Heads h;
  GATE_ANYWHERE void operator()(int64_t i) const {
    const int64_t k = i % h.size(), t = i / h.size() % h.T, bh = i / (h.size() * h.T);
    double dq = 0, dk = 0, dv = 0;
    for (int64_t past = 0; past <= t; ++past) dq += ds[(bh * h.T + t) * h.T + past] * qkv[h.at(bh, past, 1) + k];
    for (int64_t later = t; later < h.T; ++later) {
      const int64_t at = (bh * h.T + later) * h.T + t;
      dk += ds[at] * qkv[h.at(bh, later, 0) + k];
      dv += p[at] * dout[h.out(bh, later) + k];
    }
    dqkv[h.at(bh, t, 0) + k] = dq;
    dqkv[h.at(bh, t, 1) + k] = dk;
    dqkv[h.at(bh, t, 2) + k] = dv;
  }
};

}  // namespace

Attended attention_forward(Space space, View qkv, int64_t B, int64_t T, int64_t C, int64_t NH) {
  const Heads h{T, C, NH};
  const Memory s = doubles(space, B * NH * T * T);
  Attended a{doubles(space, B * T * C), doubles(space, B * NH * T)};
  for_each_index(space, B * NH * T * T, Scores{s.as<double>(), qkv, h});
  for_each_index(space, B * NH * T, LogSumExp{a.lse.as<double>(), s.as<double>(), T});
  for_each_index(space, B * NH * T * T, Probabilities{s.as<double>(), view(a.lse), T});
  for_each_index(space, B * T * C, AttentionOut{a.out.as<double>(), s.as<double>(), qkv, h});
  return a;
}

Memory attention_backward(Space space, View dout, View qkv, View out, View lse, int64_t B, int64_t T, int64_t C, int64_t NH) {
  const Heads h{T, C, NH};
  const Memory p = doubles(space, B * NH * T * T), ds = doubles(space, B * NH * T * T), row_dot = doubles(space, B * NH * T);
  Memory dqkv = doubles(space, B * T * 3 * C);
  for_each_index(space, B * NH * T * T, Scores{p.as<double>(), qkv, h});
  for_each_index(space, B * NH * T * T, Probabilities{p.as<double>(), lse, T});
  for_each_index(space, B * NH * T, RowDot{row_dot.as<double>(), dout, out, h});
  for_each_index(space, B * NH * T * T, ScoreGradients{ds.as<double>(), p.as<double>(), row_dot.as<double>(), dout, qkv, h});
  for_each_index(space, B * T * C, QkvGradient{dqkv.as<double>(), p.as<double>(), ds.as<double>(), dout, qkv, h});
  return dqkv;
}

// ---- gelu, classifier, update
// ---------------------------------------------------------------------------------------
namespace {

constexpr double kGeluScale = 0.79788456080286535588;  // sqrt(2 / pi)

struct Gelu {
  double* out;
  View x;
  GATE_ANYWHERE void operator()(int64_t i) const {
    const double v = x[i];
    out[i] = 0.5 * v * (1 + tanh(kGeluScale * (v + 0.044715 * v * v * v)));
  }
};
struct GeluGradient {
  double* dx;
  View dout, x;
  GATE_ANYWHERE void operator()(int64_t i) const {
    const double v = x[i], t = tanh(kGeluScale * (v + 0.044715 * v * v * v));
    dx[i] = dout[i] * (0.5 * (1 + t) + 0.5 * v * (1 - t * t) * kGeluScale * (1 + 3 * 0.044715 * v * v));
  }
};
struct Exponential {
  View logits;
  int64_t Vp;
  GATE_ANYWHERE void operator()(double& sum, int64_t row, int64_t v) const { sum += exp(logits[row * Vp + v]); }
};
struct RowLoss {
  double *sums, *losses;
  const double* parts;
  View logits;
  const int32_t* targets;
  int64_t Vp, per_row;
  GATE_ANYWHERE void operator()(int64_t row) const {
    double sum = 0;
    for (int64_t k = 0; k < per_row; ++k) sum += parts[row * per_row + k];
    sums[row] = sum;
    losses[row] = log(sum) - logits[row * Vp + targets[row]];
  }
};
struct LogitGradient {
  double* dlogits;
  const double* sums;
  View logits;
  const int32_t* targets;
  int64_t V, Vp;
  double scale;
  GATE_ANYWHERE void operator()(int64_t i) const {
    const int64_t row = i / Vp, v = i % Vp;
    dlogits[i] = v < V ? (exp(logits[i]) / sums[row] - (v == targets[row] ? 1 : 0)) * scale : 0;
  }
};
struct UpdateMoments {
  double *m, *v;
  View m0, v0, g;
  double b1, b2, scale;
  GATE_ANYWHERE void operator()(int64_t i) const {
    const double clipped = g[i] * scale;
    m[i] = b1 * m0[i] + (1 - b1) * clipped;
    v[i] = b2 * v0[i] + (1 - b2) * clipped * clipped;
  }
};
struct Move {
  double* p;
  View p0, m, v;
  double lr, eps, correct_m, correct_v, decay;
  int64_t first;
  GATE_ANYWHERE void operator()(int64_t k) const {
    const int64_t i = first + k;
    p[i] = p0[i] - lr * (m[i] / correct_m / (sqrt(v[i] / correct_v) + eps) + decay * p0[i]);
  }
};

// By hand, not from the table that the trainers read: matrices decay, biases and the weights of layernorms do
// not.
bool decays(std::string_view tensor) {
  for (const char* matrix : {"wte", "wpe", "qkvw", "attprojw", "fcw", "fcprojw"})
    if (tensor == matrix) return true;
  return false;
}

}  // namespace

Memory gelu_forward(Space space, View x, int64_t n) {
  Memory out = doubles(space, n);
  for_each_index(space, n, Gelu{out.as<double>(), x});
  return out;
}
Memory gelu_backward(Space space, View dout, View x, int64_t n) {
  Memory dx = doubles(space, n);
  for_each_index(space, n, GeluGradient{dx.as<double>(), dout, x});
  return dx;
}

Classified classifier(Space space, View logits, const int32_t* targets, int64_t rows, int64_t V, int64_t Vp, double gradient_scale) {
  const int64_t per_row = chunks(V);
  const Memory parts = row_chunks<double>(space, rows, V, Exponential{logits, Vp}), sums = doubles(space, rows);
  Classified c{doubles(space, rows), doubles(space, rows * Vp)};
  for_each_index(space, rows, RowLoss{sums.as<double>(), c.losses.as<double>(), parts.as<double>(), logits, targets, Vp, per_row});
  for_each_index(space, rows * Vp, LogitGradient{c.dlogits.as<double>(), sums.as<double>(), logits, targets, V, Vp, gradient_scale});
  return c;
}

Updated adamw(Space space, View parameters, View m, View v, View gradients, const gpt2::TensorLayout& layout, const gpt2::AdamW& a,
              int64_t step, double gradient_scale) {
  Updated u{{}, doubles(space, layout.total), doubles(space, layout.total)};
  for_each_index(space, layout.total,
                 UpdateMoments{u.m.as<double>(), u.v.as<double>(), m, v, gradients, static_cast<double>(a.beta1),
                               static_cast<double>(a.beta2), gradient_scale});
  u.parameters = moved(space, parameters, view(u.m), view(u.v), layout, a, step);
  return u;
}

Memory moved(Space space, View parameters, View m, View v, const gpt2::TensorLayout& layout, const gpt2::AdamW& a, int64_t step) {
  const double t = static_cast<double>(step), b1 = static_cast<double>(a.beta1), b2 = static_cast<double>(a.beta2);
  Memory p = doubles(space, layout.total);
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    const gpt2::TensorSpan& span = layout[row.id];
    for_each_index(
        space, span.size,
        Move{p.as<double>(), parameters, m, v, static_cast<double>(a.learning_rate), static_cast<double>(a.eps), 1 - std::pow(b1, t),
             1 - std::pow(b2, t), decays(row.name) ? static_cast<double>(a.weight_decay) : 0.0, span.offset});
  }
  return p;
}

}  // namespace gate::answer

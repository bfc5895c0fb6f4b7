#include "experiments/gate/op_oracle.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gate::oracle {
namespace {

double at(Floats a, int64_t i) { return static_cast<double>(a[static_cast<size_t>(i)]); }
double& at(Doubles& a, int64_t i) { return a[static_cast<size_t>(i)]; }
Doubles zeros(int64_t n) { return Doubles(static_cast<size_t>(n), 0.0); }
Doubles widened(Floats a) { return Doubles(a.begin(), a.end()); }
const double kGeluScale = std::sqrt(2 / std::numbers::pi);

}  // namespace

Doubles embedding_forward(Ints tokens, Floats wte, Floats wpe, int64_t T, int64_t C) {
  Doubles out = zeros(static_cast<int64_t>(tokens.size()) * C);
  for (int64_t r = 0; r < static_cast<int64_t>(tokens.size()); ++r)
    for (int64_t c = 0; c < C; ++c) at(out, r * C + c) = at(wte, tokens[static_cast<size_t>(r)] * C + c) + at(wpe, r % T * C + c);
  return out;
}

EmbeddingGradients embedding_backward(Floats dwte_before, Floats dwpe_before, Floats dout, Ints tokens, int64_t T, int64_t C) {
  EmbeddingGradients g{widened(dwte_before), widened(dwpe_before)};
  for (int64_t r = 0; r < static_cast<int64_t>(tokens.size()); ++r)
    for (int64_t c = 0; c < C; ++c) {
      at(g.dwte, tokens[static_cast<size_t>(r)] * C + c) += at(dout, r * C + c);
      at(g.dwpe, r % T * C + c) += at(dout, r * C + c);
    }
  return g;
}

Normed layernorm_forward(Floats x, Floats weight, Floats bias, int64_t rows, int64_t C) {
  Normed n{zeros(rows * C), zeros(rows), zeros(rows)};
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < C; ++c) mean += at(x, r * C + c);
    mean /= static_cast<double>(C);
    for (int64_t c = 0; c < C; ++c) variance += (at(x, r * C + c) - mean) * (at(x, r * C + c) - mean);
    variance /= static_cast<double>(C);
    const double rstd = 1 / std::sqrt(variance + 1e-5);
    at(n.mean, r) = mean;
    at(n.rstd, r) = rstd;
    for (int64_t c = 0; c < C; ++c) at(n.out, r * C + c) = (at(x, r * C + c) - mean) * rstd * at(weight, c) + at(bias, c);
  }
  return n;
}

NormGradients layernorm_backward(Floats dout, Floats x, Floats mean, Floats rstd, Floats weight, int64_t rows, int64_t C) {
  NormGradients g{zeros(rows * C), zeros(C), zeros(C)};
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0, sum_norm = 0;
    const auto normed = [&](int64_t c) { return (at(x, r * C + c) - at(mean, r)) * at(rstd, r); };
    for (int64_t c = 0; c < C; ++c) {
      const double dnorm = at(dout, r * C + c) * at(weight, c);
      sum += dnorm;
      sum_norm += dnorm * normed(c);
      at(g.dweight, c) += at(dout, r * C + c) * normed(c);
      at(g.dbias, c) += at(dout, r * C + c);
    }
    sum /= static_cast<double>(C);
    sum_norm /= static_cast<double>(C);
    for (int64_t c = 0; c < C; ++c) at(g.dx, r * C + c) = (at(dout, r * C + c) * at(weight, c) - sum - normed(c) * sum_norm) * at(rstd, r);
  }
  return g;
}

Doubles linear_forward(Floats x, Floats weight, Floats bias, int64_t rows, int64_t in, int64_t out_channels) {
  Doubles out = zeros(rows * out_channels);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t o = 0; o < out_channels; ++o) {
      double sum = bias.empty() ? 0 : at(bias, o);
      for (int64_t i = 0; i < in; ++i) sum += at(x, r * in + i) * at(weight, o * in + i);
      at(out, r * out_channels + o) = sum;
    }
  return out;
}

LinearGradients linear_backward(Floats dout, Floats x, Floats weight, int64_t rows, int64_t in, int64_t out_channels) {
  LinearGradients g{zeros(rows * in), zeros(out_channels * in), zeros(out_channels)};
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t o = 0; o < out_channels; ++o) {
      const double d = at(dout, r * out_channels + o);
      at(g.dbias, o) += d;
      for (int64_t i = 0; i < in; ++i) {
        at(g.dx, r * in + i) += d * at(weight, o * in + i);
        at(g.dweight, o * in + i) += d * at(x, r * in + i);
      }
    }
  return g;
}

namespace {
// Offsets of head h's query, key and value of token (b, t) in qkv, and of its output.
struct Heads {
  int64_t T, C, size;
  int64_t q(int64_t b, int64_t t, int64_t h) const { return (b * T + t) * 3 * C + h * size; }
  int64_t k(int64_t b, int64_t t, int64_t h) const { return q(b, t, h) + C; }
  int64_t v(int64_t b, int64_t t, int64_t h) const { return q(b, t, h) + 2 * C; }
  int64_t out(int64_t b, int64_t t, int64_t h) const { return (b * T + t) * C + h * size; }
  double score(Floats qkv, int64_t b, int64_t t, int64_t past, int64_t h) const {
    double s = 0;
    for (int64_t i = 0; i < size; ++i) s += at(qkv, q(b, t, h) + i) * at(qkv, k(b, past, h) + i);
    return s / std::sqrt(static_cast<double>(size));
  }
};
}  // namespace

Attended attention_forward(Floats qkv, int64_t B, int64_t T, int64_t C, int64_t NH) {
  const Heads heads{T, C, C / NH};
  Attended a{zeros(B * T * C), zeros(B * NH * T)};
  Doubles scores = zeros(T);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < NH; ++h)
      for (int64_t t = 0; t < T; ++t) {
        double largest = -HUGE_VAL, sum = 0;
        for (int64_t past = 0; past <= t; ++past) {
          at(scores, past) = heads.score(qkv, b, t, past, h);
          largest = std::max(largest, at(scores, past));
        }
        for (int64_t past = 0; past <= t; ++past) sum += std::exp(at(scores, past) - largest);
        const double lse = largest + std::log(sum);
        at(a.lse, (b * NH + h) * T + t) = lse;
        for (int64_t past = 0; past <= t; ++past)
          for (int64_t i = 0; i < heads.size; ++i)
            at(a.out, heads.out(b, t, h) + i) += std::exp(at(scores, past) - lse) * at(qkv, heads.v(b, past, h) + i);
      }
  return a;
}

Doubles attention_backward(Floats dout, Floats qkv, Floats out, Floats lse, int64_t B, int64_t T, int64_t C, int64_t NH) {
  const Heads heads{T, C, C / NH};
  const double scale = 1 / std::sqrt(static_cast<double>(heads.size));
  Doubles dqkv = zeros(B * T * 3 * C);
  for (int64_t b = 0; b < B; ++b)
    for (int64_t h = 0; h < NH; ++h)
      for (int64_t t = 0; t < T; ++t) {
        double row_sum = 0;
        for (int64_t i = 0; i < heads.size; ++i) row_sum += at(dout, heads.out(b, t, h) + i) * at(out, heads.out(b, t, h) + i);
        for (int64_t past = 0; past <= t; ++past) {
          const double p = std::exp(heads.score(qkv, b, t, past, h) - at(lse, (b * NH + h) * T + t));
          double dp = 0;
          for (int64_t i = 0; i < heads.size; ++i) {
            const double d = at(dout, heads.out(b, t, h) + i);
            dp += d * at(qkv, heads.v(b, past, h) + i);
            at(dqkv, heads.v(b, past, h) + i) += p * d;
          }
          const double ds = p * (dp - row_sum) * scale;
          for (int64_t i = 0; i < heads.size; ++i) {
            at(dqkv, heads.q(b, t, h) + i) += ds * at(qkv, heads.k(b, past, h) + i);
            at(dqkv, heads.k(b, past, h) + i) += ds * at(qkv, heads.q(b, t, h) + i);
          }
        }
      }
  return dqkv;
}

Doubles gelu_forward_of(Doubles x) {
  for (double& v : x) v = 0.5 * v * (1 + std::tanh(kGeluScale * (v + 0.044715 * v * v * v)));
  return x;
}
Doubles gelu_forward(Floats x) { return gelu_forward_of(widened(x)); }

Doubles gelu_backward_of(Doubles dx, Floats x) {
  for (size_t i = 0; i < dx.size(); ++i) {
    const double v = static_cast<double>(x[i]), t = std::tanh(kGeluScale * (v + 0.044715 * v * v * v));
    dx[i] *= 0.5 * (1 + t) + 0.5 * v * (1 - t * t) * kGeluScale * (1 + 3 * 0.044715 * v * v);
  }
  return dx;
}
Doubles gelu_backward(Floats dout, Floats x) { return gelu_backward_of(widened(dout), x); }

Classified classifier(Floats logits, Ints targets, int64_t V, int64_t Vp, double gradient_scale) {
  const auto rows = static_cast<int64_t>(targets.size());
  Classified c{zeros(rows), zeros(rows * Vp)};
  for (int64_t r = 0; r < rows; ++r) {
    double largest = -HUGE_VAL, sum = 0;
    for (int64_t v = 0; v < V; ++v) largest = std::max(largest, at(logits, r * Vp + v));
    for (int64_t v = 0; v < V; ++v) sum += std::exp(at(logits, r * Vp + v) - largest);
    const int64_t target = targets[static_cast<size_t>(r)];
    at(c.losses, r) = largest + std::log(sum) - at(logits, r * Vp + target);
    for (int64_t v = 0; v < V; ++v)
      at(c.dlogits, r * Vp + v) = (std::exp(at(logits, r * Vp + v) - largest) / sum - (v == target ? 1 : 0)) * gradient_scale;
  }
  return c;
}

void adamw(std::span<double> p, std::span<double> m, std::span<double> v, std::span<const double> g, const gpt2::TensorLayout& layout,
           const gpt2::AdamW& a, int64_t step, double gradient_scale) {
  const double lr = static_cast<double>(a.learning_rate), b1 = static_cast<double>(a.beta1), b2 = static_cast<double>(a.beta2),
               eps = static_cast<double>(a.eps), t = static_cast<double>(step);
  const double correct_m = 1 - std::pow(b1, t), correct_v = 1 - std::pow(b2, t);
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    const double decay = row.decayed ? static_cast<double>(a.weight_decay) : 0;
    const auto begin = static_cast<size_t>(layout[row.id].offset), size = static_cast<size_t>(layout[row.id].size);
    for (size_t i = begin; i < begin + size; ++i) {
      const double clipped = g[i] * gradient_scale;
      m[i] = b1 * m[i] + (1 - b1) * clipped;
      v[i] = b2 * v[i] + (1 - b2) * clipped * clipped;
      p[i] -= lr * (m[i] / correct_m / (std::sqrt(v[i] / correct_v) + eps) + decay * p[i]);
    }
  }
}

Updated adamw(Floats parameters, Floats m, Floats v, Floats gradients, const gpt2::TensorLayout& layout, const gpt2::AdamW& settings,
              int64_t step, float gradient_scale) {
  const auto doubles = [](Floats x) { return Doubles(x.begin(), x.end()); };
  Updated u{doubles(parameters), doubles(m), doubles(v)};
  adamw(u.parameters, u.m, u.v, doubles(gradients), layout, settings, step, static_cast<double>(gradient_scale));
  return u;
}

}  // namespace gate::oracle

#include "gpt2/tensor_table.h"

#include <cmath>
#include <numbers>

namespace gpt2 {

const std::array<TensorRow, kTensorCount> kTensorTable{{
    {Tensor::wte, "wte", false, true, Init::normal},
    {Tensor::wpe, "wpe", false, true, Init::normal},
    {Tensor::ln1w, "ln1w", true, false, Init::ones},
    {Tensor::ln1b, "ln1b", true, false, Init::zeros},
    {Tensor::qkvw, "qkvw", true, true, Init::normal},
    {Tensor::qkvb, "qkvb", true, false, Init::zeros},
    {Tensor::attprojw, "attprojw", true, true, Init::residual_normal},
    {Tensor::attprojb, "attprojb", true, false, Init::zeros},
    {Tensor::ln2w, "ln2w", true, false, Init::ones},
    {Tensor::ln2b, "ln2b", true, false, Init::zeros},
    {Tensor::fcw, "fcw", true, true, Init::normal},
    {Tensor::fcb, "fcb", true, false, Init::zeros},
    {Tensor::fcprojw, "fcprojw", true, true, Init::residual_normal},
    {Tensor::fcprojb, "fcprojb", true, false, Init::zeros},
    {Tensor::lnfw, "lnfw", false, false, Init::ones},
    {Tensor::lnfb, "lnfb", false, false, Init::zeros},
}};

TensorLayout tensor_layout(const ModelConfig& c) {
  const int64_t C = c.channels;
  // rows, columns of one layer
  const std::array<std::array<int64_t, 2>, kTensorCount> shape{{{c.padded_vocab, C},
                                                                {c.max_seq_len, C},
                                                                {1, C},
                                                                {1, C},
                                                                {3 * C, C},
                                                                {1, 3 * C},
                                                                {C, C},
                                                                {1, C},
                                                                {1, C},
                                                                {1, C},
                                                                {4 * C, C},
                                                                {1, 4 * C},
                                                                {C, 4 * C},
                                                                {1, C},
                                                                {1, C},
                                                                {1, C}}};
  TensorLayout layout;
  for (size_t i = 0; i < kTensorCount; ++i) {
    TensorSpan& s = layout.span[i];
    s.offset = layout.total;
    s.rows = shape[i][0];
    s.columns = shape[i][1];
    s.per_layer = s.rows * s.columns;
    s.size = s.per_layer * (kTensorTable[i].per_layer ? c.layers : 1);
    layout.total += s.size;
  }
  return layout;
}

namespace {

// SplitMix64 (Steele, Lea & Flood 2014): a bijective mix of a counter, so that element i needs no state from element i-1.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

double unit_open(uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1.0p-53; }

// Box-Muller on two draws of the counter; one normal per element keeps the value independent of how the vector is split.
float normal_at(uint64_t seed, uint64_t index) {
  const uint64_t key = mix(seed);
  const double u1 = unit_open(mix(key ^ mix(2 * index))), u2 = unit_open(mix(key ^ mix(2 * index + 1)));
  return static_cast<float>(std::sqrt(-2.0 * std::log(u1)) * std::cos(2.0 * std::numbers::pi * u2));
}

}  // namespace

std::vector<float> init_parameters(const ModelConfig& config, uint64_t seed) {
  const TensorLayout layout = tensor_layout(config);
  std::vector<float> p(static_cast<size_t>(layout.total), 0.0f);
  const float residual = 0.02f / std::sqrt(2.0f * static_cast<float>(config.layers));
  for (size_t i = 0; i < kTensorCount; ++i) {
    const TensorSpan& s = layout.span[i];
    int64_t end = s.offset + s.size;
    if (kTensorTable[i].id == Tensor::wte) end = s.offset + config.vocab_size * config.channels;
    switch (kTensorTable[i].init) {
      case Init::zeros:
        break;
      case Init::ones:
        for (int64_t j = s.offset; j < end; ++j) p[static_cast<size_t>(j)] = 1.0f;
        break;
      case Init::normal:
      case Init::residual_normal: {
        const float sd = kTensorTable[i].init == Init::normal ? 0.02f : residual;
#pragma omp parallel for
        for (int64_t j = s.offset; j < end; ++j) p[static_cast<size_t>(j)] = sd * normal_at(seed, static_cast<uint64_t>(j));
        break;
      }
    }
  }
  return p;
}

}  // namespace gpt2

// The one table of a GPT-2's parameter tensors. The order is that of llm.c's checkpoints (train_gpt2.py, write_tensors):
// each row stacked over layers, row-major, linear weights as (out, in). Everything that walks parameters walks this.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "gpt2/config.h"

namespace gpt2 {

enum class Tensor : int { wte, wpe, ln1w, ln1b, qkvw, qkvb, attprojw, attprojb, ln2w, ln2b, fcw, fcb, fcprojw, fcprojb, lnfw, lnfb };
inline constexpr int kTensorCount = 16;

// How a fresh model is initialized (GPT-2): normal(0, 0.02); residual projections normal(0, 0.02 / sqrt(2 L)); ones; zeros.
enum class Init { normal, residual_normal, ones, zeros };

struct TensorRow {
  Tensor id;
  std::string_view name;  // as in the gate's tables and in dumps
  bool per_layer;         // leading dimension L
  bool decayed;           // AdamW weight decay: matrices only, never biases or layernorm (two-dimensional per layer)
  Init init;
};
extern const std::array<TensorRow, kTensorCount> kTensorTable;

// Where one tensor lies in the flat parameter vector (elements, not bytes).
struct TensorSpan {
  int64_t offset = 0;
  int64_t size = 0;       // all layers
  int64_t per_layer = 0;  // one layer; == size for tensors without layers
  int64_t rows = 0;       // of one layer seen as a matrix (rows, columns); vectors are (1, n)
  int64_t columns = 0;
};

// Offsets of all tensors; `total` elements (d12: 124,475,904 with the padded vocabulary).
struct TensorLayout {
  std::array<TensorSpan, kTensorCount> span;
  int64_t total = 0;
  const TensorSpan& operator[](Tensor t) const { return span[static_cast<size_t>(t)]; }
};
TensorLayout tensor_layout(const ModelConfig& config);

// A fresh GPT-2: every tensor by its Init, padded vocabulary rows zero. The numbers depend only on (config, seed), not on the
// platform: our own counter-based generator, drawn in table order.
std::vector<float> init_parameters(const ModelConfig& config, uint64_t seed);

}  // namespace gpt2

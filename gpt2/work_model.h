// FLOPs and the fewest DRAM bytes of one training step, per range path, counted by formula: the floor that every kernel is
// held against. A multiply-add is 2 FLOPs; softmax, GELU and layernorm arithmetic is not counted.
#pragma once
#include <cstdint>
#include <vector>

#include "gpt2/config.h"
#include "gpt2/ops.h"

namespace gpt2 {

struct OpWork {
  Pass pass;
  int layer;  // kNoLayer outside the layers
  Op op;
  double flops = 0;      // matrix products only: what a matmul ceiling bounds
  double min_bytes = 0;  // each input of the op read once, each output written once, at the storage widths given
};

struct StorageWidths {
  int activation = 4;
  int gradient = 4;    // of parameters
  int parameter = 4;   // as the matrix products read it
  int optimizer = 12;  // m, v and master copy together, per parameter, when it is not counted under `parameter`
};
StorageWidths widths_fp32();   // optimizer = 8 (m, v; the parameter itself is the master)
StorageWidths widths_mixed();  // bf16 activations and parameters; fp32 parameter gradients, m, v, master

// One entry per op that a step executes, micro-steps summed.
std::vector<OpWork> step_work(const ModelConfig& model, int64_t batch, int64_t seq, int64_t accumulation, const StorageWidths& widths);

// Model FLOPs of a step: matrix products and causal attention, forward + backward (attention backward 2.5 x forward).
double model_flops(const ModelConfig& model, int64_t batch, int64_t seq, int64_t accumulation);

}  // namespace gpt2

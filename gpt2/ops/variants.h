// The variants that both trainers have: what an op's launcher in this folder can be asked for. Which is the default, and what it is worth,
// is each trainer's own (variants.cpp).
#pragma once

namespace gpt2::ops {

enum class LayernormForward { warp_per_row, block_per_row };
enum class LayernormBackward { fused_rows, separate_columns };
enum class Classifier { two_pass, one_read };
enum class ZeroGrad { overwrite, memset };
enum class AdamWKernel { all_tensors, per_tensor };

}  // namespace gpt2::ops

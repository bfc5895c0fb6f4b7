// Every limit of the whole-model gate, in one table: what a trainer may lose against the double-precision
// oracle. A budget is calibrated from what the precision itself loses on the gate's cases (docs of each row
// in budgets.cpp), not from what would be convenient; tests/bugs proves that they still catch every seeded
// bug.
#pragma once
#include <string_view>

namespace gate {

struct ModelBudgets {
  double logits = 0;            // relative norm; rows and columns get slice_factor times as much
  double loss = 0;              // relative
  double one_token_factor = 1;  // on the loss of a single token, which nothing averages
  double gradients = 0;         // relative norm, every tensor
  double grad_norm = 0;         // relative
  double adam_m = 0;            // relative norm against the oracle's update from the same state
  double adam_v = 0;
  double update = 0;      // of p' - p against the closed form from the trainer's own m and v, relative norm
  double trajectory = 0;  // relative, every loss of the run
  // On logits, loss and gradients of two stress cases, but that gradients behind sharp attention have a factor of their own. exp(x) carries
  // the rounding of x as a relative error, about |x| times the usual; behind attention scores of +-100 it is multiplied again by every layer
  // that follows.
  double large_logits_factor = 1;
  double sharp_attention_factor = 1, sharp_attention_gradient_factor = 1;
  double forward_stress_factor = 2;  // on the cases "offset stream", where a sum of 8 +- 0.2 costs fp32 five bits, and "gelu tail"
  // On logits, loss and gradients of the wide layer. Its products sum up 6,400 terms, of which one after another loses 1.4e-6 in fp32 (lost_by_sum,
  // expected.h), and three such sums and four of 1,600 lie on the way of a gradient: 3e-6 where 2e-6 is the floor. A channel that is left out
  // is 2.5e-2 of a tensor.
  double wide_factor = 1;
  double slice_factor = 8;
  // Rows and columns behind sharp attention. Where nearly all of a gradient is noise, a row that should be almost zero
  // is off by any factor.
  double sharp_attention_slice_factor = 8;
};

// trainer "reference" (the float one), "fp32"; matmul "fp32" or "tf32". Throws stepscope::InputError for a
// pair without a row.
ModelBudgets budgets_of(std::string_view trainer, std::string_view matmul);

// The double-precision oracle against a state stored in fp32 (rounding alone is about 3e-8), and a trainer
// against such a state.
inline constexpr double kOracleAgainstState = 2e-7;

}  // namespace gate

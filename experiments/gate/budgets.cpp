#include "experiments/gate/budgets.h"

#include <fmt/format.h>

#include "base/errors.h"

namespace gate {
namespace {

struct Row {
  std::string_view trainer, matmul;
  ModelBudgets budgets;
};

// Calibrated on 2026-11-20 with the float reference, seeds 1 to 30 of the gate's own cases; largest seen:
// logits 6.3e-7, loss 1.7e-7 (one token), gradients 9.4e-7, adam m 7.1e-7, adam v 9.1e-7, update 7.8e-6
// (rounding of p itself), trajectory 6.9e-8, large logits 1.9e-6 on gradients, sharp attention 2.0e-4 on
// gradients and 5.9e-6 on logits.
constexpr ModelBudgets kFp32{.logits = 2e-6,
                             .loss = 1e-6,
                             .gradients = 2e-6,
                             .grad_norm = 2e-6,
                             .adam_m = 2e-6,
                             .adam_v = 4e-6,
                             .update = 2e-5,
                             .trajectory = 1e-5,
                             .large_logits_factor = 10,
                             .sharp_attention_factor = 500,
                             .sharp_attention_gradient_factor = 500,
                             .forward_stress_factor = 10,
                             .wide_factor = 10,
                             .slice_factor = 8};
// TF32 keeps 10 bits of each factor, 2^-11 = 5e-4 a product, averaged over the sums. Behind logits of 100
// that is 5% of a probability; behind scores of 100 only the likeness of the gradient is left, which still
// rejects zeros, NaN and other tensors.
constexpr ModelBudgets kTf32{.logits = 2e-3,
                             .loss = 5e-4,
                             .gradients = 2e-3,
                             .grad_norm = 2e-3,
                             .adam_m = 2e-3,
                             .adam_v = 4e-3,
                             .update = 2e-5,
                             .trajectory = 2e-3,
                             .large_logits_factor = 50,
                             .sharp_attention_factor = 250,
                             .sharp_attention_gradient_factor = 250,
                             .slice_factor = 8};

// bf16 keeps 8 bits of every activation, weight and gradient that is stored, 2^-9 = 2e-3 a rounding, and a gradient has passed through a
// few dozen of them. Calibrated on an H200 on 2026-11-21, seeds 1 to 3, with the residual stream in bf16 too; largest seen: logits 8.9e-3,
// loss 3.4e-4 (7.7e-3 of one token), gradients 1.4e-2, adam m 1.1e-2, adam v 1.2e-2, grad norm 2.0e-3, trajectory 9.7e-5. Behind scores of 100
// a gradient is noise. With heads of 64 channels, where one softmax carries all of it, the oracle's own draws are off by more than 2 times the
// gradient for 63 of 1,000 seeds, more than 4 for 8 and more than 8 for 0.75 (4,000 seeds; the worst 12.2): a law that falls as a cube, not as
// an exponential, so that a budget of 4 refused right trainers (6.3 on an H200, seed 791399725, 2026-11-28). 32, beyond which that law has 1 of
// 100,000, rejects what is not finite or of another size. How this compares with
// PyTorch's autocast is measured by tests/device/autocast_error.py and stated in docs/study/mixed-precision.md.
// The forward stress cases were calibrated on the CPU, with the oracle's float twin storing weights and activations in bf16, seeds 1 to 5:
// gelu tail 1.4e-2, the others as above; x sigmoid(1.702 x) 1.0e-1, a residual sum in bf16 8.7e-2, and no eps 0.84, C-1 4.5e-2.
constexpr ModelBudgets kBf16{.logits = 1.3e-2,
                             .loss = 2e-3,
                             .one_token_factor = 10,
                             .gradients = 2e-2,
                             .grad_norm = 8e-3,
                             .adam_m = 2e-2,
                             .adam_v = 3e-2,
                             .update = 2e-5,
                             .trajectory = 1e-3,
                             .large_logits_factor = 3,
                             .sharp_attention_factor = 100,
                             .sharp_attention_gradient_factor = 1600,
                             .slice_factor = 8,
                             .sharp_attention_slice_factor = 1e4};

constexpr Row kRows[] = {{"reference", "fp32", kFp32}, {"fp32", "fp32", kFp32}, {"fp32", "tf32", kTf32}, {"mixed", "bf16", kBf16}};

}  // namespace

ModelBudgets budgets_of(std::string_view trainer, std::string_view matmul) {
  for (const Row& row : kRows)
    if (row.trainer == trainer && row.matmul == matmul) return row.budgets;
  std::string known;
  for (const Row& row : kRows) known += fmt::format("{}{} --matmul {}", known.empty() ? "" : ", ", row.trainer, row.matmul);
  throw stepscope::InputError(fmt::format("gate: no budgets for --trainer {} --matmul {}; there are: {}", trainer, matmul, known));
}

}  // namespace gate

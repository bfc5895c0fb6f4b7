// A batch that no oracle can follow: more rows than 16 bits count and more logits than 32 bits, as one batch and as many small ones. What is
// right for the small ones (every other check asks those) and wrong for the large one shows: a row number or an offset too narrow, a grid that
// stops early, a kernel or a cut that only many rows take, memory that was planned for fewer.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "experiments/gate/report.h"
#include "experiments/gate/workload.h"
#include "gpt2/trainer.h"

namespace gate {

// One layer of GPT-2's smallest model, 88 sequences of 1,024: 90,112 rows of 50,304 logits.
Case many_rows_case();

// The most that a tensor's gradient may differ, relative to its norm: products sum the same rows in another order, and weight gradients in bf16
// were rounded once more. In fp32 it is wte that decides, 2e-4 on an H200 where all others have 2e-6: a frequent target's row grows by its own
// rows, and the 87,000 others add terms below its last place, which one long sum loses and eleven short ones do not.
double many_rows_budget(std::string_view matmul);

// "many rows": losses of evaluate() and forward_backward() and each tensor's gradient, of one trainer with all sequences of `c` against the
// mean over one with `piece` of them at a time. `make`: a trainer for so many sequences; it holds one at a time. `c.batch_size` is a multiple
// of `piece`.
// The means of losses may differ by a hundredth of the budget.
std::vector<CheckResult> check_many_rows(const std::function<std::unique_ptr<gpt2::Trainer>(int64_t sequences)>& make, const Case& c,
                                         int64_t piece, double budget, uint64_t seed);

}  // namespace gate

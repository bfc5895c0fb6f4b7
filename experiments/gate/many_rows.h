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

// 48 layers of 128 channels and 512 sequences of 256: 131,072 rows. What a layer keeps of a row in three or four times its channels lies more
// than 2^31 values from what the first layer keeps, and in fp32 more than 2^33 bytes: a distance of layers, or a layer times it, that is kept
// in 31 bits. Few channels, since what counts is layers x rows x channels, and the arithmetic grows with their square.
Case many_layers_case();

// The most that a tensor's gradient may differ, relative to its norm: products sum the same rows in another order, and weight gradients in bf16
// were rounded once more. In fp32 it is wte that decides, 2e-4 on an H200 where all others have 2e-6: a frequent target's row grows by its own
// rows, and the 87,000 others add terms below its last place, which one long sum loses and eleven short ones do not.
double many_rows_budget(std::string_view matmul);
// The same of many layers. In bf16 a product that adds up in another order rounds some activations to their other neighbour: were all rounded
// by chance, a gradient of this model would be off by 4e-3 to 9e-3 (the oracle's draw on a CPU). One layer of 48 whose activations lie on those
// of another is off by some 7e-2 of all.
double many_layers_budget(std::string_view matmul);

// "many rows": losses of evaluate() and forward_backward() and each tensor's gradient, of one trainer with all sequences of `c` against the
// mean over one with `piece` of them at a time. `make`: a trainer for so many sequences; it holds one at a time. `c.batch_size` is a multiple
// of `piece`.
// The means of losses may differ by a hundredth of the budget.
std::vector<CheckResult> check_many_rows(const std::function<std::unique_ptr<gpt2::Trainer>(int64_t sequences)>& make, const Case& c,
                                         int64_t piece, double budget, uint64_t seed);

}  // namespace gate

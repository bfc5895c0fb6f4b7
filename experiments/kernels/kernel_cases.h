// The ops of a GPU trainer at the shapes of a model: one case to be checked against the fp64 oracle, one
// to be timed. Both have the same channels; the checked one may have fewer rows, because the oracle is a
// plain loop on the CPU.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "experiments/gate/op_case.h"
#include "gpt2/config.h"

namespace experiments {

struct KernelCase {
  gate::OpCase check;  // with what must come out
  gate::OpCase timed;  // inputs only: `want` is empty
  double flops =
      0;  // of matrix products, as the op's mathematics needs them; 0 = bandwidth is the only ceiling
  // Each input read once, each output written once, what is updated both.
  double min_bytes() const;
};

// Op names of the fp32 trainer that kernel_cases knows: the slots with variants, and the other ops that take time.
std::vector<std::string> kernel_ops();

// The places of `op` in a step of this model ("mlp_up", "lm_head", …), B x T tokens. Throws
// stepscope::InputError for an unknown op.
std::vector<KernelCase> kernel_cases(const std::string& op, const gpt2::ModelConfig& model,
                                     int64_t batch_size, int64_t seq_len, uint64_t seed);
// The same of the mixed-precision trainer: kernel_cases_mixed.cpp.
std::vector<std::string> mixed_kernel_ops();
std::vector<KernelCase> mixed_kernel_cases(const std::string& op, const gpt2::ModelConfig& model,
                                           int64_t batch_size, int64_t seq_len, uint64_t seed);

}  // namespace experiments

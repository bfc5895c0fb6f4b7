// Small valid files of each format, beside what all tests of files share.
#pragma once
#include <vector>

#include "gpt2/checkpoint.h"
#include "gpt2/tensor_table.h"
#include "tests/base/files.h"

namespace gpt2::testing {

inline ModelConfig small_config() { return {4, 5, 6, 1, 2, 4}; }  // 4 positions, 5 words padded to 6, 1 layer, 2 heads, 4 channels
inline std::vector<float> small_parameters(uint64_t seed = 1) { return init_parameters(small_config(), seed); }

}  // namespace gpt2::testing

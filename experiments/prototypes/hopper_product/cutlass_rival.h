// The same products by CUTLASS, with the same tails as its own fusions: bias, GELU and its input kept; the gradient of GELU with sums of columns.
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "mixed/hopper/multiply.h"

namespace hopper {

using NamedLaunches = std::vector<std::pair<std::string, std::function<void(cudaStream_t)>>>;

// What CUTLASS has for this product; nothing where it was not compiled in (README.md), or for other layouts and tails.
NamedLaunches cutlass_launches(const Problem& p, Tail tail);

// One file each, so that they compile beside each other.
NamedLaunches cutlass_plain(const Problem& p);
NamedLaunches cutlass_gelu(const Problem& p);
NamedLaunches cutlass_gelu_backward(const Problem& p);

}  // namespace hopper

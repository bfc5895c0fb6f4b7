// Products of a step of GPT-2 124M and the ways to cut them.
#pragma once
#include <string>
#include <vector>

#include "gpt2/cuda/device_buffer.h"
#include "mixed/hopper/multiply.h"

namespace hopper {

using gpt2::cuda::DeviceBuffer;

struct Case {
  std::string name;
  int m, n, k;
  bool a_across, b_across;
  Tail tail;
};
struct Way {
  std::string name;
  Cut cut;
};

std::vector<Way> ways();          // most promising first
std::vector<Case> check_cases();  // small and odd ones, and those of B=4
std::vector<Case> timed_cases();  // B=64 and B=4, most wanted first
// The products of a block that are cuBLASLt's in the step, at so many rows.
std::vector<Case> block_cases(int rows);

// Device memory of a product, filled with small random values.
struct Buffers {
  Buffers(const Case& c, int columns_of_a_tile);
  int columns;
  DeviceBuffer<__nv_bfloat16> a, b, out, second, bias, given;
  DeviceBuffer<float> partial, offset, row_sums;
  DeviceBuffer<int> overflow;
  Problem problem;
};

}  // namespace hopper

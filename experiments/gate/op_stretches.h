// Vectors that are too long to be kept several times, in double too: 2^31 parameters with their answers take 200 GB. A case of one draws and
// judges stretches of it, and holds these one behind the other; between them there are zeros.
#pragma once
#include <cstdint>
#include <vector>

#include "experiments/gate/op_memory.h"
#include "gpt2/tensor_table.h"

namespace gate {

struct Stretch {
  int64_t first = 0, count = 0;
};
// In their order; no two have a common element.
struct Stretches {
  int64_t whole = 0;  // elements of the vector; 0: there is none, and all elements of a case are asked
  std::vector<Stretch> all;

  explicit operator bool() const { return whole > 0; }
  int64_t count() const;
};

// `each` elements at both ends and around each of `places`, half of them before it: a number that ends there is wrong behind it. Places beyond
// the end are left out. Throws std::logic_error for stretches that would have common elements.
Stretches stretches_of(int64_t whole, int64_t each, const std::vector<int64_t>& places);

// Where each tensor lies in the stretches. Each lies together there too, and may have no element.
gpt2::TensorLayout cut(const gpt2::TensorLayout& layout, const Stretches& stretches);

// The stretches of a vector of elements of `width` bytes, whose other elements become zero; and the other way.
void spread(void* whole, const Memory& stretched, int64_t width, const Stretches& stretches);
Memory gathered(const void* whole, Space space, int64_t width, const Stretches& stretches);

}  // namespace gate

// One op at one shape with fresh random inputs: what goes in, what must come out (computed in double from the
// same rounded inputs, by the definition of the op and nothing else), and how each variant is launched. No
// CUDA type appears here.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "fp32/op_api.h"

namespace gate {

enum class Role {
  input,   // may not change
  output,  // every element must be written, whatever was there before
  update,  // read and written: `bytes` is the content before
};
enum class Element { f32, f64, i32 };

struct OpTensor {
  std::string name;
  Role role = Role::input;
  Element element = Element::f32;
  int64_t rows = 1, columns = 0;
  std::vector<std::byte> bytes;  // input, update: content before; output: empty
  std::vector<double> want;      // output, update: content after

  int64_t count() const { return rows * columns; }
  int64_t byte_count() const { return count() * (element == Element::f64 ? 8 : 4); }
};

struct OpCase {
  std::string op;       // "layernorm_forward"; also the slot when the op has variants
  std::string shape;    // "rows=189 C=768 outliers"
  bool matmul = false;  // products at the context's rate: judged in both rates
  double floor_factor =
      1;  // on the least budget; above 1 where the inputs make fp32 lose more, said in `shape`
  std::vector<OpTensor> tensors;
  std::function<int64_t(const std::string& variant)> scratch_bytes;  // may be empty: none
  // `pointers[i]` is the device address of tensors[i].
  std::function<void(fp32::op::Context&, const std::string& variant, std::span<void* const> pointers,
                     void* scratch)>
      launch;
};

// Every op of fp32/op_api.h at several shapes, odd sizes among them. Deterministic in `seed`. `make` is
// called for one op at a time so that not all inputs are in memory at once; `use` is called with each case.
void for_each_op_case(uint64_t seed, const std::function<void(const OpCase&)>& use);

// ---- helpers of the case files
// -----------------------------------------------------------------------------------
OpTensor input_tensor(std::string name, int64_t rows, int64_t columns, const std::vector<float>& values);
OpTensor input_tensor(std::string name, const std::vector<int32_t>& values);
OpTensor output_tensor(std::string name, int64_t rows, int64_t columns, std::vector<double> want);
OpTensor update_tensor(std::string name, int64_t rows, int64_t columns, const std::vector<float>& before,
                       std::vector<double> want);

}  // namespace gate

// How tensors of the op cases are stored, and read back.
#include "experiments/gate/op_case.h"

#include <bit>

namespace gate {
namespace {

// Values of bf16 tensors must be bf16 numbers already: what the kernel gets is then what the oracle saw.
std::vector<std::byte> stored(const std::vector<float>& values, Element element) {
  if (element != Element::bf16) return bytes_of_values(values);
  std::vector<uint16_t> halves(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits = std::bit_cast<uint32_t>(values[i]);
    if ((bits & 0xffffu) != 0)
      throw std::logic_error("an op case hands a kernel values that its oracle did not see rounded");
    halves[i] = static_cast<uint16_t>(bits >> 16);
  }
  return bytes_of_values(halves);
}

}  // namespace

OpTensor input_tensor(std::string name, int64_t rows, int64_t columns, const std::vector<float>& values,
                      Element element) {
  return {std::move(name), Role::input, element, rows, columns, stored(values, element), {}};
}
OpTensor input_tensor(std::string name, const std::vector<int32_t>& values) {
  return {std::move(name),         Role::input, Element::i32, 1, static_cast<int64_t>(values.size()),
          bytes_of_values(values), {}};
}
OpTensor output_tensor(std::string name, int64_t rows, int64_t columns, std::vector<double> want,
                       Element element, Rounding rounding) {
  return {std::move(name), Role::output, element, rows, columns, {}, std::move(want), rounding};
}
OpTensor update_tensor(std::string name, int64_t rows, int64_t columns, const std::vector<float>& before,
                       std::vector<double> want, Element element, Rounding rounding) {
  return {std::move(name),         Role::update,    element, rows, columns,
          stored(before, element), std::move(want), rounding};
}
std::vector<float> floats_of(std::span<const std::byte> bytes, Element element) {
  std::vector<float> out(bytes.size() / static_cast<size_t>(bytes_of_element(element)));
  if (element == Element::f32) {
    std::memcpy(out.data(), bytes.data(), out.size() * 4);
  } else if (element == Element::bf16) {
    for (size_t i = 0; i < out.size(); ++i) {
      uint16_t half;
      std::memcpy(&half, &bytes[i * 2], 2);
      out[i] = std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
    }
  } else {
    throw std::logic_error("floats_of: elements of another type");
  }
  return out;
}

}  // namespace gate

// One op at one shape with fresh random inputs: what goes in, what must come out (computed in double from the
// same rounded inputs, by the definition of the op and nothing else), and how each variant is launched. No
// CUDA type appears here. The trap: a bf16 tensor takes only values that are bf16 numbers already, or the
// kernel would compute from other inputs than the oracle.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "experiments/gate/op_judge.h"
#include "experiments/gate/report.h"
#include "gpt2/trainer.h"

namespace gate {

enum class Role {
  input,   // may not change
  output,  // every element must be written, whatever was there before
  update,  // read and written: `bytes` is the content before
};
enum class Element { f32, f64, i32, bf16 };
inline int64_t bytes_of_element(Element e) { return e == Element::f64 ? 8 : e == Element::bf16 ? 2 : 4; }

// What a suite's ops are launched on: a context of the type that the cases of the same suite were written
// for.
class ContextRef {
 public:
  template <class Context>
  explicit ContextRef(std::shared_ptr<Context> context) : context_(context), type_(&typeid(Context)) {}
  template <class Context>
  operator Context&() const {  // NOLINT: launch functions name the type that they want
    if (*type_ != typeid(Context)) throw std::logic_error("an op case met the context of another suite");
    return *static_cast<Context*>(context_.get());
  }

 private:
  std::shared_ptr<void> context_;
  const std::type_info* type_;
};

struct OpTensor {
  std::string name;
  Role role = Role::input;
  Element element = Element::f32;
  int64_t rows = 1, columns = 0;
  std::vector<std::byte> bytes;  // input, update: content before; output: empty
  std::vector<double> want;      // output, update: content after
  Rounding rounding{};  // of its values on the way out; none: fp32 all the way, judged by the suite's floor

  int64_t count() const { return rows * columns; }
  int64_t byte_count() const { return count() * bytes_of_element(element); }
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
  std::function<void(const ContextRef&, const std::string& variant, std::span<void* const> pointers,
                     void* scratch)>
      launch;
  std::vector<std::string>
      variants{};      // judged in this order, the first is the baseline; empty: those of the slot `op`
  std::string slot{};  // of `variants`; empty: `op`
  // Choices of other slots that this case stands for, as slot and variant: the storage of the residual
  // stream, say.
  std::vector<std::pair<std::string, std::string>> also{};
  // What must hold between the results of one launch (bytes of every tensor), beyond each one's own error;
  // may be empty.
  std::function<void(std::span<const std::vector<std::byte>> after, const std::string& name,
                     const std::string& detail, GateReport&)>
      judge{};
};

// The ops of one trainer.
struct OpSuite {
  std::string trainer;
  std::vector<std::string> rates;  // of matrix products; ops without any are judged in the first
  std::vector<gpt2::VariantInfo> variants;
  std::function<ContextRef(const std::string& rate, void* stream)> make_context;
  std::function<void(uint64_t seed, const std::function<void(const OpCase&)>& use)> for_each_case;
  // Whether the trainer promises the same bits in every run.
  std::function<bool(std::string_view op, std::string_view variant)> repeats;
};
// Each at several shapes, odd sizes among them; deterministic in `seed`. Cases are made one at a time, so
// that not all inputs are in memory at once. Making them needs no device.
OpSuite fp32_ops();
OpSuite mixed_ops();

// ---- helpers of the case files
// -----------------------------------------------------------------------------------
template <typename T>
std::vector<std::byte> bytes_of_values(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}
OpTensor input_tensor(std::string name, int64_t rows, int64_t columns, const std::vector<float>& values,
                      Element element = Element::f32);
OpTensor input_tensor(std::string name, const std::vector<int32_t>& values);
OpTensor output_tensor(std::string name, int64_t rows, int64_t columns, std::vector<double> want,
                       Element element = Element::f32, Rounding rounding = {});
OpTensor update_tensor(std::string name, int64_t rows, int64_t columns, const std::vector<float>& before,
                       std::vector<double> want, Element element = Element::f32, Rounding rounding = {});
// The values that bytes of f32 or bf16 elements hold.
std::vector<float> floats_of(std::span<const std::byte> bytes, Element element);

}  // namespace gate

// One op at one shape: what goes in, what must come out (in double, from the same rounded inputs, by the
// definition of the op and nothing else), and how each variant is launched. The gate judges it, `kernels`
// times it. Variants come from the trainer's own table: a case names its slot, the variant that is the
// baseline, and the variants that are another form of the op.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/gate/op_judge.h"
#include "experiments/gate/op_launch.h"
#include "experiments/gate/op_memory.h"
#include "experiments/gate/op_sizes.h"
#include "experiments/gate/op_stretches.h"
#include "experiments/gate/report.h"
#include "gpt2/trainer.h"

namespace gate {

enum class Role {
  input,   // may not change
  output,  // every element must be written, whatever was there before
  update,  // read and written: `content` is what is there before
};

struct OpTensor {
  std::string name;
  Role role = Role::input;
  Element element = Element::f32;
  int64_t rows = 1, columns = 0;
  Memory content;          // input, update: before; output: none
  Memory want;             // output, update: doubles, after; none where a case is only timed
  Rounding rounding{};     // of its values on the way out; none: fp32 all the way, judged by the suite's floor
  bool stretched = false;  // a launch gets the whole vector; all else here is of OpCase::stretches of it, in one row

  int64_t count() const { return rows * columns; }
  int64_t byte_count() const { return count() * bytes_of_element(element); }
};

struct OpCase {
  std::string op;           // "layernorm_forward"; also the slot when the op has variants
  std::string shape;        // "rows=189 C=768, outlier, zero, constant and denormal row"
  bool matmul = false;      // products at the context's rate: judged in both rates
  int64_t terms = 1;        // of the longest sum that a matrix product takes in one go
  double floor_factor = 1;  // on the least budget; above 1 where the inputs make fp32 lose more, said in `shape`
  double floor_added = 0;   // to the least budget: what the inputs make fp32 lose, whatever the rate of products
  std::vector<OpTensor> tensors;
  std::function<int64_t(const std::string& variant)> scratch_bytes{};  // may be empty: none
  // `pointers[i]` is the device address of tensors[i].
  std::function<void(OpContext&, const std::string& variant, std::span<void* const> pointers, void* scratch)> launch{};
  std::string slot{};                      // empty: `op`
  std::string baseline{};                  // a variant that does every shape; empty: the slot's first, or the op has one way
  std::vector<std::string> other_forms{};  // variants of the slot that this case does not stand for
  // Choices of other slots that this case stands for, as slot and variant: the storage of the residual
  // stream, say.
  std::vector<std::pair<std::string, std::string>> also{};
  // Of which result of which variant it is not asked whether it leans (check_lean); may be empty: of all that are rounded it is.
  std::function<bool(const std::string& tensor, const std::string& variant)> may_lean{};
  // Variants that round the factors of TF32 products themselves. The library's products may as well leave it to the hardware, which cuts.
  std::vector<std::string> rounds_to_tf32{};
  Stretches stretches{};  // of the tensors that are `stretched`
  double flops = 0;       // of matrix products, as the op's mathematics needs them; 0: bandwidth is the only ceiling
  // Something among the inputs is no finite number: nothing is compared, and `judge` asks which results are none either.
  bool not_finite = false;
  // What must hold between the results of one launch, beyond each one's own error; may be empty.
  std::function<void(std::span<const Memory> after, const std::string& name, const std::string& detail, GateReport&)> judge{};

  // What a launch gets of a tensor.
  int64_t bytes_at_launch(const OpTensor& t) const { return t.stretched ? stretches.whole * bytes_of_element(t.element) : t.byte_count(); }

  // Each input read once, each output written once, what is updated both.
  double min_bytes() const;

  // What rounding alone may make of a result that is not rounded on its way out, with products at `rate`.
  double least_budget(std::string_view rate) const { return op_floor(rate, matmul, terms) * floor_factor + floor_added; }
};

// The variants of `c` in the order in which they are judged: the baseline first. {""} for an op that has one
// way. Throws std::logic_error for a baseline or another form that the table does not know.
std::vector<std::string> variants_of(const std::vector<gpt2::VariantInfo>& table, const OpCase& c);

// "OP/VARIANT lean": a result of a variant leans to no side (op_judge.h). Nothing where it may, is not rounded, or has too few rows.
std::optional<CheckResult> check_lean(const OpCase& c, const OpTensor& t, View got, const std::string& variant, std::string_view rate,
                                      const std::string& name, const std::string& detail);

// What is made, and where.
struct CaseOptions {
  Space space = Space::device;
  uint64_t seed = 0;
  std::string only{};        // one op; empty: all
  bool with_answers = true;  // false: for a clock or a sanitizer
};
using UseCase = std::function<void(const OpCase&)>;

// Every op of the trainer at every shape of `sizes`, one at a time, so that not all are in memory at once.
// Deterministic in the seed.
void for_each_case(const OpTrainer& trainer, const OpSizes& sizes, const CaseOptions& options, const UseCase& use);

// The ops that the trainer has cases for, in their order: those of a step, with `every` way also those of a start.
std::vector<std::string> op_names(const OpTrainer& trainer, OpSizes::Ways ways = OpSizes::Ways::plain);

}  // namespace gate

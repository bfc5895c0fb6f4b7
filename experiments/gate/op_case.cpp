#include "experiments/gate/op_case.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "experiments/gate/op_compare.h"

namespace gate {

double OpCase::min_bytes() const {
  double bytes = 0;
  for (const OpTensor& t : tensors) bytes += static_cast<double>(t.byte_count()) * (t.role == Role::update ? 2 : 1);
  return bytes;
}

std::vector<std::string> variants_of(const std::vector<gpt2::VariantInfo>& table, const OpCase& c) {
  const std::string& slot = c.slot.empty() ? c.op : c.slot;
  const auto row = std::find_if(table.begin(), table.end(), [&](const gpt2::VariantInfo& info) { return info.slot == slot; });
  if (row == table.end()) {
    if (!c.slot.empty() || !c.baseline.empty())
      throw std::logic_error("the op case " + c.op + " names the slot " + slot + ", which the trainer does not have");
    return {""};
  }
  const auto known = [&](const std::string& variant) {
    if (std::find(row->names.begin(), row->names.end(), variant) == row->names.end())
      throw std::logic_error("the op case " + c.op + " names " + slot + "=" + variant + ", which the trainer does not have");
  };
  for (const std::string& form : c.other_forms) known(form);
  std::vector<std::string> out;
  for (const std::string& name : row->names)
    if (std::find(c.other_forms.begin(), c.other_forms.end(), name) == c.other_forms.end()) out.push_back(name);
  if (c.baseline.empty()) return out;
  known(c.baseline);
  const auto first = std::find(out.begin(), out.end(), c.baseline);
  if (first == out.end()) throw std::logic_error("the baseline of the op case " + c.op + " is said to be another form");
  std::rotate(out.begin(), first, first + 1);
  return out;
}

std::optional<CheckResult> check_lean(const OpCase& c, const OpTensor& t, View got, const std::string& variant, std::string_view rate,
                                      const std::string& name, const std::string& detail) {
  if (c.may_lean && c.may_lean(t.name, variant)) return std::nullopt;
  const bool tf32 = rate == "tf32" && std::ranges::find(c.rounds_to_tf32, variant) != c.rounds_to_tf32.end();
  const int bits = tf32 ? kTf32Bits : bits_of(t.rounding);
  if (bits == 0) return std::nullopt;
  const std::optional<Lean> lean = lean_of(t.want.space(), got, view(t.want), t.rows, t.columns, bits);
  if (!lean) return std::nullopt;
  return make_result(name + " lean", t.name, {{"of the elements", std::abs(lean->share), lean_limit(*lean, bits, c.terms)}},
                     detail + (lean->share < 0 ? ", towards zero" : ", away from zero"));
}

}  // namespace gate

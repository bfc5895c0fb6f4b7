// What slot "moments" decides: the storage of AdamW's moments. They are drawn as numbers of 16 significant bits, which every variant keeps, so
// that every variant begins with the same ones and is held to the same answer.
#include "experiments/gate/op_cases.h"
#include "experiments/gate/step_judge.h"

namespace gate::op_cases {
namespace {

// To either neighbour of 16 bits, and 16 roundings in fp32 of sums that may be 20 times the element.
constexpr double kWorstMoment = 2 * kSplitUnit + 16 * 0x1p-24 / 0.05;

}  // namespace

void OpCases::adamw_moments(const OpSizes::Update& z, int64_t step, bool stochastic) {
  const gpt2::TensorLayout layout = gpt2::tensor_layout(z.config);
  OpCase update = update_case(z, step, stochastic, {.bf16_gradients = true, .moments_of_16_bits = true});
  for (OpTensor& t : update.tensors)
    if (t.name == "m" || t.name == "v") t.rounding = {.inside = 2 * kSplitUnit};  // to either neighbour
  for (const char* weight_gradients : {"bf16", "fp32"}) {
    for (const char* masters : {"split", "fp32"}) {
      if (!every_way() && (masters == std::string_view("fp32") || weight_gradients == std::string_view("fp32"))) continue;
      OpCase c = update;
      c.op = "adamw_moments";
      c.shape += fmt::format(", masters={}, weight_gradients={}", masters, weight_gradients);
      c.slot = "moments";
      c.baseline = "fp32";
      also(c, "masters", masters);
      also(c, "weight_gradients", weight_gradients);
      c.judge = [weights = c.judge, m = c.tensors[1], v = c.tensors[2]](std::span<const Memory> after, const std::string& name,
                                                                        const std::string& detail, GateReport& report) {
        weights(after, name, detail, report);
        if (!name.ends_with("/split")) return;
        // Where m is small, it may be the difference of two numbers whose roundings are as large as itself.
        for (const auto& [at, tensor, roundings, least] :
             {std::tuple{size_t{1}, &m, kRoundingsOfM, 0.25}, {size_t{2}, &v, kRoundingsOfV, 0.0}}) {
          const View got = view(after[at], kF32), want = view(tensor->want);
          const Space space = after[at].space();
          const RoundedAtRandom r = rounded_at_random(space, got, want, tensor->count(), kSplitBits, least);
          report.add(make_result(name + " rounding", tensor->name,
                                 {{"standard deviations of bias", r.bias(share_of_arithmetic(roundings, kSplitBits)), kBiasOfRounding},
                                  {"standard deviations of spread", r.spread(), kBiasOfRounding},
                                  {"worst element", worst_element(space, got, want, tensor->count()), kWorstMoment}},
                                 detail));
        }
      };
      c.scratch_bytes = [&t = t_, layout, masters = std::string(masters), gradients = std::string(weight_gradients)](const std::string& v) {
        return t.adamw_moments_scratch(v, masters, gradients, layout);
      };
      c.launch = [&t = t_, layout, step, stochastic, masters = std::string(masters), gradients = std::string(weight_gradients)](
                     OpContext& x, const std::string& v, Pointers q, void* scratch) {
        t.adamw_moments(x, v, masters, gradients, stochastic, {q[5], f(q[0]), f(q[1]), f(q[2]), f(q[3]), f(q[4])}, layout,
                        update_settings(step), step, scratch);
      };
      use_(c);
    }
  }
}

}  // namespace gate::op_cases

// What slot "moments" decides: the storage of AdamW's moments. They are drawn as numbers of so few bits that the variant keeps them, so that it
// begins with the same ones as fp32 and is held to the same answer: of 16 bits, and once more of those that two bytes hold.
#include "experiments/gate/op_cases.h"
#include "experiments/gate/step_judge.h"

namespace gate::op_cases {
namespace {

// The distance of neighbours that have so many significant bits, relative to a power of two.
double unit_of(int bits) { return std::ldexp(1.0, 1 - bits); }
// To either neighbour, and 16 roundings in fp32 of sums that may be 20 times the element.
double worst_moment(int bits) { return unit_of(bits) + 16 * 0x1p-24 / 0.05; }

}  // namespace

void OpCases::adamw_moments(const OpSizes::Update& z, int64_t step, bool stochastic) {
  adamw_moments(z, step, stochastic, "split", kSplitMoments, "16_bits");
  adamw_moments(z, step, stochastic, "16_bits", kShortMoments, "split");
}

void OpCases::adamw_moments(const OpSizes::Update& z, int64_t step, bool stochastic, const char* variant, const MomentBits& bits,
                            const char* other) {
  const gpt2::TensorLayout layout = gpt2::tensor_layout(z.config);
  const Stretches s = stretches(z);
  const gpt2::TensorLayout of_tensors = s ? cut(layout, s) : layout;
  OpCase update = update_case(z, step, stochastic, {.bf16_gradients = true, .moments = bits});
  for (OpTensor& t : update.tensors) {
    if (t.name == "m") t.rounding = {.inside = unit_of(bits.m)};  // to either neighbour
    if (t.name == "v") t.rounding = {.inside = unit_of(bits.v)};
    // The direction is that of the moments as they are stored; directions here have a root mean square of about 3. What such moments make of
    // the parameters is asked below.
    if (bits.m < kSplitBits && (t.name == "master" || t.name == "parameters"))
      t.rounding.inside = 4 * static_cast<double>(update_settings(step).learning_rate) * unit_of(bits.m);
  }
  for (const char* weight_gradients : {"bf16", "fp32"}) {
    for (const char* masters : {"split", "fp32"}) {
      if (!every_way() && (masters == std::string_view("fp32") || weight_gradients == std::string_view("fp32"))) continue;
      OpCase c = update;
      c.op = "adamw_moments";
      c.shape += fmt::format(", masters={}, weight_gradients={}, moments of {} and {} bits", masters, weight_gradients, bits.m, bits.v);
      c.slot = "moments";
      c.baseline = "fp32";
      c.other_forms = {other};
      also(c, "masters", masters);
      also(c, "weight_gradients", weight_gradients);
      c.judge = [weights = c.judge, p = c.tensors[0], m = c.tensors[1], v = c.tensors[2], ending = std::string("/") + variant, bits,
                 of_tensors, step](std::span<const Memory> after, const std::string& name, const std::string& detail, GateReport& report) {
        weights(after, name, detail, report);
        if (!name.ends_with(ending)) return;
        const Memory by_its_own = answer::moved(after[0].space(), view_of(p), view(after[1], kF32), view(after[2], kF32), of_tensors,
                                                update_settings(step), step);
        report.add(from_metrics(name + " own moments", p.name,
                                compare(after[0].space(), view(after[0], kF32), view(by_its_own), p.rows, p.columns),
                                op_limit(op_floor("", false), nullptr), detail));
        // Where m is small, it may be the difference of two numbers whose roundings are as large as itself.
        for (const auto& [at, tensor, kept, roundings, least] :
             {std::tuple{size_t{1}, &m, bits.m, kRoundingsOfM, 0.25}, {size_t{2}, &v, bits.v, kRoundingsOfV, 0.0}}) {
          const View got = view(after[at], kF32), want = view(tensor->want);
          const Space space = after[at].space();
          const RoundedAtRandom r = rounded_at_random(space, got, want, tensor->count(), kept, least);
          report.add(make_result(name + " rounding", tensor->name,
                                 {{"standard deviations of bias", r.bias(share_of_arithmetic(roundings, kept)), kBiasOfRounding},
                                  {"standard deviations of spread", r.spread(), kBiasOfRounding},
                                  {"worst element", worst_element(space, got, want, tensor->count()), worst_moment(kept)}},
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

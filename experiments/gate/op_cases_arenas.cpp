// What slots "weight_gradients" and "wte_gradient" decide: the product that writes a gradient, and the norm and the update that read it.
// Gradients that a variant stores in bf16 are drawn as bf16 numbers, so that every variant reads the same ones and is held to the same answer
// as fp32.
#include "experiments/gate/op_cases.h"

namespace gate::op_cases {

Memory bf16_in_blocks(Memory gradients, const gpt2::TensorLayout& layout, bool wte_too) {
  using gpt2::Tensor;
  if (wte_too) round_to_bf16(gradients, layout[Tensor::wte].offset, layout[Tensor::wte].size);
  for (const Tensor t : {Tensor::qkvw, Tensor::attprojw, Tensor::fcw, Tensor::fcprojw})
    round_to_bf16(gradients, layout[t].offset, layout[t].size);
  return gradients;
}

// One place of each storage matters, so that a norm that leaves an end of an arena out is off.
void OpCases::grad_norm_arenas() {
  if (!has_slot("weight_gradients") || !wanted("grad_norm_arenas")) return;
  for (const auto& z : z_.updates) {
    const Stretches s = stretches(z);
    const gpt2::TensorLayout layout = gpt2::tensor_layout(z.config), asked = s ? cut(layout, s) : layout;
    const int64_t n = asked.total;
    const gpt2::TensorSpan &first = asked[gpt2::Tensor::qkvw], &last = asked[gpt2::Tensor::fcprojw];
    Values values = normal(0.1);
    const double matters = 0.05 * std::sqrt(static_cast<double>(n));
    values.spikes = {Values::Spike{0, matters}, {first.offset, matters}, {last.offset + last.size - 1, -matters}, {n - 1, matters}};
    const Memory drawn = made(n, kF32, values);
    for (const std::string wte : {"fp32", "bf16"}) {
      if (s && wte == "fp32") continue;  // 8.7 GB once more
      const OpTensor gradients = input_of("gradients", 1, n, kF32, bf16_in_blocks(drawn, asked, wte == "bf16"));
      const double norm = answer::norm(o_.space, view_of(gradients), n);
      constexpr float kClip = 0.5f;
      for (const std::string way : {"whole", "beside_backward"}) {
        OpCase c{.op = "grad_norm_arenas",
                 .shape = fmt::format("Vp={} C={} L={}, wte_gradient={}, grad_norm={}", z.config.padded_vocab, z.config.channels,
                                      z.config.layers, wte, way),
                 .tensors = {}};
        c.tensors = {one_double("norm", norm, false),
                     output("clip_scale", 1, 1, kF32, memory_of(o_.space, std::vector<double>{static_cast<double>(kClip) / norm})),
                     gradients};
        c.slot = "weight_gradients";
        c.baseline = "fp32";
        also(c, "wte_gradient", wte);
        also(c, "grad_norm", way);
        c.scratch_bytes = [&t = t_, layout, wte, way](const std::string& v) { return t.grad_norm_arenas_scratch(v, wte, way, layout); };
        c.launch = [&t = t_, layout, wte, way](OpContext& x, const std::string& v, Pointers p, void* scratch) {
          t.grad_norm_arenas(x, v, wte, way, static_cast<double*>(p[0]), f(p[1]), f(p[2]), layout, kClip, scratch);
        };
        stretch(c, s);
        use_(c);
      }
    }
  }
}

void OpCases::adamw_arenas(const OpSizes::Update& z, int64_t step, bool stochastic) {
  const gpt2::TensorLayout layout = gpt2::tensor_layout(z.config);
  for (const std::string wte : {"fp32", "bf16"}) {
    const OpCase update = update_case(z, step, stochastic, {.bf16_gradients = true, .bf16_wte = wte == "bf16"});
    for (const std::string masters : {"fp32", "split"}) {
      if (!every_way() && wte == "bf16" && masters == "fp32") continue;
      OpCase c = update;
      c.op = "adamw_arenas";
      c.shape += fmt::format(", wte_gradient={}, masters={}", wte, masters);
      c.slot = "weight_gradients";
      c.baseline = "fp32";
      also(c, "wte_gradient", wte);
      also(c, "masters", masters);
      c.scratch_bytes = [&t = t_, layout, wte, masters](const std::string& v) { return t.adamw_arenas_scratch(v, wte, masters, layout); };
      c.launch = [&t = t_, layout, step, stochastic, wte, masters](OpContext& x, const std::string& v, Pointers q, void* scratch) {
        t.adamw_arenas(x, v, wte, masters, stochastic, {q[5], f(q[0]), f(q[1]), f(q[2]), f(q[3]), f(q[4])}, layout, update_settings(step),
                       step, scratch);
      };
      use_(c);
    }
  }
}

// The budget of dweight is one rounding to bf16 and what sums on tensor cores lose: no more than the fp32 product loses that is rounded
// after it.
void OpCases::linear_backward_weight(const OpSizes::Product& z, const LinearShape& s, const std::string& shape, const Memory& dweight,
                                     const Memory* dbias, const OpTensor& dout, const OpTensor& inp) {
  OpCase product{.op = "linear_backward_weight", .shape = shape, .matmul = true, .terms = z.rows, .tensors = {}};
  product.tensors = {output("dweight", z.out, z.in, kBf16, dweight, {.count = 1, .terms = static_cast<double>(z.rows)}), dout, inp};
  if (dbias) product.tensors.push_back(output("dbias", 1, z.out, kF32, *dbias, fp32_of_product(z.rows)));
  product.flops = flops(s);
  product.slot = dbias ? "weight_gradients" : "wte_gradient";
  product.baseline = "fp32";
  product.scratch_bytes = [&t = t_, s](const std::string& v) { return t.linear_backward_weight_scratch(v, s); };
  const auto use = [&](OpCase c, const std::string& bias_gradient) {
    c.launch = [&t = t_, s, bias_gradient, bias = dbias != nullptr](OpContext& x, const std::string& v, Pointers p, void* scratch) {
      t.linear_backward_weight(x, v, bias_gradient, p[0], bias ? f(p[3]) : nullptr, p[1], p[2], s, scratch);
    };
    use_(c);
  };
  if (!dbias) return use(product, "column_sums");
  for (const char* bias_gradient : {"column_sums", "matmul_epilogue"}) {
    OpCase c = product;
    c.shape += fmt::format(", bias_gradient={}", bias_gradient);
    also(c, "bias_gradient", bias_gradient);
    use(c, bias_gradient);
  }
}

}  // namespace gate::op_cases

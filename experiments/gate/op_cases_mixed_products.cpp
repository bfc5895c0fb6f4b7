// The matrix products of the mixed trainer with what is fused into them, and attention: ops that lose more
// than a rounding on the way out, because factors are rounded or a variant rounds a part. Variants that a
// library may refuse (cuDNN, epilogues) are never first.
#include <fmt/format.h>

#include "experiments/gate/op_cases_mixed.h"

namespace gate::mixed_cases {
namespace {

class Products : Inputs {
 public:
  Products(uint64_t seed, const Use& use) : Inputs(seed, 79, use) {}

  void all() {
    linear();
    attention();
  }

 private:
  void linear() {
    struct Size {
      int64_t rows, in, out;
      bool bias;
    };
    for (const Size& z : {Size{1, 64, 192, true}, Size{189, 768, 768, true}, Size{65, 208, 624, true},
                          Size{63, 3072, 96, true}, Size{64, 64, 512, false}, Size{3, 192, 576, true},
                          Size{195, 96, 384, true}}) {
      const int64_t rows = z.rows, in = z.in, out = z.out;
      const std::string shape =
          fmt::format("rows={} in={} out={}{}", rows, in, out, z.bias ? "" : ", no bias");
      const Floats x = halves(rows * in), weight = halves(out * in, 0.05), dout = halves(rows * out);
      const Floats bias = z.bias ? halves(out) : Floats{};
      const Doubles product = oracle::linear_forward(x, weight, bias, rows, in, out);
      // With a bias, a variant may round the product before the bias is added.
      const Rounding sum{.count = 1, .inside = z.bias ? kBf16Unit / 2 : 0};
      const auto inputs = [&](OpCase& c) {
        c.tensors.push_back(input_tensor("inp", rows, in, x, kBf16));
        c.tensors.push_back(input_tensor("weight", out, in, weight, kBf16));
        if (z.bias) c.tensors.push_back(input_tensor("bias", 1, out, bias, kBf16));
      };
      OpCase forward{"linear_forward",
                     shape,
                     true,
                     1,
                     {output_tensor("out", rows, out, product, kBf16, sum)},
                     {},
                     [=, has_bias = z.bias](op::Context& c, const std::string& v, Pointers p, void*) {
                       op::linear_forward(c, v, h(p[0]), h(p[1]), h(p[2]), has_bias ? h(p[3]) : nullptr, rows,
                                          in, out);
                     }};
      inputs(forward);
      forward.variants = {"bias_kernel", "bias_epilogue"};
      use_(forward);
      if (z.bias) {
        OpCase gelu{"linear_gelu_forward",
                    shape,
                    true,
                    1,
                    {output_tensor("after", rows, out, oracle::gelu_forward_of(product), kBf16, sum),
                     output_tensor("before", rows, out, product, kBf16, sum)},
                    {},
                    [=](op::Context& c, const std::string& v, Pointers p, void*) {
                      op::linear_gelu_forward(c, v, h(p[0]), h(p[1]), h(p[2]), h(p[3]), h(p[4]), rows, in,
                                              out);
                    }};
        inputs(gelu);
        gelu.slot = "gelu_forward";
        gelu.variants = {"kernel", "matmul_epilogue"};
        use_(gelu);
        linear_residual<op::Bf16>(shape, x, weight, bias, product, rows, in, out);
        linear_residual<float>(shape, x, weight, bias, product, rows, in, out);
      }
      linear_backward(shape, x, weight, dout, rows, in, out, z.bias);
    }
  }

  template <class R>
  void linear_residual(const std::string& shape, const Floats& x, const Floats& weight, const Floats& bias,
                       Doubles want, int64_t rows, int64_t in, int64_t out) {
    const Floats addend = stored<R>(normal(rows * out));
    for (size_t i = 0; i < want.size(); ++i) want[i] += static_cast<double>(addend[i]);
    // "separate" rounds the product, and where the bias is no epilogue the product with its bias too, before
    // the sum.
    OpCase c{"residual",
             fmt::format("product and sum {} {}", shape, kStoredName<R>),
             true,
             1,
             {output_tensor("out", rows, out, want, kStored<R>,
                            {.count = kWide<R> ? 0.0 : 1.0, .inside = kBf16Unit}),
              input_tensor("addend", rows, out, addend, kStored<R>), input_tensor("inp", rows, in, x, kBf16),
              input_tensor("weight", out, in, weight, kBf16), input_tensor("bias", 1, out, bias, kBf16)},
             [=](const std::string& v) { return v == "separate" ? rows * out * 2 : int64_t{0}; },
             [=](op::Context& context, const std::string& v, Pointers p, void* scratch) {
               R* to = static_cast<R*>(p[0]);
               const R* from = static_cast<const R*>(p[1]);
               if (v == "matmul_epilogue") {
                 op::linear_residual_forward<R>(context, to, from, h(p[2]), h(p[3]), h(p[4]), rows, in, out);
                 return;
               }
               op::linear_forward(context, "bias_epilogue", h(scratch), h(p[2]), h(p[3]), h(p[4]), rows, in,
                                  out);
               op::residual_forward<R>(context, to, from, h(scratch), rows * out);
             }};
    c.variants = {"separate", "matmul_epilogue"};
    c.also = {{"residual_stream", kStoredName<R>}};
    use_(c);
  }

  void linear_backward(const std::string& shape, const Floats& x, const Floats& weight, const Floats& dout,
                       int64_t rows, int64_t in, int64_t out, bool bias) {
    const auto g = oracle::linear_backward(dout, x, weight, rows, in, out);
    const Rounding fp32_of_product{.inside = 1e-6};
    for (bool accumulate : {false, true}) {
      OpCase c{"linear_backward",
               shape + adds(accumulate),
               true,
               1,
               {output_tensor("dinp", rows, in, g.dx, kBf16, kOnce),
                gradient("dweight", out, in, g.dweight, accumulate, Element::f32, fp32_of_product),
                input_tensor("dout", rows, out, dout, kBf16), input_tensor("inp", rows, in, x, kBf16),
                input_tensor("weight", out, in, weight, kBf16)},
               [=](const std::string&) { return op::linear_backward_scratch_bytes(rows, out); },
               [=](op::Context& context, const std::string& v, Pointers p, void* scratch) {
                 op::linear_backward(context, v, h(p[0]), f(p[1]), bias ? f(p[5]) : nullptr, h(p[2]), h(p[3]),
                                     h(p[4]), rows, in, out, accumulate, scratch);
               }};
      if (bias)
        c.tensors.push_back(gradient("dbias", 1, out, g.dbias, accumulate, Element::f32, fp32_of_product));
      c.slot = "bias_gradient";
      c.variants = {"column_sums", "matmul_epilogue"};
      c.also = {zero_grad(accumulate)};
      use_(c);
    }
    // The same product with the gradient of GELU on its way out; "kernel" rounds the product first.
    const Floats before = halves(rows * in, 2);
    OpCase gelu{"linear_gelu_backward_input",
                shape,
                true,
                1,
                {output_tensor("dbefore", rows, in, oracle::gelu_backward_of(g.dx, before), kBf16,
                               {.count = 1, .inside = kBf16Unit / 2}),
                 input_tensor("dout", rows, out, dout, kBf16), input_tensor("weight", out, in, weight, kBf16),
                 input_tensor("before", rows, in, before, kBf16)},
                {},
                [=](op::Context& context, const std::string& v, Pointers p, void*) {
                  op::linear_gelu_backward_input(context, v, h(p[0]), h(p[1]), h(p[2]), h(p[3]), rows, in,
                                                 out);
                }};
    gelu.slot = "gelu_backward";
    gelu.variants = {"kernel", "matmul_epilogue"};
    use_(gelu);
  }

  void attention() {
    struct Size {
      int64_t B, T, NH, HS;
      bool sharp, with_cudnn;  // cuDNN builds a plan per shape, which takes seconds
    };
    for (const Size& z : {Size{1, 1, 12, 64, false, true}, Size{3, 63, 3, 64, false, false},
                          Size{1, 64, 12, 64, false, false}, Size{3, 65, 12, 64, false, true},
                          Size{3, 65, 5, 16, false, false}, Size{1, 33, 3, 20, false, false},
                          Size{2, 129, 1, 128, false, false}, Size{1, 130, 2, 64, true, true}}) {
      const int64_t C = z.NH * z.HS;
      const op::Shape s{z.B, z.T, C, z.NH, 1, 1, z.T};
      const std::string shape =
          fmt::format("B={} T={} NH={} HS={}{}", z.B, z.T, z.NH, z.HS, z.sharp ? ", sharp" : "");
      // Scores are q.k / sqrt(HS), of deviation deviation^2; 3.5 makes the largest of thousands about 50.
      Floats qkv = normal(s.rows() * 3 * C);
      if (z.sharp)
        for (size_t i = 0; i < qkv.size(); ++i)
          if (static_cast<int64_t>(i) % (3 * C) < 2 * C) qkv[i] *= 3.5f;
      qkv = to_bf16(std::move(qkv));
      Floats pushed = qkv;
      if (z.sharp)  // every key of the first head meets every query with a score near 150: exp overflows
                    // without the maximum
        for (int64_t t = 0; t < z.T; ++t)
          for (int64_t i = 0; i < z.HS; ++i) {
            pushed[static_cast<size_t>(t * 3 * C + i)] = 4.3125f;
            pushed[static_cast<size_t>(t * 3 * C + C + i)] = gate::to_bf16(4.33f + 0.02f * random_.normal());
          }
      // Probabilities, in the backward also ds, are rounded to bf16 as factors of products.
      const Rounding inside{.count = 1, .inside = kBf16Unit / 2};
      const auto a = oracle::attention_forward(pushed, z.B, z.T, C, z.NH);
      OpCase forward{"attention_forward",
                     shape,
                     true,
                     1,
                     {output_tensor("out", s.rows(), C, a.out, kBf16, inside),
                      output_tensor("lse", z.B * z.NH, z.T, a.lse, Element::f32, {.inside = 1e-5}),
                      input_tensor("qkv", s.rows(), 3 * C, pushed, kBf16)},
                     [s](const std::string& v) { return op::attention_forward_scratch_bytes(v, s); },
                     [s](op::Context& c, const std::string& v, Pointers p, void* scratch) {
                       op::attention_forward(c, v, h(p[0]), f(p[1]), h(p[2]), s, scratch);
                     }};
      forward.variants = {"unfused", "flash"};
      if (z.with_cudnn) forward.variants.emplace_back("cudnn");
      use_(forward);
      const auto plain = oracle::attention_forward(qkv, z.B, z.T, C, z.NH);
      const Floats out = to_bf16(to_floats(plain.out)), lse = to_floats(plain.lse),
                   dout = halves(s.rows() * C);
      OpCase backward{
          "attention_backward",
          shape,
          true,
          1,
          {output_tensor("dqkv", s.rows(), 3 * C,
                         oracle::attention_backward(dout, qkv, out, lse, z.B, z.T, C, z.NH), kBf16, inside),
           input_tensor("dout", s.rows(), C, dout, kBf16), input_tensor("qkv", s.rows(), 3 * C, qkv, kBf16),
           input_tensor("out", s.rows(), C, out, kBf16), input_tensor("lse", z.B * z.NH, z.T, lse)},
          [s](const std::string& v) { return op::attention_backward_scratch_bytes(v, s); },
          [s](op::Context& c, const std::string& v, Pointers p, void* scratch) {
            op::attention_backward(c, v, h(p[0]), h(p[1]), h(p[2]), h(p[3]), f(p[4]), s, scratch);
          }};
      backward.variants = {"unfused", "flash"};
      if (z.with_cudnn) backward.variants.insert(backward.variants.end(), {"cudnn", "cudnn_deterministic"});
      use_(backward);
    }
  }
};

}  // namespace

void for_each_product(uint64_t seed, const Use& use) { Products(seed, use).all(); }

}  // namespace gate::mixed_cases

// Op cases to the launchers of the mixed-precision trainer. The baselines of fused forms add the bias by a
// kernel, which no library can refuse. A stream is bf16, fp32, or split, upper halves first: `by_stream` picks the instance.
#include <cuda_bf16.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/errors.h"
#include "experiments/gate/op_arenas.h"
#include "experiments/gate/op_launch.h"
#include "experiments/gate/op_scalars.h"
#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/ops/adamw.cuh"
#include "gpt2/ops/column_sums.cuh"
#include "gpt2/ops/elementwise.cuh"
#include "gpt2/ops/encoder.cuh"
#include "gpt2/ops/layernorm_backward.cuh"
#include "gpt2/ops/layernorm_forward.cuh"
#include "mixed/hopper_products.h"
#include "mixed/kernels/attention.cuh"
#include "mixed/kernels/lm_head.cuh"
#include "mixed/matmul.h"
#include "mixed/memory_plan.h"
#include "mixed/trainer.h"
#include "mixed/variants.h"

namespace gate {
namespace {

using gpt2::ops::LowByte;
using gpt2::ops::StepScalars;
using mixed::bf16;

struct Context : OpContext {
  explicit Context(void* stream_to_use)
      : stream(static_cast<cudaStream_t>(stream_to_use)),
        workspace(mixed::kMatmulWorkspaceBytes),
        matmul(mixed::MatmulAlgorithm::heuristic, workspace.data(), std::filesystem::path()),
        scalars(stream) {}
  Context(const Context& other, mixed::MatmulAlgorithm algorithm)
      : stream(other.stream), matmul(algorithm, other.workspace.data(), std::filesystem::path()), scalars(stream) {}

  cudaStream_t stream;
  gpt2::cuda::DeviceBuffer<unsigned char> workspace;
  mixed::MatmulEngine matmul;
  mixed::HopperProducts hopper;
  OpScalars scalars;
};
Context& here(OpContext& c) { return static_cast<Context&>(c); }
bf16* h(void* p) { return static_cast<bf16*>(p); }
const bf16* h(const void* p) { return static_cast<const bf16*>(p); }

// use(R{}) with the type of the stream.
template <class Use>
void by_stream(Element stream, const Use& use) {
  if (stream == Element::f32)
    use(float{});
  else if (stream == Element::split)
    use(LowByte{});
  else
    use(bf16{});
}
// The n values at p, or their lower bytes behind n upper halves.
template <class R>
R* as(void* p, R, int64_t n) {
  return static_cast<R*>(p) + (gpt2::ops::kIsSplit<R> ? 2 * n : 0);
}
template <class R>
const R* as(const void* p, R, int64_t n) {
  return static_cast<const R*>(p) + (gpt2::ops::kIsSplit<R> ? 2 * n : 0);
}
// Their upper halves, or null.
template <class R>
bf16* up(void* p, R) {
  return gpt2::ops::kIsSplit<R> ? h(p) : nullptr;
}
template <class R>
const bf16* up(const void* p, R) {
  return gpt2::ops::kIsSplit<R> ? h(p) : nullptr;
}
// Where the rounded copy of `p` goes: to its upper halves, or apart.
template <class R>
bf16* rounded_of(void* p, void* apart, R r) {
  return gpt2::ops::kIsSplit<R> ? up(p, r) : h(apart);
}

template <class Enum>
Enum pick(const char* slot, const std::string& variant) {
  return static_cast<Enum>(mixed::variant_index(slot, variant));
}
mixed::AttentionShape heads(const OpShape& s) { return {s.B, s.T, s.C, s.NH}; }

gpt2::ops::Rounding rounding(bool stochastic) { return stochastic ? gpt2::ops::Rounding::stochastic : gpt2::ops::Rounding::nearest; }

constexpr mixed::AttentionPlan kFirstPlan = mixed::AttentionPlan::heuristic;  // what variants of the attention slots are judged with

// As a step sums it, in three pieces. Of five parts of the gradient, with odd bounds where n allows, two pieces have two that do not
// lie together; the last piece has one.
void launch_norm_of_pieces(OpScalars& x, double* norm, float* clip_scale, const float* gradients, int64_t n, float clip, double* partial,
                           cudaStream_t stream) {
  const int64_t step = n % 4 == 0 ? n / 5 / 4 * 4 : n / 5;
  const auto begin = [&](int part) { return part == 5 ? n : part * step; };
  for (int piece = 0; piece < 3; ++piece) {
    gpt2::ops::GradientSpans spans;
    for (const int part : {piece, piece + 3}) {
      if (part > 4) continue;
      spans.first[spans.count] = begin(part);
      spans.size[spans.count++] = begin(part + 1) - begin(part);
    }
    gpt2::ops::squares_of_spans(partial + piece * gpt2::ops::kPartialsOfSpans, gradients, spans, stream);
  }
  launch_norm(x, norm, clip_scale, clip, [&](gpt2::ops::StepStats* stats, const StepScalars* scalars) {
    gpt2::ops::finish_grad_norm(stats, partial, 3 * gpt2::ops::kPartialsOfSpans, scalars, stream);
  });
}

Arenas arenas_of(const gpt2::TensorLayout& layout, const std::string& wte_gradient) {
  return {layout, pick<mixed::WteGradient>("wte_gradient", wte_gradient)};
}

// The update with masters as the slot says; split ones are split before it and joined after it. `gradients`: in one arena or two; `memory`:
// adamw_masters_scratch.
template <class Moments, class Gradients>
void launch_update(mixed::Masters masters, bool stochastic, const OpTrainer::UpdateTensors& t, const Moments& moments,
                   const Gradients& gradients, const gpt2::TensorLayout& layout, const StepScalars* scalars, void* memory,
                   cudaStream_t stream) {
  const int64_t n = layout.total;
  switch (masters) {
    case mixed::Masters::as_fp32:
      gpt2::ops::adamw(rounding(stochastic), h(t.rounded), t.parameters, moments, gradients, layout, scalars, t.clip_scale, stream);
      break;
    case mixed::Masters::split: {
      auto* low = static_cast<uint16_t*>(memory);
      const gpt2::ops::SplitMasters split{h(t.rounded), low, reinterpret_cast<uint8_t*>(low + padded(n))};
      gpt2::ops::split_masters(split, t.parameters, 0, n, stream);
      gpt2::ops::adamw_split(rounding(stochastic), split, moments, gradients, layout, scalars, t.clip_scale, stream);
      gpt2::ops::join_masters(t.parameters, split, 0, n, stream);
      break;
    }
  }
}
gpt2::ops::WholeMoments whole_moments(const OpTrainer::UpdateTensors& t) { return {t.m, t.v}; }

// use() with moments that are split before it and joined after it, in `memory` of split_moments_bytes.
constexpr int64_t split_moments_bytes(int64_t n) { return 6 * padded(n); }
template <class Use>
void with_split_moments(const OpTrainer::UpdateTensors& t, int64_t n, void* memory, cudaStream_t stream, const Use& use) {
  bf16* up = h(memory);
  auto* low = reinterpret_cast<LowByte*>(up + 2 * padded(n));
  const gpt2::ops::SplitMoments split{up, up + padded(n), low, low + padded(n)};
  gpt2::ops::split_values(split.m_up, split.m_low, t.m, 0, n, stream);
  gpt2::ops::split_values(split.v_up, split.v_low, t.v, 0, n, stream);
  use(split);
  gpt2::ops::join_values(t.m, split.m_up, split.m_low, 0, n, stream);
  gpt2::ops::join_values(t.v, split.v_up, split.v_low, 0, n, stream);
}

// The same with short moments.
constexpr int64_t short_moments_bytes(int64_t n) { return 4 * padded(n); }
template <class Use>
void with_short_moments(const OpTrainer::UpdateTensors& t, int64_t n, void* memory, cudaStream_t stream, const Use& use) {
  bf16* m = h(memory);
  const gpt2::ops::ShortMoments moments{m, reinterpret_cast<uint16_t*>(m + padded(n))};
  gpt2::ops::shorten_moment(moments.m, t.m, 0, n, stream);
  gpt2::ops::shorten_moment(moments.v, t.v, 0, n, stream);
  use(moments);
  gpt2::ops::widen_moment(t.m, moments.m, 0, n, stream);
  gpt2::ops::widen_moment(t.v, moments.v, 0, n, stream);
}

class MixedOps final : public OpTrainer {
 public:
  std::string name() const override { return "mixed"; }
  std::vector<std::string> rates() const override { return {"bf16"}; }
  std::vector<gpt2::VariantInfo> variants() const override { return mixed::mixed_variants(); }
  OpStorage storage() const override { return {Element::bf16, Element::bf16, {Element::bf16, Element::f32, Element::split}}; }
  // What this trainer says of a variant is held against it, or --deterministic would take one that does not.
  bool repeats(std::string_view slot, std::string_view variant) const override {
    const bool excused = (slot == "attention_backward" && variant == "cudnn") || slot == "planned_attention_backward";
    return !excused ||
           std::ranges::any_of(facts_, [&](const gpt2::VariantFacts& f) { return f.slot == slot && f.name == variant && f.repeats; });
  }
  std::unique_ptr<OpContext> context(const std::string&, void* stream) const override { return std::make_unique<Context>(stream); }
  std::unique_ptr<OpContext> searching_context(OpContext& other) const override {
    return std::make_unique<Context>(here(other), mixed::MatmulAlgorithm::fitting_tiles);  // where no tiles can be named, the offers alone
  }
  void take_candidate(OpContext& searching, size_t number) const override { here(searching).matmul.take_candidate(number); }
  Candidates most_candidates(OpContext& searching) const override {
    const auto most = here(searching).matmul.most_candidates();
    return {.all = static_cast<int>(most.all), .offered = static_cast<int>(most.offered)};
  }

  void embedding_forward(OpContext& c, Element stream, void* out, const int* tokens, const void* wte, const void* wpe,
                         const OpShape& s) const override {
    by_stream(stream, [&](auto r) {
      gpt2::ops::embedding_forward(as(out, r, s.rows() * s.C), tokens, h(wte), h(wpe), s.B, s.T, s.C, here(c).stream, up(out, r));
    });
  }
  void embedding_backward(OpContext& c, Element gradient, Element wte, void* dwte, float* dwpe, const void* dout, const int* tokens,
                          bool accumulate, const OpShape& s, void* scratch) const override {
    gpt2::ops::sort_by_token(tokens, s.rows(), s.C, s.V, scratch, here(c).stream);
    by_stream(gradient, [&](auto r) {
      const auto launch = [&](auto* into) {
        gpt2::ops::embedding_backward<bf16>(into, dwpe, as(dout, r, s.rows() * s.C), s.B, s.T, s.C, s.max_seq_len, accumulate, scratch,
                                            here(c).stream, up(dout, r));
      };
      if (wte == Element::bf16)
        launch(h(dwte));
      else
        launch(static_cast<float*>(dwte));
    });
  }
  int64_t embedding_backward_scratch(const OpShape& s) const override { return gpt2::ops::embedding_backward_scratch_bytes(s.rows(), s.C); }

  void layernorm_forward(OpContext& c, Variant v, Element stream, const Normed& o, const void* inp, const void* weight, const void* bias,
                         int64_t rows, int64_t C) const override {
    by_stream(stream, [&](auto r) {
      gpt2::ops::layernorm_forward(pick<mixed::LayernormForward>("layernorm_forward", v), h(o.out), o.mean, o.rstd, as(inp, r, rows * C),
                                   h(o.kept), h(weight), h(bias), rows, C, here(c).stream, up(inp, r));
    });
  }
  void layernorm_backward(OpContext& c, Variant v, Element gradient, const NormGradients& g, const void* dout, const void* inp,
                          const float* mean, const float* rstd, const void* weight, int64_t rows, int64_t C, bool add_to_dinp,
                          bool accumulate, void* scratch) const override {
    by_stream(gradient, [&](auto r) {
      gpt2::ops::layernorm_backward<bf16, decltype(r)>(pick<mixed::LayernormBackward>("layernorm_backward", v),
                                                       {.dinp = as(g.dinp, r, rows * C),
                                                        .dinp_copy = rounded_of(g.dinp, g.dinp_copy, r),
                                                        .dweight = g.dweight,
                                                        .dbias = g.dbias,
                                                        .dinp_column_sums = g.column_sums,
                                                        .add_to_dinp = add_to_dinp,
                                                        .accumulate = accumulate},
                                                       h(dout), h(inp), mean, rstd, h(weight), rows, C, static_cast<float*>(scratch),
                                                       here(c).stream);
    });
  }
  int64_t layernorm_backward_scratch(Variant v, int64_t rows, int64_t C) const override {
    return 4 * gpt2::ops::layernorm_backward_scratch_floats<bf16>(pick<mixed::LayernormBackward>("layernorm_backward", v), rows, C);
  }
  void residual_layernorm(OpContext& c, Variant v, Element stream, void* sum, const Normed& o, const void* a, const void* branch,
                          const void* weight, const void* bias, int64_t rows, int64_t C) const override {
    const auto way = pick<mixed::Residual>("residual", v);
    const int64_t n = rows * C;
    by_stream(stream, [&](auto r) {
      if (way == mixed::Residual::fused_layernorm) {
        gpt2::ops::residual_layernorm_forward(mixed::LayernormForward::block_per_row, as(sum, r, n), rounded_of(sum, o.kept, r), h(o.out),
                                              o.mean, o.rstd, as(a, r, n), h(branch), h(weight), h(bias), rows, C, here(c).stream,
                                              up(a, r));
      } else if (way == mixed::Residual::separate) {
        gpt2::ops::residual_forward(as(sum, r, n), as(a, r, n), h(branch), n, here(c).stream, up(sum, r), up(a, r));
        const void* summed = sum;
        gpt2::ops::layernorm_forward(mixed::LayernormForward::block_per_row, h(o.out), o.mean, o.rstd, as(summed, r, n), h(o.kept),
                                     h(weight), h(bias), rows, C, here(c).stream, up(summed, r));
      } else {
        throw std::logic_error("residual=" + v + " has no case as a sum with the layernorm that follows it");
      }
    });
  }

  void fused_residual_layernorm(OpContext& c, Variant layernorm, Element stream, void* sum, const Normed& o, const void* a,
                                const void* branch, const void* weight, const void* bias, int64_t rows, int64_t C) const override {
    by_stream(stream, [&](auto r) {
      gpt2::ops::residual_layernorm_forward(pick<mixed::LayernormForward>("layernorm_forward", layernorm), as(sum, r, rows * C),
                                            rounded_of(sum, o.kept, r), h(o.out), o.mean, o.rstd, as(a, r, rows * C), h(branch), h(weight),
                                            h(bias), rows, C, here(c).stream, up(a, r));
    });
  }

  void linear_forward(OpContext& c, Variant v, void* out, const void* inp, const void* weight, const void* bias,
                      const LinearShape& s) const override {
    mixed::linear_forward(pick<mixed::LinearForward>("linear_forward", v), here(c).matmul, h(out), h(inp), h(weight), h(bias), s.rows, s.in,
                          s.out, here(c).stream);
  }
  void linear_gelu_forward(OpContext& c, Variant v, void* after, void* before, const void* inp, const void* weight, const void* bias,
                           const LinearShape& s) const override {
    const auto way = pick<mixed::Gelu>("gelu_forward", v);
    if (way == mixed::Gelu::matmul_epilogue) {
      mixed::linear_gelu_forward(here(c).matmul, h(after), h(before), h(inp), h(weight), h(bias), s.rows, s.in, s.out, here(c).stream);
    } else if (way == mixed::Gelu::kernel) {
      mixed::linear_forward(mixed::LinearForward::bias_kernel, here(c).matmul, h(before), h(inp), h(weight), h(bias), s.rows, s.in, s.out,
                            here(c).stream);
      const void* done = before;
      gpt2::ops::gelu_forward(h(after), h(done), s.rows * s.out, here(c).stream);
    } else {
      throw std::logic_error("gelu_forward=" + v + " has no case as a product");
    }
  }
  void linear_residual(OpContext& c, Variant v, Element stream, void* out, const void* addend, const void* inp, const void* weight,
                       const void* bias, const LinearShape& s, void* scratch) const override {
    const auto way = pick<mixed::Residual>("residual", v);
    const int64_t n = s.rows * s.out;
    by_stream(stream, [&](auto r) {
      if constexpr (gpt2::ops::kIsSplit<decltype(r)>) {
        throw std::logic_error("no product adds to a split stream");
      } else if (way == mixed::Residual::matmul_epilogue) {
        mixed::linear_residual_forward(here(c).matmul, as(out, r, n), as(addend, r, n), h(inp), h(weight), h(bias), s.rows, s.in, s.out,
                                       here(c).stream);
      } else if (way == mixed::Residual::separate) {
        mixed::linear_forward(mixed::LinearForward::bias_kernel, here(c).matmul, h(scratch), h(inp), h(weight), h(bias), s.rows, s.in,
                              s.out, here(c).stream);
        const void* branch = scratch;
        gpt2::ops::residual_forward(as(out, r, n), as(addend, r, n), h(branch), n, here(c).stream);
      } else {
        throw std::logic_error("residual=" + v + " has no case as a product with the sum");
      }
    });
  }
  void linear_gelu_slope_forward(OpContext& c, Variant v, void* after, void* slope, const void* inp, const void* weight, const void* bias,
                                 const void* ones, const LinearShape& s, void* scratch) const override {
    const auto way = pick<mixed::Gelu>("gelu_forward", v);
    if (way == mixed::Gelu::hopper) {
      mixed::linear_gelu_slope_forward(here(c).hopper, h(after), h(slope), h(inp), h(weight), h(bias), s.rows, s.in, s.out, here(c).stream);
    } else if (way == mixed::Gelu::kernel) {
      mixed::linear_forward(mixed::LinearForward::bias_kernel, here(c).matmul, h(scratch), h(inp), h(weight), h(bias), s.rows, s.in, s.out,
                            here(c).stream);
      const void* before = scratch;
      gpt2::ops::gelu_forward(h(after), h(before), s.rows * s.out, here(c).stream);
      gpt2::ops::gelu_backward(h(slope), h(ones), h(before), s.rows * s.out, here(c).stream);
    } else {
      throw std::logic_error("gelu_forward=" + v + " keeps no gradient of GELU");
    }
  }
  // The scratch: GELU's gradient, and behind it partial sums.
  void linear_gelu_slope_backward(OpContext& c, Variant v, void* dbefore, float* sums, const void* dout, const void* weight,
                                  const void* before, const void* ones, const LinearShape& s, bool accumulate,
                                  void* scratch) const override {
    const auto way = pick<mixed::Gelu>("gelu_backward", v);
    auto* partial = reinterpret_cast<float*>(h(scratch) + padded(s.rows * s.in));
    if (way == mixed::Gelu::hopper) {
      gpt2::ops::gelu_backward(h(scratch), h(ones), h(before), s.rows * s.in, here(c).stream);
      mixed::linear_gelu_slope_backward(here(c).hopper, h(dbefore), partial, h(dout), h(weight), h(scratch), s.rows, s.in, s.out,
                                        here(c).stream);
      gpt2::ops::reduce_partials(sums, partial, mixed::gelu_partials(s.rows), s.in, s.in, accumulate, here(c).stream);
    } else if (way == mixed::Gelu::kernel) {
      mixed::linear_backward_input(here(c).matmul, h(dbefore), h(dout), h(weight), s.rows, s.in, s.out, here(c).stream);
      const void* done = dbefore;
      gpt2::ops::gelu_backward(h(dbefore), h(done), h(before), s.rows * s.in, here(c).stream);
      gpt2::ops::bias_gradient(sums, h(done), s.rows, s.in, accumulate, partial, here(c).stream);
    } else {
      throw std::logic_error("gelu_backward=" + v + " sums no columns");
    }
  }
  int64_t linear_gelu_slope_scratch(const LinearShape& s) const override {
    const int64_t wide = std::max(s.in, s.out);
    return 2 * padded(s.rows * wide) +
           4 * std::max(mixed::gelu_partials(s.rows) * wide, gpt2::ops::bias_gradient_scratch_floats<bf16>(s.rows, wide));
  }
  void linear_gelu_backward_input(OpContext& c, Variant v, void* dbefore, const void* dout, const void* weight, const void* before,
                                  const LinearShape& s) const override {
    const auto way = pick<mixed::Gelu>("gelu_backward", v);
    if (way == mixed::Gelu::matmul_epilogue) {
      mixed::linear_gelu_backward_input(here(c).matmul, h(dbefore), h(dout), h(weight), h(before), s.rows, s.in, s.out, here(c).stream);
    } else if (way == mixed::Gelu::kernel) {
      mixed::linear_backward_input(here(c).matmul, h(dbefore), h(dout), h(weight), s.rows, s.in, s.out, here(c).stream);
      const void* done = dbefore;
      gpt2::ops::gelu_backward(h(dbefore), h(done), h(before), s.rows * s.in, here(c).stream);
    } else {
      throw std::logic_error("gelu_backward=" + v + " has no case as a product");
    }
  }
  void linear_backward(OpContext& c, Variant v, void* dinp, float* dweight, float* dbias, const void* dout, const void* inp,
                       const void* weight, const LinearShape& s, bool accumulate, void* scratch) const override {
    const auto way = pick<mixed::BiasGradient>("bias_gradient", v);
    if (way == mixed::BiasGradient::layernorm_fold || mixed::sums_columns(way))
      throw std::logic_error("bias_gradient=" + v + " is work of what follows in the backward pass, not of a product");
    mixed::linear_backward_input(here(c).matmul, h(dinp), h(dout), h(weight), s.rows, s.in, s.out, here(c).stream);
    mixed::linear_backward_weight(way, here(c).matmul, dweight, dbias, h(dout), h(inp), s.rows, s.in, s.out, accumulate,
                                  static_cast<float*>(scratch), here(c).stream);
  }
  int64_t linear_backward_scratch(Variant, const LinearShape& s) const override {
    return 4 * mixed::linear_backward_weight_scratch_floats(s.rows, s.out);
  }

  void attention_forward(OpContext& c, Variant v, void* out, float* lse, const void* qkv, const OpShape& s, void* scratch) const override {
    mixed::attention_forward(pick<mixed::AttentionForward>("attention_forward", v), kFirstPlan, here(c).matmul, h(out), lse, h(qkv),
                             heads(s), scratch, here(c).stream);
  }
  int64_t attention_forward_scratch(Variant v, const OpShape& s) const override {
    return mixed::attention_forward_scratch_bytes(pick<mixed::AttentionForward>("attention_forward", v), kFirstPlan, heads(s));
  }
  void attention_backward(OpContext& c, Variant v, void* dqkv, const void* dout, const void* qkv, const void* out, const float* lse,
                          const OpShape& s, void* scratch) const override {
    mixed::attention_backward(pick<mixed::AttentionBackward>("attention_backward", v), kFirstPlan, here(c).matmul, h(dqkv), h(dout), h(qkv),
                              h(out), lse, heads(s), scratch, here(c).stream);
  }
  int64_t attention_backward_scratch(Variant v, const OpShape& s) const override {
    return mixed::attention_backward_scratch_bytes(pick<mixed::AttentionBackward>("attention_backward", v), kFirstPlan, heads(s));
  }

  // The kernel of its own stands behind the backward that does every shape. The scratch: the backward's, and behind it partial sums.
  void attention_bias_gradient(OpContext& c, Variant v, void* dqkv, float* dbias, const void* dout, const void* qkv, const void* out,
                               const float* lse, const Behind& behind, const OpShape& s, bool accumulate, void* scratch) const override {
    const auto bias = pick<mixed::BiasGradient>("bias_gradient", v);
    const mixed::AttentionBackward backward = backward_of(bias);
    const hopper::ColumnSums sums = mixed::attention_sums(bias, backward, kFirstPlan, heads(s), scratch);
    mixed::attention_backward(backward, kFirstPlan, here(c).matmul, h(dqkv), h(dout), h(qkv), h(out), lse, heads(s), scratch,
                              here(c).stream, sums);
    if (sums != nullptr)
      return mixed::attention_bias_gradient(dbias, sums, {behind.dbias, h(behind.weight)}, heads(s), accumulate, here(c).stream);
    auto* partial = reinterpret_cast<float*>(static_cast<std::byte*>(scratch) + bytes_before_sums(backward, s));
    const void* done = dqkv;
    gpt2::ops::bias_gradient(dbias, h(done), s.rows(), 3 * s.C, accumulate, partial, here(c).stream);
  }
  int64_t attention_bias_gradient_scratch(Variant v, const OpShape& s) const override {
    const auto bias = pick<mixed::BiasGradient>("bias_gradient", v);
    const int64_t sums = mixed::sums_columns(bias) ? mixed::attention_sums_bytes(bias, heads(s))
                                                   : 4 * gpt2::ops::bias_gradient_scratch_floats<bf16>(s.rows(), 3 * s.C);
    return bytes_before_sums(backward_of(bias), s) + sums;
  }
  static mixed::AttentionBackward backward_of(mixed::BiasGradient bias) {
    return mixed::sums_columns(bias) ? mixed::AttentionBackward::hopper : mixed::AttentionBackward::unfused;
  }
  static int64_t bytes_before_sums(mixed::AttentionBackward backward, const OpShape& s) {
    return 2 * padded(mixed::attention_backward_scratch_bytes(backward, kFirstPlan, heads(s)) / 2);
  }

  void planned_attention_forward(OpContext& c, Variant plan, void* out, float* lse, const void* qkv, const OpShape& s,
                                 void* scratch) const override {
    mixed::attention_forward(mixed::AttentionForward::cudnn, pick<mixed::AttentionPlan>("attention_plan", plan), here(c).matmul, h(out),
                             lse, h(qkv), heads(s), scratch, here(c).stream);
  }
  int64_t planned_attention_forward_scratch(Variant plan, const OpShape& s) const override {
    return mixed::attention_forward_scratch_bytes(mixed::AttentionForward::cudnn, pick<mixed::AttentionPlan>("attention_plan", plan),
                                                  heads(s));
  }
  void planned_attention_backward(OpContext& c, Variant plan, void* dqkv, const void* dout, const void* qkv, const void* out,
                                  const float* lse, const OpShape& s, void* scratch) const override {
    mixed::attention_backward(mixed::AttentionBackward::cudnn, pick<mixed::AttentionPlan>("attention_plan", plan), here(c).matmul, h(dqkv),
                              h(dout), h(qkv), h(out), lse, heads(s), scratch, here(c).stream);
  }
  int64_t planned_attention_backward_scratch(Variant plan, const OpShape& s) const override {
    return mixed::attention_backward_scratch_bytes(mixed::AttentionBackward::cudnn, pick<mixed::AttentionPlan>("attention_plan", plan),
                                                   heads(s));
  }

  void gelu_forward(OpContext& c, void* out, const void* inp, int64_t n) const override {
    gpt2::ops::gelu_forward(h(out), h(inp), n, here(c).stream);
  }
  void gelu_backward(OpContext& c, void* dinp, const void* dout, const void* inp, int64_t n) const override {
    gpt2::ops::gelu_backward(h(dinp), h(dout), h(inp), n, here(c).stream);
  }
  void residual_forward(OpContext& c, Element stream, void* out, const void* a, const void* b, int64_t n) const override {
    by_stream(stream,
              [&](auto r) { gpt2::ops::residual_forward(as(out, r, n), as(a, r, n), h(b), n, here(c).stream, up(out, r), up(a, r)); });
  }

  void classifier(OpContext& c, Variant v, void* logits, float* losses, const int* targets, int64_t rows, int64_t V, int64_t Vp,
                  float gradient_scale, bool write_gradient) const override {
    launch_classifier(here(c).scalars, pick<mixed::Classifier>("classifier", v), h(logits), losses, targets, rows, V, Vp, gradient_scale,
                      write_gradient, here(c).stream);
  }
  // The scratch: logits or exponentials, factors of rows, and what the launchers want.
  void lm_head(OpContext& c, Variant v, float* losses, void* x, float* dweight, const void* weight, const int* targets, const HeadShape& s,
               float gradient_scale, bool accumulate, void* scratch) const override {
    bf16* logits = h(scratch);
    auto* factors = reinterpret_cast<float*>(logits + padded(s.rows * s.Vp));
    Context& context = here(c);
    const mixed::Head head{s.rows, s.C, s.V, s.Vp, h(x), h(weight), targets, logits, factors + padded(s.rows)};
    const auto way = pick<mixed::LmHead>("lm_head", v);
    switch (way) {
      case mixed::LmHead::logits:
        mixed::linear_forward(mixed::LinearForward::bias_kernel, context.matmul, logits, h(x), h(weight), nullptr, s.rows, s.C, s.Vp,
                              context.stream);
        launch_classifier(context.scalars, gpt2::ops::Classifier::two_pass, logits, losses, targets, s.rows, s.V, s.Vp, gradient_scale,
                          true, context.stream);
        break;
      case mixed::LmHead::hopper: {
        StepScalars scalars;
        scalars.gradient_scale = gradient_scale;
        mixed::head_forward(context.hopper, head, context.stream);
        mixed::head_losses(losses, factors, head, context.scalars.set(scalars), context.stream);
        break;
      }
    }
    mixed::linear_backward_weight(mixed::BiasGradient::column_sums, context.matmul, dweight, nullptr, logits, h(x), s.rows, s.C, s.Vp,
                                  accumulate, nullptr, context.stream);
    mixed::linear_backward_input(context.matmul, h(x), logits, h(weight), s.rows, s.C, s.Vp, context.stream);
    if (way == mixed::LmHead::hopper) mixed::scale_rows(h(x), factors, s.rows, s.C, context.stream);
  }
  int64_t lm_head_scratch(const HeadShape& s) const override {
    return 2 * padded(s.rows * s.Vp) + 4 * padded(s.rows) + mixed::head_scratch_bytes(s.rows, s.Vp);
  }
  void mean_loss(OpContext& c, double* loss, const float* losses, int64_t rows, double scale, bool accumulate) const override {
    launch_mean_loss(here(c).scalars, loss, losses, rows, scale, accumulate, here(c).stream);
  }
  void grad_norm(OpContext& c, Variant v, double* norm, float* clip_scale, const float* gradients, int64_t n, float clip,
                 void* scratch) const override {
    switch (pick<mixed::GradNorm>("grad_norm", v)) {
      case mixed::GradNorm::whole:
        launch_grad_norm<bf16>(here(c).scalars, norm, clip_scale, gradients, n, clip, scratch, here(c).stream);
        break;
      case mixed::GradNorm::beside_backward:
        launch_norm_of_pieces(here(c).scalars, norm, clip_scale, gradients, n, clip, static_cast<double*>(scratch), here(c).stream);
        break;
    }
  }
  int64_t grad_norm_scratch(Variant v, int64_t n) const override {
    switch (pick<mixed::GradNorm>("grad_norm", v)) {
      case mixed::GradNorm::whole:
        return gpt2::ops::grad_norm_scratch_bytes<bf16>(n);
      case mixed::GradNorm::beside_backward:
        return 3 * gpt2::ops::kPartialsOfSpans * static_cast<int64_t>(sizeof(double));
    }
    return 0;
  }

  void adamw(OpContext& c, Variant v, bool stochastic, const UpdateTensors& t, const gpt2::TensorLayout& layout,
             const gpt2::AdamW& settings, int64_t step) const override {
    gpt2::ops::adamw(pick<mixed::AdamWKernel>("adamw", v), rounding(stochastic), h(t.rounded), t.parameters, t.m, t.v, t.gradients, layout,
                     here(c).scalars.of_step(settings, step), t.clip_scale, here(c).stream);
  }
  void adamw_masters(OpContext& c, Variant masters, bool stochastic, const UpdateTensors& t, const gpt2::TensorLayout& layout,
                     const gpt2::AdamW& settings, int64_t step, void* scratch) const override {
    launch_update(pick<mixed::Masters>("masters", masters), stochastic, t, whole_moments(t), t.gradients, layout,
                  here(c).scalars.of_step(settings, step), scratch, here(c).stream);
  }
  int64_t adamw_masters_scratch(Variant masters, int64_t n) const override {
    switch (pick<mixed::Masters>("masters", masters)) {
      case mixed::Masters::as_fp32:
        return 0;
      case mixed::Masters::split:
        return 2 * padded(n) + gpt2::ops::split_up_bytes(n);
    }
    return 0;
  }
  void grad_norm_arenas(OpContext& c, Variant v, const std::string& wte_gradient, const std::string& norm_variant, double* norm,
                        float* clip_scale, const float* gradients, const gpt2::TensorLayout& layout, float clip,
                        void* scratch) const override {
    if (pick<mixed::WeightGradients>("weight_gradients", v) == mixed::WeightGradients::as_fp32)
      return grad_norm(c, norm_variant, norm, clip_scale, gradients, layout.total, clip, scratch);
    const Arenas arenas = arenas_of(layout, wte_gradient);
    const auto stream = here(c).stream;
    const gpt2::ops::GradientArenas g = arenas.made_of(gradients, layout, scratch, stream);
    auto* partial = reinterpret_cast<double*>(static_cast<std::byte*>(scratch) + arenas.bytes());
    launch_norm(here(c).scalars, norm, clip_scale, clip, [&](gpt2::ops::StepStats* stats, const StepScalars* scalars) {
      switch (pick<mixed::GradNorm>("grad_norm", norm_variant)) {
        case mixed::GradNorm::whole:
          gpt2::ops::grad_norm(stats, g, scalars, partial, stream);
          break;
        case mixed::GradNorm::beside_backward: {
          const int64_t layers = layers_of(layout);
          for (int64_t piece = 0; piece <= layers; ++piece)
            gpt2::ops::squares_of_spans(partial + piece * gpt2::ops::kPartialsOfSpans, g.wide, arenas.spans(layout, piece, layers), stream,
                                        g.narrow);
          gpt2::ops::finish_grad_norm(stats, partial, (layers + 1) * gpt2::ops::kPartialsOfSpans, scalars, stream);
          break;
        }
      }
    });
  }
  int64_t grad_norm_arenas_scratch(Variant v, const std::string& wte_gradient, const std::string& norm_variant,
                                   const gpt2::TensorLayout& layout) const override {
    if (pick<mixed::WeightGradients>("weight_gradients", v) == mixed::WeightGradients::as_fp32)
      return grad_norm_scratch(norm_variant, layout.total);
    const int64_t partials = (layers_of(layout) + 1) * gpt2::ops::kPartialsOfSpans * static_cast<int64_t>(sizeof(double));
    return arenas_of(layout, wte_gradient).bytes() + std::max(partials, gpt2::ops::grad_norm_scratch_bytes<bf16>(layout.total));
  }
  void adamw_arenas(OpContext& c, Variant v, const std::string& wte_gradient, const std::string& masters, bool stochastic,
                    const UpdateTensors& t, const gpt2::TensorLayout& layout, const gpt2::AdamW& settings, int64_t step,
                    void* scratch) const override {
    if (pick<mixed::WeightGradients>("weight_gradients", v) == mixed::WeightGradients::as_fp32)
      return adamw_masters(c, masters, stochastic, t, layout, settings, step, scratch);
    const Arenas arenas = arenas_of(layout, wte_gradient);
    const auto stream = here(c).stream;
    const gpt2::ops::GradientArenas g = arenas.made_of(t.gradients, layout, scratch, stream);
    launch_update(pick<mixed::Masters>("masters", masters), stochastic, t, whole_moments(t), g, layout,
                  here(c).scalars.of_step(settings, step), static_cast<std::byte*>(scratch) + arenas.bytes(), stream);
  }
  int64_t adamw_arenas_scratch(Variant v, const std::string& wte_gradient, const std::string& masters,
                               const gpt2::TensorLayout& layout) const override {
    const int64_t own = adamw_masters_scratch(masters, layout.total);
    if (pick<mixed::WeightGradients>("weight_gradients", v) == mixed::WeightGradients::as_fp32) return own;
    return own + arenas_of(layout, wte_gradient).bytes();
  }
  // The scratch: gradients in two arenas, moments that are not in fp32, split masters.
  void adamw_moments(OpContext& c, Variant v, const std::string& masters, const std::string& weight_gradients, bool stochastic,
                     const UpdateTensors& t, const gpt2::TensorLayout& layout, const gpt2::AdamW& settings, int64_t step,
                     void* scratch) const override {
    const auto stream = here(c).stream;
    const StepScalars* scalars = here(c).scalars.of_step(settings, step);
    const auto update = [&](const auto& gradients, std::byte* memory) {
      const auto with = [&](const auto& moments, void* of_masters) {
        launch_update(pick<mixed::Masters>("masters", masters), stochastic, t, moments, gradients, layout, scalars, of_masters, stream);
      };
      switch (pick<mixed::Moments>("moments", v)) {
        case mixed::Moments::as_fp32:
          with(whole_moments(t), memory);
          break;
        case mixed::Moments::split:
          with_split_moments(t, layout.total, memory, stream,
                             [&](const auto& split) { with(split, memory + split_moments_bytes(layout.total)); });
          break;
        case mixed::Moments::as_16_bits:
          with_short_moments(t, layout.total, memory, stream,
                             [&](const auto& moments) { with(moments, memory + short_moments_bytes(layout.total)); });
          break;
      }
    };
    auto* memory = static_cast<std::byte*>(scratch);
    switch (pick<mixed::WeightGradients>("weight_gradients", weight_gradients)) {
      case mixed::WeightGradients::as_fp32:
        update(t.gradients, memory);
        break;
      case mixed::WeightGradients::as_bf16: {
        const Arenas arenas = arenas_of(layout, "fp32");
        update(arenas.made_of(t.gradients, layout, scratch, stream), memory + arenas.bytes());
        break;
      }
    }
  }
  int64_t adamw_moments_scratch(Variant v, const std::string& masters, const std::string& weight_gradients,
                                const gpt2::TensorLayout& layout) const override {
    const int64_t others = adamw_arenas_scratch(weight_gradients, "fp32", masters, layout);
    switch (pick<mixed::Moments>("moments", v)) {
      case mixed::Moments::split:
        return others + split_moments_bytes(layout.total);
      case mixed::Moments::as_16_bits:
        return others + short_moments_bytes(layout.total);
      case mixed::Moments::as_fp32:
        break;
    }
    return others;
  }
  // The scratch: that of the bias, and behind it the product in fp32.
  void linear_backward_weight(OpContext& c, Variant v, const std::string& bias_gradient, void* dweight, float* dbias, const void* dout,
                              const void* inp, const LinearShape& s, void* scratch) const override {
    const auto bias = pick<mixed::BiasGradient>("bias_gradient", bias_gradient);
    const auto product = [&](auto* into) {
      mixed::linear_backward_weight(bias, here(c).matmul, into, dbias, h(dout), h(inp), s.rows, s.in, s.out, false,
                                    static_cast<float*>(scratch), here(c).stream);
    };
    switch (pick<mixed::WeightGradients>("weight_gradients", v)) {
      case mixed::WeightGradients::as_fp32: {
        auto* wide = reinterpret_cast<float*>(h(scratch) + padded(linear_backward_scratch("", s) / 2));
        product(wide);
        gpt2::ops::round_parameters(gpt2::ops::Rounding::nearest, h(dweight), wide, s.in * s.out, nullptr, here(c).stream);
        break;
      }
      case mixed::WeightGradients::as_bf16:
        product(h(dweight));
        break;
    }
  }
  int64_t linear_backward_weight_scratch(Variant, const LinearShape& s) const override {
    return 2 * padded(linear_backward_scratch("", s) / 2) + 4 * s.in * s.out;
  }
  void round_parameters(OpContext& c, bool stochastic, void* rounded, const float* masters, int64_t n) const override {
    StepScalars s;
    s.rounding_seed = 12345;
    gpt2::ops::round_parameters(rounding(stochastic), h(rounded), masters, n, here(c).scalars.set(s), here(c).stream);
  }

 private:
  const std::vector<gpt2::VariantFacts> facts_ = mixed::mixed_variant_facts();
};

}  // namespace

const OpTrainer& mixed_ops() {
  static const MixedOps ops;
  return ops;
}

}  // namespace gate

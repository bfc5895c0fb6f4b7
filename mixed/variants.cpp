// The table of variants: one row each. What a row says about launches is held against a trace by tests/trainers/variant_launches_test.
#include "mixed/variants.h"

#include "gpt2/ops/classifier.cuh"
#include "gpt2/ops/layernorm_backward.cuh"
#include "gpt2/ops/layernorm_forward.cuh"
#include "gpt2/tensor_table.h"
#include "mixed/attention_cudnn.h"
#include "mixed/hopper/attention.h"
#include "mixed/hopper_products.h"
#include "mixed/kernels/attention.cuh"
#include "mixed/matmul.h"
#include "mixed/memory_plan.h"
#include "mixed/variant_rows.h"

namespace mixed {
namespace {

using Row = gpt2::VariantRow<VariantChoice, Run>;
using Refusal = std::optional<std::string>;
using gpt2::Tensor;
using gpt2::variant_value;

bool rows_pack(const Run& run) { return run.options.model.channels % 8 == 0; }  // arenas and tensors begin at multiples of C

// The products of a step as the library will see them. It knows addresses only by their alignment, so the place in the arena is all that
// a pointer needs here; every activation begins at a multiple of 256 bytes.
class Products {
 public:
  explicit Products(const Run& run) : run_(run), layout_(gpt2::tensor_layout(run.options.model)) {}

  // `ask(layer)` for every layer, until one is refused.
  template <class Ask>
  Refusal in_every_layer(const Ask& ask) const {
    for (int64_t layer = 0; layer < run_.options.model.layers; ++layer)
      if (auto why = ask(layer)) return why;
    return std::nullopt;
  }
  Refusal linear(Tensor weight, Tensor bias, int64_t layer, int64_t in, int64_t out) const {
    return run_.why_no_product(linear_forward_product(LinearForward::bias_epilogue, at<bf16>(0), at<bf16>(0), parameter(weight, layer),
                                                      parameter(bias, layer), rows(), in, out));
  }
  template <class R>
  Refusal residual(Tensor weight, Tensor bias, int64_t layer, int64_t in) const {
    return run_.why_no_product(
        linear_residual_product<R>(at<R>(0), at<R>(0), at<bf16>(0), parameter(weight, layer), parameter(bias, layer), rows(), in, C()));
  }
  Refusal gelu(int64_t layer) const {
    return run_.why_no_product(linear_gelu_product(at<bf16>(0), at<bf16>(0), at<bf16>(0), parameter(Tensor::fcw, layer),
                                                   parameter(Tensor::fcb, layer), rows(), C(), 4 * C()));
  }
  Refusal gelu_backward(int64_t layer) const {
    return run_.why_no_product(
        linear_gelu_backward_product(at<bf16>(0), at<bf16>(0), parameter(Tensor::fcprojw, layer), at<bf16>(0), rows(), 4 * C(), C()));
  }
  // The products that make the gradients of a layer's matrices and, with `bias_in_product`, of their biases. The first micro-batch writes a
  // bias gradient where it belongs, later ones to scratch memory, and add.
  Refusal weight_gradients(WeightGradients storage, bool bias_in_product, int64_t layer) const {
    const auto arenas = gradient_arenas(storage, layout_);
    const auto place = [&](Tensor t) { return arenas ? (*arenas)[t] + layer * layout_[t].per_layer : offset(t, layer); };
    const auto ask = [&](Tensor weight, Tensor bias, int64_t in, int64_t out) -> Refusal {
      for (const bool accumulate : {false, true}) {
        float* into = !bias_in_product ? nullptr : accumulate ? at<float>(0) : at<float>(place(bias));
        const auto product = [&](auto* dweight) {
          return run_.why_no_product(
              linear_weight_product(BiasGradient::matmul_epilogue, dweight, into, at<bf16>(0), at<bf16>(0), rows(), in, out, accumulate));
        };
        if (arenas && accumulate) break;
        if (auto why = arenas ? product(at<bf16>(place(weight))) : product(at<float>(place(weight)))) return why;
      }
      return std::nullopt;
    };
    if (auto why = ask(Tensor::qkvw, Tensor::qkvb, C(), 3 * C())) return why;
    if (auto why = ask(Tensor::attprojw, Tensor::attprojb, C(), C())) return why;
    if (auto why = ask(Tensor::fcw, Tensor::fcb, C(), 4 * C())) return why;
    return ask(Tensor::fcprojw, Tensor::fcprojb, 4 * C(), C());
  }
  int64_t C() const { return run_.options.model.channels; }

 private:
  template <class T>
  static T* at(int64_t offset) {
    return reinterpret_cast<T*>((int64_t{1} << 20) + offset * static_cast<int64_t>(sizeof(T)));
  }
  int64_t offset(Tensor t, int64_t layer) const { return layout_[t].offset + layer * layout_[t].per_layer; }
  bf16* parameter(Tensor t, int64_t layer) const { return at<bf16>(offset(t, layer)); }
  int64_t rows() const { return run_.options.batch_size * run_.options.seq_len; }

  const Run& run_;
  gpt2::TensorLayout layout_;
};

Refusal no_residual_product(const Run& run, const VariantChoice& choice) {
  const Products p(run);
  return p.in_every_layer([&](int64_t layer) -> Refusal {
    const auto both = [&]<class R>(R) {
      auto why = p.residual<R>(Tensor::attprojw, Tensor::attprojb, layer, p.C());
      return why ? why : p.residual<R>(Tensor::fcprojw, Tensor::fcprojb, layer, 4 * p.C());
    };
    switch (choice.residual_stream) {
      case ResidualStream::as_fp32:
        return both(float{});
      case ResidualStream::as_bf16:
        return both(bf16{});
    }
    return std::nullopt;
  });
}
Refusal no_gelu_product(const Run& run, const VariantChoice&) {
  const Products p(run);
  return p.in_every_layer([&](int64_t layer) { return p.gelu(layer); });
}
// One keeps GELU's gradient where the other variants keep GELU's input.
Refusal no_hopper_gelu(const Run& run, const VariantChoice& choice) {
  switch (choice.gelu_backward) {
    case Gelu::hopper:
      break;
    case Gelu::matmul_epilogue:
    case Gelu::kernel:
      return "only gelu_backward=hopper reads what it keeps, GELU's gradient";
  }
  if (run.options.recompute != "none")
    return fmt::format("--recompute {} makes GELU again from its input, in whose place it keeps GELU's gradient", run.options.recompute);
  return why_no_hopper_product(run.compute_capability_major, run.options.model.channels);
}
Refusal no_hopper_gelu_backward(const Run& run, const VariantChoice& choice) {
  switch (choice.gelu_forward) {
    case Gelu::hopper:
      return std::nullopt;
    case Gelu::matmul_epilogue:
    case Gelu::kernel:
      break;
  }
  if (auto why = why_no_hopper_product(run.compute_capability_major, run.options.model.channels)) return why;
  return "only gelu_forward=hopper keeps GELU's gradient, which it reads";
}
Refusal no_hopper_head(const Run& run, const VariantChoice& choice) {
  if (run.options.model.padded_vocab % 8 != 0)
    return fmt::format("Vp = {} is no multiple of 8, which rows of exponentials must be", run.options.model.padded_vocab);
  return no_hopper_gelu_backward(run, choice);
}
Refusal no_input_of_gelu(const Run&, const VariantChoice& choice) {
  switch (choice.gelu_forward) {
    case Gelu::matmul_epilogue:
    case Gelu::kernel:
      return std::nullopt;
    case Gelu::hopper:
      break;
  }
  return "gelu_forward=hopper keeps GELU's gradient and not GELU's input, which it reads";
}
Refusal no_gelu_backward_product(const Run& run, const VariantChoice& choice) {
  if (auto why = no_input_of_gelu(run, choice)) return why;
  const Products p(run);
  return p.in_every_layer([&](int64_t layer) { return p.gelu_backward(layer); });
}
// The products whose bias no other slot takes.
Refusal no_bias_product(const Run& run, const VariantChoice& choice) {
  const Products p(run);
  return p.in_every_layer([&](int64_t layer) -> Refusal {
    if (auto why = p.linear(Tensor::qkvw, Tensor::qkvb, layer, p.C(), 3 * p.C())) return why;
    switch (choice.residual) {
      case Residual::fused_layernorm:
      case Residual::separate:
        if (auto why = p.linear(Tensor::attprojw, Tensor::attprojb, layer, p.C(), p.C())) return why;
        if (auto why = p.linear(Tensor::fcprojw, Tensor::fcprojb, layer, 4 * p.C(), p.C())) return why;
        break;
      case Residual::matmul_epilogue:
        break;
    }
    switch (choice.gelu_forward) {
      case Gelu::kernel:
        return p.linear(Tensor::fcw, Tensor::fcb, layer, p.C(), 4 * p.C());
      case Gelu::matmul_epilogue:
      case Gelu::hopper:
        break;
    }
    return std::nullopt;
  });
}
Refusal no_bias_gradient_product(const Run& run, const VariantChoice& choice) {
  const Products p(run);
  return p.in_every_layer([&](int64_t layer) { return p.weight_gradients(choice.weight_gradients, true, layer); });
}
Refusal no_fold(const Run&, const VariantChoice& choice) {
  switch (choice.layernorm_backward) {
    case LayernormBackward::fused_rows:
      return std::nullopt;
    case LayernormBackward::separate_columns:
      break;
  }
  return "layernorm_backward=separate_columns does not sum the columns of its input's gradient on its way";
}
Refusal no_warp_per_row(const Run& run, const VariantChoice&) {
  return gpt2::ops::why_not<bf16>(LayernormForward::warp_per_row, run.options.model.channels, rows_pack(run));
}
Refusal no_fused_rows(const Run& run, const VariantChoice&) {
  return gpt2::ops::why_not<bf16>(LayernormBackward::fused_rows, run.options.model.channels, rows_pack(run));
}
Refusal no_cudnn_attention(const Run& run, const VariantChoice& choice) {
  return run.why_no_cudnn_attention(choice.attention_backward == AttentionBackward::cudnn_deterministic);
}
Refusal no_cudnn_backward(const Run& run, const VariantChoice&) { return run.why_no_cudnn_attention(false); }
Refusal no_cudnn_deterministic(const Run& run, const VariantChoice&) { return run.why_no_cudnn_attention(true); }
Refusal no_hopper_attention(const Run& run, const VariantChoice&) {
  return hopper::why_no_attention(run.compute_capability_major, run.options.model.head_size());
}
Refusal no_flash(const Run& run, const VariantChoice&) { return why_not_flash(run.options.model.head_size()); }
constexpr std::string_view kByBlocks = "ranks take norm and update in blocks, which every number of ranks sums in one order";
Refusal no_blocks(const Run& run, const VariantChoice&) {
  if (run.options.communicator != nullptr) return std::string(kByBlocks);
  return std::nullopt;
}
Refusal no_gathered_rows(const Run&, const VariantChoice& choice) {
  switch (choice.communication) {
    case Communication::all_reduce:
      return "communication=all_reduce sends nothing before the end of the backward pass";
    case Communication::all_reduce_overlapped:
    case Communication::zero1:
    case Communication::zero1_ahead:
      break;
  }
  return std::nullopt;
}
Refusal no_split_masters(const Run& run, const VariantChoice& choice) {
  if (run.options.communicator != nullptr) return "the update of several ranks has no kernel for split masters";
  switch (choice.adamw) {
    case AdamWKernel::all_tensors:
      return std::nullopt;
    case AdamWKernel::per_tensor:
      break;
  }
  return "adamw=per_tensor has no kernel for split masters";
}
Refusal no_bf16_weight_gradients(const Run& run, const VariantChoice& choice) {
  if (run.options.communicator != nullptr) return "ranks exchange gradients in one fp32 arena";
  if (run.options.micro_batches > 1) return std::string(why_no_accumulation_in_bf16);
  switch (choice.zero_grad) {
    case ZeroGrad::overwrite:
      break;
    case ZeroGrad::memset:
      return "zero_grad=memset adds every micro-batch to what is there, and bf16 gradients are only written over";
  }
  switch (choice.adamw) {
    case AdamWKernel::all_tensors:
      break;
    case AdamWKernel::per_tensor:
      return "adamw=per_tensor has no kernel for bf16 gradients";
  }
  const Products p(run);
  return p.in_every_layer([&](int64_t layer) { return p.weight_gradients(WeightGradients::as_bf16, false, layer); });
}
Refusal no_programmatic_edges(const Run& run, const VariantChoice& choice) {
  if (run.compute_capability_major < 9) return "devices before sm_90 have no programmatic edges";
  if (run.why_no_kernel_names) return run.why_no_kernel_names;
  switch (choice.step_launch) {
    case StepLaunch::graph:
      return std::nullopt;
    case StepLaunch::stream:
      break;
  }
  return "step_launch=stream has no graph";
}
Refusal no_one_read(const Run& run, const VariantChoice&) {
  const int64_t Vp = run.options.model.padded_vocab;
  return gpt2::ops::why_not<bf16>(Classifier::one_read, Vp, Vp % 8 == 0, run.shared_bytes_per_block);
}

constexpr std::string_view kOneRank = "a step of one rank has no communication";
constexpr std::string_view kNorms = "forward/ln1 forward/ln2 forward/lnf";
constexpr std::string_view kNormsBackward = "backward/ln1 backward/ln2 backward/lnf";
constexpr std::string_view kResiduals = "forward/residual1 forward/residual2";
constexpr std::string_view kProjections = "forward/attproj forward/mlp_down";
constexpr std::string_view kProjectionsBackward = "backward/attproj backward/mlp_down";
constexpr std::string_view kOtherLinearsBackward = "backward/qkv backward/mlp_up";
constexpr std::string_view kNoProduct = "shapes for which cuBLASLt has no such product";

// Kernels whose storage tells: the residual stream's R and its gradient's G are their last template argument.
constexpr std::array kRows{
    Row{.slot = "residual_stream",
        .name = "fp32",
        .is = variant_value<&VariantChoice::residual_stream, ResidualStream::as_fp32>(),
        .help = "the forward's residual stream is stored in fp32; the backward reads a copy in bf16",
        .launches = {{{.where = "encoder/embedding", .must = "__nv_bfloat16, float>"}, {.where = "forward/ln1", .must = "float>"}}}},
    Row{.slot = "residual_stream",
        .name = "bf16",
        .is = variant_value<&VariantChoice::residual_stream, ResidualStream::as_bf16>(),
        .help = "the forward's residual stream is stored in bf16",
        .launches = {{{.where = "encoder/embedding", .must = "__nv_bfloat16>", .never = "float>"},
                      {.where = "forward/ln1", .must = "__nv_bfloat16>", .never = "float>"}}}},

    Row{.slot = "residual_gradient",
        .name = "fp32",
        .is = variant_value<&VariantChoice::residual_gradient, ResidualGradient::as_fp32>(),
        .help = "the backward's residual stream is stored in fp32; products read a copy in bf16",
        .launches = {{{.where = kNormsBackward, .must = ", float>"}}}},
    Row{.slot = "residual_gradient",
        .name = "bf16",
        .is = variant_value<&VariantChoice::residual_gradient, ResidualGradient::as_bf16>(),
        .help = "the backward's residual stream is stored in bf16",
        .launches = {{{.where = kNormsBackward, .must = "__nv_bfloat16>", .never = ", float>"}}}},

    Row{.slot = "residual",
        .name = "fused_layernorm",
        .is = variant_value<&VariantChoice::residual, Residual::fused_layernorm>(),
        .help = "the layernorm after a residual sum makes the sum on its way",
        .launches = {{{.where = kResiduals, .at_most = 0}, {.where = "forward/ln2 forward/lnf", .must = ", true, "}}}},
    Row{.slot = "residual",
        .name = "separate",
        .is = variant_value<&VariantChoice::residual, Residual::separate>(),
        .help = "a kernel of its own makes the residual sum",
        .launches = {{{.where = kResiduals, .must = "residual_forward_kernel"},
                      {.where = kNorms, .must = ", false, ", .never = ", true, "}}}},
    Row{.slot = "residual",
        .name = "matmul_epilogue",
        .is = variant_value<&VariantChoice::residual, Residual::matmul_epilogue>(),
        .help = "the products of attproj and mlp_down add the residual stream, and their bias",
        .refused = "shapes for which cuBLASLt has no such product: none is known with residual_stream=fp32",
        .refuses = no_residual_product,
        .with = "residual_stream=bf16",
        .launches = {{{.where = kResiduals, .at_most = 0},
                      {.where = kProjections, .never = "add_bias_kernel", .at_least = 1},
                      {.where = kNorms, .must = ", false, ", .never = ", true, "}}}},

    Row{.slot = "gelu_forward",
        .name = "hopper",
        .is = variant_value<&VariantChoice::gelu_forward, Gelu::hopper>(),
        .help = "our own product for Hopper adds the bias, applies GELU and keeps GELU's gradient in place of GELU's input",
        .refused =
            "devices that are not of compute capability 9.0, C that is no multiple of 8, --recompute, and without gelu_backward=hopper",
        .refuses = no_hopper_gelu,
        .launches = {{{.where = "forward/gelu", .at_most = 0},
                      {.where = "forward/mlp_up", .must = "hopper_product_kernel", .never = "add_bias_kernel"}}}},
    Row{.slot = "gelu_forward",
        .name = "matmul_epilogue",
        .is = variant_value<&VariantChoice::gelu_forward, Gelu::matmul_epilogue>(),
        .help = "the product of mlp_up adds its bias and applies GELU; under --recompute a kernel makes GELU again",
        .refused = kNoProduct,
        .refuses = no_gelu_product,
        .launches = {{{.where = "forward/gelu", .at_most = 0}, {.where = "forward/mlp_up", .never = "add_bias_kernel", .at_least = 1}}}},
    Row{.slot = "gelu_forward",
        .name = "kernel",
        .is = variant_value<&VariantChoice::gelu_forward, Gelu::kernel>(),
        .help = "a kernel of its own applies GELU",
        .launches = {{{.where = "forward/gelu", .must = "gelu_forward_kernel"}}}},

    Row{.slot = "gelu_backward",
        .name = "hopper",
        .is = variant_value<&VariantChoice::gelu_backward, Gelu::hopper>(),
        .help = "our own product for Hopper multiplies by GELU's gradient and sums the columns for mlp_up's bias gradient",
        .refused = "without gelu_forward=hopper",
        .refuses = no_hopper_gelu_backward,
        .launches = {{{.where = "backward/gelu", .never = "gelu_backward_kernel"},
                      {.where = "backward/mlp_down", .must = "hopper_product_kernel"},
                      {.where = "backward/mlp_up", .must = "reduce_partials_kernel", .never = "slab_sums_kernel"}}}},
    Row{.slot = "gelu_backward",
        .name = "matmul_epilogue",
        .is = variant_value<&VariantChoice::gelu_backward, Gelu::matmul_epilogue>(),
        .help = "the product of mlp_down's input gradient multiplies by GELU's",
        .refused = "shapes for which cuBLASLt has no such product, and with gelu_forward=hopper",
        .refuses = no_gelu_backward_product,
        .launches = {{{.where = "backward/gelu", .never = "gelu_backward_kernel"}, {.where = "backward/mlp_down", .at_least = 2}}}},
    Row{.slot = "gelu_backward",
        .name = "kernel",
        .is = variant_value<&VariantChoice::gelu_backward, Gelu::kernel>(),
        .help = "a kernel of its own multiplies by GELU's gradient",
        .refused = "with gelu_forward=hopper",
        .refuses = no_input_of_gelu,
        .launches = {{{.where = "backward/gelu", .must = "gelu_backward_kernel"}}}},

    Row{.slot = "linear_forward",
        .name = "bias_epilogue",
        .is = variant_value<&VariantChoice::linear_forward, LinearForward::bias_epilogue>(),
        .help = "the product adds the bias of every linear layer whose bias residual or gelu_forward does not take",
        .refused = kNoProduct,
        .refuses = no_bias_product,
        .launches =
            {{{.where = "forward/qkv forward/attproj forward/mlp_up forward/mlp_down", .never = "add_bias_kernel", .at_least = 1}}}},
    Row{.slot = "linear_forward",
        .name = "bias_kernel",
        .is = variant_value<&VariantChoice::linear_forward, LinearForward::bias_kernel>(),
        .help = "a kernel adds the bias of every linear layer whose bias residual or gelu_forward does not take",
        .launches = {{{.where = "forward/qkv forward/attproj forward/mlp_down", .must = "add_bias_kernel"}}}},

    Row{.slot = "layernorm_forward",
        .name = "warp_per_row",
        .is = variant_value<&VariantChoice::layernorm_forward, LayernormForward::warp_per_row>(),
        .help = "one warp normalizes a row that it holds in registers, with or without the residual sum",
        .refused = "C above 2048, or above 256 where C is no multiple of 8",
        .refuses = no_warp_per_row,
        .launches = {{{.where = kNorms, .must = "warp_per_row_forward_kernel", .never = "block_per_row_forward_kernel"}}}},
    Row{.slot = "layernorm_forward",
        .name = "block_per_row",
        .is = variant_value<&VariantChoice::layernorm_forward, LayernormForward::block_per_row>(),
        .help = "one block normalizes a row, with or without the residual sum",
        .launches = {{{.where = kNorms, .must = "block_per_row_forward_kernel", .never = "warp_per_row_forward_kernel"}}}},

    Row{.slot = "layernorm_backward",
        .name = "fused_rows",
        .is = variant_value<&VariantChoice::layernorm_backward, LayernormBackward::fused_rows>(),
        .help = "one pass over the rows makes the input's gradient and all column sums (a warp per row up to C = 1024, then a block)",
        .refused = "C above 8192, or above 2048 where C is no multiple of 8",
        .refuses = no_fused_rows,
        .launches = {{{.where = kNormsBackward,
                       .must = "warp_rows_backward_kernel|fused_rows_backward_kernel",
                       .never = "columns_backward_kernel"}}}},
    Row{.slot = "layernorm_backward",
        .name = "separate_columns",
        .is = variant_value<&VariantChoice::layernorm_backward, LayernormBackward::separate_columns>(),
        .help = "one kernel for the input's gradient, one for the column sums of the parameters",
        .launches = {{{.where = kNormsBackward,
                       .must = "columns_backward_kernel",
                       .never = "warp_rows_backward_kernel|fused_rows_backward_kernel"}}}},

    Row{.slot = "bias_gradient",
        .name = "layernorm_fold",
        .is = variant_value<&VariantChoice::bias_gradient, BiasGradient::layernorm_fold>(),
        .help = "attproj and mlp_down: the backward of the layernorm behind them sums the columns; qkv and mlp_up: as column_sums",
        .refused = "with layernorm_backward=separate_columns",
        .refuses = no_fold,
        .launches = {{{.where = "backward/attproj backward/mlp_down backward/ln1 backward/ln2 backward/lnf", .never = "slab_sums_kernel"},
                      {.where = kOtherLinearsBackward, .must = "slab_sums_kernel"}}}},
    Row{.slot = "bias_gradient",
        .name = "column_sums",
        .is = variant_value<&VariantChoice::bias_gradient, BiasGradient::column_sums>(),
        .help = "kernels of their own sum the columns",
        .launches = {{{.where = kProjectionsBackward, .must = "slab_sums_kernel"},
                      {.where = kOtherLinearsBackward, .must = "slab_sums_kernel"}}}},
    Row{.slot = "bias_gradient",
        .name = "matmul_epilogue",
        .is = variant_value<&VariantChoice::bias_gradient, BiasGradient::matmul_epilogue>(),
        .help = "the product of the weight gradient sums the columns of its operand",
        .refused = kNoProduct,
        .refuses = no_bias_gradient_product,
        .launches = {{{.where = kProjectionsBackward, .never = "slab_sums_kernel", .at_least = 2},
                      {.where = kOtherLinearsBackward, .never = "slab_sums_kernel", .at_least = 2}}}},

    Row{.slot = "attention_forward",
        .name = "cudnn",
        .is = variant_value<&VariantChoice::attention_forward, AttentionForward::cudnn>(),
        .help = "cuDNN's fused attention",
        .refused = "without cuDNN, and shapes that cuDNN has no forward or no backward for: T = 1, for one",
        .refuses = no_cudnn_attention,
        .lacks = why_no_cudnn,
        .launches = {{{.where = "forward/attention", .must = "cudnn", .never = "mixed::|gpt2::"}}}},
    Row{.slot = "attention_forward",
        .name = "hopper",
        .is = variant_value<&VariantChoice::attention_forward, AttentionForward::hopper>(),
        .help = "our own attention for Hopper: tiles by TMA, products of warpgroups, the softmax of one beside the products of the others",
        .refused = "devices that are not of compute capability 9.0, and heads that have not 64 channels",
        .refuses = no_hopper_attention,
        .launches = {{{.where = "forward/attention", .must = "hopper_attention_forward_kernel", .never = "flash_forward_kernel|cudnn"}}}},
    Row{.slot = "attention_forward",
        .name = "flash",
        .is = variant_value<&VariantChoice::attention_forward, AttentionForward::flash>(),
        .help = "one kernel that never writes scores to memory",
        .refused = "heads of more than 128 channels",
        .refuses = no_flash,
        .launches =
            {{{.where = "forward/attention", .must = "flash_forward_kernel", .never = "causal_softmax_kernel|hopper_attention|cudnn"}}}},
    Row{.slot = "attention_forward",
        .name = "unfused",
        .is = variant_value<&VariantChoice::attention_forward, AttentionForward::unfused>(),
        .help = "scores as matrix products in up to four blocks of rows, stored in fp32",
        .launches = {{{.where = "forward/attention", .must = "causal_softmax_kernel", .never = "flash_forward_kernel|cudnn"}}}},

    Row{.slot = "attention_backward",
        .name = "cudnn",
        .is = variant_value<&VariantChoice::attention_backward, AttentionBackward::cudnn>(),
        .help = "cuDNN's fused attention, whose query gradients add up in arrival order",
        .repeats = false,
        .refused = "without cuDNN, and shapes that cuDNN has no forward or no backward for",
        .refuses = no_cudnn_backward,
        .lacks = why_no_cudnn,
        .launches = {{{.where = "backward/attention", .must = "cudnn", .never = "mixed::|gpt2::"}}}},
    Row{.slot = "attention_backward",
        .name = "cudnn_deterministic",
        .is = variant_value<&VariantChoice::attention_backward, AttentionBackward::cudnn_deterministic>(),
        .help = "cuDNN's fused attention, told to repeat bit for bit",
        .refused = "without cuDNN, and shapes that cuDNN has no forward or no deterministic backward for",
        .refuses = no_cudnn_deterministic,
        .lacks = why_no_cudnn,
        .launches = {{{.where = "backward/attention", .must = "cudnn", .never = "mixed::|gpt2::"}}}},
    Row{.slot = "attention_backward",
        .name = "hopper",
        .is = variant_value<&VariantChoice::attention_backward, AttentionBackward::hopper>(),
        .help = "our own attention for Hopper: a kernel for queries, which sums dout * out on its way, then one for keys with values",
        .refused = "devices that are not of compute capability 9.0, and heads that have not 64 channels",
        .refuses = no_hopper_attention,
        .launches = {{{.where = "backward/attention",
                       .must = "hopper_attention_queries_kernel",
                       .never = "dout_dot_out_kernel|flash_backward|cudnn"},
                      {.where = "backward/attention", .must = "hopper_attention_keys_kernel"}}}},
    Row{.slot = "attention_backward",
        .name = "flash",
        .is = variant_value<&VariantChoice::attention_backward, AttentionBackward::flash>(),
        .help = "two kernels, for keys with values and for queries, that make the scores again",
        .refused = "heads of more than 128 channels",
        .refuses = no_flash,
        .launches =
            {{{.where = "backward/attention", .must = "flash_backward_keys_kernel", .never = "causal_softmax_backward_kernel|cudnn"},
              {.where = "backward/attention", .must = "flash_backward_queries_kernel"}}}},
    Row{.slot = "attention_backward",
        .name = "unfused",
        .is = variant_value<&VariantChoice::attention_backward, AttentionBackward::unfused>(),
        .help = "scores as matrix products in up to four blocks of rows, stored in fp32",
        .launches = {{{.where = "backward/attention", .must = "causal_softmax_backward_kernel", .never = "flash_backward|cudnn"}}}},

    Row{.slot = "attention_plan",
        .name = "measured",
        .is = variant_value<&VariantChoice::attention_plan, AttentionPlan::measured>(),
        .help = "where cuDNN computes attention: the fastest of its plans, timed once per shape before the first step and remembered",
        // Which of two plans is the faster differs from process to process where they are close, and plans round otherwise.
        .repeats = false,
        .refused = "without cuDNN",
        .lacks = why_no_cudnn,
        .unseen = "the plan that cuDNN puts first may be the fastest"},
    Row{.slot = "attention_plan",
        .name = "heuristic",
        .is = variant_value<&VariantChoice::attention_plan, AttentionPlan::heuristic>(),
        .help = "where cuDNN computes attention: the plan that it puts first",
        .unseen = "the plan that cuDNN puts first may be the fastest"},

    Row{.slot = "lm_head",
        .name = "logits",
        .is = variant_value<&VariantChoice::lm_head, LmHead::logits>(),
        .help = "a plain product stores the logits, which the classifier reads",
        .launches = {{{.where = "forward/lm_head", .never = "hopper_product_kernel", .at_least = 1},
                      {.where = "classifier/loss", .never = "head_losses_kernel"}}}},
    Row{.slot = "lm_head",
        .name = "hopper",
        .is = variant_value<&VariantChoice::lm_head, LmHead::hopper>(),
        .help = "in steps our own product for Hopper stores exp(logit - target's logit) and sums rows: no logits, no classifier kernel",
        .refused = "devices that are not of compute capability 9.0, and C or a padded vocabulary that is no multiple of 8",
        .refuses = no_hopper_head,
        .launches = {{{.where = "forward/lm_head", .must = "hopper_product_kernel"},
                      {.where = "forward/lm_head", .must = "head_offsets_kernel"},
                      {.where = "classifier/loss", .must = "head_losses_kernel", .never = "one_read_kernel|two_pass_kernel"},
                      {.where = "backward/lm_head", .must = "scale_rows_kernel"}}}},

    Row{.slot = "classifier",
        .name = "one_read",
        .is = variant_value<&VariantChoice::classifier, Classifier::one_read>(),
        .help = "a block keeps its row of logits in shared memory between one read and one write; with lm_head=hopper in evaluation alone",
        .refused = "rows of logits larger than the shared memory of a block, or a padded vocabulary that is no multiple of 8",
        .refuses = no_one_read,
        .launches = {{{.where = "classifier/loss", .must = "one_read_kernel", .never = "two_pass_kernel"}}}},
    Row{.slot = "classifier",
        .name = "two_pass",
        .is = variant_value<&VariantChoice::classifier, Classifier::two_pass>(),
        .help = "a block reads its row of logits twice",
        .launches = {{{.where = "classifier/loss", .must = "two_pass_kernel", .never = "one_read_kernel"}}}},

    Row{.slot = "zero_grad",
        .name = "overwrite",
        .is = variant_value<&VariantChoice::zero_grad, ZeroGrad::overwrite>(),
        .help = "the first micro-batch overwrites the gradients",
        .launches = {{{.where = "optimizer/zero_grad", .at_most = 0}}}},
    Row{.slot = "zero_grad",
        .name = "memset",
        .is = variant_value<&VariantChoice::zero_grad, ZeroGrad::memset>(),
        .help = "gradients are set to zero first, and every micro-batch adds",
        .launches = {{{.where = "optimizer/zero_grad", .must = "memset"}}}},

    Row{.slot = "grad_norm",
        .name = "whole",
        .is = variant_value<&VariantChoice::grad_norm, GradNorm::whole>(),
        .help = "the gradient norm is summed after the backward pass",
        .launches = {{{.where = "backward/grad_norm", .at_most = 0}, {.where = "optimizer/grad_norm", .must = "squares_kernel"}}}},
    Row{.slot = "grad_norm",
        .name = "beside_backward",
        .is = variant_value<&VariantChoice::grad_norm, GradNorm::beside_backward>(),
        .help = "each layer's part of the gradient norm is summed on a second branch, beside the backward of the layers before it",
        .refused = "with several ranks",
        .refuses = no_blocks,
        .launches = {{{.where = "backward/grad_norm", .must = "span_sums_kernel"},
                      {.where = "optimizer/grad_norm", .must = "span_sums_kernel", .never = "squares_kernel"}}}},

    Row{.slot = "adamw",
        .name = "all_tensors",
        .is = variant_value<&VariantChoice::adamw, AdamWKernel::all_tensors>(),
        .help = "one launch updates all parameters",
        .launches = {{{.where = "optimizer/adamw", .must = "all_tensors_kernel|split_masters_kernel", .never = "one_tensor_kernel"}}}},
    Row{.slot = "adamw",
        .name = "per_tensor",
        .is = variant_value<&VariantChoice::adamw, AdamWKernel::per_tensor>(),
        .help = "one launch for each tensor",
        .refused = "with several ranks",
        .refuses = no_blocks,
        .launches = {{{.where = "optimizer/adamw", .must = "one_tensor_kernel", .never = "all_tensors_kernel"}}}},

    Row{.slot = "masters",
        .name = "split",
        .is = variant_value<&VariantChoice::masters, Masters::split>(),
        .help = "a master weight is its bf16 weight and the 17 bits that it lacks: the same masters and weights, 1.75 bytes less to move",
        .refused = "with adamw=per_tensor or several ranks",
        .refuses = no_split_masters,
        .launches = {{{.where = "optimizer/adamw", .must = "split_masters_kernel", .never = "all_tensors_kernel|one_tensor_kernel"}}}},
    Row{.slot = "masters",
        .name = "fp32",
        .is = variant_value<&VariantChoice::masters, Masters::as_fp32>(),
        .help = "master weights are stored in fp32 beside the bf16 weights",
        .launches = {{{.where = "optimizer/adamw", .must = "all_tensors_kernel|one_tensor_kernel", .never = "split_masters_kernel"}}}},

    Row{.slot = "weight_gradients",
        .name = "fp32",
        .is = variant_value<&VariantChoice::weight_gradients, WeightGradients::as_fp32>(),
        .help = "all gradients are stored in fp32",
        .launches = {{{.where = "optimizer/grad_norm", .never = "two_arenas_squares_kernel"},
                      {.where = "optimizer/adamw", .never = "ArenaTable"}}}},
    Row{.slot = "weight_gradients",
        .name = "bf16",
        .is = variant_value<&VariantChoice::weight_gradients, WeightGradients::as_bf16>(),
        .help = "the products write the gradients of the blocks' matrices in bf16, where norm and update read them; all others, and wte's, "
                "stay in fp32",
        .refused =
            "with more than one micro-batch, several ranks, zero_grad=memset or adamw=per_tensor, and shapes for which cuBLASLt has no "
            "such product",
        .refuses = no_bf16_weight_gradients,
        .launches = {{{.where = "optimizer/grad_norm", .must = "two_arenas_squares_kernel"},
                      {.where = "optimizer/adamw", .must = "ArenaTable", .never = "one_tensor_kernel"}}}},

    Row{.slot = "communication",
        .name = "all_reduce_overlapped",
        .is = variant_value<&VariantChoice::communication, Communication::all_reduce_overlapped>(),
        .help = "ranks sum the gradients of a bucket while the backward pass goes on; each updates all weights",
        .unseen = kOneRank,
        .needs_ranks = true},
    Row{.slot = "communication",
        .name = "all_reduce",
        .is = variant_value<&VariantChoice::communication, Communication::all_reduce>(),
        .help = "ranks sum all gradients after the backward pass; each updates all weights",
        .unseen = kOneRank,
        .needs_ranks = true},
    Row{.slot = "communication",
        .name = "zero1",
        .is = variant_value<&VariantChoice::communication, Communication::zero1>(),
        .help =
            "a rank sums and updates its slice of every bucket and holds the optimizer state of those alone; then ranks gather the weights",
        .unseen = kOneRank,
        .needs_ranks = true},
    Row{.slot = "communication",
        .name = "zero1_ahead",
        .is = variant_value<&VariantChoice::communication, Communication::zero1_ahead>(),
        .help = "as zero1, but ranks gather the weights at the head of the next step, beside its forward pass",
        .unseen = kOneRank,
        .needs_ranks = true},

    Row{.slot = "embedding_exchange",
        .name = "dense",
        .is = variant_value<&VariantChoice::embedding_exchange, EmbeddingExchange::dense>(),
        .help = "wte's gradient travels when the embedding has added its part, as the last of all",
        .unseen = kOneRank,
        .needs_ranks = true},
    Row{.slot = "embedding_exchange",
        .name = "gathered_rows",
        .is = variant_value<&VariantChoice::embedding_exchange, EmbeddingExchange::gathered_rows>(),
        .help = "the classifier's part of wte's gradient travels first; at the end ranks gather the rows that the embedding adds up",
        .refused = "with communication=all_reduce",
        .refuses = no_gathered_rows,
        .unseen = kOneRank,
        .needs_ranks = true},

    Row{.slot = "exchange_start",
        .name = "when_ready",
        .is = variant_value<&VariantChoice::exchange_start, ExchangeStart::when_ready>(),
        .help = "a rank's collective begins when its own gradients are ready, and its blocks wait on the GPU for the other ranks",
        .unseen = kOneRank,
        .needs_ranks = true},
    Row{.slot = "exchange_start",
        .name = "together",
        .is = variant_value<&VariantChoice::exchange_start, ExchangeStart::together>(),
        .help = "ranks wait for each other in a collective of one block before each that has many",
        .unseen = kOneRank,
        .needs_ranks = true},

    Row{.slot = "gradient_reduction",
        .name = "fp32",
        .is = variant_value<&VariantChoice::gradient_reduction, GradientReduction::as_fp32>(),
        .help = "gradients travel between ranks in fp32",
        .unseen = kOneRank,
        .needs_ranks = true},
    Row{.slot = "gradient_reduction",
        .name = "bf16",
        .is = variant_value<&VariantChoice::gradient_reduction, GradientReduction::as_bf16>(),
        .help = "gradients travel between ranks rounded to bf16, at half the bytes",
        .unseen = kOneRank,
        .needs_ranks = true},

    Row{.slot = "step_launch",
        .name = "graph",
        .is = variant_value<&VariantChoice::step_launch, StepLaunch::graph>(),
        .help = "a step is captured once and launched as a CUDA graph; while counters are read, kernels are launched one by one",
        .launches = {{{.in_graph = 1}}}},
    Row{.slot = "step_launch",
        .name = "stream",
        .is = variant_value<&VariantChoice::step_launch, StepLaunch::stream>(),
        .help = "kernels are launched one by one",
        .launches = {{{.in_graph = 0}}}},

    Row{.slot = "graph_edges",
        .name = "programmatic",
        .is = variant_value<&VariantChoice::graph_edges, GraphEdges::programmatic>(),
        .help = "own kernels of the step graph are placed while the one before them ends, and wait for it there (Hopper and later)",
        .refused = "with step_launch=stream, on devices before sm_90, and with drivers older than CUDA 12.3",
        .refuses = no_programmatic_edges,
        .unseen = "edges of a graph are no launches"},
    Row{.slot = "graph_edges",
        .name = "full",
        .is = variant_value<&VariantChoice::graph_edges, GraphEdges::full>(),
        .help = "a kernel of the step graph starts when the one before it has ended",
        .unseen = "edges of a graph are no launches"},

    Row{.slot = "matmul_algorithm",
        .name = "search",
        .is = variant_value<&VariantChoice::matmul_algorithm, MatmulAlgorithm::search>(),
        .help = "the fastest of the library's algorithms, timed once per shape before the first step and remembered",
        .repeats = false,
        .unseen = "the library's first choice may be the fastest"},
    Row{.slot = "matmul_algorithm",
        .name = "heuristic",
        .is = variant_value<&VariantChoice::matmul_algorithm, MatmulAlgorithm::heuristic>(),
        .help = "the library's first choice",
        .unseen = "the library's first choice may be the fastest"},
};
static_assert(gpt2::rows_are_the_enumerators(kRows), "a variant has no row, or rows are not in the order of their enum");
static_assert(gpt2::covers_every_member(kRows), "a slot of VariantChoice has no rows");
static_assert(gpt2::rows_are_whole(kRows), "a row lacks its help, its launches or the words of its refusal");

}  // namespace

std::string Run::describe() const {
  const gpt2::ModelConfig& m = options.model;
  return fmt::format("C={} NH={} V={}, B={} T={}", m.channels, m.heads, m.vocab_size, options.batch_size, options.seq_len);
}

const VariantTable& variants() {
  static const VariantTable table("mixed", kRows);
  return table;
}

std::vector<gpt2::VariantInfo> variant_table() { return variants().slots(); }
VariantChoice choose_variants(const std::map<std::string, std::string>& wanted, bool deterministic) {
  return variants().choose(wanted, deterministic);
}
int variant_index(std::string_view slot, std::string_view variant) { return variants().find(slot, variant).is.value; }

}  // namespace mixed

// When a variant of the mixed trainer cannot run, and why: one function for each sentence, which the rows of variants.cpp name.
#include "mixed/variant_refusals.h"

#include <fmt/format.h>

#include "gpt2/distributed/communicator.h"
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
#include "mixed/product_tiles.h"

namespace mixed {
namespace {

using gpt2::Tensor;

bool rows_pack(const Run& run) { return run.options.model.channels % 8 == 0; }  // arenas and tensors begin at multiples of C

Refusal no_hopper_product(const Run& run) {
  return why_no_hopper_product(run.compute_capability_major, run.options.model.channels, run.compute_capability_minor);
}
// Why GELU's gradient cannot be kept in place of GELU's input.
Refusal no_gradient_of_gelu(const Run& run) {
  if (run.options.recompute != "none")
    return fmt::format("--recompute {} makes GELU again from its input, in whose place GELU's gradient would lie", run.options.recompute);
  return no_hopper_product(run);
}

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
  // One product of the step answers for all: families of kernels go by device and types.
  Refusal named_tiles() const {
    return run_.why_no_named_tiles(linear_forward_product(LinearForward::bias_epilogue, at<bf16>(0), at<bf16>(0),
                                                          parameter(Tensor::qkvw, 0), parameter(Tensor::qkvb, 0), rows(), C(), 3 * C()));
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
  Refusal wte_gradient() const {
    const auto arenas = gradient_arenas(WeightGradients::as_bf16, WteGradient::as_bf16, layout_);
    return run_.why_no_product(linear_weight_product(BiasGradient::column_sums, at<bf16>((*arenas)[Tensor::wte]), nullptr, at<bf16>(0),
                                                     at<bf16>(0), rows(), C(), run_.options.model.padded_vocab, false));
  }
  // The products that make the gradients of a layer's matrices and, with `bias_in_product`, of their biases. The first micro-batch writes a
  // bias gradient where it belongs, later ones to scratch memory, and add.
  Refusal weight_gradients(WeightGradients storage, bool bias_in_product, int64_t layer) const {
    const auto arenas = gradient_arenas(storage, WteGradient::as_fp32, layout_);
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

constexpr std::string_view kByBlocks = "ranks take norm and update in blocks, which every number of ranks sums in one order";

}  // namespace

Refusal no_residual_product(const Run& run, const VariantChoice& choice) {
  const Products p(run);
  return p.in_every_layer([&](int64_t layer) -> Refusal {
    const auto both = [&]<class R>(R) {
      auto why = p.residual<R>(Tensor::attprojw, Tensor::attprojb, layer, p.C());
      return why ? why : p.residual<R>(Tensor::fcprojw, Tensor::fcprojb, layer, 4 * p.C());
    };
    switch (choice.residual_stream) {
      case ResidualStream::split:
        return "no product of the library adds to a split residual stream";
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
  return no_gradient_of_gelu(run);
}
Refusal no_hopper_gelu_backward(const Run& run, const VariantChoice& choice) {
  switch (choice.gelu_forward) {
    case Gelu::hopper:
      return std::nullopt;
    case Gelu::matmul_epilogue:
    case Gelu::kernel:
      break;
  }
  if (auto why = no_gradient_of_gelu(run)) return why;
  return "only gelu_forward=hopper keeps GELU's gradient, which it reads";
}
Refusal no_hopper_head(const Run& run, const VariantChoice&) {
  if (run.options.model.padded_vocab % 8 != 0)
    return fmt::format("Vp = {} is no multiple of 8, which rows of exponentials must be", run.options.model.padded_vocab);
  return no_hopper_product(run);
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
// weight_gradients is settled later, and its bf16 gives way where the library cannot do both.
Refusal no_bias_gradient_product(const Run& run, const VariantChoice& choice) {
  VariantChoice with = choice;
  with.bias_gradient = BiasGradient::matmul_epilogue;
  if (choice.weight_gradients == WeightGradients::as_bf16 && !no_bf16_weight_gradients(run, with)) return std::nullopt;
  const Products p(run);
  return p.in_every_layer([&](int64_t layer) { return p.weight_gradients(WeightGradients::as_fp32, true, layer); });
}
// attention_backward is settled after this slot: what stands in `choice` is what was asked for, or the default, which the shape may refuse.
Refusal no_attention_fold(const Run& run, const VariantChoice& choice) {
  if (auto why = no_fold(run, choice)) return why;
  switch (choice.attention_backward) {
    case AttentionBackward::hopper:
      if (const auto why = no_hopper_attention(run, choice)) return "only attention_backward=hopper sums columns: " + *why;
      return std::nullopt;
    case AttentionBackward::cudnn:
    case AttentionBackward::cudnn_deterministic:
    case AttentionBackward::flash:
    case AttentionBackward::unfused:
      break;
  }
  return "only attention_backward=hopper sums columns";
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
Refusal no_hopper_attention(const Run& run, const VariantChoice&) {
  return hopper::why_no_attention(run.compute_capability_major, run.options.model.head_size(), run.compute_capability_minor);
}
Refusal no_cudnn_attention(const Run& run, const VariantChoice& choice) {
  return run.why_no_cudnn_attention(choice.attention_backward == AttentionBackward::cudnn_deterministic);
}
Refusal no_cudnn_backward(const Run& run, const VariantChoice&) { return run.why_no_cudnn_attention(false); }
Refusal no_cudnn_deterministic(const Run& run, const VariantChoice&) { return run.why_no_cudnn_attention(true); }
Refusal no_flash(const Run& run, const VariantChoice&) { return why_not_flash(run.options.model.head_size()); }
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
// Rows are as wide as the residual gradient, or as fp32 where that is split. A rank sends all but its own part either way.
namespace {
Refusal why_dense_rather_than(const Run& run, int64_t bytes) {
  if (run.options.communicator == nullptr) return std::nullopt;
  const int64_t rows = run.options.communicator->world().size * run.options.batch_size * run.options.seq_len;
  if (rows * bytes <= run.options.model.padded_vocab * 4) return std::nullopt;
  return fmt::format("the embedding's gradient of {} tokens is more bytes than wte's of {} rows", rows, run.options.model.padded_vocab);
}
}  // namespace
Refusal why_dense_embedding(const Run& run, const VariantChoice& choice) {
  return why_dense_rather_than(run, choice.residual_gradient == ResidualGradient::as_bf16 ? 2 : 4);
}
Refusal why_dense_rather_than_bf16_rows(const Run& run, const VariantChoice&) { return why_dense_rather_than(run, 2); }
Refusal no_split_masters(const Run&, const VariantChoice& choice) {
  switch (choice.adamw) {
    case AdamWKernel::all_tensors:
      return std::nullopt;
    case AdamWKernel::per_tensor:
      break;
  }
  return "adamw=per_tensor has no kernel for split masters";
}
Refusal no_narrow_moments(const Run&, const VariantChoice& choice) {
  switch (choice.adamw) {
    case AdamWKernel::all_tensors:
      return std::nullopt;
    case AdamWKernel::per_tensor:
      break;
  }
  return "adamw=per_tensor has no kernel for moments in less than fp32";
}
Refusal no_bf16_weight_gradients(const Run& run, const VariantChoice& choice) {
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
  const bool bias_in_product = choice.bias_gradient == BiasGradient::matmul_epilogue;
  return p.in_every_layer([&](int64_t layer) { return p.weight_gradients(WeightGradients::as_bf16, bias_in_product, layer); });
}
Refusal no_bf16_wte_gradient(const Run& run, const VariantChoice& choice) {
  if (run.options.communicator != nullptr) return "several ranks add up wte's gradient in fp32";
  switch (choice.weight_gradients) {
    case WeightGradients::as_bf16:
      return Products(run).wte_gradient();
    case WeightGradients::as_fp32:
      break;
  }
  return "weight_gradients=fp32 keeps no gradient in bf16";
}
Refusal no_programmatic_edges(const Run& run, const VariantChoice& choice) {
  if (run.compute_capability_major < 9) return "devices before sm_90 have no programmatic edges";
  if (!run.kernels_wait) return "this program's kernels were compiled for devices before sm_90, where none waits by itself";
  if (run.why_no_kernel_names) return run.why_no_kernel_names;
  switch (choice.step_launch) {
    case StepLaunch::graph:
      return std::nullopt;
    case StepLaunch::stream:
      break;
  }
  return "step_launch=stream has no graph";
}
Refusal no_fitting_tiles(const Run& run, const VariantChoice&) {
  if (auto why = why_no_tiles(run.compute_capability_major)) return why;
  return Products(run).named_tiles();
}
Refusal no_energy_counter(const Run& run, const VariantChoice&) { return run.why_no_energy_counter(); }
Refusal no_one_read(const Run& run, const VariantChoice&) {
  const int64_t Vp = run.options.model.padded_vocab;
  return gpt2::ops::why_not<bf16>(Classifier::one_read, Vp, Vp % 8 == 0, run.shared_bytes_per_block);
}

}  // namespace mixed

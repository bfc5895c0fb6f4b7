// Which parts a fused op takes over, and what then stays on the chip.
#include "mixed/fused_work.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "mixed/memory_plan.h"

namespace mixed {
namespace {

using gpt2::kNoLayer;
using gpt2::Op;
using gpt2::OpWork;
using gpt2::Pass;

class Work {
 public:
  explicit Work(std::vector<OpWork> all) : all_(std::move(all)) {}

  void spare(Pass pass, int layer, Op op, double bytes) { find(pass, layer, op)->min_bytes -= bytes; }
  void split_off(Pass pass, int layer, Op op, Pass to, int to_layer, double bytes) {
    spare(pass, layer, op, bytes);
    all_.push_back({to, to_layer, op, 0, bytes});
  }
  void remove(Pass pass, int layer, Op op) { all_.erase(find(pass, layer, op)); }

  // `part` joins `whole`, and `kept_bytes` that one of them wrote and the other read stay on the chip.
  void fuse(Pass pass, int part_layer, Op part, int whole_layer, Op whole, double kept_bytes) {
    const auto from = find(pass, part_layer, part);
    const OpWork moved = *from;
    all_.erase(from);
    OpWork& into = *find(pass, whole_layer, whole);
    into.flops += moved.flops;
    into.min_bytes += moved.min_bytes - kept_bytes;
  }

  std::vector<OpWork> take() { return std::move(all_); }

 private:
  std::vector<OpWork>::iterator find(Pass pass, int layer, Op op) {
    return std::find_if(all_.begin(), all_.end(), [&](const OpWork& w) { return w.pass == pass && w.layer == layer && w.op == op; });
  }
  std::vector<OpWork> all_;
};

}  // namespace

std::vector<OpWork> fused_work(const gpt2::TrainerOptions& o, const VariantChoice& variants, int64_t micro_batches) {
  Work work(gpt2::step_work(o.model, o.batch_size, o.seq_len, micro_batches, gpt2::widths_mixed()));
  const int layers = static_cast<int>(o.model.layers);
  constexpr double kBf16 = 2;
  // One (rows, C) tensor of every micro-batch.
  const double tensor =
      kBf16 * static_cast<double>(o.batch_size * o.seq_len) * static_cast<double>(o.model.channels) * static_cast<double>(micro_batches);
  switch (variants.zero_grad) {
    case ZeroGrad::overwrite:
      work.remove(Pass::optimizer, kNoLayer, Op::zero_grad);
      break;
    case ZeroGrad::memset:
      break;
  }
  const gpt2::TensorLayout layout = gpt2::tensor_layout(o.model);
  const auto arenas = gradient_arenas(variants.weight_gradients, variants.wte_gradient, layout);
  if (arenas) {  // the product writes 2 bytes of 4, norm and update read 2 of 4
    using gpt2::Tensor;
    for (const auto& [op, weight] : std::initializer_list<std::pair<Op, Tensor>>{
             {Op::qkv, Tensor::qkvw}, {Op::attproj, Tensor::attprojw}, {Op::mlp_up, Tensor::fcw}, {Op::mlp_down, Tensor::fcprojw}})
      for (int l = 0; l < layers; ++l) work.spare(Pass::backward, l, op, kBf16 * static_cast<double>(layout[weight].per_layer));
    if (arenas->is_narrow(Tensor::wte)) {  // the embedding reads and writes the rows of the batch's tokens
      const auto touched = static_cast<double>(std::min(o.batch_size * o.seq_len, o.model.vocab_size) * o.model.channels);
      work.spare(Pass::backward, kNoLayer, Op::lm_head, kBf16 * static_cast<double>(layout[Tensor::wte].size));
      work.spare(Pass::backward, kNoLayer, Op::embedding, 2 * kBf16 * touched);
    }
    for (const Op op : {Op::grad_norm, Op::adamw})
      work.spare(Pass::optimizer, kNoLayer, op, kBf16 * static_cast<double>(arenas->narrow_elements));
  }
  switch (variants.grad_norm) {
    case GradNorm::whole:
      break;
    case GradNorm::beside_backward: {
      double of_a_layer = 0;
      for (const gpt2::TensorRow& row : gpt2::kTensorTable)
        if (row.per_layer) of_a_layer += (arenas && arenas->is_narrow(row.id) ? 2.0 : 4.0) * static_cast<double>(layout[row.id].per_layer);
      for (int l = 0; l < layers; ++l) work.split_off(Pass::optimizer, kNoLayer, Op::grad_norm, Pass::backward, l, of_a_layer);
      break;
    }
  }
  switch (variants.masters) {
    case Masters::as_fp32:
      break;
    case Masters::split: {  // 4 + 4 bytes of the master and 2 of the weight are 2 + 2 of each half and a bit to read and write
      constexpr double kSpared = 10.0 - 8.25;
      work.spare(Pass::optimizer, kNoLayer, Op::adamw, kSpared * static_cast<double>(layout.total));
      break;
    }
  }
  switch (variants.moments) {
    case Moments::as_fp32:
      break;
    case Moments::split: {  // 4 + 4 bytes of each are 3 + 3
      constexpr double kSpared = 16.0 - 12.0;
      work.spare(Pass::optimizer, kNoLayer, Op::adamw, kSpared * static_cast<double>(layout.total));
      break;
    }
    case Moments::as_16_bits: {  // they are 2 + 2
      constexpr double kSpared = 16.0 - 8.0;
      work.spare(Pass::optimizer, kNoLayer, Op::adamw, kSpared * static_cast<double>(layout.total));
      break;
    }
  }
  switch (variants.lm_head) {
    case LmHead::logits:
      break;
    case LmHead::hopper: {  // logits are not read again; lnf's output is, and written, and so is the gradient that takes its place
      const double logits = tensor / static_cast<double>(o.model.channels) * static_cast<double>(o.model.padded_vocab);
      work.spare(Pass::classifier, kNoLayer, Op::loss, 2 * logits - 2 * tensor);
      work.spare(Pass::backward, kNoLayer, Op::lm_head, -2 * tensor);
      break;
    }
  }
  for (int l = 0; l < layers; ++l) {
    // gelu reads what mlp_up has just made; it is still written, for the backward pass.
    switch (variants.gelu_forward) {
      case Gelu::matmul_epilogue:
      case Gelu::hopper:
        work.fuse(Pass::forward, l, Op::gelu, l, Op::mlp_up, 4 * tensor);
        break;
      case Gelu::kernel:
        break;
    }
    switch (variants.gelu_backward) {
      case Gelu::matmul_epilogue:
      case Gelu::hopper:  // the gradient of gelu's output is neither written nor read
        if (o.recompute == "none") work.fuse(Pass::backward, l, Op::gelu, l, Op::mlp_down, 8 * tensor);
        break;
      case Gelu::kernel:
        break;
    }
    switch (variants.residual) {
      case Residual::fused_layernorm:  // the layernorm does not read the sum that it has just written
        work.fuse(Pass::forward, l, Op::residual1, l, Op::ln2, tensor);
        if (l + 1 < layers)
          work.fuse(Pass::forward, l, Op::residual2, l + 1, Op::ln1, tensor);
        else
          work.fuse(Pass::forward, l, Op::residual2, kNoLayer, Op::lnf, tensor);
        break;
      case Residual::separate:
        break;
      case Residual::matmul_epilogue:  // the branch is neither written nor read
        work.fuse(Pass::forward, l, Op::residual1, l, Op::attproj, 2 * tensor);
        work.fuse(Pass::forward, l, Op::residual2, l, Op::mlp_down, 2 * tensor);
        break;
    }
  }
  return work.take();
}

}  // namespace mixed

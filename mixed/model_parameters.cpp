// What the model allocates, and what it does with its parameters around the ops of a step: masters in either form, the norm of their
// gradients in pieces, and what it exchanges with other ranks.
#include <algorithm>
#include <vector>

#include "base/counter_rng.h"
#include "gpt2/op_range.h"
#include "gpt2/ops/arena_norm.cuh"
#include "gpt2/ops/encoder.cuh"
#include "gpt2/ops/grad_norm.cuh"
#include "mixed/kernels/fill.cuh"
#include "mixed/model.h"

namespace mixed {

namespace ops = gpt2::ops;
using gpt2::kNoLayer;
using gpt2::Op;
using gpt2::OpRange;
using gpt2::Pass;

namespace {
int64_t moment_up_elements(const VariantChoice& variants, const MemoryPlan& plan) {
  return variants.moments != Moments::as_fp32 ? plan.divided_elements() : 0;
}
int64_t moment_low_elements(const VariantChoice& variants, const MemoryPlan& plan) {
  return variants.moments == Moments::split ? plan.divided_elements() : 0;
}
int64_t split_master_elements(const VariantChoice& variants, const MemoryPlan& plan) {
  return variants.masters == Masters::split ? plan.divided_elements() : 0;
}
}  // namespace

Model::Model(const gpt2::TrainerOptions& options, const VariantChoice& variants, const MemoryPlan& plan, cudaStream_t stream)
    : StepModel(plan, options, variants.masters == Masters::as_fp32 ? Fp32::masters : Fp32::none, stream,
                variants.moments == Moments::as_fp32),
      config_(options.model),
      variants_(variants),
      rounding_(options.weight_rounding == "stochastic" ? ops::Rounding::stochastic : ops::Rounding::nearest),
      plan_(plan),
      B_(options.batch_size),
      T_(options.seq_len),
      C_(options.model.channels),
      weights_(plan.whole_elements()),
      masters_low_(split_master_elements(variants, plan)),
      masters_up_(ops::split_up_bytes(split_master_elements(variants, plan))),
      moment_up_{gpt2::cuda::DeviceBuffer<bf16>(moment_up_elements(variants, plan)),
                 gpt2::cuda::DeviceBuffer<bf16>(moment_up_elements(variants, plan))},
      moment_low_{gpt2::cuda::DeviceBuffer<ops::LowByte>(moment_low_elements(variants, plan)),
                  gpt2::cuda::DeviceBuffer<ops::LowByte>(moment_low_elements(variants, plan))},
      activations_(plan.activation_bytes),
      scratch_(plan.scratch_bytes),
      embedding_scratch_(plan.embedding_scratch_bytes),
      workspace_(kMatmulWorkspaceBytes),
      matmul_(variants.matmul_algorithm, workspace_.data()),
      squares_(variants.grad_norm == GradNorm::beside_backward ? (options.model.layers + 1) * ops::kPartialsOfSpans : 0) {}

// ---- masters --------------------------------------------------------------------------------------------------------------

void Model::round_weights(bool stochastic) {
  const ops::Rounding rounding = stochastic ? ops::Rounding::stochastic : ops::Rounding::nearest;
  if (exchange_) return with_masters([&](const auto& masters) { exchange_->round_weights(rounding, masters, scalars()); });
  const OpRange range(Pass::other, kNoLayer, Op::copy);
  switch (variants_.masters) {
    case Masters::as_fp32:
      ops::round_parameters(rounding, weights_.data(), masters_.data(), plan_.parameter_count, scalars(), stream_);
      break;
    case Masters::split:
      ops::round_split_masters(rounding, split_masters(), plan_.parameter_count, scalars(), stream_);
      break;
  }
}

void Model::zero_split_masters() {
  STEPSCOPE_CUDA_CHECK(cudaMemsetAsync(weights_.data(), 0, static_cast<size_t>(weights_.bytes()), stream_));
  STEPSCOPE_CUDA_CHECK(cudaMemsetAsync(masters_low_.data(), 0, static_cast<size_t>(masters_low_.bytes()), stream_));
  STEPSCOPE_CUDA_CHECK(cudaMemsetAsync(masters_up_.data(), 0, static_cast<size_t>(masters_up_.bytes()), stream_));
}

// One rank has room for them where only steps have something.
void Model::in_pieces(const std::function<void(float* staging, int64_t first, int64_t count)>& use) {
  auto* staging = reinterpret_cast<float*>(activations_.data());
  const int64_t most = activations_.bytes() / static_cast<int64_t>(sizeof(float)) / 8 * 8;  // eight share a byte of masters_up_
  for (int64_t first = 0; first < plan_.parameter_count; first += most) use(staging, first, std::min(most, plan_.parameter_count - first));
  STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(stream_));
}

void Model::read_in_pieces(std::span<float> values, gpt2::State which, const Bring& bring) {
  if (exchange_)
    return exchange_->read(values, held(which),
                           [&](float* to, const ops::GradientExchange::Stretch& s) { bring(to, s.held, s.arena, s.count); });
  in_pieces([&](float* staging, int64_t first, int64_t count) {
    bring(staging, first, first, count);
    STEPSCOPE_CUDA_CHECK(
        cudaMemcpyAsync(values.data() + first, staging, static_cast<size_t>(count) * sizeof(float), cudaMemcpyDeviceToHost, stream_));
  });
}

void Model::write_in_pieces(std::span<const float> values, gpt2::State which, const Take& take) {
  if (exchange_)
    return exchange_->write(values, held(which),
                            [&](const float* from, const ops::GradientExchange::Stretch& s) { take(from, s.held, s.arena, s.count); });
  in_pieces([&](float* staging, int64_t first, int64_t count) {
    STEPSCOPE_CUDA_CHECK(
        cudaMemcpyAsync(staging, values.data() + first, static_cast<size_t>(count) * sizeof(float), cudaMemcpyHostToDevice, stream_));
    take(staging, first, first, count);
  });
}

void Model::read_split_masters(std::span<float> values) {
  read_in_pieces(values, gpt2::State::parameters, [&](float* to, int64_t held, int64_t arena, int64_t count) {
    ops::join_masters(to, split_masters_by_held(held, arena), held, count, stream_);
  });
}

// Ranks have each other's weights then.
void Model::write_split_masters(std::span<const float> values) {
  write_in_pieces(values, gpt2::State::parameters, [&](const float* from, int64_t held, int64_t arena, int64_t count) {
    ops::split_masters(split_masters_by_held(held, arena), from, held, count, stream_);
  });
  if (!exchange_) return;
  exchange_->gather_all(weights_.data());
  STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(stream_));
}

// ---- moments that are not kept in fp32 --------------------------------------------------------------------------------------

void Model::zero_narrow_moments() {
  for (const auto& up : moment_up_) STEPSCOPE_CUDA_CHECK(cudaMemsetAsync(up.data(), 0, static_cast<size_t>(up.bytes()), stream_));
  for (const auto& low : moment_low_) STEPSCOPE_CUDA_CHECK(cudaMemsetAsync(low.data(), 0, static_cast<size_t>(low.bytes()), stream_));
}

void Model::read_narrow_moments(gpt2::State which, std::span<float> values) {
  const bool first = which == gpt2::State::adam_m;
  const size_t moment = first ? 0 : 1;
  read_in_pieces(values, which, [&](float* to, int64_t held, int64_t, int64_t count) {
    switch (variants_.moments) {
      case Moments::split:
        return ops::join_values(to, moment_up_[moment].data(), moment_low_[moment].data(), held, count, stream_);
      case Moments::as_16_bits:
        return first ? ops::widen_moment(to, short_moments().m, held, count, stream_)
                     : ops::widen_moment(to, short_moments().v, held, count, stream_);
      case Moments::as_fp32:
        break;
    }
  });
}

void Model::write_narrow_moments(gpt2::State which, std::span<const float> values) {
  const bool first = which == gpt2::State::adam_m;
  const size_t moment = first ? 0 : 1;
  write_in_pieces(values, which, [&](const float* from, int64_t held, int64_t, int64_t count) {
    switch (variants_.moments) {
      case Moments::split:
        return ops::split_values(moment_up_[moment].data(), moment_low_[moment].data(), from, held, count, stream_);
      case Moments::as_16_bits:
        return first ? ops::shorten_moment(short_moments().m, from, held, count, stream_)
                     : ops::shorten_moment(short_moments().v, from, held, count, stream_);
      case Moments::as_fp32:
        break;
    }
  });
}

// ---- gradients of which some lie in bf16 ----------------------------------------------------------------------------------

void Model::weight_gradient(gpt2::Tensor weight, int layer, float* bias, const bf16* dout, const bf16* inp, int64_t in,
                            int64_t out_channels, bool accumulate) {
  const auto into = [&](auto* dweight) {
    linear_backward_weight(variants_.bias_gradient, matmul_, dweight, bias, dout, inp, rows(), in, out_channels, accumulate, scratch(),
                           stream_);
  };
  switch (variants_.weight_gradients) {
    case WeightGradients::as_fp32:
      return into(gradient(weight, layer));
    case WeightGradients::as_bf16:
      return into(narrow_gradient(weight, layer));
  }
}

void Model::zero_narrow_gradients() {
  STEPSCOPE_CUDA_CHECK(cudaMemsetAsync(narrow_gradients_.data(), 0, static_cast<size_t>(narrow_gradients_.bytes()), stream_));
}

// The host holds the bf16 arena for as long as it converts.
void Model::read_gradients(std::span<float> values) {
  if (exchange_)
    return read_in_pieces(values, gpt2::State::gradients, [&](float* to, int64_t, int64_t arena, int64_t count) {
      const ops::BlockGradients g = block_gradients();
      if (arena < g.narrow_elements) return ops::widen_gradients(to, g.narrow + arena, count, stream_);
      STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(to, g.wide + (arena - g.narrow_elements), static_cast<size_t>(count) * sizeof(float),
                                           cudaMemcpyDeviceToDevice, stream_));
    });
  std::vector<bf16> narrow(static_cast<size_t>(narrow_gradients_.size()));
  STEPSCOPE_CUDA_CHECK(
      cudaMemcpyAsync(narrow.data(), narrow_gradients_.data(), narrow.size() * sizeof(bf16), cudaMemcpyDeviceToHost, stream_));
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    if (gradient_arenas_->is_narrow(row.id)) continue;
    const auto to = values.subspan(static_cast<size_t>(layout_[row.id].offset), static_cast<size_t>(layout_[row.id].size));
    STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(to.data(), gradient(row.id), to.size_bytes(), cudaMemcpyDeviceToHost, stream_));
  }
  STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(stream_));
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    if (!gradient_arenas_->is_narrow(row.id)) continue;
    const auto from = std::span(narrow).subspan(static_cast<size_t>(gradient_offset(row.id)), static_cast<size_t>(layout_[row.id].size));
    std::transform(from.begin(), from.end(), values.begin() + layout_[row.id].offset, [](bf16 x) { return __bfloat162float(x); });
  }
}

void Model::write_gradients(std::span<const float> values) {
  if (exchange_)
    return write_in_pieces(values, gpt2::State::gradients, [&](const float* from, int64_t, int64_t arena, int64_t count) {
      const ops::BlockGradients g = block_gradients();
      if (arena < g.narrow_elements) return ops::narrow_gradients(g.narrow + arena, from, count, stream_);
      STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(g.wide + (arena - g.narrow_elements), from, static_cast<size_t>(count) * sizeof(float),
                                           cudaMemcpyDeviceToDevice, stream_));
    });
  std::vector<bf16> narrow(static_cast<size_t>(narrow_gradients_.size()));
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    const auto from = values.subspan(static_cast<size_t>(layout_[row.id].offset), static_cast<size_t>(layout_[row.id].size));
    if (gradient_arenas_->is_narrow(row.id))
      std::transform(from.begin(), from.end(), narrow.begin() + gradient_offset(row.id), [](float x) { return __float2bfloat16_rn(x); });
    else
      STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(gradient(row.id), from.data(), from.size_bytes(), cudaMemcpyHostToDevice, stream_));
  }
  STEPSCOPE_CUDA_CHECK(
      cudaMemcpyAsync(narrow_gradients_.data(), narrow.data(), narrow.size() * sizeof(bf16), cudaMemcpyHostToDevice, stream_));
  STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(stream_));
}

// ---- what runs beside the backward ----------------------------------------------------------------------------------------

void Model::sort_tokens() {
  const auto sort = [&](const int32_t* tokens, int64_t count, cudaStream_t on) {
    const OpRange range(Pass::backward, kNoLayer, Op::embedding);
    ops::sort_by_token(tokens, count, C_, config_.vocab_size, embedding_scratch_.data(), on);
  };
  if (exchange_ && exchange_->gathers_rows()) return exchange_->with_tokens(sort);
  tokens_are_there_.order(stream_, side_.get());
  sort(inputs(), rows(), side_.get());
  tokens_are_sorted_.record(side_.get());
}

// The side stream waits for all that was queued so far, and reads gradients that nothing writes any more in this micro-batch.
void Model::sum_squares_beside(int layer) {
  if (variants_.grad_norm != GradNorm::beside_backward) return;
  const OpRange range(Pass::backward, layer, Op::grad_norm);
  ops::GradientSpans spans;
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    if (!row.per_layer) continue;
    if (gradient_arenas_ && gradient_arenas_->is_narrow(row.id)) spans.narrow |= 1u << spans.count;
    spans.first[spans.count] = gradient_offset(row.id, layer);
    spans.size[spans.count++] = layout_[row.id].per_layer;
  }
  layer_is_final_.record(stream_);
  STEPSCOPE_CUDA_CHECK(cudaStreamWaitEvent(side_.get(), layer_is_final_.get(), 0));
  ops::squares_of_spans(squares_.data() + layer * ops::kPartialsOfSpans, gradients_.data(), spans, side_.get(), narrow_gradients_.data());
}

// At the end of every backward: the next micro-batch writes gradients again, and a captured piece must end on one stream.
void Model::join_squares() {
  if (variants_.grad_norm != GradNorm::beside_backward) return;
  squares_are_summed_.record(side_.get());
  STEPSCOPE_CUDA_CHECK(cudaStreamWaitEvent(stream_, squares_are_summed_.get(), 0));
}

// The layers' parts are summed; what is outside the layers comes now.
void Model::finish_squares() {
  ops::GradientSpans spans;
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    if (row.per_layer) continue;
    if (gradient_arenas_ && gradient_arenas_->is_narrow(row.id)) spans.narrow |= 1u << spans.count;
    spans.first[spans.count] = gradient_offset(row.id);
    spans.size[spans.count++] = layout_[row.id].size;
  }
  ops::squares_of_spans(squares_.data() + config_.layers * ops::kPartialsOfSpans, gradients_.data(), spans, stream_,
                        narrow_gradients_.data());
  ops::finish_grad_norm(stats(), squares_.data(), squares_.size(), scalars(), stream_);
}

void Model::norm_of_gradients() {
  switch (variants_.grad_norm) {
    case GradNorm::whole:
      if (gradient_arenas_)
        ops::grad_norm(stats(), gradients_in_arenas(), scalars(), scratch_.data(), stream_);
      else
        ops::grad_norm<bf16>(stats(), gradients_.data(), layout_.total, scalars(), scratch_.data(), stream_);
      break;
    case GradNorm::beside_backward:
      finish_squares();
      break;
  }
}

// ---- before the first step, between steps, with other ranks ------------------------------------------------------------------

void Model::rehearse() {
  // Of GPT-2's own size, so that activations and with them the power that products draw are like those of training.
  fill_uniform(weights_.data(), weights_.size(), 0.035f, stream_);
  gpt2::cuda::PinnedBuffer<unsigned char> input(upload_bytes());
  auto* scalars = new (input.data()) ops::StepScalars;
  scalars->loss_scale = 1.0 / static_cast<double>(rows());
  scalars->gradient_scale = static_cast<float>(scalars->loss_scale);
  auto* token = reinterpret_cast<int32_t*>(input.data() + ops::kScalarBytes);
  gpt2::CounterRng random(1);
  for (int64_t i = 0; i < plan_.token_count; ++i)
    token[i] = static_cast<int32_t>(random.uniform() * static_cast<double>(config_.vocab_size));
  matmul_.begin_rehearsal();
  upload(input.data());
  if (trains_without_logits()) forward();  // whose product only evaluation and sampling launch
  forward_to_loss();
  loss(false, true);
  backward(begin_gradients());
  matmul_.end_rehearsal();
  STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(stream_));
}

bool Model::begin_gradients() {
  switch (variants_.zero_grad) {
    case ZeroGrad::overwrite:
      return false;
    case ZeroGrad::memset:
      break;
  }
  zero_gradients();
  return true;
}

void Model::gather_weights_ahead() { exchange_->gather_ahead(weights_.data()); }
void Model::gather_all_weights() { exchange_->gather_all(weights_.data()); }
void Model::warm_up_exchange() { exchange_->warm_up(weights_.data(), block_gradients(), stats(), scalars()); }

}  // namespace mixed

#include "gpt2/ops/step_model.h"

#include "gpt2/op_range.h"

namespace gpt2::ops {
namespace {

int64_t fp32_elements(const PlannedMemory& plan, StepModel::Fp32 parameters) {
  switch (parameters) {
    case StepModel::Fp32::weights:
      return plan.whole_elements();
    case StepModel::Fp32::masters:
      return plan.divided_elements();
    case StepModel::Fp32::none:
      break;
  }
  return 0;
}

}  // namespace

StepModel::StepModel(const PlannedMemory& plan, const TrainerOptions& options, Fp32 parameters, cudaStream_t stream, bool fp32_moments)
    : layout_(plan.layout),
      gradient_arenas_(plan.gradient_arenas),
      rows_(options.batch_size * options.seq_len),
      parameters_(parameters),
      stream_(stream),
      exchange_(plan.ranks ? std::make_unique<GradientExchange>(*plan.ranks, *options.communicator, stream) : nullptr),
      masters_(fp32_elements(plan, parameters)),
      gradients_(plan.wide_gradient_elements()),
      adam_m_(fp32_moments ? plan.divided_elements() : 0),
      adam_v_(fp32_moments ? plan.divided_elements() : 0),
      narrow_gradients_(plan.narrow_gradient_elements()),
      input_(upload_bytes()),
      stats_(1) {}

float* StepModel::state(State which) const {
  switch (which) {
    case State::parameters:
      return masters_.data();
    case State::gradients:
      return gradients_.data();
    case State::adam_m:
      return adam_m_.data();
    case State::adam_v:
      return adam_v_.data();
  }
  return nullptr;
}

int64_t StepModel::state_elements(State which) const {
  switch (which) {
    case State::parameters:
      return masters_.size();
    case State::gradients:
      return gradients_.size();
    case State::adam_m:
    case State::adam_v:
      break;
  }
  return adam_m_.size();
}

Held StepModel::held(State which) const {
  if (!exchange_ || !exchange_->plan().divides_the_update()) return Held::whole;
  switch (which) {
    case State::parameters:
      return parameters_ == Fp32::weights ? Held::whole : Held::own_slices;
    case State::gradients:
      return Held::own_slices_of_whole;
    case State::adam_m:
    case State::adam_v:
      break;
  }
  return Held::own_slices;
}

void StepModel::begin_exchange() {
  if (exchange_) exchange_->begin(block_gradients(), inputs());
}
void StepModel::end_exchange() {
  if (exchange_) exchange_->end();
}

void StepModel::norm_over_ranks() {
  if (exchange_) exchange_->norm(block_gradients(), stats_.data(), scalars());
}

void StepModel::upload(const unsigned char* pinned) {
  const OpRange range(Pass::other, kNoLayer, Op::copy);
  STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(input_.data(), pinned, static_cast<size_t>(upload_bytes()), cudaMemcpyHostToDevice, stream_));
}

void StepModel::zero_gradients() {
  const OpRange range(Pass::optimizer, kNoLayer, Op::zero_grad);
  STEPSCOPE_CUDA_CHECK(cudaMemsetAsync(gradients_.data(), 0, static_cast<size_t>(gradients_.bytes()), stream_));
}

}  // namespace gpt2::ops

#include "gpt2/ops/step_model.h"

#include "gpt2/op_range.h"

namespace gpt2::ops {

StepModel::StepModel(int64_t parameters, int64_t rows, cudaStream_t stream)
    : rows_(rows),
      stream_(stream),
      masters_(parameters),
      gradients_(parameters),
      adam_m_(parameters),
      adam_v_(parameters),
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

void StepModel::upload(const unsigned char* pinned) {
  const OpRange range(Pass::other, kNoLayer, Op::copy);
  STEPSCOPE_CUDA_CHECK(cudaMemcpyAsync(input_.data(), pinned, static_cast<size_t>(upload_bytes()), cudaMemcpyHostToDevice, stream_));
}

void StepModel::zero_gradients() {
  const OpRange range(Pass::optimizer, kNoLayer, Op::zero_grad);
  STEPSCOPE_CUDA_CHECK(cudaMemsetAsync(gradients_.data(), 0, static_cast<size_t>(gradients_.bytes()), stream_));
}

}  // namespace gpt2::ops

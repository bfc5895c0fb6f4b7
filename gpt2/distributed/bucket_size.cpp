#include "gpt2/distributed/bucket_size.h"

#include <algorithm>

#include "gpt2/tensor_table.h"

namespace gpt2::distributed {
namespace {

// With P parameters in a layer its backward pass takes 4 P FLOP for each row, at some 500 TFLOP/s; the others' gradients are 2 P (L - 1) bytes, of
// which two ranks exchange half each way at 270 GB/s. Both take as long at 460 rows for each layer. Twice that leaves room for the sums, and for
// more ranks, which exchange more than half.
constexpr int64_t kRowsThatHideALayer = 1000;

// An H200 takes 60 ms or more for them, whichever trainer: ten more than its links take to fall asleep.
constexpr double kFlopOfALongStep = 3e13;

// Rounded down, so that layer 1 closes the bucket (bucket_plan.h).
int64_t mib_without_layer_0(const ModelConfig& model) {
  const TensorLayout layout = tensor_layout(model);
  int64_t layer = 0;
  for (const TensorRow& row : kTensorTable)
    if (row.per_layer) layer += layout[row.id].per_layer;
  return (model.layers - 1) * layer * static_cast<int64_t>(sizeof(float)) >> 20;
}

}  // namespace

int64_t bucket_mib_for(const ModelConfig& model, const StepSize& step, std::string_view communicator) {
  const double flop =
      6.0 * static_cast<double>(tensor_layout(model).total) * static_cast<double>(step.rows) * static_cast<double>(step.micro_batches);
  const bool hides = step.rows / kRowsThatHideALayer >= model.layers;
  if (communicator != "peer" || !hides || flop < kFlopOfALongStep) return kBucketMib;
  return std::max(kBucketMib, mib_without_layer_0(model));
}

}  // namespace gpt2::distributed

#include "gpt2/distributed/bucket_size.h"

#include <algorithm>

#include "gpt2/tensor_table.h"

namespace gpt2::distributed {
namespace {

// An H200's: what products of a step reach, and copies to another one, each way.
constexpr double kFlopPerSecond = 500e12, kBytesPerSecond = 270e9;

// An H200 takes 60 ms or more for them, whichever trainer: ten more than its links take to fall asleep.
constexpr double kFlopOfALongStep = 3e13;

int64_t parameters_of_a_layer(const TensorLayout& layout) {
  int64_t sum = 0;
  for (const TensorRow& row : kTensorTable)
    if (row.per_layer) sum += layout[row.id].per_layer;
  return sum;
}

}  // namespace

bool rows_are_fewer_bytes(const ModelConfig& model, double tokens_of_all) {
  return tokens_of_all * 2 <= static_cast<double>(model.padded_vocab) * 4;
}

int64_t bucket_mib_for(const ModelConfig& model, const StepSize& step, std::string_view communicator) {
  const TensorLayout layout = tensor_layout(model);
  const auto layer = static_cast<double>(parameters_of_a_layer(layout)), rows = static_cast<double>(step.rows),
             ranks = static_cast<double>(step.ranks), others = static_cast<double>(model.layers - 1);
  // Gradients of several micro-batches are fp32. A rank sends and gets all slices but its own; of an all-reduce twice, for which the factor stands,
  // and for the sums.
  const double gradient_bytes = step.micro_batches > 1 ? 4 : 2;
  const double exchange_s = others * layer * gradient_bytes * (ranks - 1) / ranks / kBytesPerSecond;
  const bool hides = 4 * layer * rows / kFlopPerSecond >= 2 * exchange_s;
  const bool embedding_is_last = !rows_are_fewer_bytes(model, rows * ranks);
  const bool is_long = 6.0 * static_cast<double>(layout.total) * rows * static_cast<double>(step.micro_batches) >= kFlopOfALongStep;
  if (communicator != "peer" || !hides || !embedding_is_last || !is_long) return kBucketMib;
  // Rounded down, so that layer 1 closes the bucket (bucket_plan.h).
  return std::max(kBucketMib, static_cast<int64_t>(others * layer * sizeof(float)) >> 20);
}

}  // namespace gpt2::distributed

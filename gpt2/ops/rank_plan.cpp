#include "gpt2/ops/rank_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"
#include "gpt2/distributed/communicator.h"
#include "gpt2/ops/storage.cuh"

namespace gpt2::ops {
namespace {

constexpr int64_t kMostGathered = int64_t{1} << 20;

}  // namespace

int64_t RankPlan::gather_elements() const {
  if (!divides_the_update() && !split_states) return 0;
  int64_t largest = 0;
  for (const distributed::Bucket& b : buckets.buckets()) largest = std::max(largest, buckets.slice_elements(b));
  return std::min(largest, kMostGathered);
}

int64_t RankPlan::rounded_elements() const {
  switch (reduction) {
    case GradientReduction::as_stored:
      return 0;
    case GradientReduction::as_bf16:
      break;
  }
  int64_t largest = 0;
  for (const distributed::Bucket& b : buckets.buckets())
    if (!b.narrow) largest = std::max(largest, b.elements);
  return largest;
}

int64_t RankPlan::parameter_blocks() const {
  int64_t blocks = 0;
  for (const distributed::Segment& s : buckets.segments()) blocks += (s.size + distributed::kBlock - 1) / distributed::kBlock;
  return blocks;
}

// Where every rank has all gradients it makes all block sums itself, and only losses are gathered.
int64_t RankPlan::sums_stride() const { return divides_the_update() ? blocks() + 1 : 1; }

// Weights are no wider than the gradients of their bucket, and states pass in fp32 through the buffer of gather_elements().
int64_t RankPlan::slice_bytes() const {
  int64_t bucket_bytes = 0;
  for (const distributed::Bucket& b : buckets.buckets())
    bucket_bytes = std::max(bucket_bytes, buckets.slice_elements(b) * static_cast<int64_t>(b.narrow ? sizeof(bf16) : sizeof(float)));
  const int64_t rows = gathers_rows() ? embedding_rows * std::max<int64_t>(embedding_row_bytes, sizeof(int32_t)) : 0;
  return std::max(
      {bucket_bytes, gather_elements() * static_cast<int64_t>(sizeof(float)), sums_stride() * static_cast<int64_t>(sizeof(double)), rows});
}

int64_t RankPlan::receive_bytes() const { return communicator == nullptr ? 0 : communicator->receive_bytes(slice_bytes()); }

int64_t RankPlan::buffer_bytes() const {
  const int64_t own_sums = divides_the_update() ? 0 : blocks();
  return blocks() * static_cast<int64_t>(sizeof(distributed::ArenaBlock)) + parameter_blocks() * static_cast<int64_t>(sizeof(int32_t)) +
         (own_sums + buckets.ranks() * sums_stride()) * static_cast<int64_t>(sizeof(double)) +
         buckets.ranks() * gather_elements() * static_cast<int64_t>(sizeof(float)) +
         rounded_elements() * static_cast<int64_t>(sizeof(bf16)) + gathered_row_bytes() +
         gathered_tokens() * static_cast<int64_t>(sizeof(int32_t)) + buckets.ranks() * static_cast<int64_t>(sizeof(float)) +
         receive_bytes();
}

std::optional<RankPlan> plan_ranks(const TrainerOptions& options, Communication communication, GradientReduction reduction,
                                   unsigned narrow) {
  if (options.communicator == nullptr) return std::nullopt;
  if (options.bucket_mib < 1) throw stepscope::InputError(fmt::format("--bucket-mib {}: expected at least 1", options.bucket_mib));
  const distributed::World& world = options.communicator->world();
  RankPlan plan{distributed::BucketPlan(options.model, world.size, options.bucket_mib << 20, narrow), communication, reduction, world.rank};
  plan.embedding_rows = options.batch_size * options.seq_len;
  plan.communicator = options.communicator;
  return plan;
}

}  // namespace gpt2::ops

// How one rank exchanges gradients with the others, decided before anything is allocated.
#pragma once
#include <cstdint>
#include <optional>

#include "gpt2/distributed/bucket_plan.h"
#include "gpt2/distributed/communicator.h"
#include "gpt2/ops/rank_variants.h"
#include "gpt2/trainer.h"

namespace gpt2::ops {

struct RankPlan {
  distributed::BucketPlan buckets;
  Communication communication{};
  GradientReduction reduction{};
  int rank = 0;
  EmbeddingExchange embedding = EmbeddingExchange::dense;
  ExchangeStart start{};
  int64_t embedding_rows = 0;                               // of one rank: B * T
  int64_t embedding_row_bytes = 0;                          // of a row that ranks gather
  bool split_states = false;                                // some state is not one fp32 vector, and passes through the buffer to be read
  const distributed::Communicator* communicator = nullptr;  // null in tests that have none

  // Whether each rank updates its own slices only and has their optimizer state only.
  bool divides_the_update() const { return communication == Communication::zero1 || gathers_ahead(); }
  // Whether weights are gathered at the head of the next step instead of after the update.
  bool gathers_ahead() const { return communication == Communication::zero1_ahead; }
  // Whether ranks gather the rows that the embedding's backward adds up, instead of summing its result.
  bool gathers_rows() const { return embedding != EmbeddingExchange::dense; }
  int64_t gathered_row_bytes() const { return gathered_tokens() * embedding_row_bytes; }
  int64_t gathered_tokens() const { return gathers_rows() ? buckets.ranks() * embedding_rows : 0; }
  int64_t divided_elements() const { return divides_the_update() ? buckets.owned_elements() : buckets.elements(); }
  int64_t blocks() const { return divided_elements() / distributed::kBlock; }  // that this rank updates
  // Of what GradientExchange and the communicator allocate.
  int64_t gather_elements() const;   // fp32, of one rank, in the buffer through which divided states are gathered
  int64_t rounded_elements() const;  // bf16: the largest bucket in fp32, where such gradients are rounded for the way
  int64_t slice_bytes() const;       // the most that one rank brings to or takes from a collective
  int64_t receive_bytes() const;     // what the communicator holds for that
  int64_t buffer_bytes() const;      // all of it
  int64_t parameter_blocks() const;  // blocks that hold parameters
  int64_t sums_stride() const;       // doubles of one rank in the array of block sums and losses that ranks gather
};

// nullopt without a communicator. narrow: tensors whose gradients lie in bf16, as BucketPlan takes them. Throws stepscope::InputError for a
// bucket size below 1 MiB.
std::optional<RankPlan> plan_ranks(const TrainerOptions& options, Communication communication, GradientReduction reduction,
                                   unsigned narrow = 0);

}  // namespace gpt2::ops

// How many MiB of gradients ranks exchange at a time where the user does not say (`train --bucket-mib 0`).
#pragma once
#include <cstdint>
#include <string_view>

#include "gpt2/config.h"

namespace gpt2::distributed {

// Whether the embedding's gradient of so many tokens, of all ranks together and as rows in bf16, is no more bytes than wte's in fp32. Then the mixed
// trainer gathers the rows by itself (mixed/variant_refusals.cpp, why_dense_rather_than, which knows its run instead).
bool rows_are_fewer_bytes(const ModelConfig& model, double tokens_of_all);

inline constexpr int64_t kBucketMib = 25;  // as TrainerOptions has it: a layer or two of d12

// What each of some ranks computes in a step.
struct StepSize {
  int64_t rows = 0;  // tokens of a micro-batch
  int64_t micro_batches = 1;
  int64_t ranks = 1;
};

// kBucketMib, or as many MiB as all layers but layer 0 have: then these are one bucket, which travels beside layer 0's backward pass, so that the
// links are quiet for most of the step and sleep. Awake links draw 15 W of a GPU's power limit (H200), and go to sleep after 50 ms without traffic.
// So it takes a step that is long enough for that, a layer whose backward pass is longer than the exchange of all others, and so many rows that the
// embedding's gradient travels whole: where ranks gather its rows instead, wte's bucket and the tokens travel before all layers.
// `communicator` as Communicator::name() has it: only with "peer", copies between the GPUs of one host. NCCL gains as much there
// (experiments/studies/ranks-one-burst-nccl), but a run chooses it for more than two ranks and other links, where nobody has measured it.
int64_t bucket_mib_for(const ModelConfig& model, const StepSize& step, std::string_view communicator);

}  // namespace gpt2::distributed

#include "cli/rank_exchange.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/errors.h"
#include "gpt2/config.h"
#include "gpt2/distributed/bucket_plan.h"
#include "gpt2/distributed/bucket_size.h"
#include "gpt2/tensor_table.h"

namespace cli {
namespace {

gpt2::ModelConfig model_of(const profiler::RunSection& run) {
  if (!run.layers || !run.heads || !run.channels || !run.vocab_size || !run.padded_vocab || !run.max_seq_len)
    throw stepscope::InputError("the profile does not say what model it is of; expected one that `stepscope profile` made of a trainer");
  gpt2::ModelConfig model;
  model.layers = *run.layers;
  model.heads = *run.heads;
  model.channels = *run.channels;
  model.vocab_size = *run.vocab_size;
  model.padded_vocab = *run.padded_vocab;
  model.max_seq_len = *run.max_seq_len;
  gpt2::check_config(model, "the profile");
  return model;
}

// Gradients of the blocks' matrices that lie, and travel, in bf16: as one GPU has them (mixed/memory_plan.cpp, gradient_arenas). A document names
// only the slots whose first variant did not run.
unsigned narrow_tensors(const profiler::RunSection& run) {
  if (run.trainer != "mixed" || run.variants.contains("weight_gradients")) return 0;
  unsigned bits = 0;
  for (const gpt2::Tensor t : {gpt2::Tensor::qkvw, gpt2::Tensor::attprojw, gpt2::Tensor::fcw, gpt2::Tensor::fcprojw})
    bits |= 1u << static_cast<unsigned>(t);
  return bits;
}

// Bytes of a value in the rows that ranks gather; 0: the embedding's gradient travels dense. By itself the mixed trainer, which alone has the slot,
// gathers rows in bf16, but not where those of all ranks are more bytes than wte's gradient (mixed/variant_refusals.cpp, why_dense_rather_than).
int64_t row_value_bytes(const RankExchange& e, const profiler::RunSection& run, const gpt2::ModelConfig& model, double rows_of_all) {
  if (e.embedding == "gathered_bf16_rows") return 2;
  if (e.embedding == "gathered_rows") {
    const auto slot = run.variants.find("residual_gradient");
    return slot != run.variants.end() && slot->second == "bf16" ? 2 : 4;
  }
  if (e.embedding == "dense" || run.trainer != "mixed" || e.communication == "all_reduce") return 0;
  return gpt2::distributed::rows_are_fewer_bytes(model, rows_of_all) ? 2 : 0;
}

}  // namespace

profiler::ExchangePlan exchange_of(const profiler::ProfileDocument& d, const RankExchange& e, int64_t ranks, double rows) {
  const gpt2::ModelConfig model = model_of(d.run);
  const int64_t bucket_mib = e.bucket_mib > 0 ? e.bucket_mib
                                              : gpt2::distributed::bucket_mib_for(
                                                    model, {std::llround(rows), d.run.accumulation.value_or(1), ranks}, e.communicator);
  const gpt2::distributed::BucketPlan plan(model, static_cast<int>(ranks), bucket_mib << 20, narrow_tensors(d.run));
  std::vector<profiler::GradientBucket> buckets;
  for (const gpt2::distributed::Bucket& b : plan.buckets()) buckets.push_back({b.elements, b.narrow ? "bf16" : e.reduce, b.ready_after});
  const int64_t row_value = row_value_bytes(e, d.run, model, rows * static_cast<double>(ranks));
  profiler::ExchangeOptions o;
  o.communication = e.communication;
  o.gathered_rows = row_value > 0;
  o.weights_type = d.run.trainer == "mixed" ? "bf16" : "fp32";
  o.in_place = e.communicator == "peer";
  o.ranks = ranks;
  o.tokens = std::max<int64_t>(1, std::llround(rows));
  o.row_bytes = model.channels * row_value;
  return profiler::exchange_plan(buckets, o);
}

}  // namespace cli

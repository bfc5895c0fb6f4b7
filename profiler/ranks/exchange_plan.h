// Which collectives a step of several ranks makes, in their order, where in the step each may begin and what waits for it: the orders of
// gpt2/ops/gradient_exchange.cpp as data, so that the cost model knows no trainer. Pure functions. What the buckets are the caller says; it
// has them from the trainers' own plan (gpt2/distributed/bucket_plan.h).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace profiler {

// A piece of a step's work, in the order in which the pieces run. `between`: what lies between the forward pass of the first micro-batch and the
// backward pass of the last, where there are several. `layer`: of forward and backward; of update the number of the piece.
struct StepPlace {
  enum class Kind { begin, embed, forward, between, loss, head, backward, embed_backward, norm, update, end } kind = Kind::begin;
  int64_t layer = 0;
  bool operator==(const StepPlace&) const = default;
};

struct PlannedCollective {
  std::string kind, type;  // all_reduce … | all_gather_in_place; fp32 | bf16 | fp64
  std::string op;          // reduce_gradients, gather_weights, norm_gather
  int64_t bytes = 0;       // of the whole array
  StepPlace ready;         // it may begin when this piece is done, and every collective before it
  StepPlace needed;        // this piece waits for it
};

struct ExchangePlan {
  std::vector<PlannedCollective> collectives;  // they run one behind the other
  double update_share = 1;                     // of norm and update that one rank makes
  double embed_backward_share = 1;             // of the embedding's backward: that of all ranks' rows where they are gathered
  std::vector<double> update_pieces{1.0};      // parts of the update, which sum to 1; a gather may begin behind each
};

struct GradientBucket {
  int64_t elements = 0;
  std::string type = "fp32";   // in which its gradients travel
  int64_t complete_after = 0;  // the layer whose backward pass completes it; -1: the embedding's
};

struct ExchangeOptions {
  std::string communication = "zero1_ahead";  // zero1_ahead | zero1 | all_reduce_overlapped | all_reduce, as the trainers' variants
  bool gathered_rows = false;                 // embedding_exchange; else dense
  std::string weights_type = "bf16";          // of the weights that are gathered
  bool in_place = false;                      // other ranks write gathered weights where they belong
  int64_t ranks = 1;
  int64_t tokens = 0;     // of one rank's micro-batch
  int64_t row_bytes = 0;  // of a gathered row
};

// Of one rank: nothing. Throws stepscope::InputError for a communication that is not known, or that cannot gather rows. `buckets` in the order
// in which they become complete; the last one is the embedding's.
ExchangePlan exchange_plan(const std::vector<GradientBucket>& buckets, const ExchangeOptions& options);

int64_t bytes_of_type(const std::string& type);

}  // namespace profiler

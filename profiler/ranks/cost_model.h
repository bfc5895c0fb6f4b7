// What a training step takes on N GPUs, from the profile of one and a sweep of collectives. Pure functions; docs/scaling.md has the formula,
// where each number comes from, and what is left out.
//
// Work and communication are two queues that run at once. A piece of work begins when the one before it has ended and the collectives that it
// needs have; a collective begins when its piece of work has ended and the collective before it has. Where both run, each is slower than alone.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "profiler/document/profile.h"
#include "profiler/ranks/exchange_plan.h"
#include "profiler/ranks/link_model.h"

namespace profiler {

// A step of one GPU, cut where communication meets it. Passes are of all its micro-batches together.
struct StepParts {
  double embed_ns = 0;                    // what comes before the first layer
  std::vector<double> forward_layer_ns;   // forward pass of each layer, the first one first
  double loss_ns = 0;                     // behind them: final norm, head, classifier
  double head_ns = 0;                     // backward pass of what comes before the last layer: head, final norm
  std::vector<double> backward_layer_ns;  // backward pass of each layer, the first one first; they run from the last to the first
  double embed_backward_ns = 0;           // backward pass behind them: embedding
  double norm_ns = 0;                     // of the gradients
  double update_ns = 0;
  double rest_ns = 0;              // idle, unattributed, other
  double product_share_pct = 100;  // of the time of forward and backward that products and attention take; bandwidth bounds the rest
  double tokens = 0;               // of one step
  double rows = 0;                 // of one micro-batch: its tokens
  double micro_batches = 1;
  double jitter_ns = 0;          // spread of a step's time
  bool power_limited = false;    // its clock is lower for it (docs/scaling.md)
  bool power_cap_alone = false;  // the driver reported a power cap, but the clock does not show it
  double forward_ns() const;
  double backward_ns() const;
  double total_ns() const;
};

// From a document of one GPU. Throws stepscope::InputError, which names field or row, when it lacks a pass, a layer, an op or a number of the
// model, has a number that no step has, or is of several ranks.
StepParts step_parts(const ProfileDocument& document);
// The same step at `scale` times the rows: forward and backward pass grow with the rows, norm, update and rest do not. scale > 0.
StepParts scaled(const StepParts& parts, double scale);

struct ClusterShape {
  int64_t gpus_per_node = 8;
  double network_bytes_per_s = 0;  // of one node, each direction; 0: no network
  double hop_ns = 3400;            // one step of a ring between neighbours of a node (NCCL's constant, graph/tuning.cc: NVLink, Simple)
  double network_hop_ns = 14000;   // likewise between nodes
};

// Time of one collective among N ranks, alone. A sweep is of one node: as measured where this N was and fits into one; else the fit of the largest
// measured N below, with NCCL's latency of the steps that a longer ring adds, and no more bandwidth than the network where nodes are crossed;
// all_reduce takes the tree where that is shorter. A measured N across nodes is no faster than within one. fp64 is as fp32, and
// all_gather_in_place as all_gather, where only that was measured. Throws stepscope::InputError when communicator, kind and type were not
// measured, or N needs a network that the shape does not have.
double collective_ns(const LinkCeilings& links, const ClusterShape& shape, const std::string& communicator, const std::string& kind,
                     const std::string& type, int64_t ranks, int64_t bytes);

struct ScalingOptions {
  std::string communicator = "nccl";
  // Of the collective's time, what it takes from work beside it; below 0: as measured beside each kind, or nothing where that was not.
  double inflation = -1;
};

struct ScaledStep {
  int64_t ranks = 0;
  double time_ns = 0;
  double work_ns = 0;           // forward, backward, norm, update, rest
  double communication_ns = 0;  // of all collectives alone
  double hidden_ns = 0;         // of the time that collectives took, what ran beside work
  double tail_ns = 0;           // exposed: what backward pass and norm wait for gradients
  double head_ns = 0;           // exposed: what forward pass and the end of the step wait for weights
  double norm_ns = 0;           // exposed: what the update waits for the sums behind the norm
  double inflation_ns = 0;      // work that communication beside it made slower
  double awake_ns = 0;          // what the power of awake links takes from work at the power limit; 0 where that was not measured
  double straggler_ns = 0;      // the latest of N ranks
  double tokens_per_s = 0;      // of all ranks
};
ScaledStep scaled_step(const StepParts& parts, const ExchangePlan& plan, const LinkCeilings& links, const ClusterShape& shape,
                       const ScalingOptions& options, int64_t ranks);

// The expected largest of n values of a normal distribution, in its deviations. n >= 1.
double expected_largest(int64_t n);

}  // namespace profiler

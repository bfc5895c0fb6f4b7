// What a training step takes on N GPUs, from the profile of one and a sweep of collectives. Pure functions; docs/scaling.md has the formula,
// where each number comes from, and what is left out.
//
//   T(N) = forward + backward + inflation * hidden + tail + norm gather + update (or update / N) + head + rest + straggler
// Bucket b begins when its gradients are ready and the bucket before it has ended; the tail is what is left when the backward pass ends.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "profiler/document/profile.h"
#include "profiler/ranks/link_model.h"

namespace profiler {

// A step of one GPU, cut where communication meets it.
struct StepParts {
  double forward_ns = 0;         // everything before the backward pass: encoder, forward, classifier
  double before_layers_ns = 0;   // backward pass of what comes before the last layer: head, final norm
  std::vector<double> layer_ns;  // backward pass of each layer, in the order in which it runs (the last layer first)
  double after_layers_ns = 0;    // backward pass behind them: embedding
  double update_ns = 0;
  double rest_ns = 0;  // idle, unattributed, other
  int64_t layer_parameters = 0;
  int64_t tail_parameters = 0;  // embeddings and final norm, whose gradients are complete last
  double tokens = 0;            // of one step
  double jitter_ns = 0;         // standard deviation of a step's time
  double backward_ns() const;
  double total_ns() const;
};

// From a document of one GPU. Throws stepscope::InputError when it has no passes, no layers or no model, or is of several ranks.
StepParts step_parts(const ProfileDocument& document);
// The same step at `scale` times the rows: forward and backward pass grow with the rows, update and rest do not. scale > 0.
StepParts scaled(const StepParts& parts, double scale);

struct ClusterShape {
  int64_t gpus_per_node = 8;
  double network_bytes_per_s = 0;  // of one node, each direction; 0: no network
  double hop_ns = 3400;            // one step of a ring between neighbours of a node (NCCL's constant, graph/tuning.cc: NVLink, Simple)
  double network_hop_ns = 14000;   // likewise between nodes
};

// Time of one collective among N ranks. As measured where this N was; else the fit of the largest measured N below, with NCCL's latency of
// the steps that a longer ring adds, and no more bandwidth than the network where nodes are crossed; all_reduce takes the tree where that
// is shorter. Throws stepscope::InputError when kind and type were not measured, or N needs a network that the shape does not have.
double collective_ns(const LinkCeilings& links, const ClusterShape& shape, const std::string& kind, const std::string& type, int64_t ranks,
                     int64_t bytes);

struct ScalingOptions {
  bool shard_update = false;          // ZeRO-1: reduce_scatter, 1/N of the update, all_gather of the weights beside the next forward pass
  std::string type = "fp32";          // of the gradients on the links
  std::string weights_type = "bf16";  // of the weights that are gathered: those of the mixed trainer
  int64_t bucket_bytes = 25 << 20;    // a bucket is whole layers of at least so many bytes of fp32
  double inflation = 0;               // of work that runs beside communication, as a fraction: `diff` measures it
  int64_t norm_bytes = 0;             // of the gathered sums behind the gradient norm
};

struct ScaledStep {
  int64_t ranks = 0;
  double time_ns = 0;
  double work_ns = 0;  // forward, backward, update, rest
  double communication_ns = 0;
  double tail_ns = 0;  // of it, behind the backward pass
  double head_ns = 0;  // gathering weights longer than the forward pass
  double norm_ns = 0;
  double inflation_ns = 0;
  double straggler_ns = 0;  // jitter * sqrt(2 ln N): the latest of N ranks
  double tokens_per_s = 0;  // of all ranks
};
ScaledStep scaled_step(const StepParts& parts, const LinkCeilings& links, const ClusterShape& shape, const ScalingOptions& options,
                       int64_t ranks);

}  // namespace profiler

#include "profiler/ranks/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/errors.h"
#include "profiler/ranks/collectives.h"

namespace profiler {
namespace {

using stepscope::InputError;

double deviation(const std::vector<double>& values) {
  if (values.size() < 2) return 0;
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return std::sqrt(squares / (n - 1));
}

double ring_steps(const std::string& kind, int64_t ranks) { return static_cast<double>((kind == "all_reduce" ? 2 : 1) * (ranks - 1)); }

// Steps of a ring that cross from node to node and those that stay within one.
double ring_latency_ns(const std::string& kind, const ClusterShape& shape, int64_t ranks) {
  const int64_t nodes = (ranks + shape.gpus_per_node - 1) / shape.gpus_per_node;
  const double all = ring_steps(kind, ranks), between = nodes > 1 ? ring_steps(kind, nodes + 1) : 0;
  return (all - between) * shape.hop_ns + between * shape.network_hop_ns;
}

// Up and down a tree of nodes, along a chain within each.
double tree_latency_ns(const ClusterShape& shape, int64_t ranks) {
  const int64_t nodes = (ranks + shape.gpus_per_node - 1) / shape.gpus_per_node;
  const auto within = static_cast<double>(std::min(ranks, shape.gpus_per_node) - 1);
  return 2 * (within * shape.hop_ns + std::log2(static_cast<double>(nodes)) * shape.network_hop_ns);
}

const LinkFit& nearest_fit(const LinkCeilings& links, const std::string& kind, const std::string& type, int64_t ranks) {
  const LinkFit* found = nullptr;
  for (const LinkFit& f : links.fits)
    if (f.kind == kind && f.type == type && f.ranks <= ranks && (!found || f.ranks > found->ranks)) found = &f;
  if (!found)
    throw InputError(fmt::format("the sweep has no {} of {} among {} ranks or fewer; `doctor --gpus` measures them", kind, type, ranks));
  return *found;
}

struct Bucket {
  double ready_ns = 0;  // from the begin of the backward pass
  int64_t parameters = 0;
};

std::vector<Bucket> buckets_of(const StepParts& p, int64_t bucket_bytes) {
  std::vector<Bucket> buckets;
  Bucket open;
  double at = p.before_layers_ns;
  for (const double layer : p.layer_ns) {
    at += layer;
    open.parameters += p.layer_parameters;
    open.ready_ns = at;
    if (open.parameters * 4 < bucket_bytes) continue;
    buckets.push_back(open);
    open = {};
  }
  open.parameters += p.tail_parameters;
  open.ready_ns = p.backward_ns();
  buckets.push_back(open);
  return buckets;
}

int64_t bytes_of(const std::string& type) { return type == "bf16" ? 2 : 4; }

}  // namespace

double StepParts::backward_ns() const {
  return before_layers_ns + std::accumulate(layer_ns.begin(), layer_ns.end(), 0.0) + after_layers_ns;
}
double StepParts::total_ns() const { return forward_ns + backward_ns() + update_ns + rest_ns; }

StepParts step_parts(const ProfileDocument& d) {
  if (!d.ranks.empty()) throw InputError("the profile is of several ranks; expected one of one GPU");
  const auto &layers = d.run.layers, &channels = d.run.channels;
  if (d.passes.empty() || !d.totals.time_ns || !layers || !channels || !d.run.parameters || !d.run.tokens_per_step)
    throw InputError("the profile has no passes of a GPT-2 trainer; expected one that `stepscope profile` made of a trainer");
  StepParts p;
  double backward = 0;
  for (const PassRow& pass : d.passes) {
    if (pass.name == "backward")
      backward = pass.time_ns;
    else if (pass.name == "optimizer")
      p.update_ns = pass.time_ns;
    else if (pass.name == "encoder" || pass.name == "forward" || pass.name == "classifier")
      p.forward_ns += pass.time_ns;
  }
  std::vector<double> by_layer(static_cast<size_t>(*layers), 0.0);
  for (const LayerRow& l : d.layers)
    if (l.pass == "backward" && l.layer < *layers) by_layer[static_cast<size_t>(l.layer)] = l.time_ns;
  p.layer_ns.assign(by_layer.rbegin(), by_layer.rend());
  for (const OpRow& o : d.ops)
    if (o.pass == "backward" && (o.op == "lm_head" || o.op == "lnf")) p.before_layers_ns += o.time_ns;
  p.after_layers_ns = std::max(0.0, backward - p.before_layers_ns - std::accumulate(p.layer_ns.begin(), p.layer_ns.end(), 0.0));
  // Device time is of traced steps; the step that people wait for is the untraced one.
  const double step = d.timing.step_time_ns.median.value_or(*d.totals.time_ns);
  p.rest_ns = std::max(0.0, step - p.forward_ns - p.backward_ns() - p.update_ns);
  const int64_t c = *channels;
  p.layer_parameters = 12 * c * c + 13 * c;  // four products with biases, two norms
  p.tail_parameters = *d.run.parameters - *layers * p.layer_parameters;
  if (p.tail_parameters < 0) throw InputError("the profile's number of parameters is below that of its layers");
  p.tokens = static_cast<double>(*d.run.tokens_per_step);
  p.jitter_ns = deviation(d.timing.step_time_ns.samples);
  return p;
}

StepParts scaled(const StepParts& parts, double scale) {
  StepParts p = parts;
  for (double* ns : {&p.forward_ns, &p.before_layers_ns, &p.after_layers_ns}) *ns *= scale;
  for (double& ns : p.layer_ns) ns *= scale;
  p.tokens *= scale;
  p.jitter_ns *= scale;
  return p;
}

double collective_ns(const LinkCeilings& links, const ClusterShape& shape, const std::string& kind, const std::string& type, int64_t ranks,
                     int64_t bytes) {
  if (ranks < 2 || bytes <= 0) return 0;
  const LinkFit& fit = nearest_fit(links, kind, type, ranks);
  if (fit.ranks == ranks) return predicted_ns(fit, bytes);
  const LinkLine& line = bytes <= fit.knee_bytes ? fit.small : fit.large;
  double bandwidth = line.bus_bytes_per_s;
  if (ranks > shape.gpus_per_node) {
    if (!(shape.network_bytes_per_s > 0))
      throw InputError(fmt::format("{} GPUs are more than the {} of one node; expected --network-gb-s", ranks, shape.gpus_per_node));
    bandwidth = std::min(bandwidth, shape.network_bytes_per_s);
  }
  const double measured = ring_latency_ns(kind, shape, fit.ranks);
  double more = ring_latency_ns(kind, shape, ranks) - measured;
  if (kind == "all_reduce") more = std::min(more, std::max(0.0, tree_latency_ns(shape, ranks) - measured));
  const double moved = bus_factor(kind, ranks) * static_cast<double>(bytes);
  return line.latency_ns + more + (bandwidth > 0 ? moved / bandwidth * 1e9 : 0);
}

ScaledStep scaled_step(const StepParts& p, const LinkCeilings& links, const ClusterShape& shape, const ScalingOptions& o, int64_t ranks) {
  ScaledStep s;
  s.ranks = ranks;
  const auto n = static_cast<double>(ranks);
  const double update = o.shard_update ? p.update_ns / n : p.update_ns;
  s.work_ns = p.forward_ns + p.backward_ns() + update + p.rest_ns;
  const auto take = [&](const std::string& kind, const std::string& type, int64_t bytes) {
    const double ns = collective_ns(links, shape, kind, type, ranks, bytes);
    s.communication_ns += ns;
    return ns;
  };
  double hidden = 0;
  if (ranks > 1) {
    double end = 0;
    for (const Bucket& b : buckets_of(p, o.bucket_bytes)) {
      const double begin = std::max(b.ready_ns, end);
      end = begin + take(o.shard_update ? "reduce_scatter" : "all_reduce", o.type, b.parameters * bytes_of(o.type));
      hidden += std::max(0.0, std::min(end, p.backward_ns()) - begin);
    }
    s.tail_ns = std::max(0.0, end - p.backward_ns());
    if (o.norm_bytes > 0) s.norm_ns = take("all_gather", "fp32", o.norm_bytes);
    if (o.shard_update) {
      const auto parameters = static_cast<int64_t>(p.layer_ns.size()) * p.layer_parameters + p.tail_parameters;
      const double gather = take("all_gather", o.weights_type, parameters * bytes_of(o.weights_type));
      s.head_ns = std::max(0.0, gather - p.forward_ns);
      hidden += gather - s.head_ns;
    }
    s.inflation_ns = o.inflation * hidden;
    s.straggler_ns = p.jitter_ns * std::sqrt(2 * std::log(n));
  }
  s.time_ns = s.work_ns + s.tail_ns + s.norm_ns + s.head_ns + s.inflation_ns + s.straggler_ns;
  s.tokens_per_s = p.tokens * n / s.time_ns * 1e9;
  return s;
}

}  // namespace profiler

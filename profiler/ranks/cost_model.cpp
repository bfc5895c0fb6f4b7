#include "profiler/ranks/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/errors.h"
#include "base/statistics.h"
#include "base/sustained.h"
#include "profiler/ranks/collectives.h"

namespace profiler {
namespace {

using stepscope::InputError;

// Ops whose time is that of matrix products.
const std::set<std::string> kProducts{"qkv", "attention", "attproj", "mlp_up", "mlp_down", "lm_head"};

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

// The forward and the backward pass, whose work grows with the tokens; the norm's and the update's does not.
void scale_passes(StepParts& p, double factor) {
  for (double* ns : {&p.embed_ns, &p.loss_ns, &p.head_ns, &p.embed_backward_ns}) *ns *= factor;
  for (std::vector<double>* layers : {&p.forward_layer_ns, &p.backward_layer_ns})
    for (double& ns : *layers) ns *= factor;
}

// Device time is of traced steps; the step that people wait for is the untraced one. What it has more is `rest`; where it is shorter, tracing
// made every piece longer by the same part.
void fit_to_step(StepParts& p, double step_ns) {
  const double pieces = p.total_ns();
  if (pieces <= step_ns) {
    p.rest_ns = step_ns - pieces;
    return;
  }
  const double factor = step_ns / pieces;
  scale_passes(p, factor);
  p.norm_ns *= factor;
  p.update_ns *= factor;
}

// The deviation of a normal distribution with these quartiles, so that a few steps that something else held up do not count.
double spread(const std::vector<double>& values) {
  const auto low = stepscope::quantile(values, 0.25), high = stepscope::quantile(values, 0.75);
  return values.size() < 2 ? 0 : (*high - *low) / 1.349;
}

// ---- what a profile must have

constexpr int64_t kMostLayers = 1 << 16, kMostTokens = int64_t{1} << 40;  // far above any step, and low enough for what is computed of them

void check_count(const char* field, const Count& found, int64_t most) {
  if (found && *found >= 1 && *found <= most) return;
  throw InputError(fmt::format("run.{}: {}, expected 1 to {}", field, found ? fmt::format("found {}", *found) : "not there", most));
}

void check_numbers(const ProfileDocument& d) {
  const RunSection& run = d.run;
  check_count("layers", run.layers, kMostLayers);
  check_count("batch_size", run.batch_size, kMostTokens);
  check_count("seq_len", run.seq_len, kMostTokens);
  check_count("accumulation", run.accumulation, kMostTokens);
  check_count("tokens_per_step", run.tokens_per_step, kMostTokens);
  // A product of more than 2^53 is not exact, and far from any tokens_per_step.
  const double tokens = static_cast<double>(*run.batch_size) * static_cast<double>(*run.seq_len) * static_cast<double>(*run.accumulation);
  if (tokens != static_cast<double>(*run.tokens_per_step))
    throw InputError(fmt::format("run.tokens_per_step: found {}, expected {:.15g}: batch_size {} x seq_len {} x accumulation {}",
                                 *run.tokens_per_step, tokens, *run.batch_size, *run.seq_len, *run.accumulation));
  if (const double step = d.timing.step_time_ns.median.value_or(*d.totals.time_ns); !(step > 0))
    throw InputError(fmt::format("{}: found {}, expected a time above 0",
                                 d.timing.step_time_ns.median ? "timing.step_time_ns.median" : "totals.time_ns", step));
}

void check_layers(const ProfileDocument& d, const char* pass) {
  const int64_t layers = *d.run.layers;
  const auto refuse = [&](const char* what, int64_t layer) {
    throw InputError(
        fmt::format("layers: {} of layer {} in the {} pass; expected layers 0 to {} once in forward and backward pass, as "
                    "run.layers is {}",
                    what, layer, pass, layers - 1, layers));
  };
  std::vector<bool> there(static_cast<size_t>(layers), false);
  for (const LayerRow& l : d.layers) {
    if (l.pass != pass) continue;
    if (l.layer < 0 || l.layer >= layers) refuse("a row", l.layer);
    if (there[static_cast<size_t>(l.layer)]) refuse("two rows", l.layer);
    there[static_cast<size_t>(l.layer)] = true;
  }
  if (const auto none = std::find(there.begin(), there.end(), false); none != there.end()) refuse("no row", none - there.begin());
}

// Each row that step_parts reads is there: without its layers, say, the whole backward pass would be the embedding's.
void check_rows(const ProfileDocument& d) {
  const auto refuse = [](const char* list, const std::string& row) {
    throw InputError(fmt::format("{}: no row of {}, which a prediction is made of; expected a whole profile of a trainer", list, row));
  };
  for (const char* pass : {"encoder", "forward", "classifier", "backward", "optimizer"})
    if (std::none_of(d.passes.begin(), d.passes.end(), [&](const PassRow& p) { return p.name == pass; })) refuse("passes", pass);
  check_layers(d, "forward");
  check_layers(d, "backward");
  const auto need_op = [&](const std::string& pass, const std::string& op) {
    if (std::none_of(d.ops.begin(), d.ops.end(), [&](const OpRow& o) { return o.pass == pass && o.op == op; }))
      refuse("ops", pass + "/" + op);
  };
  for (const char* pass : {"forward", "backward"})
    for (const std::string& op : kProducts) need_op(pass, op);
  need_op("backward", "lnf");
  need_op("optimizer", "grad_norm");
  need_op("optimizer", "adamw");
}

// At the power limit the clock goes down. The document does not know the limit, and power in less than a second says little; so: a limiter was
// active in at least half of the samples, and the clock of the timed steps is lower than the highest that the profile saw by as much as
// `stepscope energy` asks.
bool clock_is_lowered(const ProfileDocument& d) {
  const EnvironmentSection& e = d.environment;
  if (!e.sm_clock_mhz_median || e.throttled_samples.value_or(0) * 2 < e.samples.value_or(0)) return false;
  double highest = e.sm_clock_mhz_max.value_or(0);
  for (const EnvironmentRow& row : d.timeline.environment) highest = std::max(highest, row.sm_clock_mhz);
  for (const StateRow& row : d.timing.states) highest = std::max(highest, row.sm_clock_mhz.value_or(0));
  return *e.sm_clock_mhz_median <= highest - stepscope::kCappedClockGap_mhz;
}

// ---- collectives of more ranks

double ring_steps(const std::string& kind, int64_t ranks) { return static_cast<double>((kind == "all_reduce" ? 2 : 1) * (ranks - 1)); }

// Steps of a ring that cross from node to node and those that stay within one.
double ring_latency_ns(const std::string& kind, const ClusterShape& shape, int64_t ranks) {
  const int64_t nodes = (ranks + shape.gpus_per_node - 1) / shape.gpus_per_node;
  const double all = ring_steps(kind, ranks), between = std::min(all, nodes > 1 ? ring_steps(kind, nodes + 1) : 0);
  return (all - between) * shape.hop_ns + between * shape.network_hop_ns;
}

// Up and down a tree of nodes, along a chain within each.
double tree_latency_ns(const ClusterShape& shape, int64_t ranks) {
  const int64_t nodes = (ranks + shape.gpus_per_node - 1) / shape.gpus_per_node;
  const auto within = static_cast<double>(std::min(ranks, shape.gpus_per_node) - 1);
  return 2 * (within * shape.hop_ns + std::log2(static_cast<double>(nodes)) * shape.network_hop_ns);
}

const LinkFit* nearest_fit(const LinkCeilings& links, const std::string& communicator, const std::string& kind, const std::string& type,
                           int64_t ranks) {
  const LinkFit* found = nullptr;
  for (const LinkFit& f : links.fits)
    if (f.communicator == communicator && f.kind == kind && f.type == type && f.ranks <= ranks && (!found || f.ranks > found->ranks))
      found = &f;
  return found;
}

struct KindAndType {
  std::string kind, type;
};
// As it was measured, or what stands for it.
KindAndType measured_as(const LinkCeilings& links, const std::string& communicator, const std::string& kind, const std::string& type,
                        int64_t ranks) {
  const std::string stands_for_kind = kind == "all_gather_in_place" ? "all_gather" : kind, stands_for_type = type == "fp64" ? "fp32" : type;
  for (const std::string& k : {kind, stands_for_kind})
    for (const std::string& t : {type, stands_for_type})
      if (nearest_fit(links, communicator, k, t, ranks)) return {k, t};
  throw InputError(fmt::format("the sweep has no {} of {} by {} among {} ranks or fewer; `doctor --gpus` measures them", kind, type,
                               communicator, ranks));
}

// ---- the step as two queues

struct Piece {
  StepPlace place;
  double work_ns = 0;
};

// The first micro-batch waits for weights and the last one exchanges gradients. So the layers' pieces are the forward pass of the first and the
// backward pass of the last. What lies between is work beside which nothing travels. `loss` is the last one's, whose tokens go behind it.
std::vector<Piece> pieces_of(const StepParts& p, const ExchangePlan& plan) {
  using Kind = StepPlace::Kind;
  const double one = 1 / p.micro_batches;
  std::vector<Piece> pieces{{{Kind::embed}, p.embed_ns * one}};
  const auto layers = static_cast<int64_t>(p.forward_layer_ns.size());
  for (int64_t l = 0; l < layers; ++l) pieces.push_back({{Kind::forward, l}, p.forward_layer_ns[static_cast<size_t>(l)] * one});
  pieces.push_back({{Kind::between}, (p.forward_ns() + p.backward_ns()) * (1 - one)});
  pieces.push_back({{Kind::loss}, p.loss_ns * one});
  pieces.push_back({{Kind::head}, p.head_ns * one});
  for (int64_t l = layers - 1; l >= 0; --l) pieces.push_back({{Kind::backward, l}, p.backward_layer_ns[static_cast<size_t>(l)] * one});
  pieces.push_back({{Kind::embed_backward}, p.embed_backward_ns * one * plan.embed_backward_share});
  pieces.push_back({{Kind::norm}, p.norm_ns * plan.update_share});
  for (size_t u = 0; u < plan.update_pieces.size(); ++u)
    pieces.push_back({{Kind::update, static_cast<int64_t>(u)}, p.update_ns * plan.update_share * plan.update_pieces[u]});
  pieces.push_back({{Kind::end}, 0});
  return pieces;
}

// Position of a place among the pieces; -1 for the begin of the step.
std::vector<Piece>::difference_type position(const std::vector<Piece>& pieces, const StepPlace& place) {
  if (place.kind == StepPlace::Kind::begin) return -1;
  const auto at = std::find_if(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.place == place; });
  if (at == pieces.end()) throw std::logic_error("a collective stands at a place that the step does not have");
  return at - pieces.begin();
}

struct Transfer {
  std::ptrdiff_t ready = -1, needed = 0;
  double left_ns = 0;  // as alone
  BesideSpeeds beside;
  bool weights = false;
};

// Runs both queues from event to event.
class TwoQueues {
 public:
  TwoQueues(std::vector<Piece> pieces, std::vector<Transfer> transfers, ScaledStep& s)
      : pieces_(std::move(pieces)), transfers_(std::move(transfers)), s_(s) {}

  void run() {
    for (piece_ = 0; piece_ < std::ssize(pieces_); ++piece_) {
      while (next_ < transfers_.size() && needed_by(piece_)) {  // waits for communication alone
        const double ns = transfers_[next_].left_ns;
        exposed(ns);
        travels(ns);
        transfers_[next_++].left_ns = 0;
      }
      work();
    }
    // Step follows step: what is quiet behind the last transfer goes on to the first one of the next step.
    if (quiet_.empty())
      quiet_.push_back(quiet_ns_);
    else
      quiet_.front() += quiet_ns_;
  }

  // Links sleep in a stretch in which nothing travels, once it has lasted for so long.
  double asleep_ns(double after_ns) const {
    double ns = 0;
    for (const double stretch : quiet_) ns += std::max(0.0, stretch - after_ns);
    return ns;
  }

 private:
  bool needed_by(std::ptrdiff_t piece) const {
    return std::any_of(transfers_.begin() + static_cast<std::ptrdiff_t>(next_), transfers_.end(),
                       [&](const Transfer& t) { return t.needed <= piece; });
  }

  void exposed(double ns) {
    const StepPlace::Kind waits = pieces_[static_cast<size_t>(piece_)].place.kind;
    double& where = transfers_[next_].weights ? s_.head_ns : waits == StepPlace::Kind::update ? s_.norm_ns : s_.tail_ns;
    where += ns;
  }

  void travels(double ns) {
    if (!(ns > 0)) return;
    quiet_.push_back(quiet_ns_);
    quiet_ns_ = 0;
  }

  // One piece of work, with the transfers that are ready beside it.
  void work() {
    double left = pieces_[static_cast<size_t>(piece_)].work_ns;
    while (left > 0) {
      Transfer* t = next_ < transfers_.size() && transfers_[next_].ready < piece_ ? &transfers_[next_] : nullptr;
      if (!t) {
        quiet_ns_ += left;
        return;
      }
      const double until_work_ends = left / t->beside.work, until_transfer_ends = t->left_ns / t->beside.collective;
      const double ns = std::min(until_work_ends, until_transfer_ends);
      travels(ns);
      s_.hidden_ns += ns;
      s_.inflation_ns += ns * (1 - t->beside.work);
      if (until_transfer_ends <= until_work_ends) {
        ++next_;
        left -= ns * t->beside.work;
      } else {
        t->left_ns -= ns * t->beside.collective;
        left = 0;
      }
    }
  }

  std::vector<Piece> pieces_;
  std::vector<Transfer> transfers_;
  ScaledStep& s_;
  std::ptrdiff_t piece_ = 0;
  size_t next_ = 0;            // transfers before it have ended
  std::vector<double> quiet_;  // stretches of work beside which nothing travels; the first begins the step
  double quiet_ns_ = 0;        // of the one that has not ended
};

}  // namespace

double StepParts::forward_ns() const { return embed_ns + sum(forward_layer_ns) + loss_ns; }
double StepParts::backward_ns() const { return head_ns + sum(backward_layer_ns) + embed_backward_ns; }
double StepParts::total_ns() const { return forward_ns() + backward_ns() + norm_ns + update_ns + rest_ns; }

StepParts step_parts(const ProfileDocument& d) {
  if (!d.ranks.empty()) throw InputError("the profile is of several ranks; expected one of one GPU");
  const auto &layers = d.run.layers, &channels = d.run.channels;
  if (d.passes.empty() || !d.totals.time_ns || !layers || !channels || !d.run.parameters || !d.run.tokens_per_step)
    throw InputError("the profile has no passes of a GPT-2 trainer; expected one that `stepscope profile` made of a trainer");
  check_numbers(d);
  check_rows(d);
  StepParts p;
  double forward = 0, backward = 0, optimizer = 0;
  for (const PassRow& pass : d.passes) {
    if (pass.name == "backward")
      backward = pass.time_ns;
    else if (pass.name == "optimizer")
      optimizer = pass.time_ns;
    else if (pass.name == "encoder")
      p.embed_ns = pass.time_ns;
    else if (pass.name == "forward" || pass.name == "classifier")
      forward += pass.time_ns;
  }
  const auto by_layer = [&](const char* pass) {
    std::vector<double> ns(static_cast<size_t>(*layers), 0.0);
    for (const LayerRow& l : d.layers)
      if (l.pass == pass) ns[static_cast<size_t>(l.layer)] = l.time_ns;
    return ns;
  };
  p.forward_layer_ns = by_layer("forward");
  p.backward_layer_ns = by_layer("backward");
  p.loss_ns = std::max(0.0, forward - sum(p.forward_layer_ns));
  double products = 0, adamw = 0;
  for (const OpRow& o : d.ops) {
    if (o.pass == "backward" && (o.op == "lm_head" || o.op == "lnf")) p.head_ns += o.time_ns;
    if (o.pass == "optimizer" && o.op == "adamw") adamw += o.time_ns;
    if (o.pass == "optimizer" && o.op == "grad_norm") p.norm_ns += o.time_ns;
    if ((o.pass == "forward" || o.pass == "backward") && kProducts.contains(o.op)) products += o.time_ns;
  }
  p.update_ns = adamw > 0 ? adamw : std::max(0.0, optimizer - p.norm_ns);
  p.embed_backward_ns = std::max(0.0, backward - p.head_ns - sum(p.backward_layer_ns));
  if (const double both = p.forward_ns() + p.backward_ns(); both > 0) p.product_share_pct = std::min(100.0, products / both * 100);
  fit_to_step(p, d.timing.step_time_ns.median.value_or(*d.totals.time_ns));
  p.tokens = static_cast<double>(*d.run.tokens_per_step);
  p.micro_batches = static_cast<double>(*d.run.accumulation);
  p.rows = p.tokens / p.micro_batches;
  p.jitter_ns = spread(d.timing.step_time_ns.samples);
  const auto& reasons = d.environment.throttle_reasons;
  const bool cap_reported = std::find(reasons.begin(), reasons.end(), "power_cap") != reasons.end();
  p.power_limited = cap_reported && clock_is_lowered(d);
  p.power_cap_alone = cap_reported && !p.power_limited;
  return p;
}

StepParts scaled(const StepParts& parts, double scale) {
  StepParts p = parts;
  scale_passes(p, scale);
  p.tokens *= scale;
  p.rows *= scale;
  p.jitter_ns *= scale;
  return p;
}

double expected_largest(int64_t n) {
  // The integral of x by the density of the largest, n f(x) F(x)^(n-1), where none of it lies outside of ten deviations.
  constexpr double kWidth = 10, kStep = 1e-3;
  double all = 0;
  for (double x = -kWidth; x <= kWidth; x += kStep) {
    const double below = 0.5 * std::erfc(-x / std::sqrt(2.0)), density = std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
    all += x * static_cast<double>(n) * density * std::pow(below, static_cast<double>(n - 1)) * kStep;
  }
  return all;
}

double collective_ns(const LinkCeilings& links, const ClusterShape& shape, const std::string& communicator, const std::string& wanted_kind,
                     const std::string& wanted_type, int64_t ranks, int64_t bytes) {
  if (ranks < 2 || bytes <= 0) return 0;
  const auto [kind, type] = measured_as(links, communicator, wanted_kind, wanted_type, ranks);
  const LinkFit& fit = *nearest_fit(links, communicator, kind, type, ranks);
  const bool crosses = ranks > shape.gpus_per_node;
  const double within =
      fit.ranks == ranks ? measured_ns(links, communicator, kind, type, ranks, bytes).value_or(predicted_ns(fit, bytes)) : 0;
  if (fit.ranks == ranks && !crosses) return within;
  const LinkLine& line = bytes <= fit.knee_bytes ? fit.small : fit.large;
  double bandwidth = line.bus_bytes_per_s;
  if (crosses) {
    if (!(shape.network_bytes_per_s > 0))
      throw InputError(fmt::format("{} GPUs are more than the {} of one node; expected --network-gb-s", ranks, shape.gpus_per_node));
    bandwidth = std::min(bandwidth, shape.network_bytes_per_s);
  }
  const double measured = ring_steps(kind, fit.ranks) * shape.hop_ns;  // by a sweep of one node
  double more = ring_latency_ns(kind, shape, ranks) - measured;
  if (kind == "all_reduce") more = std::min(more, std::max(0.0, tree_latency_ns(shape, ranks) - measured));
  const double moved = bus_factor(kind, ranks) * static_cast<double>(bytes);
  return std::max(within, line.latency_ns + more + (bandwidth > 0 ? moved / bandwidth * 1e9 : 0));
}

ScaledStep scaled_step(const StepParts& p, const ExchangePlan& plan, const LinkCeilings& links, const ClusterShape& shape,
                       const ScalingOptions& o, int64_t ranks) {
  ScaledStep s;
  s.ranks = ranks;
  const auto n = static_cast<double>(ranks);
  const std::vector<Piece> pieces = pieces_of(p, plan);
  s.work_ns = p.rest_ns;
  for (const Piece& piece : pieces) s.work_ns += piece.work_ns;
  std::vector<Transfer> transfers;
  for (const PlannedCollective& c : plan.collectives) {
    Transfer t;
    t.ready = position(pieces, c.ready);
    t.needed = position(pieces, c.needed);
    t.left_ns = collective_ns(links, shape, o.communicator, c.kind, c.type, ranks, c.bytes);
    t.weights = c.op == "gather_weights";
    // The update has no products; forward and backward pass are a mixture.
    const double product_share = c.ready.kind == StepPlace::Kind::update ? 0 : p.product_share_pct / 100;
    if (o.inflation >= 0)
      t.beside.work = 1 - o.inflation;
    else
      t.beside =
          speeds_beside(links, o.communicator, c.kind, c.type, c.bytes, std::llround(p.rows), product_share).value_or(BesideSpeeds{});
    s.communication_ns += t.left_ns;
    transfers.push_back(t);
  }
  TwoQueues queues(pieces, std::move(transfers), s);
  queues.run();
  s.time_ns = s.work_ns + s.tail_ns + s.norm_ns + s.head_ns + s.inflation_ns;
  // At the limit work takes its energy divided by what the links leave of the limit. A wait takes less power than that, so it is not longer.
  if (ranks > 1 && p.power_limited && links.awake)
    s.awake_ns = (s.work_ns + s.inflation_ns - queues.asleep_ns(kLinksSleepAfter_ns)) * std::max(0.0, links.awake->slower());
  if (ranks > 1) s.straggler_ns = p.jitter_ns * expected_largest(ranks);
  s.time_ns += s.awake_ns + s.straggler_ns;
  s.tokens_per_s = p.tokens * n / s.time_ns * 1e9;
  return s;
}

}  // namespace profiler

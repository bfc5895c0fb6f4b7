// `stepscope scaling`: what a step would take on other numbers of GPUs, from the profile of one and a sweep of collectives.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/read_file.h"
#include "cli/commands.h"
#include "cli/rank_exchange.h"
#include "cli/say.h"
#include "cli/values.h"
#include "gpt2/distributed/peer_limit.h"
#include "profiler/document/json.h"
#include "profiler/ranks/cost_model.h"
#include "profiler/report/cells.h"
#include "profiler/report/terminal.h"
#include "profiler/report/view.h"

namespace cli {
namespace {

using stepscope::InputError;

struct ScalingFlags {
  std::string profile, links;
  std::vector<std::string> gpus{"2", "8"};
  bool strong = false, weak = false, markdown = false, json = false;
  int64_t global_tokens = 0;
  std::string communicator = "auto";
  RankExchange exchange;
  int64_t gpus_per_node = 8;
  double network_gb_s = 0, inflation_pct = -1;  // below 0: not given
};

struct Prediction {
  profiler::ScaledStep step;
  std::string communicator;
  profiler::ExchangePlan plan;
  double efficiency_pct = 0;  // tokens/s of N GPUs / (N * tokens/s of one, with the batch of the profile, or with --strong that of all)
};

bool has(const profiler::LinkCeilings& links, const std::string& communicator) {
  return std::any_of(links.points.begin(), links.points.end(),
                     [&](const profiler::LinkPoint& p) { return p.communicator == communicator; });
}

// What `train` takes by itself, of what was measured: copies between two GPUs of a host, else NCCL; whatever there is, if neither.
std::string communicator_for(const ScalingFlags& f, const profiler::LinkCeilings& links, int64_t ranks) {
  if (f.communicator != "auto") return f.communicator;
  if (ranks == 2 && f.gpus_per_node >= 2 && has(links, "peer")) return "peer";
  if (has(links, "nccl") || links.points.empty()) return "nccl";
  return links.points.front().communicator;
}

Prediction predict_one(const ScalingFlags& f, const profiler::ProfileDocument& d, const profiler::StepParts& parts,
                       const profiler::LinkCeilings& links, int64_t ranks) {
  Prediction p;
  p.communicator = communicator_for(f, links, ranks);
  if (p.communicator == "peer" && ranks > f.gpus_per_node)
    throw InputError(
        fmt::format("--communicator peer: {} GPUs are more than the {} of one node, and copies reach the GPUs of one; expected nccl", ranks,
                    f.gpus_per_node));
  if (p.communicator == "peer" && ranks > gpt2::distributed::kMostPeers)
    throw InputError(fmt::format("--communicator peer: {} GPUs; expected at most {}, or nccl", ranks, gpt2::distributed::kMostPeers));
  profiler::ClusterShape shape;
  shape.gpus_per_node = f.gpus_per_node;
  shape.network_bytes_per_s = f.network_gb_s * 1e9;
  profiler::ScalingOptions options;
  options.communicator = p.communicator;
  options.inflation = f.inflation_pct < 0 ? -1 : f.inflation_pct / 100;
  RankExchange exchange = f.exchange;
  exchange.communicator = p.communicator;
  p.plan = exchange_of(d, exchange, ranks, parts.rows);
  p.step = profiler::scaled_step(parts, p.plan, links, shape, options, ranks);
  return p;
}

// Steps of one kind of GPU and links of another say nothing together. A profile of the CPU is for trying the command, with any sweep.
void compare_devices(const ScalingFlags& f, const profiler::ProfileDocument& d, const profiler::LinkCeilings& links) {
  const std::string measured_on = links.device.empty() ? "a device without a name" : links.device;
  if (d.collection.producer == "cpu") {
    if (links.device == "host memory")  // as `doctor --gpus` says of ranks on the CPU
      say(fmt::format("{} and {} are of a CPU, so this predicts nothing about GPUs", f.profile, f.links));
    else
      say(fmt::format("{} is of a CPU and {} of {}, so this is no prediction of either", f.profile, f.links, measured_on));
    return;
  }
  if (!d.environment.gpu)
    throw InputError(fmt::format("{}: environment.gpu is missing, expected the GPU of --ceilings {}: {}", f.profile, f.links, measured_on));
  if (*d.environment.gpu != links.device)
    throw InputError(fmt::format("--ceilings {}: measured on {}, {} is of {}; expected a sweep of that GPU, as `doctor --gpus N` makes it",
                                 f.links, measured_on, f.profile, *d.environment.gpu));
}

// What one of n GPUs computes must be whole sequences in each micro-batch: no trainer splits them.
void check_share(int64_t total, int64_t n, int64_t seq_len, int64_t micro_batches) {
  const int64_t least = n * seq_len * micro_batches;
  if (total % least == 0) return;
  throw InputError(
      fmt::format("--strong --gpus {}: {} tokens for all are {:.6g} sequences of {} for each{}; expected {} or another multiple of {}"
                  " as --global-tokens, or fewer GPUs",
                  n, total, static_cast<double>(total) / static_cast<double>(least), seq_len,
                  micro_batches > 1 ? fmt::format(" of {} micro-batches", micro_batches) : "", least, least));
}

// The collectives of which the sweep does not say what work beside them loses.
void name_unknown_inflation(const ScalingFlags& f, const profiler::LinkCeilings& links, const std::vector<Prediction>& list) {
  if (f.inflation_pct >= 0) return;
  const auto say_unknown = [&](const std::string& beside) {
    say(fmt::format("{} does not say what work beside {} loses, so the prediction leaves that out; `doctor --gpus N` measures it", f.links,
                    beside));
  };
  if (links.beside.empty()) return say_unknown("communication");
  std::map<std::string, std::vector<std::string>> unknown;  // communicator -> kinds, as they come
  for (const Prediction& p : list)
    for (const profiler::PlannedCollective& c : p.plan.collectives) {
      if (profiler::speeds_beside(links, p.communicator, c.kind, c.type, c.bytes, 1, 1)) continue;
      std::vector<std::string>& kinds = unknown[p.communicator];
      if (std::find(kinds.begin(), kinds.end(), c.kind) == kinds.end()) kinds.push_back(c.kind);
    }
  for (const auto& [communicator, kinds] : unknown) say_unknown(fmt::format("{} by {}", fmt::join(kinds, ", "), communicator));
}

std::vector<Prediction> predict(const ScalingFlags& f) {
  const profiler::ProfileDocument d = profiler::load_profile(f.profile);
  const profiler::LinkCeilings links = profiler::links_from_json(stepscope::read_file(f.links), f.links);
  compare_devices(f, d, links);
  const profiler::StepParts parts = [&] {
    try {
      return profiler::step_parts(d);
    } catch (const InputError& e) {
      throw InputError(fmt::format("{}: {}", f.profile, e.what()));
    }
  }();
  const double total = f.global_tokens > 0 ? static_cast<double>(f.global_tokens) : parts.tokens;
  const double one = predict_one(f, d, profiler::scaled(parts, f.strong ? total / parts.tokens : 1), links, 1).step.tokens_per_s;
  std::vector<Prediction> list;
  std::set<int64_t> seen;
  for (const std::string& word : f.gpus) {
    const int64_t n = std::stoll(word);  // whole(), by the flag's check
    if (!seen.insert(n).second) continue;
    if (f.strong)
      check_share(static_cast<int64_t>(total), n, *d.run.seq_len, *d.run.accumulation);  // step_parts checks that both are there
    const double scale = f.strong ? total / static_cast<double>(n) / parts.tokens : 1;
    list.push_back(predict_one(f, d, profiler::scaled(parts, scale), links, n));
    list.back().efficiency_pct = list.back().step.tokens_per_s / (one * static_cast<double>(n)) * 100;
  }
  name_unknown_inflation(f, links, list);
  if (parts.power_cap_alone && links.awake)
    say(fmt::format("{} reports power_cap, but its clock does not show it, so the prediction leaves out what the power of the links takes",
                    f.profile));
  if (parts.power_limited && !links.awake)
    say(
        fmt::format("the step of {} is at the power limit, and {} does not say what the power of its links takes from it; the prediction "
                    "leaves that out",
                    f.profile, f.links));
  return list;
}

profiler::View view_of(const std::vector<Prediction>& list) {
  profiler::View view;
  for (const char* title :
       {"GPUs", "by", "step ms", "work", "tail", "head", "norm", "inflation", "links", "latest", "all comm.", "tokens/s", "%"})
    view.columns.push_back({title, false, false, 0, ""});
  for (const Prediction& p : list) {
    const profiler::ScaledStep& s = p.step;
    profiler::ViewRow row;
    row.cells.push_back({std::to_string(s.ranks), {}, {}});
    row.cells.push_back({s.ranks > 1 ? p.communicator : "", {}, {}});
    for (const double ns :
         {s.time_ns, s.work_ns, s.tail_ns, s.head_ns, s.norm_ns, s.inflation_ns, s.awake_ns, s.straggler_ns, s.communication_ns})
      row.cells.push_back({profiler::milliseconds(ns), {}, {}});
    row.cells.push_back({profiler::thousands(s.tokens_per_s), {}, {}});
    row.cells.push_back({profiler::percent(p.efficiency_pct), {}, {}});
    view.rows.push_back(std::move(row));
  }
  return view;
}

nlohmann::ordered_json json_of(const ScalingFlags& f, const std::vector<Prediction>& list) {
  nlohmann::ordered_json j{{"schema", "stepscope.scaling/1"},
                           {"profile", f.profile},
                           {"ceilings", f.links},
                           {"batch", f.strong ? "strong" : "weak"},
                           {"steps", nlohmann::ordered_json::array()}};
  for (const Prediction& p : list) {
    auto collectives = nlohmann::ordered_json::array();
    for (const profiler::PlannedCollective& c : p.plan.collectives)
      collectives.push_back({{"kind", c.kind}, {"type", c.type}, {"op", c.op}, {"bytes", c.bytes}});
    j["steps"].push_back({{"gpus", p.step.ranks},
                          {"communicator", p.step.ranks > 1 ? nlohmann::ordered_json(p.communicator) : nlohmann::ordered_json()},
                          {"time_ns", p.step.time_ns},
                          {"work_ns", p.step.work_ns},
                          {"tail_ns", p.step.tail_ns},
                          {"head_ns", p.step.head_ns},
                          {"norm_ns", p.step.norm_ns},
                          {"inflation_ns", p.step.inflation_ns},
                          {"awake_ns", p.step.awake_ns},
                          {"straggler_ns", p.step.straggler_ns},
                          {"communication_ns", p.step.communication_ns},
                          {"hidden_ns", p.step.hidden_ns},
                          {"tokens_per_s", p.step.tokens_per_s},
                          {"efficiency_pct", p.efficiency_pct},
                          {"collectives", std::move(collectives)}});
  }
  return j;
}

void run(const ScalingFlags& f) {
  if (f.strong && f.weak) throw InputError("--strong and --weak: expected one of them");
  if (f.json && f.markdown) throw InputError("--json and --markdown: expected one of them");
  if (f.global_tokens > 0 && !f.strong) throw InputError("--global-tokens: expected --strong with it");
  const std::vector<Prediction> list = predict(f);
  if (f.json) {
    fmt::print("{}\n", json_of(f, list).dump(1));
    return;
  }
  const profiler::View view = view_of(list);
  fmt::print("{}", f.markdown ? profiler::markdown_text(view)
                              : profiler::terminal_text(view, profiler::table_width(STDOUT_FILENO), profiler::color_wanted(STDOUT_FILENO)));
  if (!f.markdown) fmt::print("A prediction; docs/scaling.md says from what, and what it leaves out.\n");
  std::fflush(stdout);
}

}  // namespace

void add_scaling_command(Command& app) {
  auto f = std::make_shared<ScalingFlags>();
  Command* c = app.add_subcommand("scaling", "Predict the step on other numbers of GPUs from the profile of one");
  c->add_option("profile", f->profile, "profile document of one GPU")->required();
  c->add_option("--ceilings", f->links, "sweep of collectives that `doctor --gpus N` wrote")->required();
  c->add_list("--gpus", f->gpus, "numbers of GPUs")->check(whole(1, 1 << 20))->capture_default_str();
  c->add_flag("--weak", f->weak, "every GPU keeps the profile's batch (default)");
  c->add_flag("--strong", f->strong, "all GPUs together have one batch, so that each has fewer rows");
  c->add_option("--global-tokens", f->global_tokens, "tokens of that batch (default: the profile's)")->check(whole(1, int64_t{1} << 40));
  c->add_option("--communicator", f->communicator,
                "what carries the gradients; auto: peer for two GPUs of one node where that was measured, else nccl")
      ->one_of({"auto", "nccl", "peer", "staged"})
      ->capture_default_str();
  c->add_option("--communication", f->exchange.communication, "variant of `train` by which gradients travel")
      ->one_of({"zero1_ahead", "zero1", "all_reduce_overlapped", "all_reduce"})
      ->capture_default_str();
  c->add_option("--embedding-exchange", f->exchange.embedding, "likewise for the embedding's gradient; auto: as the trainer would choose")
      ->one_of({"auto", "gathered_bf16_rows", "gathered_rows", "dense"})
      ->capture_default_str();
  c->add_option("--reduce", f->exchange.reduce, "type of the gradients on the links")->one_of({"fp32", "bf16"})->capture_default_str();
  c->add_option(
       "--bucket-mib", f->exchange.bucket_mib,
       "gradients are exchanged in buckets of whole layers, each of at least so many MiB as they are stored (the last may be smaller); 0: "
       "as `train` would choose")
      ->check(whole(0, 1 << 20))
      ->capture_default_str();
  c->add_option("--gpus-per-node", f->gpus_per_node, "GPUs that NVLink connects")->check(whole(1, 4096))->capture_default_str();
  c->add_option("--network-gb-s", f->network_gb_s, "GB/s of one node to others, each direction; needed for more GPUs than one node has")
      ->check(real(1e-3, 1e6));
  c->add_option("--inflation", f->inflation_pct,
                "percent of its time that a collective takes from work beside it (default: as `doctor --gpus N` measured for each kind)")
      ->check(real(0, 99));
  c->add_flag("--markdown", f->markdown, "print the table as Markdown");
  c->add_flag("--json", f->json, "print the prediction as JSON (stepscope.scaling/1)");
  c->footer(
      "Examples:\n"
      "  stepscope scaling profile.json --ceilings links.json --gpus 2,4,8 --weak\n"
      "  stepscope scaling profile.json --ceilings links.json --gpus 8,64,512 --strong --global-tokens 524288 --network-gb-s 370");
  c->callback([f] { run(*f); });
}

}  // namespace cli

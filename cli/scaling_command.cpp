// `stepscope scaling`: what a step would take on other numbers of GPUs, from the profile of one and a sweep of collectives.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/read_file.h"
#include "cli/commands.h"
#include "cli/values.h"
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
  bool strong = false, weak = false, zero = false, markdown = false, json = false;
  int64_t global_tokens = 0;
  std::string reduce = "fp32";
  int64_t bucket_mib = 25, gpus_per_node = 8;
  double network_gb_s = 0, inflation_pct = 0;
};

struct Prediction {
  profiler::ScaledStep step;
  double efficiency_pct = 0;  // tokens/s of N GPUs / (N * tokens/s of one at the batch that one has here)
};

std::vector<Prediction> predict(const ScalingFlags& f) {
  const profiler::ProfileDocument d = profiler::load_profile(f.profile);
  const profiler::StepParts parts = [&] {
    try {
      return profiler::step_parts(d);
    } catch (const InputError& e) {
      throw InputError(fmt::format("{}: {}", f.profile, e.what()));
    }
  }();
  const profiler::LinkCeilings links = profiler::links_from_json(stepscope::read_file(f.links), f.links);
  profiler::ClusterShape shape;
  shape.gpus_per_node = f.gpus_per_node;
  shape.network_bytes_per_s = f.network_gb_s * 1e9;
  profiler::ScalingOptions options;
  options.shard_update = f.zero;
  options.type = f.reduce;
  options.weights_type = d.run.trainer == "fp32" ? "fp32" : "bf16";
  options.bucket_bytes = f.bucket_mib << 20;
  options.inflation = f.inflation_pct / 100;
  const double one = profiler::scaled_step(parts, links, shape, options, 1).tokens_per_s;
  const double total = f.global_tokens > 0 ? static_cast<double>(f.global_tokens) : parts.tokens;
  std::vector<Prediction> list;
  std::set<int64_t> seen;
  for (const std::string& word : f.gpus) {
    const int64_t n = std::stoll(word);  // whole(), by the flag's check
    if (!seen.insert(n).second) continue;
    const double scale = f.strong ? total / static_cast<double>(n) / parts.tokens : 1;
    const profiler::ScaledStep step = profiler::scaled_step(profiler::scaled(parts, scale), links, shape, options, n);
    list.push_back({step, step.tokens_per_s / (one * static_cast<double>(n)) * 100});
  }
  return list;
}

profiler::View view_of(const std::vector<Prediction>& list) {
  profiler::View view;
  for (const char* title : {"GPUs", "step ms", "work", "tail", "head", "norm", "inflation", "latest", "all comm.", "tokens/s", "%"})
    view.columns.push_back({title, false, false, 0, ""});
  for (const Prediction& p : list) {
    const profiler::ScaledStep& s = p.step;
    profiler::ViewRow row;
    row.cells.push_back({std::to_string(s.ranks), {}, {}});
    for (const double ns : {s.time_ns, s.work_ns, s.tail_ns, s.head_ns, s.norm_ns, s.inflation_ns, s.straggler_ns, s.communication_ns})
      row.cells.push_back({profiler::milliseconds(ns), {}, {}});
    row.cells.push_back({profiler::thousands(s.tokens_per_s), {}, {}});
    row.cells.push_back({profiler::percent(p.efficiency_pct), {}, {}});
    view.rows.push_back(std::move(row));
  }
  return view;
}

nlohmann::ordered_json json_of(const std::vector<Prediction>& list) {
  nlohmann::ordered_json j{{"schema", "stepscope.scaling/1"}, {"steps", nlohmann::ordered_json::array()}};
  for (const Prediction& p : list)
    j["steps"].push_back({{"gpus", p.step.ranks},
                          {"time_ns", p.step.time_ns},
                          {"work_ns", p.step.work_ns},
                          {"tail_ns", p.step.tail_ns},
                          {"head_ns", p.step.head_ns},
                          {"norm_ns", p.step.norm_ns},
                          {"inflation_ns", p.step.inflation_ns},
                          {"straggler_ns", p.step.straggler_ns},
                          {"communication_ns", p.step.communication_ns},
                          {"tokens_per_s", p.step.tokens_per_s},
                          {"efficiency_pct", p.efficiency_pct}});
  return j;
}

void run(const ScalingFlags& f) {
  if (f.strong && f.weak) throw InputError("--strong and --weak: expected one of them");
  if (f.global_tokens > 0 && !f.strong) throw InputError("--global-tokens: expected --strong with it");
  const std::vector<Prediction> list = predict(f);
  if (f.json) {
    fmt::print("{}\n", json_of(list).dump(1));
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
  c->add_option("--global-tokens", f->global_tokens, "tokens of that batch (default: the profile's)")->check(whole(1));
  c->add_flag("--zero", f->zero, "ZeRO-1: every GPU updates its part and gathers the weights beside the next forward pass");
  c->add_option("--reduce", f->reduce, "type of the gradients on the links")->one_of({"fp32", "bf16"})->capture_default_str();
  c->add_option("--bucket-mib", f->bucket_mib, "gradients are exchanged in buckets of whole layers, each of at least so many MiB of fp32")
      ->check(whole(1, 1 << 20))
      ->capture_default_str();
  c->add_option("--gpus-per-node", f->gpus_per_node, "GPUs that NVLink connects")->check(whole(1, 4096))->capture_default_str();
  c->add_option("--network-gb-s", f->network_gb_s, "GB/s of one node to others, each direction; needed for more GPUs than one node has")
      ->check(real(0, 1e6));
  c->add_option("--inflation", f->inflation_pct,
                "percent by which work beside communication is slower, as `diff` of one and two GPUs shows")
      ->check(real(0, 1000))
      ->capture_default_str();
  c->add_flag("--markdown", f->markdown, "print the table as Markdown");
  c->add_flag("--json", f->json, "print the prediction as JSON (stepscope.scaling/1)");
  c->footer(
      "Examples:\n"
      "  stepscope scaling profile.json --ceilings links.json --gpus 2,4,8 --weak\n"
      "  stepscope scaling profile.json --ceilings links.json --gpus 8,64,512 --strong --global-tokens 524288 --network-gb-s 370 --zero");
  c->callback([f] { run(*f); });
}

}  // namespace cli

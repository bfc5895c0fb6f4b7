#include "gpt2/run_json.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json_text.h"
#include "base/run_fields.h"
#include "gpt2/work_model.h"

namespace gpt2 {
namespace {

using nlohmann::ordered_json;

// 3e-4f is 3.0000000142e-4 as a double; what was typed is the shortest decimal that reads as the same float.
double as_typed(float value) {
  const std::string text = fmt::format("{}", value);
  return std::strtod(text.c_str(), nullptr);
}

stepscope::RunFields run_fields_of(const Trainer& trainer, const LoopOptions& o) {
  const TrainerOptions& t = trainer.options();
  const ModelConfig& c = t.model;
  stepscope::RunFields f;
  f.command = o.command;
  f.trainer = std::string(trainer.name());
  f.device = trainer.device();
  if (!o.model.empty()) f.model = o.model;
  f.layers = c.layers;
  f.heads = c.heads;
  f.channels = c.channels;
  f.vocab_size = c.vocab_size;
  f.padded_vocab = c.padded_vocab;
  f.max_seq_len = c.max_seq_len;
  f.parameters = tensor_layout(c).total;
  f.batch_size = t.batch_size;
  f.seq_len = t.seq_len;
  f.accumulation = o.accumulation;
  f.matmul = t.matmul;
  f.variants = t.variants;
  f.recompute = t.recompute;
  f.weight_rounding = t.weight_rounding;
  f.deterministic = t.deterministic;
  f.direct_from = o.direct_from;
  f.direct_steps = o.direct_steps;
  f.seed = o.seed;
  f.data = o.data;
  f.shuffle = o.shuffle;
  f.overfit = o.overfit;
  f.lr_schedule = o.learning_rate.schedule;
  f.learning_rate = as_typed(o.learning_rate.peak);
  f.lr_warmup_steps = o.learning_rate.warmup;
  f.lr_total_steps = o.learning_rate.total;
  f.lr_final_fraction = as_typed(o.learning_rate.final_fraction);
  f.weight_decay = as_typed(o.adamw.weight_decay);
  f.clip = as_typed(o.adamw.clip);
  f.skip_loss_outliers = o.skip_loss_outliers;
  f.skip_grad_outliers = o.skip_grad_outliers;
  f.beta1 = as_typed(o.adamw.beta1);
  f.beta2 = as_typed(o.adamw.beta2);
  f.eps = as_typed(o.adamw.eps);
  if (t.communicator != nullptr) {
    f.communicator = t.communicator->name();
    f.bucket_mib = t.bucket_mib;
    f.nccl_blocks = o.nccl_blocks;
  }
  f.tokens_per_step = t.batch_size * t.seq_len * o.accumulation;
  f.model_flops = model_flops(c, t.batch_size, t.seq_len, o.accumulation);
  return f;
}

template <class T>
void put(ordered_json& object, std::string_view name, const T& value) {
  object[std::string(name)] = value;
}
template <class T>
void put(ordered_json& object, std::string_view name, const std::optional<T>& value) {
  if (value) put(object, name, *value);
}

void write_fields(ordered_json& doc, const stepscope::RunFields& fields) {
  for (const stepscope::RunField& f : stepscope::run_fields()) {
    ordered_json& object = f.object.empty() ? doc : doc[std::string(f.object)];
    std::visit([&](auto member) { put(object, f.name, fields.*member); }, f.member);
  }
}

// Which of how many ranks wrote this file. B, T, accumulation, tokens and work in it are this rank's own; a step of the run has `size`
// times as many.
void write_world(ordered_json& doc, const Trainer& trainer, const LoopOptions& o) {
  if (o.channel == nullptr) return;
  const distributed::World& w = o.channel->world();
  const auto* communicator = trainer.options().communicator;
  doc["world"] = {{"rank", w.rank},
                  {"size", w.size},
                  {"local_rank", w.local_rank},
                  {"local_size", w.local_size},
                  {"node", w.node},
                  {"nodes", w.nodes},
                  {"job", w.job},
                  {"found_by", w.found_by},
                  {"communicator", communicator ? communicator->name() : ""}};
}

}  // namespace

std::string run_settings_json(const Trainer& trainer, const LoopOptions& options) {
  ordered_json settings = ordered_json::object();
  write_fields(settings, run_fields_of(trainer, options));
  write_world(settings, trainer, options);
  return stepscope::json_text(settings, -1);
}

std::string run_json(const Trainer& trainer, const LoopOptions& options, const RunResult& result, std::span<const int64_t> validated_steps,
                     const std::string& stopped) {
  ordered_json doc{{"schema", stepscope::kRunSchema}};
  write_fields(doc, run_fields_of(trainer, options));
  write_world(doc, trainer, options);
  if (!stopped.empty()) doc["stopped"] = stopped;
  auto& memory = doc["memory"] = ordered_json::array();
  for (const MemoryItem& item : trainer.memory()) memory.push_back({{"name", item.name}, {"bytes", item.bytes}});
  if (const auto used = trainer.memory_used_bytes()) doc["memory_used_bytes"] = *used;
  auto& steps = doc["steps"] = ordered_json::array();
  for (const StepLog& log : result.steps) {
    ordered_json row{{"step", log.outcome.step}};
    // A number that is not finite has no place in JSON: the field is absent and `stopped` says why.
    if (std::isfinite(log.outcome.loss)) row["loss"] = log.outcome.loss;
    if (std::isfinite(log.outcome.grad_norm)) row["grad_norm"] = log.outcome.grad_norm;
    row["time_ns"] = log.outcome.time_ns;
    row["learning_rate"] = log.learning_rate;
    steps.push_back(std::move(row));
  }
  auto& validation = doc["validation"] = ordered_json::array();
  for (size_t i = 0; i < result.val_losses.size(); ++i)
    validation.push_back({{"step", validated_steps[i]}, {"loss", result.val_losses[i]}});
  auto& work = doc["work"] = ordered_json::array();
  for (const OpWork& w : trainer.work(options.accumulation)) {
    ordered_json row{{"path", leaf_path(w.pass, w.layer, w.op)}, {"pass", name(w.pass)}};
    if (w.layer != kNoLayer) row["layer"] = w.layer;
    row["op"] = name(w.op);
    row["flops"] = w.flops;
    row["min_bytes"] = w.min_bytes;
    work.push_back(std::move(row));
  }
  return stepscope::json_text(doc, 1) + "\n";
}

}  // namespace gpt2

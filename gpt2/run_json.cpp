#include "gpt2/run_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "gpt2/work_model.h"

namespace gpt2 {

std::string run_json(const Trainer& trainer, const LoopOptions& options, const RunResult& result,
                     std::span<const int64_t> validated_steps, const std::string& stopped) {
  using nlohmann::ordered_json;
  const TrainerOptions& t = trainer.options();
  const ModelConfig& c = t.model;
  ordered_json doc{
      {"schema", "stepscope.run/1"},
      {"command", options.command},
      {"trainer", trainer.name()},
      {"device", trainer.device()},
      {"model",
       {{"max_seq_len", c.max_seq_len},
        {"vocab_size", c.vocab_size},
        {"padded_vocab", c.padded_vocab},
        {"layers", c.layers},
        {"heads", c.heads},
        {"channels", c.channels}}},
      {"batch_size", t.batch_size},
      {"seq_len", t.seq_len},
      {"accumulation", options.accumulation},
      {"matmul", t.matmul},
      {"variants", t.variants},
      {"recompute", t.recompute},
      {"weight_rounding", t.weight_rounding},
      {"deterministic", t.deterministic},
      {"seed", options.seed},
      {"data", options.data},
      {"shuffle", options.shuffle},
      {"parameters", tensor_layout(c).total},
      {"tokens_per_step", t.batch_size * t.seq_len * options.accumulation},
      {"model_flops", model_flops(c, t.batch_size, t.seq_len, options.accumulation)},
  };
  if (!stopped.empty()) doc["stopped"] = stopped;
  auto& memory = doc["memory"] = ordered_json::array();
  for (const MemoryItem& item : trainer.memory())
    memory.push_back({{"name", item.name}, {"bytes", item.bytes}});
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
  return doc.dump(1) + "\n";
}

}  // namespace gpt2

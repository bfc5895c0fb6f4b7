#include "cli/trainer_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "cli/gpu.h"
#include "gpt2/checkpoint.h"
#include "gpt2/errors.h"
#include "gpt2/reference/reference_trainer.h"
#ifdef STEPSCOPE_WITH_CUDA
#include "fp32/trainer.h"
#include "mixed/trainer.h"
#endif

namespace cli {
namespace {

using stepscope::InputError;

constexpr int64_t kMaxBatch = int64_t{1} << 20;

bool is_preset(const std::string& model) {
  const auto names = gpt2::model_names();
  return std::find(names.begin(), names.end(), model) != names.end();
}

void check_sizes(const TrainerFlags& f, const gpt2::ModelConfig& model) {
  auto range = [](const char* flag, int64_t v, int64_t low, int64_t high) {
    if (v < low || v > high) throw InputError(fmt::format("{} is {}: expected {} to {}", flag, v, low, high));
  };
  range("--batch-size", f.batch_size, 1, kMaxBatch);
  range("--seq-len", f.seq_len, 1, model.max_seq_len);
  range("--accumulation", f.accumulation, 1, kMaxBatch);
  // B*T*Vp logits are the largest tensor of a step; beyond 2^40 elements no machine holds them.
  if (f.batch_size > (int64_t{1} << 40) / f.seq_len / model.padded_vocab)
    throw InputError(fmt::format("--batch-size {} x --seq-len {} is too large: the logits alone would have more than 2^40 "
                                 "elements",
                                 f.batch_size, f.seq_len));
}

}  // namespace

std::map<std::string, std::string> parse_variants(const std::vector<std::string>& texts) {
  std::map<std::string, std::string> out;
  for (const std::string& text : texts) {
    const size_t eq = text.find('=');
    if (eq == std::string::npos || eq == 0 || eq + 1 == text.size())
      throw InputError(fmt::format("--variant '{}': expected OP=NAME", text));
    if (!out.emplace(text.substr(0, eq), text.substr(eq + 1)).second)
      throw InputError(fmt::format("--variant: '{}' is given twice", text.substr(0, eq)));
  }
  return out;
}

void add_trainer_flags(CLI::App& c, TrainerFlags& f) {
  c.add_option("--trainer", f.trainer, "mixed (bf16), fp32, reference (CPU), or auto: the best this machine can run")->capture_default_str();
  c.add_option("--model", f.model,
               fmt::format("{}, or a checkpoint file (default: d12 on a GPU, tiny on a CPU)", fmt::join(gpt2::model_names(), " ")));
  c.add_option("--data", f.data, "token shards (files or globs), or `synthetic`")->capture_default_str();
  c.add_option("--val-data", f.val_data, "token shards for the validation loss");
  c.add_option("--batch-size,-b", f.batch_size, "sequences per micro-batch (default 4)");
  c.add_option("--seq-len,-t", f.seq_len, "tokens per sequence (default 1024 on a GPU, 64 on a CPU)");
  c.add_option("--steps", f.steps, "optimizer steps")->capture_default_str();
  c.add_option("--matmul", f.matmul, "matrix products: of the fp32 trainer fp32 (no tensor cores; default) or tf32, of the mixed one bf16");
  c.add_option("--variant", f.variants, "choose how an op is done: OP=NAME (repeatable; `stepscope train --list-variants`)");
  c.add_option("--recompute", f.recompute, "activations that the mixed trainer makes again in the backward pass: none, gelu or gelu+ln")
      ->capture_default_str();
  c.add_option("--weight-rounding", f.weight_rounding, "of the mixed trainer's bf16 weights from their fp32 masters: nearest or stochastic")
      ->capture_default_str();
  c.add_flag("--deterministic", f.deterministic, "only variants that repeat bit for bit (the fp32 trainer's always do)");
  c.add_option("--direct-from", f.direct_from, "")->group("");  // both set by `profile`: counters cannot be read inside CUDA graphs
  c.add_option("--direct-steps", f.direct_steps, "")->group("");
  c.add_option("--seed", f.seed, "of the initial weights and of the data order")->capture_default_str();
  c.add_flag("--no-shuffle", f.no_shuffle, "read the shards in order");
  c.add_flag("--overfit", f.overfit, "the same batch in every step");
  c.add_option("--accumulation,--grad-accumulation", f.accumulation, "micro-batches per step")->capture_default_str();
  c.add_option("--lr-schedule", f.schedule, "cosine, linear, constant or wsd")->capture_default_str();
  c.add_option("--lr,--learning-rate", f.learning_rate, "peak learning rate")->capture_default_str();
  c.add_option("--lr-warmup", f.lr_warmup, "steps of linear learning-rate warm-up")->capture_default_str();
  c.add_option("--lr-final-fraction", f.final_lr_fraction, "of the peak, reached where the schedule ends")->capture_default_str();
  c.add_option("--lr-total-steps", f.lr_total_steps, "where the schedule ends (default: --steps)");
  c.add_option("--weight-decay", f.weight_decay, "on matrices only")->capture_default_str();
  c.add_option("--clip", f.clip, "gradient norm is clipped to this; 0 = no clipping")->capture_default_str();
  c.add_option("--beta1", f.beta1, "AdamW")->capture_default_str();
  c.add_option("--beta2", f.beta2, "AdamW")->capture_default_str();
  c.add_option("--eps", f.eps, "AdamW")->capture_default_str();
}

std::optional<std::string> settle(TrainerFlags& f) {
  std::optional<std::string> notice;
  if (f.trainer == "auto") {
    const GpuStatus gpu = gpu_status();
    f.trainer = gpu.present ? "mixed" : "reference";
    if (!gpu.present)
      notice = fmt::format("no GPU ({}); running the CPU reference{}", gpu.why_not,
                           f.model.empty() ? " on the small model `tiny`" : "");
  }
  const bool cpu = f.trainer == "reference";
  if (f.matmul.empty()) f.matmul = f.trainer == "mixed" ? "bf16" : "fp32";
  if (f.model.empty()) f.model = cpu ? "tiny" : "d12";
  if (f.batch_size == 0) f.batch_size = 4;
  if (!is_preset(f.model) && !std::filesystem::exists(f.model))
    throw InputError(fmt::format("--model '{}' is neither a file nor one of {}", f.model, fmt::join(gpt2::model_names(), ", ")));
  if (f.seq_len == 0) {
    // A checkpoint may hold a shorter model than the default length.
    const int64_t longest = is_preset(f.model) ? gpt2::model_from_name(f.model).max_seq_len : gpt2::checkpoint_config(f.model).max_seq_len;
    f.seq_len = std::min<int64_t>(cpu ? 64 : 1024, longest);
  }
  return notice;
}

std::vector<std::string> as_arguments(const TrainerFlags& f, int64_t steps) {
  std::vector<std::string> a{"train", "--trainer", f.trainer, "--model", f.model};
  auto add = [&](const char* flag, const std::string& value) { a.insert(a.end(), {flag, value}); };
  if (!f.data.empty()) {
    a.emplace_back("--data");
    a.insert(a.end(), f.data.begin(), f.data.end());
  }
  if (!f.val_data.empty()) {
    a.emplace_back("--val-data");
    a.insert(a.end(), f.val_data.begin(), f.val_data.end());
  }
  add("--batch-size", std::to_string(f.batch_size));
  add("--seq-len", std::to_string(f.seq_len));
  add("--steps", std::to_string(steps));
  add("--matmul", f.matmul);
  for (const std::string& v : f.variants) add("--variant", v);
  add("--recompute", f.recompute);
  add("--weight-rounding", f.weight_rounding);
  if (f.deterministic) a.emplace_back("--deterministic");
  if (f.direct_steps > 0) {
    add("--direct-from", std::to_string(f.direct_from));
    add("--direct-steps", std::to_string(f.direct_steps));
  }
  add("--seed", std::to_string(f.seed));
  if (f.no_shuffle) a.emplace_back("--no-shuffle");
  if (f.overfit) a.emplace_back("--overfit");
  add("--accumulation", std::to_string(f.accumulation));
  add("--lr-schedule", f.schedule);
  add("--lr", fmt::format("{}", f.learning_rate));
  add("--lr-warmup", std::to_string(f.lr_warmup));
  add("--lr-total-steps", std::to_string(f.lr_total_steps > 0 ? f.lr_total_steps : steps));
  add("--lr-final-fraction", fmt::format("{}", f.final_lr_fraction));
  add("--weight-decay", fmt::format("{}", f.weight_decay));
  add("--clip", fmt::format("{}", f.clip));
  add("--beta1", fmt::format("{}", f.beta1));
  add("--beta2", fmt::format("{}", f.beta2));
  add("--eps", fmt::format("{}", f.eps));
  return a;
}

gpt2::TrainerOptions trainer_options(const TrainerFlags& f) {
  gpt2::TrainerOptions o;
  const bool from_file = !is_preset(f.model);
  o.model = from_file ? gpt2::checkpoint_config(f.model) : gpt2::model_from_name(f.model);
  o.batch_size = f.batch_size;
  o.seq_len = f.seq_len;
  const bool mixed = f.trainer == "mixed";
  if (mixed ? f.matmul != "bf16" : f.matmul != "fp32" && f.matmul != "tf32")
    throw InputError(fmt::format("--matmul '{}': expected {}", f.matmul, mixed ? "bf16, the mixed trainer's only one" : "fp32 or tf32"));
  if (!mixed && f.recompute != "none")
    throw InputError(fmt::format("--recompute {}: only the mixed trainer recomputes", f.recompute));
  if (!mixed && f.weight_rounding != "nearest")
    throw InputError(fmt::format("--weight-rounding {}: only the mixed trainer rounds its weights", f.weight_rounding));
  o.matmul = f.matmul;
  o.recompute = f.recompute;
  o.weight_rounding = f.weight_rounding;
  o.deterministic = f.deterministic;
  o.variants = parse_variants(f.variants);
  check_sizes(f, o.model);
  return o;
}

std::unique_ptr<gpt2::Trainer> make_trainer(const TrainerFlags& f, const gpt2::TrainerOptions& o) {
  std::unique_ptr<gpt2::Trainer> trainer;
  if (f.trainer == "reference") {
    if (!o.variants.empty()) throw InputError("--variant: the CPU reference has no variants");
    if (o.matmul != "fp32") throw InputError("--matmul tf32: the CPU reference computes in fp32");
    trainer = gpt2::make_reference_trainer(o);
  } else if (f.trainer == "fp32" || f.trainer == "mixed") {
    if (const GpuStatus gpu = gpu_status(); !gpu.present)
      throw stepscope::MachineError(fmt::format("--trainer {} needs a GPU: {}", f.trainer, gpu.why_not));
#ifdef STEPSCOPE_WITH_CUDA
    trainer = f.trainer == "fp32" ? fp32::make_fp32_trainer(o) : mixed::make_mixed_trainer(o);
#endif
  } else {
    throw InputError(fmt::format("unknown trainer '{}': expected auto, mixed, fp32 or reference", f.trainer));
  }
  for (const std::string& notice : trainer->notices()) fmt::print(stderr, "stepscope: {}\n", notice);
  if (!is_preset(f.model)) {
    trainer->write(gpt2::State::parameters, gpt2::load_checkpoint(f.model).parameters);
  } else {
    trainer->write(gpt2::State::parameters, gpt2::init_parameters(o.model, f.seed));
  }
  return trainer;
}

gpt2::LoopOptions loop_options(const TrainerFlags& f) {
  gpt2::LoopOptions o;
  o.data = f.data;
  o.val_data = f.val_data;
  o.seed = f.seed;
  o.shuffle = !f.no_shuffle;
  o.steps = f.steps;
  o.accumulation = f.accumulation;
  gpt2::check_schedule(f.schedule);
  o.learning_rate = {f.schedule, f.learning_rate, f.lr_warmup, f.final_lr_fraction,
                     f.lr_total_steps > 0 ? f.lr_total_steps : f.steps};
  o.adamw = {f.learning_rate, f.beta1, f.beta2, f.eps, f.weight_decay, f.clip};
  o.overfit = f.overfit;
  o.direct_from = f.direct_from;
  o.direct_steps = f.direct_steps;
  return o;
}

}  // namespace cli

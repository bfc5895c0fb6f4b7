#include "cli/trainer_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "cli/gpu.h"
#include "cli/say.h"
#include "cli/values.h"
#include "gpt2/checkpoint.h"
#include "gpt2/data/token_shards.h"
#include "gpt2/outliers.h"
#include "gpt2/reference/reference_trainer.h"
#ifdef STEPSCOPE_WITH_CUDA
#include "fp32/trainer.h"
#include "fp32/variants.h"
#include "mixed/trainer.h"
#include "mixed/variants.h"
#endif

namespace cli {
namespace {

using stepscope::InputError;

constexpr int64_t kMaxBatch = int64_t{1} << 20;
constexpr double kMaxFloat = 1e38;  // these are floats

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
    throw InputError(
        fmt::format("--batch-size {} x --seq-len {} is too large: the logits alone would have more than 2^40 "
                    "elements",
                    f.batch_size, f.seq_len));
}

// Which of the flags that some trainers lack this trainer has. `matmul`: the rates of its matrix products, the default first.
struct Abilities {
  std::string_view trainer;
  std::vector<std::string_view> matmul;
  bool recomputes, rounds_weights;
};
const std::array<Abilities, 3>& abilities() {
  static const std::array<Abilities, 3> all{
      {{"mixed", {"bf16"}, true, true}, {"fp32", {"fp32", "tf32"}, false, false}, {"reference", {"fp32"}, false, false}}};
  return all;
}
const Abilities* abilities_of(std::string_view trainer) {
  for (const Abilities& a : abilities())
    if (a.trainer == trainer) return &a;
  return nullptr;
}
bool has_matmul(const Abilities& a, std::string_view rate) { return std::find(a.matmul.begin(), a.matmul.end(), rate) != a.matmul.end(); }

// The flags of `f` that the trainer lacks, as typed; each with whether another one has it.
template <class Report>
void each_lacking(const TrainerFlags& f, const Abilities& a, Report report) {
  if (!f.matmul.empty() && !has_matmul(a, f.matmul))
    report("--matmul " + f.matmul, [&](const Abilities& other) { return has_matmul(other, f.matmul); });
  if (f.recompute != "none" && !a.recomputes) report("--recompute " + f.recompute, [](const Abilities& other) { return other.recomputes; });
  if (f.weight_rounding != "nearest" && !a.rounds_weights)
    report("--weight-rounding " + f.weight_rounding, [](const Abilities& other) { return other.rounds_weights; });
}

// --trainer auto would take `first`. If a flag needs another trainer, returns that trainer and the flag. nullopt: `first` will do, or
// no trainer has all the flags (then `first` refuses the ones that it lacks).
std::optional<std::pair<std::string, std::string>> only_trainer_with(const TrainerFlags& f, std::string_view first) {
  std::string flag;
  each_lacking(f, *abilities_of(first), [&](const std::string& text, auto) {
    if (flag.empty()) flag = text;
  });
  if (flag.empty()) return std::nullopt;
  for (const Abilities& other : abilities()) {
    bool has_all = true;
    each_lacking(f, other, [&](const std::string&, auto) { has_all = false; });
    if (has_all) return std::pair(std::string(other.trainer), flag);
  }
  return std::nullopt;
}

}  // namespace

void require_preset(const std::string& model) {
  if (!is_preset(model)) throw InputError(fmt::format("--model '{}': expected one of {}", model, fmt::join(gpt2::model_names(), ", ")));
}

void check_abilities(const TrainerFlags& f) {
  const Abilities* a = abilities_of(f.trainer);
  if (!a) throw InputError(fmt::format("unknown trainer '{}': expected auto, mixed, fp32 or reference", f.trainer));
  each_lacking(f, *a, [&](const std::string& flag, auto has) {
    std::string others;
    for (const Abilities& other : abilities())
      if (has(other)) others += fmt::format("{}--trainer {}", others.empty() ? "" : " or ", other.trainer);
    if (!others.empty()) throw InputError(fmt::format("{}: the {} trainer does not have it, {} does", flag, a->trainer, others));
    std::string rates;
    for (const Abilities& each : abilities())
      rates += fmt::format("{}{} (--trainer {})", rates.empty() ? "" : ", ", fmt::join(each.matmul, " or "), each.trainer);
    throw InputError(fmt::format("{}: expected {}", flag, rates));
  });
}

namespace {

// If this trainer lacks a slot or variant and another trainer has it, the error names that trainer. A variant that no trainer has is
// refused in the words of the trainer's own table, which lists its variants.
void check_variants([[maybe_unused]] std::string_view trainer, const std::map<std::string, std::string>& wanted,
                    [[maybe_unused]] bool deterministic) {
  if (wanted.empty()) return;  // the table of the mixed trainer loads cuDNN to see whether it is there
  using Table = std::vector<gpt2::VariantInfo>;
  std::vector<std::pair<std::string_view, Table>> tables{{"reference", {}}};
#ifdef STEPSCOPE_WITH_CUDA
  tables.emplace_back("mixed", mixed::mixed_variants());
  tables.emplace_back("fp32", fp32::fp32_variants());
#endif
  const auto has = [](const Table& table, const std::string& slot, const std::string& name) {
    return std::any_of(table.begin(), table.end(), [&](const gpt2::VariantInfo& row) {
      return row.slot == slot && std::find(row.names.begin(), row.names.end(), name) != row.names.end();
    });
  };
  const auto own = std::find_if(tables.begin(), tables.end(), [&](const auto& t) { return t.first == trainer; });
  if (own == tables.end()) return;
  for (const auto& [slot, name] : wanted) {
    if (has(own->second, slot, name)) continue;
    for (const auto& [other, table] : tables)
      if (has(table, slot, name))
        throw InputError(fmt::format("--variant {}={}: the {} trainer has no such variant, --trainer {} does", slot, name, trainer, other));
  }
  if (trainer == "reference") throw InputError("--variant: the CPU reference has no variants");
#ifdef STEPSCOPE_WITH_CUDA
  try {
    if (trainer == "fp32") fp32::choose_variants(wanted);
    if (trainer == "mixed") mixed::choose_variants(wanted, deterministic);
  } catch (const stepscope::MachineError&) {  // what this machine lacks is no mistake of the user; the trainer says it
  }
#endif
}

}  // namespace

std::vector<std::string> recomputations() { return {"none", "gelu", "gelu+ln"}; }
std::vector<std::string> weight_roundings() { return {"nearest", "stochastic"}; }

std::string why_no_variants() {
#ifdef STEPSCOPE_WITH_CUDA
  return "";
#else
  return gpu_status().why_not;
#endif
}

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

namespace {
std::vector<gpt2::VariantFacts> facts_of([[maybe_unused]] std::string_view trainer) {
#ifdef STEPSCOPE_WITH_CUDA
  if (trainer == "fp32") return fp32::fp32_variant_facts();
  if (trainer == "mixed") return mixed::mixed_variant_facts();
#endif
  return {};
}
}  // namespace

std::vector<std::string> leave_out_idle_variants(TrainerFlags& f, int64_t ranks) {
  std::vector<std::string> why;
  if (f.variants.empty()) return why;  // as in check_variants
  const auto facts = facts_of(f.trainer);
  std::erase_if(f.variants, [&](const std::string& text) {
    const auto fact = std::ranges::find_if(facts, [&](const gpt2::VariantFacts& v) { return v.slot + "=" + v.name == text; });
    if (fact == facts.end() || !(fact->needs_ranks ? ranks == 1 : fact->is_default)) return false;
    why.push_back(fmt::format("{} is {}", text, fact->needs_ranks ? "for several GPUs" : "the default"));
    return true;
  });
  return why;
}

void add_shards(stepscope::NamedFiles& files, const char* flag, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    try {
      for (const std::string& file : gpt2::expand_globs({pattern})) files.emplace_back(flag, file);
    } catch (const InputError&) {  // "synthetic", or a mistake
    }
  }
}

void add_trainer_flags(Command& c, TrainerFlags& f) {
  c.add_option("--trainer", f.trainer, "mixed (bf16), fp32, reference (CPU), or auto: the best this machine can run")
      ->capture_default_str();
  c.add_option("--model", f.model,
               fmt::format("{}, or a checkpoint file (default: d12 on a GPU, tiny on a CPU)", fmt::join(gpt2::model_names(), " ")));
  c.add_option("--data", f.data, "train on these token shards (files or globs), or on `synthetic` tokens")->capture_default_str();
  c.add_option("--val-data", f.val_data, "compute the validation loss on these token shards");
  c.add_option("--batch-size,-b", f.batch_size, "sequences per micro-batch (default 4)")->check(whole(1, kMaxBatch));
  c.add_option("--seq-len,-t", f.seq_len, "tokens per sequence (default 1024 on a GPU, 64 on a CPU)")->check(whole(1, kMaxBatch));
  c.add_option("--steps", f.steps, "optimizer steps")->check(whole(1))->capture_default_str();
  c.add_option("--matmul", f.matmul,
               "rate of the matrix products: fp32 (default, no tensor cores) or tf32 (fp32 trainer), bf16 (mixed trainer)");
  c.add_option("--variant", f.variants, "choose the variant of an op: OP=NAME (repeatable; `stepscope train --list-variants` shows them)");
  c.add_option("--recompute", f.recompute, "which activations the backward pass computes again: none, gelu or gelu+ln (mixed trainer)")
      ->one_of(recomputations())
      ->capture_default_str();
  c.add_option("--weight-rounding", f.weight_rounding, "how bf16 weights are rounded from fp32: nearest or stochastic (mixed trainer)")
      ->one_of(weight_roundings())
      ->capture_default_str();
  c.add_flag("--deterministic", f.deterministic, "use only variants that repeat bit for bit (the fp32 trainer's always do)");
  c.add_option("--direct-from", f.direct_from, "first step that launches its kernels without the CUDA graph")
      ->check(whole(0))
      ->group("");  // both set by `profile`: counters cannot be read inside CUDA graphs
  c.add_option("--direct-steps", f.direct_steps, "number of steps that launch without the CUDA graph")->check(whole(0))->group("");
  c.add_option("--seed", f.seed, "seeds the initial weights and the data order")->check(seed())->capture_default_str();
  c.add_flag("--no-shuffle", f.no_shuffle, "read the shards in order instead of shuffling them");
  c.add_flag("--overfit", f.overfit, "train on the same batch in every step");
  c.add_option("--accumulation,--grad-accumulation", f.accumulation, "micro-batches per step")
      ->check(whole(1, kMaxBatch))
      ->capture_default_str();
  c.add_option("--lr-schedule", f.schedule,
               "how the learning rate changes: cosine, linear, constant or wsd (constant, then linear in the last fifth)")
      ->capture_default_str();
  c.add_option("--lr,--learning-rate", f.learning_rate, "peak learning rate")->check(real(0, kMaxFloat))->capture_default_str();
  c.add_option("--lr-warmup", f.lr_warmup, "steps of linear learning-rate warm-up")->check(whole(0))->capture_default_str();
  c.add_option("--lr-final-fraction", f.final_lr_fraction,
               "learning rate at the end of the schedule, one step behind its last, as a fraction of the peak")
      ->check(real(0, 1))
      ->capture_default_str();
  c.add_option("--lr-total-steps", f.lr_total_steps, "steps of the schedule (default: --steps, or no end where the command has none)")
      ->check(whole(1));
  c.add_option("--weight-decay", f.weight_decay, "AdamW's weight decay; it applies to matrices only")
      ->check(real(0, kMaxFloat))
      ->capture_default_str();
  c.add_option("--clip", f.clip, "clip the gradient norm to this; 0 = no clipping")->check(real(0, kMaxFloat))->capture_default_str();
  c.add_option("--skip-loss-outliers", f.skip_loss_outliers,
               "leave the update of a step out whose loss has a larger z-score than this among 128 steps; 0 = never")
      ->check(real(0, gpt2::OutlierLimit::kLargest))
      ->capture_default_str();
  c.add_option("--skip-grad-outliers", f.skip_grad_outliers, "the same for the gradient norm")
      ->check(real(0, gpt2::OutlierLimit::kLargest))
      ->capture_default_str();
  c.add_option("--beta1", f.beta1, "AdamW's decay of the first moment")->check(real(0, 0.9999999))->capture_default_str();
  c.add_option("--beta2", f.beta2, "AdamW's decay of the second moment")->check(real(0, 0.9999999))->capture_default_str();
  // With 0 a gradient that was 0 in all steps, as in rows of padding, is divided by 0.
  c.add_option("--eps", f.eps, "AdamW adds this to the denominator")->check(real(1e-30, kMaxFloat))->capture_default_str();
}

void settle_for_gpu(TrainerFlags& f) {
  if (f.trainer == "auto") {
    const auto only = only_trainer_with(f, "mixed");
    f.trainer = only ? only->first : "mixed";
  }
  settle(f);
}

std::optional<std::string> settle(TrainerFlags& f) {
  std::optional<std::string> notice;
  if (f.trainer == "auto") {
    const GpuStatus gpu = gpu_status();
    // The CPU reference has no variants.
    f.trainer = gpu.present || !f.variants.empty() ? "mixed" : "reference";
    if (const auto only = only_trainer_with(f, f.trainer)) {
      f.trainer = only->first;
      notice = fmt::format("{}: chose --trainer {}, which has it", only->second, only->first);
    } else if (!gpu.present && f.trainer == "mixed") {
      notice = "--variant: chose --trainer mixed, the default where there is a GPU; the CPU reference has no variants";
    } else if (!gpu.present) {
      notice = fmt::format("no GPU ({}); running the CPU reference{}", gpu.why_not, f.model.empty() ? " on the small model `tiny`" : "");
    }
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

void refuse_flags_of_the_loop(const TrainerFlags& f) {
  if (!f.val_data.empty()) throw InputError("--val-data: the steps that are measured have no validation loss; leave it out");
  const std::array<std::pair<const char*, double>, 2> limits{
      {{"--skip-loss-outliers", f.skip_loss_outliers}, {"--skip-grad-outliers", f.skip_grad_outliers}}};
  for (const auto& [flag, limit] : limits)
    if (limit > 0) throw InputError(fmt::format("{}: every step that is measured has its update; leave it out", flag));
}

namespace {

// Each flag with its values, as `train` takes it.
std::vector<std::vector<std::string>> written_flags(const TrainerFlags& f, int64_t steps) {
  std::vector<std::vector<std::string>> a;
  auto add = [&](const char* flag, const std::string& value) { a.push_back({flag, value}); };
  auto add_files = [&](const char* flag, const std::vector<std::string>& files) {
    if (files.empty()) return;
    a.push_back({flag});
    a.back().insert(a.back().end(), files.begin(), files.end());
  };
  add("--trainer", f.trainer);
  add("--model", f.model);
  add_files("--data", f.data);
  add_files("--val-data", f.val_data);
  add("--batch-size", std::to_string(f.batch_size));
  add("--seq-len", std::to_string(f.seq_len));
  add("--steps", std::to_string(steps));
  add("--matmul", f.matmul);
  for (const std::string& v : f.variants) add("--variant", v);
  add("--recompute", f.recompute);
  add("--weight-rounding", f.weight_rounding);
  if (f.deterministic) a.push_back({"--deterministic"});
  if (f.direct_steps > 0) {
    add("--direct-from", std::to_string(f.direct_from));
    add("--direct-steps", std::to_string(f.direct_steps));
  }
  add("--seed", std::to_string(f.seed));
  if (f.no_shuffle) a.push_back({"--no-shuffle"});
  if (f.overfit) a.push_back({"--overfit"});
  add("--accumulation", std::to_string(f.accumulation));
  add("--lr-schedule", f.schedule);
  add("--lr", fmt::format("{}", f.learning_rate));
  add("--lr-warmup", std::to_string(f.lr_warmup));
  add("--lr-total-steps", std::to_string(f.lr_total_steps > 0 ? f.lr_total_steps : steps));
  add("--lr-final-fraction", fmt::format("{}", f.final_lr_fraction));
  add("--weight-decay", fmt::format("{}", f.weight_decay));
  add("--clip", fmt::format("{}", f.clip));
  add("--skip-loss-outliers", fmt::format("{}", f.skip_loss_outliers));
  add("--skip-grad-outliers", fmt::format("{}", f.skip_grad_outliers));
  add("--beta1", fmt::format("{}", f.beta1));
  add("--beta2", fmt::format("{}", f.beta2));
  add("--eps", fmt::format("{}", f.eps));
  return a;
}

}  // namespace

std::vector<std::string> as_arguments(const TrainerFlags& f, int64_t steps) {
  std::vector<std::string> a{"train"};
  for (const auto& flag : written_flags(f, steps)) a.insert(a.end(), flag.begin(), flag.end());
  return a;
}

std::vector<std::string> arguments_beyond_defaults(const TrainerFlags& f) {
  static const std::set<std::string> always{"--trainer", "--model", "--batch-size", "--seq-len", "--steps", "--matmul"};
  const auto defaults = written_flags(TrainerFlags(), f.steps);
  std::vector<std::string> a;
  for (const auto& flag : written_flags(f, f.steps))
    if (always.contains(flag.front()) || std::find(defaults.begin(), defaults.end(), flag) == defaults.end())
      a.insert(a.end(), flag.begin(), flag.end());
  return a;
}

gpt2::TrainerOptions trainer_options(const TrainerFlags& f) {
  gpt2::TrainerOptions o;
  const bool from_file = !is_preset(f.model);
  o.model = from_file ? gpt2::checkpoint_config(f.model) : gpt2::model_from_name(f.model);
  o.batch_size = f.batch_size;
  o.seq_len = f.seq_len;
  o.micro_batches = f.accumulation;
  check_abilities(f);
  o.matmul = f.matmul;
  o.recompute = f.recompute;
  o.weight_rounding = f.weight_rounding;
  o.deterministic = f.deterministic;
  o.variants = parse_variants(f.variants);
  check_variants(f.trainer, o.variants, f.deterministic);
  check_sizes(f, o.model);
  return o;
}

std::unique_ptr<gpt2::Trainer> make_trainer(const TrainerFlags& f, const gpt2::TrainerOptions& o) {
  std::unique_ptr<gpt2::Trainer> trainer;
  if (f.trainer == "reference") {
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
  for (const std::string& notice : trainer->notices()) say(notice);
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
  o.learning_rate = {f.schedule, f.learning_rate, f.lr_warmup, f.final_lr_fraction, f.lr_total_steps > 0 ? f.lr_total_steps : f.steps};
  o.model = f.model;
  o.adamw = {f.learning_rate, f.beta1, f.beta2, f.eps, f.weight_decay, f.clip};
  o.skip_loss_outliers = f.skip_loss_outliers;
  o.skip_grad_outliers = f.skip_grad_outliers;
  o.overfit = f.overfit;
  o.direct_from = f.direct_from;
  o.direct_steps = f.direct_steps;
  return o;
}

}  // namespace cli

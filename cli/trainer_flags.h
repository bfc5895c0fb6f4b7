// The flags that `train` and `profile` share, and what they mean: which trainer, which model, which data. `profile` runs `train` in
// a child process, so the flags can also be written out again.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/named_files.h"
#include "cli/arguments.h"
#include "gpt2/train_loop.h"
#include "gpt2/trainer.h"

namespace cli {

struct TrainerFlags {
  std::string trainer = "auto";  // auto | mixed | fp32 | reference
  std::string model;             // preset or checkpoint file; "" = the trainer's default
  std::vector<std::string> data{"synthetic"};
  std::vector<std::string> val_data;
  int64_t batch_size = 0;  // 0 = the trainer's default
  int64_t seq_len = 0;
  int64_t steps = 50;
  std::string matmul;                 // "" = the trainer's default
  std::vector<std::string> variants;  // op=name
  std::string recompute = "none";
  std::string weight_rounding = "nearest";
  bool deterministic = false;
  int64_t direct_from = 0;  // this step and the `direct_steps` - 1 after it launch kernels one by one, outside CUDA graphs
  int64_t direct_steps = 0;
  uint64_t seed = 1337;
  bool no_shuffle = false;
  bool overfit = false;
  int64_t accumulation = 1;
  std::string schedule = "cosine";
  float learning_rate = 3e-4f;
  int64_t lr_warmup = 0;
  int64_t lr_total_steps = 0;  // 0 = steps: where the schedule ends
  float final_lr_fraction = 0.0f;
  float weight_decay = 0.0f;
  float clip = 1.0f;
  double skip_loss_outliers = 0, skip_grad_outliers = 0;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float eps = 1e-8f;
};

void add_trainer_flags(Command& command, TrainerFlags& flags);
// Why this program cannot say which variants there are: it was built without the trainers that have them. "" where it can.
std::string why_no_variants();
// The files that --data or --val-data names, for check_files_differ: patterns are expanded. What matches nothing is refused elsewhere.
void add_shards(stepscope::NamedFiles& files, const char* flag, const std::vector<std::string>& patterns);
std::vector<std::string> recomputations();    // what --recompute can be
std::vector<std::string> weight_roundings();  // what --weight-rounding can be

// Of a command that takes no checkpoint's shape: throws InputError for a --model that is no preset.
void require_preset(const std::string& model);

// Throws InputError for a --matmul, --recompute or --weight-rounding that flags.trainer (not "auto") lacks, and names the one that has it.
void check_abilities(const TrainerFlags& flags);

// Settles "auto" and the defaults that depend on the machine: with a GPU mixed d12 B=4 T=1024, without the reference on `tiny` B=4
// T=64. Returns a sentence for stderr when it chose something less than a GPU user would expect.
std::optional<std::string> settle(TrainerFlags& flags);
// The same as if this machine had a GPU, for a command that needs one: wrong flags are refused before it is missed.
void settle_for_gpu(TrainerFlags& flags);

// Of a command that measures steps one after the other: throws InputError for --val-data and the flags that leave updates out, which only the
// loop of `train` does.
void refuse_flags_of_the_loop(const TrainerFlags& flags);

// The same flags as arguments for `stepscope train`, after settle(). `steps` replaces flags.steps.
std::vector<std::string> as_arguments(const TrainerFlags& flags, int64_t steps);
// The same for a program of another revision, which may lack newer flags: without "train", and without flags at their defaults other than
// trainer, model, sizes, steps and the rate of the products.
std::vector<std::string> arguments_beyond_defaults(const TrainerFlags& flags);

// {"op=name", …} of --variant as a map; throws InputError for another form and for an op given twice.
std::map<std::string, std::string> parse_variants(const std::vector<std::string>& texts);

// Takes variants away that the step has without them, and returns why, one sentence each: the default of a slot, and of a process alone
// (`ranks` is 1) what ranks do among themselves. The default of such a slot stays with several ranks, because another may take its place there.
std::vector<std::string> leave_out_idle_variants(TrainerFlags& flags, int64_t ranks);

// What the trainer is built from; throws InputError for an unknown model, a bad variant or an absurd shape.
gpt2::TrainerOptions trainer_options(const TrainerFlags& flags);
// Throws InputError for anything unknown or absurd, MachineError when this machine cannot run it (no GPU, not enough memory).
// Parameters are initialized from the seed, or from the checkpoint that `model` names.
std::unique_ptr<gpt2::Trainer> make_trainer(const TrainerFlags& flags, const gpt2::TrainerOptions& options);
gpt2::LoopOptions loop_options(const TrainerFlags& flags);

}  // namespace cli

// The one training loop: batches, learning rate, accumulation, logging, checkpoints, run.json. All trainers run in it, so a
// profile of any of them means the same steps.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "gpt2/distributed/communicator.h"
#include "gpt2/evaluation.h"
#include "gpt2/trainer.h"

namespace gpt2 {

struct LearningRate {
  std::string schedule = "cosine";  // cosine | linear | constant | wsd
  float peak = 3e-4f;
  int64_t warmup = 0;           // steps of linear warm-up
  float final_fraction = 0.0f;  // of the peak, reached at the end (step `total`): no step is spent at rate 0
  int64_t total = 1;            // steps of the whole run
  // Rate of step `step` (0-based). wsd: constant, then linear decay over the last 20% of the steps.
  float at(int64_t step) const;
  // A sentence about what a run of `steps` steps does not see of the schedule, or sees after its end; "" where it fits.
  std::string misfit(int64_t steps) const;
};
// Throws stepscope::InputError for an unknown schedule name.
void check_schedule(std::string_view name);

struct LoopOptions {
  std::vector<std::string> data;  // token shards (globs), or {"synthetic"}
  std::vector<std::string> val_data;
  uint64_t seed = 1337;
  bool shuffle = true;
  int64_t steps = 50;
  int64_t accumulation = 1;  // micro-batches of a step on each rank
  LearningRate learning_rate;
  AdamW adamw;  // learning_rate in it is overwritten per step
  // Largest z-scores of a step's loss and gradient norm among 128 steps; above one of them the update is left out (outliers.h). 0: never.
  // With one of them steps are not queued ahead: the limits of a step follow from all before it.
  double skip_loss_outliers = 0, skip_grad_outliers = 0;
  int64_t val_every = 0;
  int64_t val_batches = 8;
  int64_t sample_every = 0;
  int64_t sample_tokens = 64;
  float sample_temperature = 1.0f;  // 0 = greedy
  int64_t sample_top_k = 50;        // 0 = all tokens
  std::string tokenizer;            // file; without one, samples are shown as token ids
  std::string eval_set;             // file; its accuracy every eval_every steps (0: never in between) and after the last
  int64_t eval_every = 0;
  int64_t eval_limit = 0;      // only its first examples; 0 = all
  std::string checkpoint_dir;  // "" = none
  int64_t checkpoint_every = 0;
  int64_t keep_checkpoints = 2;
  bool resume = false;                 // from the newest checkpoint of checkpoint_dir that loads; where there is none yet, from step 1
  std::string run_json;                // "" = none
  std::string command;                 // as typed, for run.json
  std::string model;                   // preset or checkpoint file as given, for run.json; "" = not said
  bool overfit = false;                // the same batch every step
  std::optional<int64_t> nccl_blocks;  // as --nccl-blocks had it, for run.json
  int64_t direct_from = 0;             // steps [direct_from, direct_from + direct_steps) without CUDA graphs (StepPlan::graph_allowed)
  int64_t direct_steps = 0;
  // The other ranks of the run, whose trainers have a communicator; it outlives the run. nullptr: this process trains alone. Rank r takes
  // every size-th micro-batch from the r-th on, so that the data of a step do not depend on how many share them; rank 0 alone writes
  // checkpoints and calls on_sample and on_validation; every rank writes run.json, under rank_file() (replicas.h).
  distributed::ControlChannel* channel = nullptr;
  // Of a process that trains alone, looked at before each step and after each batch of an evaluation: where it says true, that step is the
  // last, and a checkpoint of it is saved.
  const std::atomic<bool>* stop = nullptr;
  // Told about what happens beside the steps; each may be empty.
  std::function<void(int64_t done)> on_start;  // once, when the first step is about to be queued: steps that an earlier run finished
  std::function<void(int64_t step, double loss)> on_validation;
  std::function<void(int64_t step, const EvalOutcome& outcome)> on_eval;
  std::function<void(int64_t done, int64_t correct, int64_t all)> on_eval_progress;  // examples, after each batch of them
  std::function<void(int64_t step, const std::string& text)> on_sample;
  std::function<void(const std::string& text)> on_note;  // "resumed at step 40", "skipped a damaged checkpoint: …"
};

// The loss or the gradient norm was not finite (exit 1). run.json, when asked for, holds the steps up to there.
struct TrainingDiverged : std::runtime_error {
  TrainingDiverged(const std::string& why, int the_rank) : runtime_error(why), rank(the_rank) {}
  int rank;  // whose numbers were not finite first; -1: not known, or there is one rank
};

struct StepLog {
  StepOutcome outcome;
  double learning_rate = 0;
  double tokens_per_s = 0;
};

struct RunResult {
  std::vector<StepLog> steps;
  std::vector<double> val_losses;
  bool interrupted = false;        // the loop was left before its last step, by all ranks together, because a user asked for it
  std::vector<double> accuracies;  // on LoopOptions::eval_set, by the lowest mean loss
};

// Everything that can be wrong before the first step: shapes, rates, files, token ids, folders that cannot be written. Call it before
// a trainer is built (which may allocate the whole GPU); train() checks again. It makes no calls on options.channel. Throws
// stepscope::InputError.
void check_run(const TrainerOptions& trainer, const LoopOptions& options);

// A mistyped name must not replace a checkpoint, or anything else but a run.json of before: throws stepscope::InputError with the flag where
// `file` is there, is not empty and is no run.json.
void refuse_to_replace(const std::string& flag, const std::string& file);

// What to say when options.resume is set and the newest checkpoint is already of the last step or beyond: nothing is left to do, and no
// trainer need be built. nullopt: there is. Throws stepscope::InputError for checkpoints that are damaged or of another run.
std::optional<std::string> finished_before(const TrainerOptions& trainer, std::string_view trainer_name, const LoopOptions& options);

// Runs the loop. A run that was finished before returns no steps and leaves its run.json alone. Every enqueue_step happens inside StepRange(step), steps counted from 1 as in StepPlan. `on_step` is called once per finished step, in order, one step behind the device.
// Where it or a callback of `options` beside a step throws, a process that trains alone saves a checkpoint and run.json first.
// Throws stepscope::InputError and TrainingDiverged.
RunResult train(Trainer& trainer, const LoopOptions& options, const std::function<void(const StepLog&)>& on_step);

}  // namespace gpt2

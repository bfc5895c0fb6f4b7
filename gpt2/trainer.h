// What every trainer can do: fp32/, mixed/ and the CPU reference implement this; train_loop.h, the gate and the experiments
// use only this. Nothing here names CUDA.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpt2/config.h"
#include "gpt2/tensor_table.h"
#include "gpt2/work_model.h"

namespace gpt2 {

namespace distributed {
class Communicator;
}

struct TrainerOptions {
  ModelConfig model;
  int64_t batch_size = 4;       // B of one micro-batch
  int64_t seq_len = 1024;       // T <= model.max_seq_len
  std::string matmul = "fp32";  // "fp32" | "tf32": rate of the matrix products of the fp32 trainer; the mixed one has "bf16" only
  std::map<std::string, std::string> variants;  // op slot -> variant name, only the ones that differ from the defaults
  // Of the mixed trainer. The fp32 trainer refuses another recompute or weight_rounding, the reference does not look at these.
  int64_t micro_batches = 1;                // the most that a step will have, for variants that cannot add up more than one
  std::string recompute = "none";           // "none" | "gelu" | "gelu+ln": activations made again in the backward pass
  std::string weight_rounding = "nearest";  // "nearest" | "stochastic": of the bf16 weights from their masters
  bool deterministic = false;               // only variants that repeat bit for bit; the other trainers always do
  // How the other ranks of the run are reached; it outlives the trainer. nullptr: one GPU, and no launch or byte more than without this field.
  distributed::Communicator* communicator = nullptr;
  int64_t bucket_mib = 25;  // with it: gradients are exchanged in buckets of whole layers, each of at least so many MiB as they are stored
};

// Token ids of one micro-batch, (B, T) row-major, all in [0, V). Borrowed until enqueue_step returns.
struct Batch {
  std::span<const int32_t> inputs;
  std::span<const int32_t> targets;
};

// AdamW (Loshchilov & Hutter 2019) with bias correction, decay on TensorRow::decayed rows only:
//   g' = g * min(1, clip / |g|)   (clip <= 0: no clipping)
//   m = b1 m + (1-b1) g';  v = b2 v + (1-b2) g'^2
//   p -= lr * ( (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + eps) + decay * p )
struct AdamW {
  float learning_rate = 3e-4f;
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float eps = 1e-8f;
  float weight_decay = 0.0f;
  float clip = 1.0f;
};

// One optimizer step: micro_batches.size() forward+backward passes whose gradients are averaged, then the update.
struct StepPlan {
  int64_t step = 1;  // t of AdamW, counts from 1
  std::span<const Batch> micro_batches;
  AdamW adamw;
  bool graph_allowed = true;  // false: launch every kernel by itself, which is what counters can be read from
  // Above one of these the update is left out: parameters and moments stay what they are, bit for bit.
  double skip_above_loss = std::numeric_limits<double>::infinity();
  double skip_above_grad_norm = std::numeric_limits<double>::infinity();  // before clipping
};

struct StepOutcome {
  int64_t step = 0;
  double loss = 0;           // mean over all tokens of the step, of all ranks, before the update
  double grad_norm = 0;      // of the averaged gradients before clipping
  double time_ns = 0;        // from the end of the step before it to its own end, so that idle time of the device counts; from its own
                             // begin for the first step and after anything else used the device in between (evaluate, read, write)
  int not_finite_rank = -1;  // of several ranks the first whose own loss or gradients were not finite; -1: none, or not known
  bool skipped = false;      // by StepPlan::skip_above_loss or skip_above_grad_norm
};

enum class State { parameters, gradients, adam_m, adam_v };

// Memory by kind, as planned before anything is allocated.
struct MemoryItem {
  std::string name;  // "parameters", "gradients", "optimizer state", "activations", "scratch", "matmul workspace", …
  int64_t bytes = 0;
};

struct VariantInfo {
  std::string slot;                                           // "attention_forward"
  std::vector<std::string> names;                             // all variants, the default first
  std::vector<std::map<std::string, std::string>> choices{};  // beside names: the variant as TrainerOptions::variants, with what it needs
};

// How a trace shows that a variant ran: what the ranges "PASS/OP" of a step hold, layer by layer.
struct VariantLaunches {
  std::string_view where{};  // ranges, separated by spaces: "forward/ln1 forward/ln2"; empty: anywhere in the step
  std::string_view must{};   // parts of kernel names, separated by '|': in every such range at least one launch has one of them
  std::string_view never{};  // parts of kernel names, separated by '|': no launch in such a range has one of them
  int in_graph = -1;         // 1: every kernel of a step is a node of a CUDA graph; 0: none is; -1: not said
  int at_least = 0;          // launches in each such range
  int at_most = std::numeric_limits<int>::max();  // 0: the range has no launch

  constexpr bool says_something() const {
    return !must.empty() || !never.empty() || in_graph >= 0 || at_least > 0 || at_most < std::numeric_limits<int>::max();
  }
};

// The row of one variant in its trainer's table (gpt2/variant_rows.h), as the rest of the project sees it.
struct VariantFacts {
  std::string slot, name, help;
  std::string refused;  // when it cannot run, in words; empty: never
  std::string unseen;   // why no trace can tell that it ran; empty: `launches` tell
  bool repeats = true;
  bool needs_ranks = false;                   // several ranks alone run it
  bool is_default = false;                    // on this machine
  std::map<std::string, std::string> choice;  // as in VariantInfo
  std::vector<VariantLaunches> launches;
};

// With TrainerOptions::communicator every rank makes the same calls in the same order, except for evaluate and next_token_logits, which
// are its own. read and write take and give the whole state on every rank, however it is divided.
class Trainer {
 public:
  virtual ~Trainer() = default;
  // `variants`: those that run, where they are not the first of their slot; so a default that could not run stands there too.
  virtual const TrainerOptions& options() const = 0;
  // What a user should know of how the options were read: one sentence for each default that could not run and which variant runs, and for
  // each variant that was left out.
  virtual std::vector<std::string> notices() const { return {}; }
  virtual std::string_view name() const = 0;  // "reference" | "fp32" | "mixed"
  virtual std::string device() const = 0;     // "NVIDIA H200" | "CPU, 16 threads"

  // State crosses as fp32 in the order of the tensor table; `values.size()` == tensor_layout().total. Host-synchronous.
  virtual void read(State which, std::span<float> values) = 0;
  virtual void write(State which, std::span<const float> values) = 0;
  // The weights that the next forward pass multiplies with, as fp32: the parameters themselves, unless the trainer keeps a rounded copy
  // of them. Host-synchronous.
  virtual void read_weights(std::span<float> values) { read(State::parameters, values); }

  // Queues one whole training step and returns without waiting for the device. At most two steps may be unfinished. The
  // caller opens the StepRange around it (train_loop.cpp does): batches and logging belong to a step too.
  virtual void enqueue_step(const StepPlan& plan) = 0;
  // Waits for the oldest unfinished step.
  virtual StepOutcome finish_step() = 0;

  // After the last unfinished step, before a rank evaluates or samples for itself: brings weights together that ranks would exchange in the
  // next step only. Every rank calls it.
  virtual void complete_weights() {}

  // Forward only; mean loss over the batch. If `logits` is not empty it receives (B, T, V), unpadded.
  virtual double evaluate(const Batch& batch, std::span<float> logits = {}) = 0;
  // Forward and backward without update: the gate reads State::gradients afterwards. Returns the loss. Both are means over the
  // ranks, with the reference trainer of this rank alone.
  virtual double forward_backward(const Batch& batch, std::span<float> logits = {}) = 0;
  // Where the loss of a pass that goes backward is made of logits before they are rounded, and only rounded ones come back: the most that
  // this changes a logit, relative to it. 0: the loss is that of the logits that come back.
  virtual double logits_rounded_after_loss() const { return 0; }
  // The V logits that follow `context` (1 to T tokens). This default evaluates a whole (B, T) batch and needs B*T*V floats of host
  // memory (gpt2/sampling.cpp); a trainer that samples often copies the one row instead.
  virtual std::vector<float> next_token_logits(std::span<const int32_t> context);

  // The floor of each op that a step of so many micro-batches opens a range for. The default: every op of the model on its own, in
  // fp32 storage; a trainer that fuses ops gives the fused one the work of its parts.
  virtual std::vector<OpWork> work(int64_t micro_batches) const;

  virtual std::vector<MemoryItem> memory() const = 0;
  // Device memory that the trainer took, as the driver counts it; nullopt where nothing counts it.
  virtual std::optional<int64_t> memory_used_bytes() const { return std::nullopt; }
};

}  // namespace gpt2

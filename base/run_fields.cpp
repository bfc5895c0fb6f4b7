#include "base/run_fields.h"

namespace stepscope {

const std::vector<RunField>& run_fields() {
  using R = RunFields;
  using enum Compare;
  constexpr bool kRequired = true, kYounger = false;
  static const std::vector<RunField> list = {
      {"command", "", "", "run.json", "as typed", kRequired, not_at_all, "command", &R::command},
      {"trainer", "", "", "run.json", "fp32, mixed or reference", kRequired, listed, "trainer", &R::trainer},
      // `diff` compares devices itself: it knows the GPU's own name.
      {"device", "", "", "run.json", "as the trainer names it", kRequired, not_at_all, "device", &R::device},
      // run.json's "model" is the object that holds the shape.
      {"model_name", "", "", "run.json", "preset or checkpoint file, as given", kYounger, listed, "model", &R::model},
      {"layers", "model", "", "run.json", "L", kRequired, unlike, "layers", &R::layers},
      {"heads", "model", "", "run.json", "NH", kRequired, unlike, "heads", &R::heads},
      {"channels", "model", "", "run.json", "C", kRequired, unlike, "channels", &R::channels},
      {"vocab_size", "model", "", "run.json", "V", kRequired, unlike, "vocabulary", &R::vocab_size},
      {"padded_vocab", "model", "", "run.json", "Vp", kRequired, listed, "padded vocabulary", &R::padded_vocab},
      {"max_seq_len", "model", "", "run.json", "rows of the position table", kRequired, listed, "positions", &R::max_seq_len},
      // Follows from the shape.
      {"parameters", "", "", "run.json", "number of parameters, padded vocabulary included", kYounger, not_at_all, "parameters",
       &R::parameters},
      {"batch_size", "", "", "run.json", "B of one micro-batch", kRequired, unlike, "batch size", &R::batch_size},
      {"seq_len", "", "", "run.json", "T", kRequired, unlike, "sequence length", &R::seq_len},
      {"accumulation", "", "", "run.json", "micro-batches per step", kRequired, unlike, "micro-batches", &R::accumulation},
      {"matmul", "", "", "run.json", "rate of the matrix products: fp32, tf32 or bf16", kRequired, listed, "matmul", &R::matmul},
      {"variants", "", "", "run.json", "op slot to variant, where not the default", kYounger, listed, "variant", &R::variants},
      {"recompute", "", "", "run.json", "activations made again in the backward pass: none, gelu or gelu+ln", kYounger, listed, "recompute",
       &R::recompute},
      {"weight_rounding", "", "", "run.json", "how bf16 weights are rounded from fp32 masters: nearest or stochastic", kYounger, listed,
       "weight rounding", &R::weight_rounding},
      {"deterministic", "", "", "run.json", "only variants that repeat bit for bit were allowed", kYounger, listed, "deterministic",
       &R::deterministic},
      // Which steps they are follows from the phases of a profile; how many there are says whether there were any.
      {"direct_from", "", "", "run.json", "first of the steps that launched every kernel by itself, outside CUDA graphs", kYounger,
       not_at_all, "first step without a graph", &R::direct_from},
      {"direct_steps", "", "", "run.json", "how many steps did so", kYounger, listed, "steps without a graph", &R::direct_steps},
      {"seed", "", "", "run.json", "seed of the weights and of the data order", kYounger, listed, "seed", &R::seed},
      {"data", "", "", "run.json", "token files", kYounger, listed, "data", &R::data},
      {"shuffle", "", "", "run.json", "the shards were read in an order drawn from the seed", kYounger, listed, "shuffle", &R::shuffle},
      {"overfit", "", "", "run.json", "every step trained on the same batch", kYounger, listed, "overfit", &R::overfit},
      {"lr_schedule", "", "", "run.json", "cosine, linear, constant or wsd", kYounger, listed, "learning-rate schedule", &R::lr_schedule},
      {"learning_rate", "", "", "run.json", "peak of the schedule", kYounger, listed, "learning rate", &R::learning_rate},
      {"lr_warmup_steps", "", "", "run.json", "steps of linear learning-rate warm-up", kYounger, listed, "learning-rate warm-up steps",
       &R::lr_warmup_steps},
      {"lr_total_steps", "", "", "run.json", "step at which the schedule ends", kYounger, listed, "learning-rate steps",
       &R::lr_total_steps},
      {"lr_final_fraction", "", "", "run.json", "part of the peak rate at which the schedule ends", kYounger, listed,
       "final learning-rate fraction", &R::lr_final_fraction},
      {"weight_decay", "", "", "run.json", "AdamW, on matrices only", kYounger, listed, "weight decay", &R::weight_decay},
      {"clip", "", "", "run.json", "largest gradient norm; 0 or less: not clipped", kYounger, listed, "clip", &R::clip},
      {"skip_loss_outliers", "", "", "run.json", "largest z-score of a loss with an update; 0: all have one", kYounger, listed,
       "loss outliers above", &R::skip_loss_outliers},
      {"skip_grad_outliers", "", "", "run.json", "largest z-score of a gradient norm with an update; 0: all have one", kYounger, listed,
       "gradient outliers above", &R::skip_grad_outliers},
      {"beta1", "", "", "run.json", "AdamW", kYounger, listed, "beta1", &R::beta1},
      {"beta2", "", "", "run.json", "AdamW", kYounger, listed, "beta2", &R::beta2},
      {"eps", "", "", "run.json", "AdamW", kYounger, listed, "eps", &R::eps},
      // Of several ranks; one process alone says nothing of them.
      {"communicator", "", "", "run.json", "what carried the gradients of several ranks: nccl, peer or staged", kYounger, listed,
       "communicator", &R::communicator},
      {"bucket_mib", "", "MiB", "run.json",
       "gradients, as they are stored, that ranks exchange at a time, at least, in whole layers (the last may be smaller)", kYounger,
       listed, "bucket MiB", &R::bucket_mib},
      {"nccl_blocks", "", "", "run.json", "most thread blocks of NCCL's kernels, where --nccl-blocks chose them", kYounger, listed,
       "NCCL blocks", &R::nccl_blocks},
      // Both follow from the fields above.
      {"tokens_per_step", "", "", "run.json", "B x T x accumulation", kRequired, not_at_all, "tokens per step", &R::tokens_per_step},
      {"model_flops", "", "FLOP", "model", "work of one step, forward and backward", kRequired, not_at_all, "model FLOPs", &R::model_flops},
  };
  return list;
}

}  // namespace stepscope

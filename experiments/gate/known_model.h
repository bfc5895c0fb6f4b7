// What a judge must know of GPT-2 besides its arithmetic, written down by hand a second time: which tensors there
// are, in which order and shape, which of them decay, how a fresh model begins, and how a learning-rate schedule
// runs. Nothing here reads gpt2/tensor_table.h or gpt2/learning_rate.cpp: a wrong entry there would otherwise be
// wrong in the trainer and in its judge alike. model_gate.cpp compares the two (check "tensor table").
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpt2/config.h"
#include "gpt2/trainer.h"

namespace gate {

struct KnownTensor {
  std::string name;
  bool decayed = false;
  double start_mean = 0, start_deviation = 0;  // of a fresh model
  int64_t layers = 1;                          // 1 for a tensor that no layer owns
  int64_t rows = 0, columns = 0;               // of one layer; a vector is one row
  int64_t offset = 0;                          // of the first element in the flat vector
  int64_t size() const { return layers * rows * columns; }
};

// In the order of the flat vector (that of llm.c's checkpoints).
std::vector<KnownTensor> known_tensors(const gpt2::ModelConfig& config);
int64_t known_parameter_count(const gpt2::ModelConfig& config);

// AdamW by its definition in gpt2/trainer.h, in double, in place. `scale` multiplies the gradients.
void known_adamw(const gpt2::ModelConfig& config, std::span<double> p, std::span<double> m, std::span<double> v,
                 std::span<const double> gradients, const gpt2::AdamW& settings, int64_t step, double scale);

struct KnownSchedule {
  std::string name;  // cosine | linear | constant | wsd
  double peak = 0, final_fraction = 0;
  int64_t warmup = 0, total = 0;
};
// Of the step `step`, counted from 1. Rises in equal parts to the peak, which step `warmup` has; from there `left`
// of the way between the last rate and the peak, where step `total` + 1 would have the last rate.
double known_learning_rate(const KnownSchedule& schedule, int64_t step);

// Mean loss of logits (rows, V) at `targets`, in double, and what each row adds.
std::vector<double> token_losses(std::span<const float> logits, std::span<const int32_t> targets, int64_t vocab_size);
std::vector<double> token_losses(std::span<const double> logits, std::span<const int32_t> targets, int64_t vocab_size);

}  // namespace gate

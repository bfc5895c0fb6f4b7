// What every GPU trainer refuses, in the same words: shapes that cannot be trained, token ids outside the vocabulary, and plans that
// need more memory than there is.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "gpt2/trainer.h"

namespace gpt2 {

// Throws stepscope::InputError when the shape cannot be trained: a bad config, B or T < 1, T beyond max_seq_len, or B * T >= 2^31.
void check_trainable_shape(const TrainerOptions& options);

// Throws stepscope::InputError unless there are `expected` tokens, all in [0, V); T is for naming the place. `what` begins the text.
void check_tokens(std::span<const int32_t> tokens, std::string_view what, int64_t expected, int64_t T, int64_t V);
// Inputs and targets of a micro-batch of these options.
void check_batch(const Batch& batch, const TrainerOptions& options);

// The largest batch size at this sequence length for which `planned_bytes(batch)`, which grows with the batch, is at most `free_bytes`;
// 0 when not even one sequence fits.
int64_t largest_fitting_batch(int64_t seq_len, int64_t free_bytes, const std::function<int64_t(int64_t batch)>& planned_bytes);

// stepscope::MachineError that says what is needed (by kind), what is free and the largest batch that fits. `free_bytes` may be negative: less
// is free than is left to others.
[[noreturn]] void throw_out_of_memory(std::span<const MemoryItem> needed, const TrainerOptions& options, int64_t fitting_batch,
                                      int64_t free_bytes, std::string_view device_name);

}  // namespace gpt2

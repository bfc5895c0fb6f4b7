// The texts of trainer_checks.h.
#include "gpt2/trainer_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/errors.h"

namespace gpt2 {
namespace {

constexpr int64_t kMostTokens = 2147483647;

std::string in_gib(int64_t bytes) { return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / 1073741824.0); }

}  // namespace

void check_trainable_shape(const TrainerOptions& o) {
  check_config(o.model, "model");
  if (o.batch_size < 1) throw stepscope::InputError(fmt::format("--batch-size {}: expected at least 1", o.batch_size));
  if (o.seq_len < 1 || o.seq_len > o.model.max_seq_len)
    throw stepscope::InputError(fmt::format("--seq-len {}: expected 1 to {}, the positions of the model", o.seq_len, o.model.max_seq_len));
  if (o.batch_size > kMostTokens / o.seq_len)
    throw stepscope::InputError(
        fmt::format("--batch-size {} x --seq-len {}: a micro-batch must have fewer than 2^31 tokens", o.batch_size, o.seq_len));
}

void check_tokens(std::span<const int32_t> tokens, std::string_view what, int64_t expected, int64_t T, int64_t V) {
  if (static_cast<int64_t>(tokens.size()) != expected)
    throw stepscope::InputError(fmt::format("{}: {} tokens, expected B * T = {}", what, tokens.size(), expected));
  for (int64_t i = 0; i < expected; ++i) {
    const int32_t token = tokens[static_cast<size_t>(i)];
    if (token < 0 || token >= V)
      throw stepscope::InputError(
          fmt::format("{}: token id {} at sequence {}, position {} is outside the "
                      "vocabulary 0 to {}",
                      what, token, i / T, i % T, V - 1));
  }
}

void check_batch(const Batch& batch, const TrainerOptions& o) {
  const int64_t expected = o.batch_size * o.seq_len;
  check_tokens(batch.inputs, "inputs of a micro-batch", expected, o.seq_len, o.model.vocab_size);
  check_tokens(batch.targets, "targets of a micro-batch", expected, o.seq_len, o.model.vocab_size);
}

int64_t largest_fitting_batch(int64_t seq_len, int64_t free_bytes, const std::function<int64_t(int64_t)>& planned_bytes) {
  const auto fits = [&](int64_t batch) { return planned_bytes(batch) <= free_bytes; };
  if (!fits(1)) return 0;
  int64_t good = 1;
  int64_t bad = kMostTokens / seq_len + 1;
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

void throw_out_of_memory(std::span<const MemoryItem> needed, const TrainerOptions& options, int64_t fitting_batch, int64_t free_bytes,
                         std::string_view device_name) {
  int64_t total = 0;
  std::string parts;
  for (const MemoryItem& item : needed) {
    total += item.bytes;
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", item.name, in_gib(item.bytes));
  }
  const std::string advice = fitting_batch > 0
                                 ? fmt::format("the largest batch that fits at this sequence length is --batch-size {}", fitting_batch)
                                 : std::string("not even one sequence fits: choose a smaller model or --seq-len");
  throw stepscope::MachineError(fmt::format("out of memory: --batch-size {} --seq-len {} of this model needs {} ({}), {} has {} free; {}",
                                            options.batch_size, options.seq_len, in_gib(total), parts, device_name,
                                            in_gib(std::max<int64_t>(free_bytes, 0)), advice));
}

}  // namespace gpt2

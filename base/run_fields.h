// What a run was, each field declared once: name, unit, meaning, member, how a comparison of two runs takes it. The trainers
// write run.json from this list (gpt2/run_json.cpp), the profiler reads it (profiler/document/run_info.cpp), puts it into the
// document's `run` (fields.cpp), generates docs/profile-document.md and lets `diff` name each that differs.
//
// A flag that changes a step belongs here: one member, one row in run_fields.cpp, one line in gpt2/run_json.cpp.
// tests/cli/run_flags_test.cpp walks the command line's own list of flags and fails for one that left no trace.
//
// The trap: an old run.json lacks the younger fields. Every member but `command`, `data` and `variants` is therefore optional,
// and absent means "the run did not say", never a default.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace stepscope {

inline constexpr std::string_view kRunSchema = "stepscope.run/1";  // of run.json

struct RunFields {
  std::string command;
  std::optional<std::string> trainer, device, model, matmul, recompute, weight_rounding, lr_schedule, communicator;
  std::optional<int64_t> layers, heads, channels, vocab_size, padded_vocab, max_seq_len, parameters;
  std::optional<int64_t> batch_size, seq_len, accumulation, tokens_per_step;
  std::optional<uint64_t> seed;
  std::optional<int64_t> lr_warmup_steps, lr_total_steps, direct_from, direct_steps, bucket_mib, nccl_blocks;
  std::optional<double> learning_rate, lr_final_fraction, weight_decay, clip, skip_loss_outliers, skip_grad_outliers, beta1, beta2, eps,
      model_flops;
  std::optional<bool> deterministic, shuffle, overfit;
  std::map<std::string, std::string> variants;
  std::vector<std::string> data;
};

// How `diff` takes a field in which two runs differ.
enum class Compare {
  listed,  // shown: the runs are not the same
  unlike,  // shown, and their times cannot be compared
  not_at_all
};

struct RunField {
  std::string_view name;    // in run.json and in the document's `run`
  std::string_view object;  // of run.json that holds it; "" = the outermost
  std::string_view unit, source, help;
  bool required;  // "stepscope.run/1" always had it
  Compare compare;
  std::string_view words;  // how `diff` calls it
  std::variant<std::string RunFields::*, std::optional<std::string> RunFields::*, std::optional<int64_t> RunFields::*,
               std::optional<uint64_t> RunFields::*, std::optional<double> RunFields::*, std::optional<bool> RunFields::*,
               std::vector<std::string> RunFields::*, std::map<std::string, std::string> RunFields::*>
      member;
};
const std::vector<RunField>& run_fields();

}  // namespace stepscope

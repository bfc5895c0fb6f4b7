// `stepscope data --import` and `--export`: GPT-2's weights between Hugging Face's model.safetensors and llm.c's checkpoint.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace gpt2 {

// Writes a checkpoint (version 3, or 5 with `bf16`) and prints what became of the file. `heads`: absent means 64 channels each.
// Throws stepscope::InputError; see gpt2/data/hugging_face_weights.h. `path` is a file, an index or a folder; `out` empty, or a file read, is
// refused.
void import_safetensors(const std::string& path, const std::string& out, bool bf16, std::optional<int64_t> heads);
// Writes `out`, F32 or BF16 as the checkpoint is: a safetensors file where its name ends so, else a folder with config.json.
void export_safetensors(const std::string& checkpoint, const std::string& out);

}  // namespace gpt2

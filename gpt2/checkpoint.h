// llm.c's checkpoint and reference-state files, read and written byte for byte (layouts: train_gpt2.py,
// write_model, write_state). Every reader takes the bytes of a file and trusts none of them: shapes pass
// check_config and the file's length must be exactly what the shape says before anything is allocated. Errors
// are stepscope::InputError naming the file, what was found and expected.
//
// Floats keep their bits: a parameter of a bf16 file is widened exactly; written as bf16 it is rounded to
// nearest even.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "gpt2/config.h"

namespace gpt2 {

enum class CheckpointPrecision : int32_t { fp32 = 3, bf16 = 5 };  // the file's version field

// 256 x int32: magic 20240326, version, maxT, V, L, NH, C, Vp; then the tensors in the order of the tensor
// table.
struct Checkpoint {
  ModelConfig config;
  CheckpointPrecision precision = CheckpointPrecision::fp32;
  std::vector<float> parameters;  // tensor_layout(config).total
};
Checkpoint parse_checkpoint(std::span<const std::byte> file, const std::string& source);
Checkpoint load_checkpoint(const std::filesystem::path& path);
// Throws stepscope::InputError for a folder that training left and for the two forms in which a model comes from Hugging Face, and says
// where or how to get the checkpoint: none begins with a magic number that would tell. load_checkpoint and checkpoint_config begin with it.
void refuse_another_form(const std::filesystem::path& path);
// The shape alone; the file's length is checked all the same.
ModelConfig checkpoint_config(const std::filesystem::path& path);
// Atomic. Returns the checksum (checksum.h) of the file written.
uint64_t save_checkpoint(const std::filesystem::path& path, const ModelConfig& config, std::span<const float> parameters,
                         CheckpointPrecision precision = CheckpointPrecision::fp32);

// 256 x int32: magic 20240327, version 2, B, T; x, y int32 (B,T); logits fp32 (B,T,V); loss fp32; gradients
// fp32 in the order of the tensor table, vocabulary padded. The shape of the model is not in the file: it
// comes from the checkpoint beside it.
struct ReferenceState {
  int64_t batch_size = 0, seq_len = 0;
  std::vector<int32_t> inputs, targets;  // (B, T), all in [0, V)
  std::vector<float> logits;             // (B, T, V)
  float loss = 0;
  std::vector<float> gradients;  // tensor_layout(config).total
};
// What the file says without its model: it is at least as long as its tokens.
struct ReferenceStateShape {
  int64_t batch_size = 0, seq_len = 0;
};
ReferenceStateShape reference_state_shape(std::span<const std::byte> file, const std::string& source);
ReferenceState parse_reference_state(std::span<const std::byte> file, const ModelConfig& config, const std::string& source);
ReferenceState load_reference_state(const std::filesystem::path& path, const ModelConfig& config);
void save_reference_state(const std::filesystem::path& path, const ModelConfig& config, const ReferenceState& state);

}  // namespace gpt2

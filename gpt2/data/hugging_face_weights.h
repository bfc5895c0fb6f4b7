// GPT-2 weights as Hugging Face stores them (model.safetensors), to a checkpoint and back. The pairs of names:
//
//   wte.weight (V, C)                        wte (Vp, C): rows V to Vp - 1 are zero, as llm.c's pad_vocab fills them
//   wpe.weight, ln_f.{weight,bias}           wpe, lnfw, lnfb
//   h.I.ln_1.{weight,bias}, h.I.ln_2.…       ln1w, ln1b, ln2w, ln2b, stacked over layers, as all below
//   h.I.attn.c_attn.weight (C, 3C)           qkvw (3C, C), transposed; h.I.attn.c_attn.bias is qkvb
//   h.I.attn.c_proj.weight (C, C)            attprojw (C, C), transposed
//   h.I.mlp.c_fc.weight (C, 4C)              fcw (4C, C), transposed
//   h.I.mlp.c_proj.weight (4C, C)            fcprojw (C, 4C), transposed
//
// Trap: attn.c_proj is square, so no check of a shape finds its forgotten transpose.
// The transposes are there because Hugging Face's Conv1D keeps (in, out), llm.c and nn.Linear (out, in).
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpt2/checkpoint.h"
#include "gpt2/data/weight_files.h"

namespace gpt2 {

struct ImportedWeights {
  ModelConfig config;                // heads are in no tensor: those of config.json, else the caller's, else C / 64, as in every GPT-2
  std::vector<float> parameters;     // tensor_layout(config).total, widened exactly from F32, BF16 or F16
  bool tied_head = false;            // lm_head.weight is there, equal to wte.weight
  std::vector<std::string> ignored;  // attn.bias and attn.masked_bias, which are constants and no weights
};

// Every name with or without the prefix "transformer.". Throws stepscope::InputError naming the file and the tensors: missing, surplus,
// of another shape or type, given under both names, lm_head.weight unlike wte.weight, heads that do not divide C or are not those of
// config.json, and a config.json of another shape. Allocates only once every tensor was found with its shape.
ImportedWeights import_weights(const StoredWeights& stored, std::optional<int64_t> heads = {});
// Of one safetensors file in memory.
ImportedWeights import_weights(std::span<const std::byte> file, const std::string& source, std::optional<int64_t> heads = {});

// Names without a prefix and without lm_head (it is tied), wte without its padding rows, dtype F32 or BF16 as the checkpoint's precision,
// metadata {"format":"pt"}; tensors and header in the order and form of the safetensors library. Atomic. A bf16 checkpoint's values keep
// their bits. Throws stepscope::InputError where a padding row of wte is not zero: the file could not give it back.
void export_weights(const std::filesystem::path& path, const Checkpoint& checkpoint);

// model.safetensors and config.json, which from_pretrained of transformers loads, in a folder that is made where it is not there. A
// config.json that is there already stays; throws stepscope::InputError where it is of another model.
void export_model(const std::filesystem::path& folder, const Checkpoint& checkpoint);

}  // namespace gpt2

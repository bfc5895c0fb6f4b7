// Where the tensors of one model lie: in one safetensors file, or in several with an index, as Hugging Face's save_pretrained writes them.
//   model.safetensors.index.json   {"metadata": {"total_size": bytes}, "weight_map": {"wte.weight": "model-00001-of-00002.safetensors", …}}
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "gpt2/data/hugging_face_config.h"
#include "gpt2/data/safetensors.h"

namespace gpt2 {

// The files of a model's folder.
inline constexpr const char *kWeightsName = "model.safetensors", *kIndexName = "model.safetensors.index.json", *kConfigName = "config.json";

struct StoredTensor {
  SafetensorEntry entry;
  std::string file;  // for messages
};
using StoredTensors = std::map<std::string, StoredTensor, std::less<>>;

struct StoredWeights {
  std::string source;             // what says which tensors there are: the file, or the index
  std::vector<MappedFile> files;  // which the tensors point into
  StoredTensors tensors;
  std::optional<HuggingFaceConfig> config;  // config.json beside model.safetensors or an index
};

// `path`: a safetensors file, an index (a name that ends in ".index.json"), or a folder with model.safetensors or its index. Throws
// stepscope::InputError naming files and tensors: a folder with neither or both, an index that is none, a shard that is missing, a tensor in
// two shards, a shard that holds a tensor which the index places elsewhere or not at all, or lacks one; another total_size than the
// tensors have (shards of two models); and what parse_safetensors and read_hugging_face_config refuse.
StoredWeights open_weights(const std::filesystem::path& path);
// One safetensors file in memory, which the tensors point into; `source` names it in messages. Throws what parse_safetensors refuses.
StoredWeights weights_of_file(std::span<const std::byte> file, const std::string& source);

}  // namespace gpt2

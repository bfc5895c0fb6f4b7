#include "gpt2/data/weight_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/errors.h"
#include "base/json_read.h"

namespace gpt2 {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using stepscope::InputError;

bool is_there(const fs::path& path) {
  std::error_code why;  // none where it is not there
  const bool there = fs::exists(path, why);
  if (why) throw InputError(fmt::format("{}: {}", path.string(), why.message()));
  return there;
}

// The file or the index in a folder.
fs::path weights_in(const fs::path& folder) {
  const bool single = is_there(folder / kWeightsName), index = is_there(folder / kIndexName);
  if (single && index)
    throw InputError(
        fmt::format("{}: holds {} and {}, expected one of the two; name the one that is meant", folder.string(), kWeightsName, kIndexName));
  if (single || index) return folder / (single ? kWeightsName : kIndexName);
  const bool pickled = is_there(folder / "pytorch_model.bin") || is_there(folder / "pytorch_model.bin.index.json");
  throw InputError(
      fmt::format("{}: the folder has neither {} nor {}{}", folder.string(), kWeightsName, kIndexName,
                  pickled ? "; it has pytorch_model.bin, which save_pretrained of transformers writes anew as safetensors" : ""));
}

class ShardIndex {
 public:
  explicit ShardIndex(const fs::path& path) : path_(path) {
    const MappedFile file(path);
    const json j = stepscope::read_json<json>(file.text());
    if (!j.is_object()) fail(stepscope::why_no_object(file.text(), file.path()));
    const auto map = j.find("weight_map");
    if (map == j.end() || !map->is_object() || map->empty())
      fail(fmt::format("{}, expected an object with the file of every tensor",
                       map == j.end() ? "no \"weight_map\"" : "\"weight_map\" is " + stepscope::shown_json(*map)));
    for (const auto& [tensor, shard] : map->items()) {
      // A name becomes a path: it must not leave the folder.
      const std::string name = shard.is_string() ? shard.get<std::string>() : "";
      if (name.empty() || name.find('/') != std::string::npos || name == "." || name == "..")
        fail(fmt::format("weight_map places tensor {} in {}, expected the name of a file beside it", tensor, stepscope::shown_json(shard)));
      places_.emplace(tensor, name);
      shards_.insert(name);
    }
    const json::json_pointer total("/metadata/total_size");
    if (!j.contains(total)) return;
    // Older writers say it with a decimal point.
    if (const json& bytes = j[total]; bytes.is_number() && bytes >= 0) {
      total_size_ = bytes.get<double>();
    } else {
      fail(fmt::format("metadata.total_size is {}, expected a number of bytes", stepscope::shown_json(bytes)));
    }
  }

  void read(StoredWeights& out) const {
    check_shards_are_there();
    std::map<std::string, std::vector<std::string>> holders;
    for (const std::string& shard : shards_) {
      out.files.emplace_back(beside(shard));
      const MappedFile& file = out.files.back();
      for (auto& [name, entry] : parse_safetensors(file.bytes(), file.path())) {
        holders[name].push_back(shard);
        out.tensors.emplace(name, StoredTensor{entry, file.path()});
      }
    }
    check_places(holders);
    check_total(out.tensors);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw InputError(fmt::format("{}: {}", path_.string(), what)); }
  fs::path beside(const std::string& shard) const { return path_.parent_path() / shard; }

  void check_shards_are_there() const {
    for (const std::string& shard : shards_) {
      if (is_there(beside(shard))) continue;
      const auto in_it = [&](const auto& place) { return place.second == shard; };
      fail(fmt::format("weight_map places {} tensors in {}, which is not there (the first is {})",
                       std::count_if(places_.begin(), places_.end(), in_it), shard,
                       std::find_if(places_.begin(), places_.end(), in_it)->first));
    }
  }

  void check_places(const std::map<std::string, std::vector<std::string>>& holders) const {
    for (const auto& [tensor, in] : holders)
      if (in.size() > 1) fail(fmt::format("tensor {} is in {}, expected in one of them", tensor, fmt::join(in, " and in ")));
    for (const auto& [tensor, shard] : places_) {
      const auto found = holders.find(tensor);
      if (found == holders.end()) fail(fmt::format("weight_map places tensor {} in {}, which does not hold it", tensor, shard));
      if (found->second[0] != shard)
        fail(fmt::format("weight_map places tensor {} in {}, but it is in {}", tensor, shard, found->second[0]));
    }
    for (const auto& [tensor, in] : holders)
      if (!places_.contains(tensor)) fail(fmt::format("weight_map lacks tensor {}, which {} holds", tensor, in[0]));
  }

  // Only the sum tells that a shard is of another save of the same shape, in another type.
  void check_total(const StoredTensors& tensors) const {
    uint64_t bytes = 0;
    for (const auto& [name, tensor] : tensors) bytes += tensor.entry.bytes.size();
    if (total_size_ && *total_size_ != static_cast<double>(bytes))
      fail(fmt::format("metadata.total_size is {:.0f}, expected {}, the bytes of all tensors: the shards are not of one model",
                       *total_size_, bytes));
  }

  fs::path path_;
  std::map<std::string, std::string> places_;  // tensor, shard
  std::set<std::string> shards_;
  std::optional<double> total_size_;
};

}  // namespace

StoredWeights weights_of_file(std::span<const std::byte> file, const std::string& source) {
  StoredWeights out;
  out.source = source;
  for (auto& [name, entry] : parse_safetensors(file, source)) out.tensors.emplace(name, StoredTensor{std::move(entry), source});
  return out;
}

StoredWeights open_weights(const fs::path& path) {
  std::error_code absent;
  const bool folder = fs::is_directory(path, absent);
  const fs::path named = folder ? weights_in(path) : path;
  const bool index = named.string().ends_with(".index.json");
  StoredWeights out;
  if (index) {
    out.source = named.string();
    ShardIndex(named).read(out);
  } else {
    MappedFile file(named);
    out = weights_of_file(file.bytes(), named.string());
    out.files.push_back(std::move(file));
  }
  const fs::path config = named.parent_path() / kConfigName;
  // The file by the name that a folder has it under is the folder's model; under any other name it may lie beside a stranger's config.json.
  if ((index || named.filename() == kWeightsName) && is_there(config)) {
    const MappedFile file(config);
    out.config = read_hugging_face_config(file.text(), file.path());
  }
  return out;
}

}  // namespace gpt2

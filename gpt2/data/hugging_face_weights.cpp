#include "gpt2/data/hugging_face_weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <map>
#include <string_view>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/made_folders.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "gpt2/data/hugging_face_config.h"
#include "gpt2/data/safetensors.h"
#include "gpt2/tensor_table.h"

namespace gpt2 {
namespace {

constexpr int64_t kVocabularyMultiple = 128;  // llm.c's pad_vocab
constexpr int64_t kHeadSize = 64;             // of every GPT-2
constexpr std::string_view kPrefix = "transformer.", kHead = "lm_head.weight";

struct NameRow {
  std::string_view name;  // of a tensor with layers, what follows "h.I."
  bool transposed;
};
// In the order of the tensor table.
constexpr std::array<NameRow, kTensorCount> kNames{{
    {"wte.weight", false},
    {"wpe.weight", false},
    {"ln_1.weight", false},
    {"ln_1.bias", false},
    {"attn.c_attn.weight", true},
    {"attn.c_attn.bias", false},
    {"attn.c_proj.weight", true},
    {"attn.c_proj.bias", false},
    {"ln_2.weight", false},
    {"ln_2.bias", false},
    {"mlp.c_fc.weight", true},
    {"mlp.c_fc.bias", false},
    {"mlp.c_proj.weight", true},
    {"mlp.c_proj.bias", false},
    {"ln_f.weight", false},
    {"ln_f.bias", false},
}};

// One tensor of the file and where it lies among the parameters.
struct Place {
  std::vector<int64_t> shape;                 // in the file
  int64_t offset = 0, rows = 0, columns = 0;  // among the parameters: (rows, columns) without padding
  bool transposed = false;
};

// By Hugging Face's name without prefix: std::map's order is that of the safetensors library.
std::map<std::string, Place> places(const ModelConfig& config) {
  const TensorLayout layout = tensor_layout(config);
  std::map<std::string, Place> out;
  for (size_t i = 0; i < kTensorCount; ++i) {
    const TensorSpan& span = layout.span[i];
    const TensorRow& row = kTensorTable[i];
    const int64_t rows = row.id == Tensor::wte ? config.vocab_size : span.rows;
    const bool matrix = row.id == Tensor::wte || row.id == Tensor::wpe || kNames[i].transposed;
    Place place{{}, span.offset, rows, span.columns, kNames[i].transposed};
    if (!matrix) place.shape = {span.columns};
    if (matrix) place.shape = place.transposed ? std::vector{span.columns, rows} : std::vector{rows, span.columns};
    for (int64_t layer = 0; layer < (row.per_layer ? config.layers : 1); ++layer) {
      place.offset = span.offset + layer * span.per_layer;
      out.emplace(row.per_layer ? fmt::format("h.{}.{}", layer, kNames[i].name) : std::string(kNames[i].name), place);
    }
  }
  return out;
}

// "h.12.ln_1.bias" -> 12 and "ln_1.bias"; a number with a leading zero is none.
std::optional<std::pair<int64_t, std::string_view>> layer_of(std::string_view name) {
  if (!name.starts_with("h.")) return {};
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data() + 2, name.data() + name.size(), layer);
  const size_t dot = static_cast<size_t>(end - name.data());
  if (error != std::errc() || layer < 0 || dot >= name.size() || name[dot] != '.') return {};
  if (name.substr(2, dot - 2) != std::to_string(layer)) return {};
  return std::pair{layer, name.substr(dot + 1)};
}

std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  const std::span<const std::string> first(names.data(), std::min(names.size(), kShown));
  return names.size() > kShown ? fmt::format("{} and {} more", fmt::join(first, ", "), names.size() - kShown)
                               : fmt::format("{}", fmt::join(first, ", "));
}

class Importer {
 public:
  explicit Importer(const StoredWeights& stored) : stored_(stored) {}

  ImportedWeights run(std::optional<int64_t> heads) {
    drop_prefix();
    set_aside();
    out_.config = shape(heads);
    const auto wanted = places(out_.config);
    check_names(wanted);
    for (const auto& [name, place] : wanted) check(name, place);
    out_.parameters.assign(static_cast<size_t>(tensor_layout(out_.config).total), 0.0f);
    for (const auto& [name, place] : wanted) read(name, place);
    check_head();
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { fail_in(stored_.source, what); }
  [[noreturn]] static void fail_in(const std::string& file, const std::string& what) {
    throw stepscope::InputError(fmt::format("{}: {}", file, what));
  }

  void drop_prefix() {
    for (const auto& [full, tensor] : stored_.tensors) {
      std::string_view name = full;
      if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
      if (!named_.emplace(name, &tensor).second) fail(fmt::format("tensor {} is there with and without the prefix {}", name, kPrefix));
    }
  }

  void set_aside() {
    for (auto it = named_.begin(); it != named_.end();) {
      const auto layer = layer_of(it->first);
      const bool ignored = layer && (layer->second == "attn.bias" || layer->second == "attn.masked_bias");
      if (ignored) out_.ignored.push_back(it->first);
      it = ignored ? named_.erase(it) : std::next(it);
    }
    if (const auto head = named_.find(kHead); head != named_.end()) {
      head_ = head->second;
      named_.erase(head);
    }
  }

  // model-00001-of-00002.safetensors by itself.
  std::string if_one_of_several() const {
    const std::string name = std::filesystem::path(stored_.source).filename().string();
    return name.find("-of-") == std::string::npos ? ""
                                                  : "; it is one of several files: name their folder or their model.safetensors.index.json";
  }

  const SafetensorEntry& matrix(const char* name) const {
    const auto it = named_.find(name);
    if (it == named_.end())
      fail(
          fmt::format("has no tensor {}, with or without the prefix {}: not the weights of a GPT-2{}", name, kPrefix, if_one_of_several()));
    const auto& [entry, file] = *it->second;
    if (entry.shape.size() != 2)
      fail_in(file, fmt::format("tensor {} has shape {}, expected two dimensions", name, shape_text(entry.shape)));
    return entry;
  }

  ModelConfig shape(std::optional<int64_t> heads) const {
    const SafetensorEntry &wte = matrix("wte.weight"), &wpe = matrix("wpe.weight");
    ModelConfig c;
    c.vocab_size = wte.shape[0];
    c.channels = wte.shape[1];
    c.max_seq_len = wpe.shape[0];
    c.layers = 0;
    // A number of layers beyond the tensors there are is a strange name, not a deep model; it is reported as surplus.
    for (const auto& [name, tensor] : named_)
      if (const auto layer = layer_of(name); layer && layer->first < static_cast<int64_t>(named_.size()))
        c.layers = std::max(c.layers, layer->first + 1);
    if (c.layers == 0) fail("has no tensor h.0.…: no layers");
    // Before the padding: what the limits refuse could overflow in it.
    c.padded_vocab = c.vocab_size;
    c.heads = 1;
    check_config(c, stored_.source);
    c.padded_vocab = (c.vocab_size + kVocabularyMultiple - 1) / kVocabularyMultiple * kVocabularyMultiple;
    if (stored_.config) {
      c.heads = heads.value_or(stored_.config->heads);
      check_same_model(*stored_.config, c, heads ? "the weights and --heads say" : "the weights say");
      check_config(c, stored_.config->source);
      return c;
    }
    if (!heads && c.channels % kHeadSize != 0)
      fail(
          fmt::format("the number of heads is not in the file, and {} channels are no multiple of {}, as they are in every GPT-2: "
                      "--heads N says it (n_head in config.json)",
                      c.channels, kHeadSize));
    c.heads = heads ? *heads : c.channels / kHeadSize;
    check_config(c, stored_.source);
    return c;
  }

  void check_names(const std::map<std::string, Place>& wanted) const {
    std::vector<std::string> missing, surplus;
    for (const auto& [name, place] : wanted)
      if (!named_.contains(name)) missing.push_back(name);
    for (const auto& [name, tensor] : named_)
      if (!wanted.contains(name)) surplus.push_back(name);
    std::string what;
    if (!missing.empty()) what = fmt::format("missing: {}", listed(missing));
    if (!surplus.empty()) what += fmt::format("{}not in a GPT-2: {}", what.empty() ? "" : "; ", listed(surplus));
    if (!what.empty()) fail(fmt::format("{} (with {} layers){}", what, out_.config.layers, missing.empty() ? "" : if_one_of_several()));
  }

  void check(const std::string& name, const Place& place) const {
    const auto& [entry, file] = *named_.find(name)->second;
    if (entry.shape == place.shape) return;
    const bool linear = place.transposed && entry.shape == std::vector<int64_t>(place.shape.rbegin(), place.shape.rend());
    fail_in(file, fmt::format("tensor {} has shape {}, expected {}{}", name, shape_text(entry.shape), shape_text(place.shape),
                              linear ? ": it is stored as nn.Linear has it (nanoGPT), not as Hugging Face's Conv1D" : ""));
  }

  void read(const std::string& name, const Place& place) {
    const size_t rows = static_cast<size_t>(place.rows), columns = static_cast<size_t>(place.columns);
    const std::span<float> to = std::span(out_.parameters).subspan(static_cast<size_t>(place.offset), rows * columns);
    const auto& [entry, file] = *named_.find(name)->second;
    if (!place.transposed) return widen_tensor(entry, to, file, name);
    std::vector<float> stored(to.size());
    widen_tensor(entry, stored, file, name);
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < columns; ++c) to[r * columns + c] = stored[c * rows + r];
  }

  // GPT-2 reads and writes words with one table; a head of its own has no place in a checkpoint.
  void check_head() {
    if (!head_) {
      if (stored_.config && !stored_.config->tied_head)
        fail(fmt::format("has no tensor {}, and {} says that \"tie_word_embeddings\" is false", kHead, stored_.config->source));
      return;
    }
    const auto& [entry, file] = *head_;
    const std::vector<int64_t> shape{out_.config.vocab_size, out_.config.channels};
    if (entry.shape != shape)
      fail_in(file, fmt::format("tensor {} has shape {}, expected {}", kHead, shape_text(entry.shape), shape_text(shape)));
    std::vector<float> head(static_cast<size_t>(shape[0] * shape[1]));
    widen_tensor(entry, head, file, kHead);
    if (std::memcmp(head.data(), out_.parameters.data(), head.size() * sizeof(float)) != 0)
      fail_in(file, fmt::format("tensor {} differs from wte.weight, expected the same values: a checkpoint has one table for both", kHead));
    out_.tied_head = true;
  }

  const StoredWeights& stored_;
  std::map<std::string, const StoredTensor*, std::less<>> named_;  // without prefix
  const StoredTensor* head_ = nullptr;
  ImportedWeights out_;
};

// As the safetensors library writes it: no spaces, padded with spaces to a multiple of 8.
std::string header_text(const std::map<std::string, Place>& tensors, std::string_view dtype, uint64_t width) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  uint64_t at = 0;
  for (const auto& [name, place] : tensors) {
    const uint64_t end = at + width * static_cast<uint64_t>(place.rows * place.columns);
    text += fmt::format(R"(,"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", name, dtype, fmt::join(place.shape, ","), at, end);
    at = end;
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

void check_padding(const std::filesystem::path& path, const Checkpoint& checkpoint) {
  const ModelConfig& c = checkpoint.config;
  for (int64_t i = c.vocab_size * c.channels; i < c.padded_vocab * c.channels; ++i) {
    if (checkpoint.parameters[static_cast<size_t>(i)] != 0)
      throw stepscope::InputError(fmt::format("{}: row {} of wte pads the vocabulary of {} and is not zero; it has no place in the file",
                                              path.string(), i / c.channels, c.vocab_size));
  }
}

}  // namespace

ImportedWeights import_weights(const StoredWeights& stored, std::optional<int64_t> heads) { return Importer(stored).run(heads); }

ImportedWeights import_weights(std::span<const std::byte> file, const std::string& source, std::optional<int64_t> heads) {
  return import_weights(weights_of_file(file, source), heads);
}

void export_weights(const std::filesystem::path& path, const Checkpoint& checkpoint) {
  check_padding(path, checkpoint);
  const bool bf16 = checkpoint.precision == CheckpointPrecision::bf16;
  const auto tensors = places(checkpoint.config);
  const std::string header = header_text(tensors, bf16 ? "BF16" : "F32", bf16 ? 2 : 4);
  const uint64_t length = header.size();
  AtomicFile out(stepscope::output_place(path));
  out.write(&length, sizeof length);
  out.write(header);
  std::vector<float> stored;
  std::vector<uint16_t> narrow;
  for (const auto& [name, place] : tensors) {
    const size_t rows = static_cast<size_t>(place.rows), columns = static_cast<size_t>(place.columns);
    const std::span<const float> from = std::span(checkpoint.parameters).subspan(static_cast<size_t>(place.offset), rows * columns);
    stored.assign(from.begin(), from.end());
    if (place.transposed) {
      for (size_t r = 0; r < rows; ++r)
        for (size_t c = 0; c < columns; ++c) stored[c * rows + r] = from[r * columns + c];
    }
    if (!bf16) {
      out.write(stored.data(), stored.size() * sizeof(float));
      continue;
    }
    // Widened from bf16 when it was read: the upper half is the whole value.
    narrow.resize(stored.size());
    std::transform(stored.begin(), stored.end(), narrow.begin(),
                   [](float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); });
    out.write(narrow.data(), narrow.size() * sizeof(uint16_t));
  }
  out.commit();
}

void export_model(const std::filesystem::path& folder, const Checkpoint& checkpoint) {
  const std::filesystem::path config = folder / kConfigName;
  check_padding(folder, checkpoint);
  std::error_code absent;
  const std::filesystem::path index = folder / kIndexName;
  if (std::filesystem::exists(index, absent))
    throw stepscope::InputError(
        fmt::format("{}: the folder holds a model in several files, expected another folder or the name of a new one", index.string()));
  const bool there = std::filesystem::exists(config, absent);
  if (there) {
    const MappedFile file(config);
    const HuggingFaceConfig said = read_hugging_face_config(file.text(), file.path());
    check_same_model(said, checkpoint.config, "the checkpoint says");
    if (!said.tied_head)
      throw stepscope::InputError(
          fmt::format("{}: \"tie_word_embeddings\" is false, expected true or another folder: a checkpoint has one table for both, and "
                      "without {} from_pretrained would make a head up",
                      said.source, kHead));
  }
  stepscope::check_folder_usable(folder, "--out");
  export_weights(folder / kWeightsName, checkpoint);
  if (!there) stepscope::write_output(config, hugging_face_config_text(checkpoint.config, checkpoint.precision));
}

}  // namespace gpt2

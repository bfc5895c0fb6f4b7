#include "gpt2/data/hugging_face_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/errors.h"
#include "base/json_read.h"

namespace gpt2 {
namespace {

using nlohmann::json;

constexpr double kEpsilon = 1e-5;
constexpr int64_t kDefaultHeads = 12;           // of transformers' GPT2Config
constexpr int64_t kGpt2Vocabulary = 50257;      // whose last token ends a text
constexpr int64_t kLargest = int64_t{1} << 40;  // beyond any shape that check_config takes

class ConfigReader {
 public:
  ConfigReader(std::string_view text, const std::string& source) : source_(source), object_(stepscope::read_json<json>(text)) {
    if (!object_.is_object()) throw stepscope::InputError(fmt::format("{}: {}", source, stepscope::why_no_object(text, source)));
  }

  HuggingFaceConfig read() const {
    if (!object_.contains("model_type"))
      throw stepscope::InputError(fmt::format("{}: no \"model_type\", expected it and \"gpt2\" in it", source_));
    expect("model_type", {"gpt2"});
    // All three names are the tanh form.
    expect("activation_function", {"gelu_new", "gelu_pytorch_tanh", "gelu_fast"});
    expect("layer_norm_epsilon", {kEpsilon});
    expect("scale_attn_weights", {true});
    expect("scale_attn_by_inverse_layer_idx", {false});
    expect("tie_word_embeddings", {true, false});
    HuggingFaceConfig c;
    c.source = source_;
    c.heads = number("n_head", "num_attention_heads", c).value_or(kDefaultHeads);
    c.layers = number("n_layer", "num_hidden_layers", c);
    c.channels = number("n_embd", "hidden_size", c);
    c.positions = number("n_positions", "max_position_embeddings", c);
    c.vocabulary = number("vocab_size");
    c.tied_head = object_.value("tie_word_embeddings", true);
    return c;
  }

 private:
  void expect(const char* key, const std::vector<json>& allowed) const {
    const auto at = object_.find(key);
    if (at == object_.end() || std::find(allowed.begin(), allowed.end(), *at) != allowed.end()) return;
    std::vector<std::string> shown;
    for (const json& value : allowed) shown.push_back(stepscope::shown_json(value));
    throw stepscope::InputError(
        fmt::format("{}: \"{}\" is {}, expected {}", source_, key, stepscope::shown_json(*at), fmt::join(shown, " or ")));
  }
  std::optional<int64_t> number(const char* key) const {
    const auto at = object_.find(key);
    if (at == object_.end()) return {};
    if (at->is_number_integer() && *at >= 1 && *at <= kLargest) return at->get<int64_t>();
    throw stepscope::InputError(
        fmt::format("{}: \"{}\" is {}, expected a whole number of at least 1", source_, key, stepscope::shown_json(*at)));
  }
  // transformers reads either name, and the alias where both are there (attribute_map of its GPT2Config).
  std::optional<int64_t> number(const char* key, const char* alias, HuggingFaceConfig& c) const {
    const std::optional<int64_t> own = number(key), other = number(alias);
    if (own && other && *own != *other)
      throw stepscope::InputError(
          fmt::format("{}: \"{}\" is {} and \"{}\" is {}, expected one number: both are names of it", source_, key, *own, alias, *other));
    if (!own && other) c.said_as.emplace(key, alias);
    return own ? own : other;
  }

  const std::string& source_;
  json object_;
};

}  // namespace

HuggingFaceConfig read_hugging_face_config(std::string_view text, const std::string& source) { return ConfigReader(text, source).read(); }

void check_same_model(const HuggingFaceConfig& config, const ModelConfig& model, std::string_view as_whom) {
  const auto check = [&](const char* key, const std::optional<int64_t>& said, int64_t found) {
    if (!said || *said == found) return;
    const auto as = config.said_as.find(key);
    throw stepscope::InputError(fmt::format("{}: \"{}\" is {}, expected {}, as {}", config.source,
                                            as == config.said_as.end() ? key : as->second, *said, found, as_whom));
  };
  check("n_layer", config.layers, model.layers);
  check("n_embd", config.channels, model.channels);
  check("n_head", config.heads, model.heads);
  check("n_positions", config.positions, model.max_seq_len);
  check("vocab_size", config.vocabulary, model.vocab_size);
}

std::string hugging_face_config_text(const ModelConfig& model, CheckpointPrecision precision) {
  // Ids outside the vocabulary make transformers warn, and its default is GPT-2's id.
  const json end_of_text = model.vocab_size == kGpt2Vocabulary ? json(kGpt2Vocabulary - 1) : json();
  const nlohmann::ordered_json j{{"activation_function", "gelu_new"},
                                 {"architectures", {"GPT2LMHeadModel"}},
                                 {"attn_pdrop", 0.0},
                                 {"bos_token_id", end_of_text},
                                 {"embd_pdrop", 0.0},
                                 {"eos_token_id", end_of_text},
                                 {"initializer_range", 0.02},
                                 {"layer_norm_epsilon", kEpsilon},
                                 {"model_type", "gpt2"},
                                 {"n_embd", model.channels},
                                 {"n_head", model.heads},
                                 {"n_inner", nullptr},
                                 {"n_layer", model.layers},
                                 {"n_positions", model.max_seq_len},
                                 {"resid_pdrop", 0.0},
                                 {"scale_attn_by_inverse_layer_idx", false},
                                 {"scale_attn_weights", true},
                                 {"tie_word_embeddings", true},
                                 {"torch_dtype", precision == CheckpointPrecision::bf16 ? "bfloat16" : "float32"},
                                 {"use_cache", true},
                                 {"vocab_size", model.vocab_size}};
  return stepscope::json_text(j, 2) + "\n";
}

}  // namespace gpt2

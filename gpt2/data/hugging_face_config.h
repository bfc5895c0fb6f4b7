// config.json, which Hugging Face keeps beside the weights of a model: what it says of a GPT-2, and the one that an exported model needs.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "gpt2/checkpoint.h"

namespace gpt2 {

struct HuggingFaceConfig {
  std::string source;
  int64_t heads = 0;  // n_head, or what transformers takes without it
  std::optional<int64_t> layers, channels, positions, vocabulary;
  bool tied_head = true;
  // {n_head, num_attention_heads} where config.json has transformers' other name alone
  std::map<std::string, std::string, std::less<>> said_as;
};

// Throws stepscope::InputError naming `source`, the key, what stands there and what was expected: no JSON object, a model_type other than
// gpt2, a number that is none, a number that its two names (n_head and num_attention_heads) say differently, and whatever makes the model
// compute something else than ours from the same weights (another activation, another epsilon, unscaled attention). Keys that say nothing of
// this are not looked at.
HuggingFaceConfig read_hugging_face_config(std::string_view text, const std::string& source);

// Throws stepscope::InputError naming the key where `config` describes another shape than `model`. `as_whom` ends the message: "the weights
// say". A key that is not there says nothing, but for n_head.
void check_same_model(const HuggingFaceConfig& config, const ModelConfig& model, std::string_view as_whom);

// For transformers' from_pretrained: GPT2LMHeadModel without dropout, which our trainers do not have.
std::string hugging_face_config_text(const ModelConfig& model, CheckpointPrecision precision);

}  // namespace gpt2

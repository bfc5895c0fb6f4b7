// Shape of a GPT-2 model, and the letters for it that the whole project uses:
//   B batch size (sequences) · T tokens per sequence · C channels · L layers · NH heads · HS = C / NH head size
//   V vocabulary · Vp vocabulary padded to a multiple of 128 (rows V..Vp-1 of wte are zero and stay zero)
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2 {

struct ModelConfig {
  int64_t max_seq_len = 1024;    // maxT: rows of wpe
  int64_t vocab_size = 50257;    // V
  int64_t padded_vocab = 50304;  // Vp
  int64_t layers = 12;           // L
  int64_t heads = 12;            // NH
  int64_t channels = 768;        // C

  int64_t head_size() const { return channels / heads; }
  bool operator==(const ModelConfig&) const = default;
};

// "d12" "d24" "d36" "d48" (GPT-2), "gpt3:c768" … (GPT-3 shapes, named by their channels), or "tiny" (2 layers, for a CPU).
// Throws stepscope::InputError that lists the known names.
ModelConfig model_from_name(std::string_view name);
std::vector<std::string> model_names();

// Throws stepscope::InputError naming `source` and the field when a shape is absurd: a value < 1, heads not dividing
// channels, Vp < V, or a model of more than 2^40 parameters. Every reader of a header calls it before it allocates.
void check_config(const ModelConfig& config, std::string_view source);

// "12 layers, 12 heads, 768 channels, vocabulary 50257 (padded 50304), up to 1024 tokens"
std::string describe(const ModelConfig& config);

}  // namespace gpt2

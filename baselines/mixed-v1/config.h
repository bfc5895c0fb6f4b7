// The shape of a GPT-2 and the one table of its parameter tensors. The table's order is the order of llm.c's
// checkpoint files, and parameters, gradients and the two Adam moments all lie in memory in exactly this
// order.
//
// Letters used in every file here:
//   B sequences in a batch · T tokens in a sequence · N = B*T rows of every activation
//   L layers · C channels · NH heads · HS = C/NH head size · V vocabulary · Vp vocabulary padded to a
//   multiple of 128
// Everything that grows with N, L*C*C or Vp is int64_t: 65,536 rows x 50,304 logits is more than 2^31.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "errors.h"

namespace baseline {

struct Config {
  int64_t max_seq_len = 1024;
  int64_t vocab = 50257;
  int64_t padded_vocab = 50304;
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t channels = 768;
  int64_t head_size() const { return channels / heads; }
};

// Names of the GPT-2 family by depth: 124M, 350M, 774M, 1558M parameters. Returns false for any other text.
inline bool config_from_name(const std::string& name, Config& config) {
  struct Preset {
    const char* name;
    int64_t layers, heads, channels;
  };
  static constexpr Preset kPresets[] = {
      {"d12", 12, 12, 768}, {"d24", 24, 16, 1024}, {"d36", 36, 20, 1280}, {"d48", 48, 25, 1600}};
  for (const Preset& preset : kPresets) {
    if (name != preset.name) continue;
    config = Config{};
    config.layers = preset.layers;
    config.heads = preset.heads;
    config.channels = preset.channels;
    return true;
  }
  return false;
}

enum TensorId : int {
  kWte,
  kWpe,
  kLn1w,
  kLn1b,
  kQkvw,
  kQkvb,
  kAttprojw,
  kAttprojb,
  kLn2w,
  kLn2b,
  kFcw,
  kFcb,
  kFcprojw,
  kFcprojb,
  kLnfw,
  kLnfb,
  kTensors
};

enum class Init { normal, residual_normal, ones, zeros };

struct Tensor {
  int64_t offset;     // elements from the start of the parameter memory
  int64_t size;       // all layers
  int64_t per_layer;  // one layer; == size for the four tensors outside the layers
  bool decayed;       // AdamW decays matrices only
  Init init;
};

struct TensorTable {
  std::array<Tensor, kTensors> tensor;
  int64_t total = 0;
  explicit TensorTable(const Config& c) {
    const int64_t L = c.layers, C = c.channels;
    int64_t next = 0;
    auto add = [&](TensorId id, int64_t copies, int64_t per_layer, bool decayed, Init init) {
      tensor[id] = Tensor{next, copies * per_layer, per_layer, decayed, init};
      next += copies * per_layer;
    };
    add(kWte, 1, c.padded_vocab * C, true, Init::normal);
    add(kWpe, 1, c.max_seq_len * C, true, Init::normal);
    add(kLn1w, L, C, false, Init::ones);
    add(kLn1b, L, C, false, Init::zeros);
    add(kQkvw, L, 3 * C * C, true, Init::normal);  // linear weights are (out, in)
    add(kQkvb, L, 3 * C, false, Init::zeros);
    add(kAttprojw, L, C * C, true, Init::residual_normal);
    add(kAttprojb, L, C, false, Init::zeros);
    add(kLn2w, L, C, false, Init::ones);
    add(kLn2b, L, C, false, Init::zeros);
    add(kFcw, L, 4 * C * C, true, Init::normal);
    add(kFcb, L, 4 * C, false, Init::zeros);
    add(kFcprojw, L, C * 4 * C, true, Init::residual_normal);
    add(kFcprojb, L, C, false, Init::zeros);
    add(kLnfw, 1, C, false, Init::ones);
    add(kLnfb, 1, C, false, Init::zeros);
    total = next;
  }
};

// Refuses shapes that no file of ours can mean, before anything is allocated for them. `source` is the file
// or flag to blame.
inline void check_config(const Config& c, const std::string& source) {
  auto require = [&](bool good, const std::string& text) {
    if (!good) throw InputError(source + ": " + text);
  };
  auto in_range = [&](int64_t value, int64_t most, const char* what) {
    require(value >= 1 && value <= most,
            std::string(what) + " is " + std::to_string(value) + ", expected 1 to " + std::to_string(most));
  };
  in_range(c.max_seq_len, 1 << 20, "the longest sequence");
  in_range(c.vocab, 1 << 24, "the vocabulary");
  in_range(c.padded_vocab, 1 << 24, "the padded vocabulary");
  in_range(c.layers, 1 << 12, "the number of layers");
  in_range(c.channels, 1 << 16, "the number of channels");
  in_range(c.heads, c.channels, "the number of heads");
  require(c.channels % c.heads == 0,
          std::to_string(c.heads) + " heads do not divide " + std::to_string(c.channels) + " channels");
  require(c.padded_vocab >= c.vocab, "the padded vocabulary " + std::to_string(c.padded_vocab) +
                                         " is smaller than the vocabulary " + std::to_string(c.vocab));
}

// Uniform random bits: splitmix64. Every random number here comes from it, so a seed means the same on every
// machine.
struct Random {
  uint64_t state;
  uint64_t bits() {
    uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  // [0, 1)
};

// GPT-2's start: normal(0, 0.02), the two projections onto the residual stream scaled by 1/sqrt(2 L), biases
// 0, layernorm weights 1. Rows V..Vp-1 of wte are zero; their gradient is always zero, so they stay so.
inline std::vector<float> init_parameters(const Config& config, uint64_t seed) {
  const TensorTable table(config);
  std::vector<float> values(static_cast<size_t>(table.total), 0.0f);
  Random random{seed};
  for (int id = 0; id < kTensors; ++id) {
    const Tensor& tensor = table.tensor[id];
    float* out = values.data() + tensor.offset;
    const int64_t filled = id == kWte ? config.vocab * config.channels : tensor.size;
    if (tensor.init == Init::ones) std::fill(out, out + filled, 1.0f);
    if (tensor.init != Init::normal && tensor.init != Init::residual_normal) continue;
    const double sigma =
        tensor.init == Init::normal ? 0.02 : 0.02 / std::sqrt(2.0 * static_cast<double>(config.layers));
    for (int64_t i = 0; i < filled; i += 2) {  // Box-Muller makes two at a time
      const double radius = sigma * std::sqrt(-2.0 * std::log(1.0 - random.uniform()));
      const double angle = 6.283185307179586 * random.uniform();
      out[i] = static_cast<float>(radius * std::cos(angle));
      if (i + 1 < filled) out[i + 1] = static_cast<float>(radius * std::sin(angle));
    }
  }
  return values;
}

}  // namespace baseline

#include "gpt2/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "base/errors.h"
#include "gpt2/tensor_table.h"

namespace gpt2 {
namespace {

struct Preset {
  std::string_view name;
  int64_t layers, heads, channels, max_seq_len, vocab_size, padded_vocab;
};
// GPT-2: Radford et al. 2019, table 2 (124M, 350M, 774M, 1558M). GPT-3: Brown et al. 2020, table 2.1; context 2048. Table
// 2.1 prints two shapes whose heads do not divide their width (2048 / 24 and 5140 / 40); here 2048 / 16 and 5120 / 40.
constexpr std::array<Preset, 14> kPresets{{
    {"d12", 12, 12, 768, 1024, 50257, 50304},
    {"d24", 24, 16, 1024, 1024, 50257, 50304},
    {"d36", 36, 20, 1280, 1024, 50257, 50304},
    {"d48", 48, 25, 1600, 1024, 50257, 50304},
    {"tiny", 2, 4, 128, 256, 512, 512},
    {"gpt3:c384", 6, 6, 384, 2048, 50257, 50304},
    {"gpt3:c768", 12, 12, 768, 2048, 50257, 50304},
    {"gpt3:c1024", 24, 16, 1024, 2048, 50257, 50304},
    {"gpt3:c1536", 24, 16, 1536, 2048, 50257, 50304},
    {"gpt3:c2048", 24, 16, 2048, 2048, 50257, 50304},
    {"gpt3:c2560", 32, 32, 2560, 2048, 50257, 50304},
    {"gpt3:c4096", 32, 32, 4096, 2048, 50257, 50304},
    {"gpt3:c5120", 40, 40, 5120, 2048, 50257, 50304},
    {"gpt3:c12288", 96, 96, 12288, 2048, 50257, 50304},
}};
constexpr int64_t kMaxParameters = int64_t{1} << 40;

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const Preset& p : kPresets) names.emplace_back(p.name);
  return names;
}

ModelConfig model_from_name(std::string_view wanted) {
  for (const Preset& p : kPresets) {
    if (p.name == wanted) return {p.max_seq_len, p.vocab_size, p.padded_vocab, p.layers, p.heads, p.channels};
  }
  throw stepscope::InputError(
      fmt::format("unknown model '{}': expected one of {}, or a checkpoint file", wanted, fmt::join(model_names(), ", ")));
}

void check_config(const ModelConfig& c, std::string_view source) {
  auto fail = [&](const std::string& what) { throw stepscope::InputError(fmt::format("{}: {}", source, what)); };
  struct Field {
    std::string_view name;
    int64_t value, limit;
  };
  // Limits far above any real model and low enough that no product below can overflow 64 bits.
  for (const Field& f : {Field{"max_seq_len", c.max_seq_len, 1 << 24}, Field{"vocab_size", c.vocab_size, 1 << 24},
                         Field{"padded_vocab", c.padded_vocab, 1 << 24}, Field{"layers", c.layers, 1 << 16},
                         Field{"heads", c.heads, 1 << 16}, Field{"channels", c.channels, 1 << 20}}) {
    if (f.value < 1 || f.value > f.limit) fail(fmt::format("{} is {}, expected 1 to {}", f.name, f.value, f.limit));
  }
  if (c.channels % c.heads != 0) fail(fmt::format("{} heads do not divide {} channels", c.heads, c.channels));
  if (c.padded_vocab < c.vocab_size)
    fail(fmt::format("padded vocabulary {} is smaller than the vocabulary {}", c.padded_vocab, c.vocab_size));
  // As a double: the exact count of an absurd shape need not fit 64 bits.
  const double C = static_cast<double>(c.channels);
  const double params = C * static_cast<double>(c.padded_vocab + c.max_seq_len) + static_cast<double>(c.layers) * 12.0 * C * C;
  if (params > static_cast<double>(kMaxParameters))
    fail(fmt::format("{:.3g} parameters, expected at most {:.3g}", params, static_cast<double>(kMaxParameters)));
}

std::string describe(const ModelConfig& c) {
  return fmt::format("{} layers, {} heads, {} channels, vocabulary {} (padded {}), up to {} tokens", c.layers, c.heads, c.channels,
                     c.vocab_size, c.padded_vocab, c.max_seq_len);
}

}  // namespace gpt2

// Small models, random batches and the golden files, for the tests of the CPU reference.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpt2/reference/reference_model.h"

namespace reference_test {

// Odd on purpose: V is no multiple of a vector, T none of the attention's row block, heads of 12 columns.
inline gpt2::ModelConfig odd_config() {
  return {.max_seq_len = 21, .vocab_size = 67, .padded_vocab = 80, .layers = 2, .heads = 3, .channels = 36};
}

struct Tokens {
  std::vector<int32_t> inputs, targets;
  gpt2::Batch batch() const { return {inputs, targets}; }
};

inline Tokens random_tokens(int64_t count, int64_t vocabulary, uint32_t seed) {
  std::mt19937 bits(seed);
  Tokens t;
  for (int64_t i = 0; i < count; ++i) {
    t.inputs.push_back(static_cast<int32_t>(bits() % static_cast<uint32_t>(vocabulary)));
    t.targets.push_back(static_cast<int32_t>(bits() % static_cast<uint32_t>(vocabulary)));
  }
  return t;
}

// Initialization with biases and norms moved off zero and one, so that no term of a gradient hides; padding
// rows zero.
inline std::vector<float> lively_parameters(const gpt2::ModelConfig& config, uint64_t seed) {
  std::vector<float> p = gpt2::init_parameters(config, seed);
  const gpt2::TensorLayout layout = gpt2::tensor_layout(config);
  std::mt19937 bits(static_cast<uint32_t>(seed));
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    const gpt2::TensorSpan& s = layout[row.id];
    for (int64_t i = 0; i < s.size; ++i) {
      float& value = p[static_cast<size_t>(s.offset + i)];
      if (row.decayed)
        value *= 5.0f;  // logits and scores of order one
      else
        value += 0.2f * (static_cast<float>(bits() % 2001) / 1000.0f - 1.0f);
    }
  }
  return p;
}

template <typename Real>
gpt2::reference::ReferenceModel<Real> lively_model(const gpt2::ModelConfig& config, int64_t B, int64_t T, uint64_t seed = 3) {
  gpt2::reference::ReferenceModel<Real> model(config, B, T);
  model.set_parameters(lively_parameters(config, seed));
  return model;
}

template <typename A, typename B>
double relative_l2(std::span<const A> found, std::span<const B> expected) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double e = static_cast<double>(expected[i]), d = static_cast<double>(found[i]) - e;
    difference += d * d;
    size += e * e;
  }
  return std::sqrt(difference / size);
}

template <typename T>
std::span<const T> part(std::span<const T> all, const gpt2::TensorSpan& s) {
  return all.subspan(static_cast<size_t>(s.offset), static_cast<size_t>(s.size));
}

// The independent state of tests/data/golden (llm.c's debug state), read here without the project's own
// readers: a mistake in those must not be able to hide one in the model.
struct Golden {
  gpt2::ModelConfig config;
  int64_t B = 0, T = 0;
  std::vector<float> parameters, logits, gradients;
  Tokens tokens;
  float loss = 0;
};

inline Golden load_golden(const std::string& folder) {
  const auto take = [](std::ifstream& file, auto& values, int64_t count) {
    values.resize(static_cast<size_t>(count));
    file.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(values[0])));
    if (!file) throw std::runtime_error("golden file is missing or too short");
  };
  Golden g;
  std::vector<int32_t> header;
  std::ifstream model(folder + "/tiny.bin", std::ios::binary);
  take(model, header, 256);
  g.config = {.max_seq_len = header[2],
              .vocab_size = header[3],
              .padded_vocab = header[7],
              .layers = header[4],
              .heads = header[5],
              .channels = header[6]};
  const int64_t total = gpt2::tensor_layout(g.config).total;
  take(model, g.parameters, total);
  std::ifstream state(folder + "/tiny_debug_state.bin", std::ios::binary);
  take(state, header, 256);
  g.B = header[2], g.T = header[3];
  take(state, g.tokens.inputs, g.B * g.T);
  take(state, g.tokens.targets, g.B * g.T);
  take(state, g.logits, g.B * g.T * g.config.vocab_size);
  std::vector<float> loss;
  take(state, loss, 1);
  g.loss = loss[0];
  take(state, g.gradients, total);
  return g;
}

}  // namespace reference_test

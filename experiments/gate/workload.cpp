#include "experiments/gate/workload.h"

#include <algorithm>
#include <cmath>

#include "experiments/gate/oracle.h"
#include "experiments/gate/random.h"

namespace gate {

using gpt2::ModelConfig;
using gpt2::Tensor;

ModelConfig gate_model() {
  return {
      .max_seq_len = 128, .vocab_size = 509, .padded_vocab = 512, .layers = 2, .heads = 4, .channels = 64};
}

ModelConfig timed_model() {
  return {.max_seq_len = 64, .vocab_size = 50257, .padded_vocab = 50304, .layers = 1, .heads = 16, .channels = 1024};
}

std::vector<Case> small_cases() {
  const ModelConfig tiny = gate_model();
  ModelConfig odd_channels = tiny;  // 208 % 128 != 0, 13 heads of 16
  odd_channels.channels = 208;
  odd_channels.heads = 13;
  odd_channels.layers = 1;
  ModelConfig wide_vocabulary = tiny;  // several blocks of vocabulary, most of the last one padding
  wide_vocabulary.vocab_size = 1153;
  wide_vocabulary.padded_vocab = 1280;
  ModelConfig deep = tiny;
  deep.layers = 5;
  ModelConfig gpt2_vocabulary = tiny;  // target ids that need 16 bits; so few channels that C-1 is not nearly C
  gpt2_vocabulary.vocab_size = 50257;
  gpt2_vocabulary.padded_vocab = 50304;
  gpt2_vocabulary.layers = 1;
  gpt2_vocabulary.heads = 2;
  gpt2_vocabulary.channels = 16;
  ModelConfig one_head = tiny;
  one_head.heads = 1;
  return {
      {"shape B=3 T=63", tiny, 3, 63},
      {"shape B=3 T=65", tiny, 3, 65},
      {"shape B=1 T=1", tiny, 1, 1},
      {"shape B=2 T=128", tiny, 2, 128},
      {"shape C=208 NH=13", odd_channels, 2, 33},
      {"shape V=1153 Vp=1280", wide_vocabulary, 2, 31},
      {"shape L=5", deep, 1, 40},
      {"shape NH=1", one_head, 2, 32},
      {"repeated tokens", tiny, 4, 64, Stress::repeated_tokens},
      {"edge targets", tiny, 4, 64, Stress::edge_targets},
      {"large logits", tiny, 3, 65, Stress::large_logits},
      {"sharp attention", tiny, 3, 65, Stress::sharp_attention},
      {"shape C=16 V=50257", gpt2_vocabulary, 2, 17, Stress::none, true},
      {"offset stream", tiny, 2, 64, Stress::offset_stream, true},
      {"faint stream", tiny, 2, 64, Stress::faint_stream, true},
      {"gelu tail", tiny, 2, 64, Stress::gelu_tail, true},
  };
}

std::vector<float> trained_like_parameters(const Case& c, uint64_t seed) {
  const auto layout = gpt2::tensor_layout(c.config);
  std::vector<float> p(static_cast<size_t>(layout.total));
  const double channels = static_cast<double>(c.config.channels);
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    const gpt2::TensorSpan& span = layout[row.id];
    Random random(seed, 100 + static_cast<uint64_t>(row.id));
    double mean = 0, deviation = 0.1;  // biases
    if (row.init == gpt2::Init::ones) {
      mean = 1;
      deviation = 0.2;
    } else if (row.id == Tensor::wte) {
      deviation = 1.5 / std::sqrt(channels);  // logits of a few units
    } else if (row.id == Tensor::wpe) {
      deviation = 0.1;
    } else if (row.decayed) {
      deviation = 1 / std::sqrt(static_cast<double>(span.columns));
    }
    for (int64_t i = 0; i < span.size; ++i)
      p[static_cast<size_t>(span.offset + i)] = static_cast<float>(mean) + random.normal(deviation);
  }
  const gpt2::TensorSpan& wte = layout[Tensor::wte];
  for (int64_t i = c.config.vocab_size * c.config.channels; i < wte.size; ++i)
    p[static_cast<size_t>(wte.offset + i)] = 0;

  if (c.stress == Stress::sharp_attention) {
    // Scores are (q.k) / sqrt(HS), here of deviation about 1; factor 5 each on query and key rows makes them
    // 25, the largest of some thousands about 100.
    const gpt2::TensorSpan& w = layout[Tensor::qkvw];
    const gpt2::TensorSpan& b = layout[Tensor::qkvb];
    for (int64_t layer = 0; layer < c.config.layers; ++layer) {
      for (int64_t i = 0; i < 2 * c.config.channels * c.config.channels; ++i)
        p[static_cast<size_t>(w.offset + layer * w.per_layer + i)] *= 5;
      for (int64_t i = 0; i < 2 * c.config.channels; ++i)
        p[static_cast<size_t>(b.offset + layer * b.per_layer + i)] *= 5;
    }
  }
  const auto change = [&](Tensor t, auto to) {
    for (int64_t i = 0; i < layout[t].size; ++i) {
      float& x = p[static_cast<size_t>(layout[t].offset + i)];
      x = to(x);
    }
  };
  if (c.stress == Stress::offset_stream) change(Tensor::wpe, [](float) { return 8.0f; });  // exact in bf16: only the sum is not
  if (c.stress == Stress::faint_stream)
    for (Tensor t : {Tensor::wte, Tensor::wpe}) change(t, [](float x) { return x / 300; });
  if (c.stress == Stress::gelu_tail) {
    change(Tensor::fcb, [](float) { return -1.5f; });
    change(Tensor::fcprojw, [](float x) { return x * 8; });
  }
  if (c.stress == Stress::large_logits) {
    // Logits are linear in (lnfw, lnfb): one forward pass gives the factor exactly.
    Oracle oracle(c.config, c.batch_size, c.seq_len);
    oracle.set(gpt2::State::parameters, p);
    const Tokens tokens = random_tokens(c, seed, 0);
    const gpt2::Batch batch = tokens.batch();
    oracle.forward_backward({&batch, 1});
    double largest = 0;
    for (double x : oracle.logits()) largest = std::max(largest, std::abs(x));
    for (Tensor t : {Tensor::lnfw, Tensor::lnfb})
      for (int64_t i = 0; i < layout[t].size; ++i)
        p[static_cast<size_t>(layout[t].offset + i)] *= static_cast<float>(100 / largest);
  }
  return p;
}

Tokens random_tokens(const Case& c, uint64_t seed, uint64_t number) {
  Random random(seed, 1000 + number);
  const int64_t vocabulary = c.config.vocab_size;
  const auto n = static_cast<size_t>(c.batch_size * c.seq_len);
  Tokens out{std::vector<int32_t>(n), std::vector<int32_t>(n)};
  const auto draw = [&]() -> int32_t {  // half of the stream from 16 frequent tokens, as text has
    return static_cast<int32_t>(random.uniform() < 0.5 ? random.below(std::min<int64_t>(16, vocabulary))
                                                       : random.below(vocabulary));
  };
  const int32_t two[2] = {draw(), draw()};
  for (size_t i = 0; i < n; ++i) {
    out.inputs[i] = draw();
    out.targets[i] = draw();
    if (c.stress == Stress::repeated_tokens) out.inputs[i] = two[random.below(2)];
    if (c.stress == Stress::edge_targets) {
      out.targets[i] = i % 2 == 0 ? 0 : static_cast<int32_t>(vocabulary - 1);
      if (i % 3 == 0) out.inputs[i] = out.targets[i];
    }
  }
  return out;
}

}  // namespace gate

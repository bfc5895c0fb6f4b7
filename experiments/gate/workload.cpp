#include "experiments/gate/workload.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <mutex>
#include <numeric>
#include <stdexcept>

#include "experiments/gate/known_model.h"
#include "experiments/gate/moment_bits.h"
#include "experiments/gate/oracle.h"
#include "experiments/gate/random.h"

namespace gate {

using gpt2::ModelConfig;
using gpt2::Tensor;

const char* sentence(Stress stress) {
  switch (stress) {
    case Stress::none:
      return "nothing but its shape is out of the ordinary";
    case Stress::repeated_tokens:
      return "every input is one of two tokens: all updates of the embedding gradient collide";
    case Stress::edge_targets:
      return "targets are 0 and V-1 only, inputs include both";
    case Stress::large_logits:
      return "the largest logit is 100; above 88.7 exp overflows in fp32";
    case Stress::sharp_attention:
      return "attention scores reach about +-100";
    case Stress::offset_stream:
      return "every position embedding is 8: rounding the residual stream to bf16 costs as much as it varies";
    case Stress::offset_gradient:
      return "the gradients of a position's rows nearly cancel: where each is rounded to bf16, a third of their sum is lost";
    case Stress::faint_stream:
      return "embeddings are 300 times smaller: the first layernorm's eps is most of its variance";
    case Stress::gelu_tail:
      return "the inputs of GELU lie about -1.5 and its outputs decide the logits";
    case Stress::far_mean:
      return "rows of the residual stream are 300 +- 0.1 or -300 +- 0.1";
    case Stress::low_logits:
      return "all logits lie below -100";
    case Stress::one_high_logit:
      return "one token's logit is +80 in every row, the others are ordinary";
    case Stress::equal_logits:
      return "all logits are 0, because the final layernorm's weight and bias are";
    case Stress::flat_attention:
      return "every attention score is 0, because queries are";
    case Stress::denormals:
      return "biases and half of the position embedding are below the normal numbers of fp32";
    case Stress::equal_tokens:
      return "every input and every target is the same token";
    case Stress::distinct_tokens:
      return "no input twice, no target twice; 0 and V-1 are among both";
    case Stress::mixed_tokens:
      return "by sequence: distinct, all equal, random, two tokens and targets at the edges";
  }
  throw std::logic_error("a stress without a sentence");
}

ModelConfig gate_model() { return {.max_seq_len = 128, .vocab_size = 509, .padded_vocab = 512, .layers = 2, .heads = 4, .channels = 64}; }

ModelConfig timed_model() {
  return {.max_seq_len = 64, .vocab_size = 50257, .padded_vocab = 50304, .layers = 1, .heads = 16, .channels = 1024};
}

ModelConfig wide_layer() {
  return {.max_seq_len = 128, .vocab_size = 1153, .padded_vocab = 1280, .layers = 1, .heads = 25, .channels = 1600};
}

namespace {
// Heads of 64 channels: what a trainer has for these alone (attention for Hopper, and the bias gradients that follow from it) runs here.
ModelConfig one_head() {
  ModelConfig model = gate_model();
  model.heads = 1;
  return model;
}
}  // namespace

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
  deep.layers = 13;                    // one more than GPT-2's smallest model has
  ModelConfig gpt2_vocabulary = tiny;  // target ids that need 16 bits; so few channels that C-1 is not nearly C
  gpt2_vocabulary.vocab_size = 50257;
  gpt2_vocabulary.padded_vocab = 50304;
  gpt2_vocabulary.layers = 1;
  gpt2_vocabulary.heads = 2;
  gpt2_vocabulary.channels = 16;
  ModelConfig as_wide_as_its_vocabulary = tiny;  // lm_head's product has mlp_up's shape, and no bias
  as_wide_as_its_vocabulary.layers = 1;
  as_wide_as_its_vocabulary.heads = 2;
  as_wide_as_its_vocabulary.channels = 128;
  return {
      {"shape B=3 T=63", tiny, 3, 63},
      {"shape B=3 T=65", tiny, 3, 65},
      {"shape B=1 T=1", tiny, 1, 1},
      {"shape B=2 T=128", tiny, 2, 128},
      {"shape C=208 NH=13", odd_channels, 2, 33},
      {"shape V=1153 Vp=1280", wide_vocabulary, 2, 31},
      {"shape L=13", deep, 1, 40},
      {"shape 4C=Vp", as_wide_as_its_vocabulary, 2, 64},
      {"shape NH=1", one_head(), 2, 32},
      {"shape NH=1 T=127", one_head(), 3, 127},  // tiles beside the diagonal
      {"repeated tokens", tiny, 4, 64, Stress::repeated_tokens},
      {"edge targets", tiny, 4, 64, Stress::edge_targets},
      {"large logits", tiny, 3, 65, Stress::large_logits},
      {"sharp attention", tiny, 3, 65, Stress::sharp_attention},
      {"shape C=16 V=50257", gpt2_vocabulary, 2, 17, Stress::none, true},
      {"offset stream", tiny, 2, 64, Stress::offset_stream, true},
      {"offset gradient", tiny, 4, 32, Stress::offset_gradient, false, 1, "wpe"},
      {"faint stream", tiny, 2, 64, Stress::faint_stream, true},
      {"gelu tail", tiny, 2, 64, Stress::gelu_tail, true},
      {"far mean", tiny, 2, 64, Stress::far_mean, true},
      {"low logits", tiny, 2, 64, Stress::low_logits},
      {"one high logit", tiny, 2, 64, Stress::one_high_logit},
      {"equal logits", tiny, 2, 64, Stress::equal_logits},
      {"flat attention", tiny, 2, 64, Stress::flat_attention},
      {"denormals", tiny, 2, 64, Stress::denormals},
      {"equal tokens", tiny, 3, 63, Stress::equal_tokens},
      {"distinct tokens", tiny, 3, 65, Stress::distinct_tokens},
  };
}

std::vector<Case> step_cases() {
  ModelConfig narrow = gate_model();
  narrow.layers = 1;
  narrow.heads = 2;
  narrow.channels = 32;
  return {{"BT=63", gate_model(), 3, 21},
          {"BT=195", gate_model(), 3, 65},
          {"BT=256", gate_model(), 4, 64},
          {"BT=4096", narrow, 32, 128},
          {"BT=254 NH=1", one_head(), 2, 127}};
}

Case head_of_64() { return {"head of 64", one_head(), 2, 127}; }
Case overflowing_rows() { return {"head of 64, large logits", one_head(), 2, 127, Stress::large_logits}; }

Moments given_moments(const Case& c, uint64_t seed, const MomentBits& bits) {
  Moments out;
  const auto kept = [](float x, int of) {
    const uint32_t unit = uint32_t{1} << (kFp32Bits - std::min(of, kSplitBits));
    return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + unit / 2) & ~(unit - 1));
  };
  for (const KnownTensor& t : known_tensors(c.config)) {
    Random random(seed, 300 + out.m.size());
    const bool padded = t.name == "wte";
    for (int64_t i = 0; i < t.size(); ++i) {
      float m = random.normal(1e-3), v = std::abs(random.normal(2e-3));
      v *= v;
      if (i % 97 == 5) m = 1e-41f;
      if (i % 89 == 7) v = 1e-41f;
      if (padded && i >= c.config.vocab_size * c.config.channels) m = v = 0;
      out.m.push_back(kept(m, bits.m));
      out.v.push_back(kept(v, bits.v));
    }
  }
  return out;
}

namespace {

// Tokens of Stress::offset_gradient: the one with the high logit, the two targets, and pairs of inputs from kFirstOfPairs on.
constexpr int64_t kHighLogit = 7, kTarget = 8, kOtherTarget = 9, kFirstOfPairs = 10;

// What is one distance of neighbours further from 0, in bf16; 0 stays.
float next_bf16(float x) { return x == 0 ? x : std::bit_cast<float>((std::bit_cast<uint32_t>(x) & 0xffff0000u) + 0x10000u); }

// Behind one logit of 80 the gradient of a row's logits is 1 there and -1 at the target. Its two targets have opposite rows of wte, so two
// sequences with the same inputs and the one or the other target have opposite gradients of the residual stream. Their inputs are not the
// same: those of the second are one step of bf16 further from 0, 0.4 to 0.8% of each number, by which the last layernorm's factor differs. So
// much is left of the sum of their gradients, which is that of a position. Rounding each gradient to bf16 moves it by 0.1%: a third of what is
// left (0.33 to 0.37 for six seeds on a CPU; 16 bits lose 0.002, fp32 2e-5). Nothing else may be that large: what the blocks add is smaller by
// 2^16, there are no other numbers in the stream than the inputs', which bf16 holds, and the gradients of the logits are powers of two.
void offset_gradient(const ModelConfig& config, std::vector<float>& p) {
  const gpt2::TensorLayout layout = gpt2::tensor_layout(config);
  const auto all = [&](Tensor t) {
    return std::span(p).subspan(static_cast<size_t>(layout[t].offset), static_cast<size_t>(layout[t].size));
  };
  for (const Tensor t : {Tensor::wpe, Tensor::attprojb, Tensor::fcprojb}) std::ranges::fill(all(t), 0.0f);
  for (const Tensor t : {Tensor::attprojw, Tensor::fcprojw})
    for (float& x : all(t)) x *= 0x1p-16f;
  const auto C = static_cast<size_t>(config.channels);
  const auto row = [&](int64_t token) { return all(Tensor::wte).subspan(static_cast<size_t>(token) * C, C); };
  for (size_t i = 1; i < C; ++i) {
    row(kTarget)[i] = std::copysign(0.25f, row(kTarget)[i]);
    row(kOtherTarget)[i] = -row(kTarget)[i];
  }
  for (int64_t token = kFirstOfPairs; token + 1 < config.vocab_size; token += 2)
    for (size_t i = 0; i < C; ++i) {
      row(token)[i] = std::bit_cast<float>(std::bit_cast<uint32_t>(row(token)[i]) & 0xffff0000u);
      row(token + 1)[i] = next_bf16(row(token)[i]);
    }
}

std::vector<float> draw_parameters(const Case& c, uint64_t seed) {
  const auto layout = gpt2::tensor_layout(c.config);
  std::vector<float> p(static_cast<size_t>(layout.total));
  const double channels = static_cast<double>(c.config.channels);
  const std::vector<KnownTensor> tensors = known_tensors(c.config);
#pragma omp parallel for schedule(dynamic)
  for (size_t t = 0; t < tensors.size(); ++t) {
    const KnownTensor& tensor = tensors[t];
    Random random(seed, 100 + static_cast<uint64_t>(t));
    double mean = 0, deviation = 0.1;  // biases
    if (tensor.start_mean == 1) {
      mean = 1;
      deviation = 0.2;
    } else if (tensor.name == "wte") {
      deviation = 1.5 / std::sqrt(channels);  // logits of a few units
    } else if (tensor.name == "wpe") {
      deviation = 0.1;
    } else if (tensor.rows > 1) {
      deviation = 1 / std::sqrt(static_cast<double>(tensor.columns));
    }
    for (int64_t i = 0; i < tensor.size(); ++i)
      p[static_cast<size_t>(tensor.offset + i)] = static_cast<float>(mean) + random.normal(deviation);
  }
  const gpt2::TensorSpan& wte = layout[Tensor::wte];
  for (int64_t i = c.config.vocab_size * c.config.channels; i < wte.size; ++i) p[static_cast<size_t>(wte.offset + i)] = 0;

  if (c.stress == Stress::sharp_attention) {
    // Scores are (q.k) / sqrt(HS), here of deviation about 1; factor 5 each on query and key rows makes them
    // 25, the largest of some thousands about 100.
    const gpt2::TensorSpan& w = layout[Tensor::qkvw];
    const gpt2::TensorSpan& b = layout[Tensor::qkvb];
    for (int64_t layer = 0; layer < c.config.layers; ++layer) {
      for (int64_t i = 0; i < 2 * c.config.channels * c.config.channels; ++i)
        p[static_cast<size_t>(w.offset + layer * w.per_layer + i)] *= 5;
      for (int64_t i = 0; i < 2 * c.config.channels; ++i) p[static_cast<size_t>(b.offset + layer * b.per_layer + i)] *= 5;
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
  const int64_t C = c.config.channels;
  const auto at = [&](Tensor t, int64_t i) -> float& { return p[static_cast<size_t>(layout[t].offset + i)]; };
  if (c.stress == Stress::far_mean) {
    for (int64_t i = 0; i < layout[Tensor::wpe].size; ++i) at(Tensor::wpe, i) = i / C % 2 == 0 ? 300.0f : -300.0f;  // exact in bf16
    change(Tensor::wte, [&](float x) { return x * static_cast<float>(0.1 * std::sqrt(channels) / 1.5); });
  }
  if (c.stress == Stress::low_logits || c.stress == Stress::one_high_logit || c.stress == Stress::offset_gradient) {
    // The final layernorm puts out 64 in channel 0 of every row; there every token of the vocabulary has its part. All
    // exact in bf16: an error that every row has alike would be no noise.
    for (Tensor t : {Tensor::lnfw, Tensor::lnfb}) at(t, 0) = t == Tensor::lnfb ? 64.0f : 0.0f;
    const bool low = c.stress == Stress::low_logits;
    for (int64_t token = 0; token < c.config.vocab_size; ++token) at(Tensor::wte, token * C) = low ? -1.75f : 0.0f;
    if (!low) {
      for (int64_t i = 0; i < C; ++i) at(Tensor::wte, kHighLogit * C + i) = 0;
      at(Tensor::wte, kHighLogit * C) = 1.25f;
    }
  }
  if (c.stress == Stress::offset_gradient) offset_gradient(c.config, p);
  if (c.stress == Stress::equal_logits)
    for (Tensor t : {Tensor::lnfw, Tensor::lnfb}) change(t, [](float) { return 0.0f; });
  if (c.stress == Stress::flat_attention)
    for (int64_t layer = 0; layer < c.config.layers; ++layer) {
      for (int64_t i = 0; i < C * C; ++i) at(Tensor::qkvw, layer * 3 * C * C + i) = 0;
      for (int64_t i = 0; i < C; ++i) at(Tensor::qkvb, layer * 3 * C + i) = 0;
    }
  if (c.stress == Stress::denormals) {
    for (Tensor t : {Tensor::ln1b, Tensor::qkvb, Tensor::attprojb, Tensor::ln2b, Tensor::fcb, Tensor::fcprojb, Tensor::lnfb})
      change(t, [](float x) { return x * 1e-39f; });
    for (int64_t i = 0; i < layout[Tensor::wpe].size; i += 2) at(Tensor::wpe, i) *= 1e-39f;
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
      for (int64_t i = 0; i < layout[t].size; ++i) p[static_cast<size_t>(layout[t].offset + i)] *= static_cast<float>(100 / largest);
  }
  return p;
}

// A gate asks for the weights of a case once for each of its trainers. Drawn anew each time they were 6% of what its suites of tests compute.
class DrawnParameters {
 public:
  std::vector<float> get(const Case& c, uint64_t seed) {
    const bool asks_the_oracle = c.stress == Stress::large_logits;
    const Key key{c.config, c.stress, seed, asks_the_oracle ? c.batch_size : 0, asks_the_oracle ? c.seq_len : 0};
    {
      const std::lock_guard lock(mutex_);
      if (const auto known = std::ranges::find(drawn_, key, &Drawn::key); known != drawn_.end()) return known->values;
    }
    std::vector<float> values = draw_parameters(c, seed);
    if (values.size() > kMostOfOne) return values;
    const std::lock_guard lock(mutex_);
    drawn_.push_back({key, values});
    if (drawn_.size() > kMost) drawn_.pop_front();
    return values;
  }

 private:
  static constexpr size_t kMost = 48, kMostOfOne = size_t{1} << 20;  // at most 200 MB
  struct Key {
    ModelConfig config;
    Stress stress = Stress::none;
    uint64_t seed = 0;
    int64_t batch_size = 0, seq_len = 0;
    bool operator==(const Key&) const = default;
  };
  struct Drawn {
    Key key;
    std::vector<float> values;
  };
  std::mutex mutex_;
  std::deque<Drawn> drawn_;
};

}  // namespace

std::vector<float> trained_like_parameters(const Case& c, uint64_t seed) {
  static DrawnParameters drawn;
  return drawn.get(c, seed);
}

gpt2::AdamW slower_if_late(gpt2::AdamW settings, int64_t t) {
  if (t >= 100'000) settings.beta1 = 0.9999f, settings.beta2 = 0.99999f;
  return settings;
}

Tokens random_tokens(const Case& c, uint64_t seed, uint64_t number) {
  Random random(seed, 1000 + number);
  const int64_t vocabulary = c.config.vocab_size;
  const auto n = static_cast<size_t>(c.batch_size * c.seq_len);
  Tokens out{std::vector<int32_t>(n), std::vector<int32_t>(n)};
  const auto draw = [&]() -> int32_t {  // half of the stream from 16 frequent tokens, as text has
    return static_cast<int32_t>(random.uniform() < 0.5 ? random.below(std::min<int64_t>(16, vocabulary)) : random.below(vocabulary));
  };
  const int32_t two[2] = {draw(), draw()};
  const auto last = static_cast<int32_t>(vocabulary - 1);
  const auto T = static_cast<size_t>(c.seq_len);
  // V-1, 0, and then all others by steps that share no factor with their number: none twice among the first V.
  int64_t stride = vocabulary / 3 + 1;
  while (std::gcd(stride, vocabulary - 2) != 1) ++stride;
  const auto distinct = [&](size_t i) -> int32_t {
    if (i < 2) return i == 0 ? last : 0;
    return static_cast<int32_t>(1 + static_cast<int64_t>(i - 2) * stride % (vocabulary - 2));
  };
  for (size_t i = 0; i < n; ++i) {
    out.inputs[i] = draw();
    out.targets[i] = draw();
    Stress stress = c.stress;
    if (stress == Stress::mixed_tokens) {
      const Stress by_sequence[] = {Stress::distinct_tokens, Stress::equal_tokens, Stress::none, Stress::edge_targets};
      stress = by_sequence[i / T % 4];
    }
    if (stress == Stress::repeated_tokens) out.inputs[i] = two[random.below(2)];
    if (stress == Stress::edge_targets) {
      out.targets[i] = i % 2 == 0 ? 0 : last;
      if (i % 3 == 0) out.inputs[i] = out.targets[i];
    }
    if (stress == Stress::offset_gradient) {
      const auto other = static_cast<int64_t>(i / T % 2), pairs = (vocabulary - kFirstOfPairs) / 2;
      out.inputs[i] = static_cast<int32_t>(kFirstOfPairs + 2 * ((two[0] + static_cast<int64_t>(i % T)) % pairs) + other);
      out.targets[i] = static_cast<int32_t>(other == 0 ? kTarget : kOtherTarget);
    }
    if (stress == Stress::equal_tokens) {
      out.inputs[i] = two[0];
      out.targets[i] = two[1];
    }
    if (stress == Stress::distinct_tokens) {
      out.inputs[i] = distinct(i);
      out.targets[i] = distinct(n - 1 - i);
    }
  }
  return out;
}

}  // namespace gate

#include "experiments/gate/known_model.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <stdexcept>

namespace gate {

std::vector<KnownTensor> known_tensors(const gpt2::ModelConfig& c) {
  const int64_t C = c.channels, L = c.layers;
  const double normal = 0.02, into_the_stream = 0.02 / std::sqrt(2.0 * static_cast<double>(L));
  std::vector<KnownTensor> all{
      {"wte", true, 0, normal, 1, c.padded_vocab, C},
      {"wpe", true, 0, normal, 1, c.max_seq_len, C},
      {"ln1w", false, 1, 0, L, 1, C},
      {"ln1b", false, 0, 0, L, 1, C},
      {"qkvw", true, 0, normal, L, 3 * C, C},
      {"qkvb", false, 0, 0, L, 1, 3 * C},
      {"attprojw", true, 0, into_the_stream, L, C, C},
      {"attprojb", false, 0, 0, L, 1, C},
      {"ln2w", false, 1, 0, L, 1, C},
      {"ln2b", false, 0, 0, L, 1, C},
      {"fcw", true, 0, normal, L, 4 * C, C},
      {"fcb", false, 0, 0, L, 1, 4 * C},
      {"fcprojw", true, 0, into_the_stream, L, C, 4 * C},
      {"fcprojb", false, 0, 0, L, 1, C},
      {"lnfw", false, 1, 0, 1, 1, C},
      {"lnfb", false, 0, 0, 1, 1, C},
  };
  int64_t offset = 0;
  for (KnownTensor& t : all) {
    t.offset = offset;
    offset += t.size();
  }
  return all;
}

int64_t known_parameter_count(const gpt2::ModelConfig& config) {
  const std::vector<KnownTensor> all = known_tensors(config);
  return all.back().offset + all.back().size();
}

void known_adamw(const gpt2::ModelConfig& config, std::span<double> p, std::span<double> m, std::span<double> v, std::span<const double> g,
                 const gpt2::AdamW& a, int64_t step, double scale) {
  const double b1 = static_cast<double>(a.beta1), b2 = static_cast<double>(a.beta2), t = static_cast<double>(step);
  const double correct_m = 1 - std::pow(b1, t), correct_v = 1 - std::pow(b2, t);
  for (const KnownTensor& tensor : known_tensors(config)) {
    const double decay = tensor.decayed ? static_cast<double>(a.weight_decay) : 0;
#pragma omp parallel for schedule(static)
    for (int64_t k = tensor.offset; k < tensor.offset + tensor.size(); ++k) {
      const auto i = static_cast<size_t>(k);
      const double clipped = scale * g[i];
      m[i] = b1 * m[i] + (1 - b1) * clipped;
      v[i] = b2 * v[i] + (1 - b2) * clipped * clipped;
      const double direction = m[i] / correct_m / (std::sqrt(v[i] / correct_v) + static_cast<double>(a.eps));
      p[i] -= static_cast<double>(a.learning_rate) * (direction + decay * p[i]);
    }
  }
}

double known_learning_rate(const KnownSchedule& s, int64_t step) {
  if (step < 1) throw std::logic_error("steps count from 1");
  if (step <= s.warmup) return s.peak * static_cast<double>(step) / static_cast<double>(s.warmup);
  if (s.name == "constant") return s.peak;
  const double last = s.peak * s.final_fraction;
  // The steps of the decay are warmup + 1 .. total, of wsd the last fifth of the run.
  int64_t before = s.warmup;
  if (s.name == "wsd") before = std::max(s.warmup, s.total - s.total / 5);
  if (step <= before) return s.peak;
  const double way = std::min(1.0, static_cast<double>(step - 1 - before) / static_cast<double>(s.total - before));
  if (s.name == "cosine") return last + (s.peak - last) * (1 + std::cos(std::numbers::pi * way)) / 2;
  return last + (s.peak - last) * (1 - way);  // linear, and the end of wsd
}

namespace {

template <typename Value>
std::vector<double> losses(std::span<const Value> logits, std::span<const int32_t> targets, int64_t V) {
  if (static_cast<int64_t>(logits.size()) != static_cast<int64_t>(targets.size()) * V)
    throw std::logic_error("token_losses: logits of another shape");
  std::vector<double> out(targets.size());
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < static_cast<int64_t>(targets.size()); ++row) {
    const std::span<const Value> z = logits.subspan(static_cast<size_t>(row * V), static_cast<size_t>(V));
    double largest = static_cast<double>(z[0]), sum = 0;
    for (const Value x : z) largest = std::max(largest, static_cast<double>(x));
    for (const Value x : z) sum += std::exp(static_cast<double>(x) - largest);
    const auto target = static_cast<size_t>(targets[static_cast<size_t>(row)]);
    out[static_cast<size_t>(row)] = std::log(sum) + largest - static_cast<double>(z[target]);
  }
  return out;
}

}  // namespace

std::vector<double> token_losses(std::span<const float> logits, std::span<const int32_t> targets, int64_t V) {
  return losses(logits, targets, V);
}
std::vector<double> token_losses(std::span<const double> logits, std::span<const int32_t> targets, int64_t V) {
  return losses(logits, targets, V);
}

}  // namespace gate

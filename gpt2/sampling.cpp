#include "gpt2/sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace gpt2 {

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, CounterRng& rng) {
  if (logits.empty()) throw std::logic_error("sampling from no logits");
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) throw std::runtime_error(fmt::format("logit {} is {}: nothing can be sampled", i, logits[i]));
  }
  if (options.temperature <= 0) return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t k = options.top_k <= 0 ? order.size() : std::min(order.size(), static_cast<size_t>(options.top_k));
  auto more_likely = [&](int32_t a, int32_t b) {
    const float la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
    return la != lb ? la > lb : a < b;
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(k), order.end(), more_likely);
  std::vector<double> cumulative(k);
  const double most = logits[static_cast<size_t>(order[0])];
  double sum = 0;
  for (size_t i = 0; i < k; ++i) {
    sum += std::exp((logits[static_cast<size_t>(order[i])] - most) / options.temperature);
    cumulative[i] = sum;
  }
  const auto at = std::upper_bound(cumulative.begin(), cumulative.end(), rng.uniform() * sum);
  return order[std::min(static_cast<size_t>(at - cumulative.begin()), k - 1)];
}

std::vector<float> Trainer::next_token_logits(std::span<const int32_t> context) {
  const size_t B = static_cast<size_t>(options().batch_size), T = static_cast<size_t>(options().seq_len);
  const size_t V = static_cast<size_t>(options().model.vocab_size);
  if (context.empty() || context.size() > T) throw std::logic_error("a context has 1 to seq_len tokens");
  // Attention is causal, so whatever follows the context cannot reach the row that is read.
  std::vector<int32_t> inputs(B * T, 0);
  const std::vector<int32_t> targets(B * T, 0);
  std::copy(context.begin(), context.end(), inputs.begin());
  std::vector<float> logits(B * T * V);
  evaluate({inputs, targets}, logits);
  const auto row = logits.begin() + static_cast<ptrdiff_t>((context.size() - 1) * V);
  return {row, row + static_cast<ptrdiff_t>(V)};
}

std::vector<int32_t> generate(Trainer& trainer, std::span<const int32_t> prompt, int64_t count, const SamplingOptions& options,
                              CounterRng& rng) {
  if (prompt.empty()) throw std::logic_error("generation needs a first token");
  std::vector<int32_t> tokens(prompt.begin(), prompt.end());
  const size_t T = static_cast<size_t>(trainer.options().seq_len);
  for (int64_t i = 0; i < count && !(options.stop && options.stop->load()); ++i) {
    const size_t context = std::min(tokens.size(), T);
    tokens.push_back(sample_token(trainer.next_token_logits(std::span(tokens).last(context)), options, rng));
  }
  return tokens;
}

}  // namespace gpt2

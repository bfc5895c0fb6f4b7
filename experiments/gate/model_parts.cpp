#include "experiments/gate/model_parts.h"

#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "experiments/gate/known_model.h"
#include "gpt2/tensor_table.h"

namespace gate {

using gpt2::State;

namespace {

// How many pairs of tensors, each layer's for itself, begin with the same draws but for a factor. Draws of their own correlate by 1/8 in
// kDraws, so 0.8 is chance in one of 10^10 pairs.
CheckResult check_draws_of_their_own(const gpt2::ModelConfig& config, std::span<const float> fresh) {
  constexpr int64_t kDraws = 64;
  std::vector<std::pair<std::string, std::span<const float>>> begins;
  for (const KnownTensor& t : known_tensors(config)) {
    if (t.start_deviation == 0 || t.rows * t.columns < kDraws) continue;
    for (int64_t l = 0; l < t.layers; ++l)
      begins.emplace_back(t.name, fresh.subspan(static_cast<size_t>(t.offset + l * t.rows * t.columns), kDraws));
  }
  const auto product = [](std::span<const float> a, std::span<const float> b) {
    return std::transform_reduce(a.begin(), a.end(), b.begin(), 0.0, std::plus<>(), [](float x, float y) { return double{x} * double{y}; });
  };
  int64_t alike = 0;
  std::string first;
  for (size_t i = 0; i < begins.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      const auto& [name, a] = begins[i];
      const auto& [other, b] = begins[j];
      if (std::abs(product(a, b)) > 0.8 * std::sqrt(product(a, a) * product(b, b)) && alike++ == 0) first = name + " as " + other;
    }
  return must_be_zero("fresh model", "draws of two tensors", alike, "pairs", first);
}

}  // namespace

std::vector<CheckResult> check_fresh_model(const gpt2::ModelConfig& config, uint64_t seed) {
  const std::vector<float> fresh = gpt2::init_parameters(config, seed);
  std::vector<CheckResult> out;
  for (const KnownTensor& t : known_tensors(config)) {
    double sum = 0, squares = 0, n = 0;
    int64_t wrong = 0;
    for (int64_t i = 0; i < t.size(); ++i) {
      const double x = static_cast<double>(fresh[static_cast<size_t>(t.offset + i)]);
      const bool padding = t.name == "wte" && i >= config.vocab_size * config.channels;
      if (padding || t.start_deviation == 0) {
        wrong += x != (padding ? 0 : t.start_mean);
        continue;
      }
      sum += x - t.start_mean;
      squares += (x - t.start_mean) * (x - t.start_mean);
      ++n;
    }
    out.push_back(must_be_zero("fresh model", t.name, wrong, "elements"));
    if (t.start_deviation == 0) continue;
    const double mean_off = std::abs(sum) / (t.start_deviation * std::sqrt(n));
    const double deviation_off = std::abs(squares / (t.start_deviation * t.start_deviation) - n) / std::sqrt(2 * n);
    out.push_back(make_result("fresh model", t.name, {{"deviations", mean_off, 6, -1}, {"deviations", deviation_off, 6, -1}}));
  }
  out.push_back(check_draws_of_their_own(config, fresh));
  return out;
}

std::vector<CheckResult> check_queued_micro_batches(gpt2::Trainer& trainer, const Case& c, uint64_t seed, std::span<const float> parameters,
                                                    const gpt2::AdamW& adamw) {
  constexpr int64_t kSteps = 4;
  constexpr uint64_t kMicroBatches = 3, kTokens = 70;
  const std::vector<float> zeros(parameters.size());
  const auto run = [&](int64_t in_flight) {
    trainer.write(State::parameters, parameters);
    trainer.write(State::adam_m, zeros);
    trainer.write(State::adam_v, zeros);
    std::vector<double> losses;
    int64_t queued = 0;
    for (int64_t t = 1; t <= kSteps; ++t) {
      std::vector<Tokens> tokens;
      std::vector<gpt2::Batch> batches;
      for (uint64_t i = 0; i < kMicroBatches; ++i)
        tokens.push_back(random_tokens(c, seed, kTokens + static_cast<uint64_t>(t) * kMicroBatches + i));
      for (const Tokens& x : tokens) batches.push_back(x.batch());
      trainer.enqueue_step({t, batches, adamw});
      if (++queued < in_flight) continue;
      losses.push_back(trainer.finish_step().loss);
      --queued;
    }
    for (; queued > 0; --queued) losses.push_back(trainer.finish_step().loss);
    std::vector<float> after(parameters.size());
    trainer.read(State::parameters, after);
    return std::pair{losses, after};
  };
  const auto [losses, after] = run(1);
  const auto [queued_losses, queued_after] = run(2);
  int64_t differ = 0;
  for (size_t i = 0; i < losses.size(); ++i) differ += !(losses[i] == queued_losses[i]);
  return {must_be_zero("repeatability", "queued micro-batches, loss", differ, "steps"),
          must_be_zero("repeatability", "queued micro-batches, param", count_different(after, queued_after), "elements")};
}

}  // namespace gate

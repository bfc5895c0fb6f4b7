#include "experiments/gate/model_parts.h"

#include <cmath>
#include <utility>

#include "experiments/gate/known_model.h"
#include "gpt2/tensor_table.h"

namespace gate {

using gpt2::State;

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

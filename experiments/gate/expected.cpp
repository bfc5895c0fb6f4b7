#include "experiments/gate/expected.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <exception>
#include <optional>

#include "experiments/gate/kept_answers.h"
#include "experiments/gate/known_model.h"
#include "experiments/gate/oracle.h"
#include "experiments/gate/rounded_at_random.h"

namespace gate {
namespace {

double squared(double x) { return x * x; }

void add(Noise& sum, const ErrorMetrics& m) {
  sum.norm += squared(m.norm);
  sum.row += squared(m.has_rows ? m.worst_row : 0);
  sum.column += squared(m.has_columns ? m.worst_column : 0);
}
// Root mean square of what was added up, times the square root of `roundings`.
double rms(double sum, int draws, int roundings) { return draws > 0 ? std::sqrt(sum / draws * roundings) : 0; }
void finish(Noise& sum, int draws, int roundings) {
  for (double* x : {&sum.norm, &sum.row, &sum.column}) *x = rms(*x, draws, roundings);
}

// Two hashes of everything an answer depends on.
class Key {
 public:
  void bytes(const void* data, size_t size) {
    const auto* p = static_cast<const unsigned char*>(data);
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
      uint64_t word;
      std::memcpy(&word, p + i, 8);
      mix(word);
    }
    uint64_t rest = 0;
    std::memcpy(&rest, p + i, size - i);
    mix(rest ^ (uint64_t{size} << 32));
  }
  std::array<uint64_t, 2> value() const { return {a_, b_}; }

 private:
  void mix(uint64_t word) {
    a_ = (a_ ^ word) * 0x9e3779b97f4a7c15ull;
    a_ ^= a_ >> 29;
    b_ = (b_ + word) * 0xd1342543de82ef95ull;
    b_ ^= b_ >> 31;
  }
  uint64_t a_ = 1, b_ = 2;
};

// `variants` has those that are not the defaults.
std::string_view that_runs(const std::map<std::string, std::string>& variants, const char* slot, std::string_view default_name) {
  const auto at = variants.find(slot);
  return at == variants.end() ? default_name : std::string_view(at->second);
}

}  // namespace

Storage storage_of(std::string_view trainer, std::string_view matmul, const std::map<std::string, std::string>& variants) {
  if (trainer == "mixed") {
    const std::string_view stream = that_runs(variants, "residual_stream", "split");
    const bool bf16_gradients = that_runs(variants, "weight_gradients", "bf16") == "bf16";
    return {.activation_bits = 8,
            .stream_bits = stream == "bf16"   ? 8
                           : stream == "fp32" ? 23
                                              : 16,
            .gradient_bits = bf16_gradients ? 8 : 0,
            .wte_gradient_bits = bf16_gradients && that_runs(variants, "wte_gradient", "bf16") == "bf16" ? 8 : 0,
            .roundings = that_runs(variants, "linear_forward", "bias_epilogue") == "bias_kernel" ? 2 : 1};
  }
  if (matmul == "tf32") return {.activation_bits = 11, .stream_bits = 23, .weight_bits = 11};
  return {.activation_bits = 23, .stream_bits = 23};
}

MomentBits moment_bits_of(std::string_view trainer, const std::map<std::string, std::string>& variants) {
  if (trainer != "mixed") return {};
  const std::string_view moments = that_runs(variants, "moments", "split");
  return moments == "split" ? kSplitMoments : moments == "16_bits" ? kShortMoments : MomentBits{};
}

Expected expect(const Case& c, std::span<const float> weights, std::span<const Tokens> tokens, const Storage& storage, int draws,
                bool with_gradients) {
  std::vector<gpt2::Batch> batches;
  for (const Tokens& t : tokens) batches.push_back(t.batch());
  Oracle oracle(c.config, c.batch_size, c.seq_len);
  oracle.set(gpt2::State::parameters, weights);
  Expected e;
  const auto run = [&] { return with_gradients ? oracle.forward_backward(batches) : oracle.forward(batches); };
  e.loss = run();
  e.logits.assign(oracle.logits().begin(), oracle.logits().end());
  const std::vector<KnownTensor> tensors = known_tensors(c.config);
  if (with_gradients) {
    e.gradients.assign(oracle.gradients().begin(), oracle.gradients().end());
    e.grad_norm = oracle.grad_norm();
    e.gradients_noise.resize(tensors.size());
  }
  const std::vector<double> clean = token_losses(e.logits, batches.back().targets, c.config.vocab_size);
  for (int draw = 0; draw < draws; ++draw) {
    oracle.set_rounding(storage, static_cast<uint64_t>(draw) + 1);
    if (storage.weight_bits > 0) oracle.set(gpt2::State::parameters, weights);  // rounds them
    run();
    add(e.logits_noise, compare<double, double>(oracle.logits(), e.logits, c.batch_size * c.seq_len, c.config.vocab_size));
    const std::vector<double> noisy = token_losses(oracle.logits(), batches.back().targets, c.config.vocab_size);
    double sum = 0;
    for (size_t i = 0; i < clean.size(); ++i) sum += squared(noisy[i] - clean[i]);
    e.token_loss_noise += sum / static_cast<double>(clean.size());
    if (!with_gradients) continue;
    const std::span<const double> got = oracle.gradients(), want = e.gradients;
#pragma omp parallel for schedule(dynamic)
    for (size_t i = 0; i < tensors.size(); ++i) {
      const KnownTensor& t = tensors[i];
      const auto offset = static_cast<size_t>(t.offset), size = static_cast<size_t>(t.size());
      add(e.gradients_noise[i],
          compare<double, double>(got.subspan(offset, size), want.subspan(offset, size), t.layers * t.rows, t.columns));
    }
  }
  finish(e.logits_noise, draws, storage.roundings);
  for (Noise& n : e.gradients_noise) finish(n, draws, storage.roundings);
  e.token_loss_noise = rms(e.token_loss_noise, draws, storage.roundings);
  return e;
}

std::shared_ptr<const Expected> ExpectedCache::get(const Case& c, std::span<const float> weights, std::span<const Tokens> tokens,
                                                   const Storage& storage, int draws, bool with_gradients) {
  Key key;
  const int64_t shape[] = {c.config.max_seq_len,
                           c.config.vocab_size,
                           c.config.padded_vocab,
                           c.config.layers,
                           c.config.heads,
                           c.config.channels,
                           c.batch_size,
                           c.seq_len,
                           storage.activation_bits,
                           storage.stream_bits,
                           storage.weight_bits,
                           storage.gradient_bits,
                           storage.wte_gradient_bits,
                           storage.roundings,
                           draws,
                           with_gradients};
  key.bytes(shape, sizeof shape);
  key.bytes(weights.data(), weights.size_bytes());
  for (const Tokens& t : tokens)
    for (const std::vector<int32_t>* list : {&t.inputs, &t.targets}) key.bytes(list->data(), list->size() * sizeof(int32_t));
  std::promise<Answer> promise;
  std::shared_future<Answer> other;
  {
    const std::scoped_lock lock(mutex_);
    const auto [found, is_new] = known_.try_emplace(key.value());
    if (is_new)
      found->second = promise.get_future().share();
    else
      other = found->second;
  }
  if (other.valid()) return other.get();
  try {
    auto answer = find_or_compute(key.value(), [&] { return expect(c, weights, tokens, storage, draws, with_gradients); });
    promise.set_value(answer);
    return answer;
  } catch (...) {
    promise.set_exception(std::current_exception());
    throw;
  }
}

ExpectedCache::Answer ExpectedCache::find_or_compute(const std::array<uint64_t, 2>& key, const std::function<Expected()>& compute) const {
  const std::filesystem::path file = folder_.empty() ? "" : folder_ / fmt::format("{:016x}{:016x}", key[0], key[1]);
  std::optional<Expected> found = file.empty() ? std::nullopt : read_answer(file);
  if (!found) {
    found = compute();
    if (!file.empty()) write_answer(file, *found);
  }
  return std::make_shared<const Expected>(std::move(*found));
}

void ExpectedCache::clear() {
  const std::scoped_lock lock(mutex_);
  known_.clear();
}

// An addition is off by ulp / sqrt(12) in the root mean square, 0.42 half units of what it leaves if that has any mantissa (Benford's law); the
// k-th leaves sqrt(k) terms. So n of them are off by 0.42 half units times sqrt(n^2 / 2), beside a sum of sqrt(n) terms.
double lost_by_sum(int64_t terms) { return 0.30 * 0x1p-24 * std::sqrt(static_cast<double>(terms)); }

double gradient_floor(const gpt2::ModelConfig& config, int64_t tokens, double budget) {
  return std::max(budget, lost_by_sum(std::max({config.vocab_size, 4 * config.channels, tokens})));
}

Tolerance limits_of(const Noise& noise, double floor, double slice_factor, double noise_factor) {
  const auto of_slices = [&](double worst) {
    const double as_drawn = noise.norm > 0 ? kUnlikeDraw * worst / noise.norm : 0;
    return std::max(floor * std::clamp(as_drawn, slice_factor, kMostOfSlices * slice_factor), noise_factor * worst);
  };
  return {std::max(floor, noise_factor * noise.norm), of_slices(noise.row), of_slices(noise.column)};
}

double loss_limit(const Expected& e, int64_t tokens, double floor) {
  const double together = std::min(1.0, 3 / std::sqrt(static_cast<double>(tokens)));
  return std::max(floor, 6 * e.token_loss_noise * together / std::abs(e.loss));
}

double grad_norm_limit(const gpt2::ModelConfig& config, const Expected& e, double floor, double slice_factor) {
  double allowed = 0, whole = 0;
  const std::vector<KnownTensor> tensors = known_tensors(config);
  for (size_t i = 0; i < tensors.size(); ++i) {
    double own = 0;
    for (int64_t k = tensors[i].offset; k < tensors[i].offset + tensors[i].size(); ++k) own += squared(e.gradients[static_cast<size_t>(k)]);
    allowed += own * squared(limits_of(e.gradients_noise[i], floor, slice_factor).norm);
    whole += own;
  }
  return whole > 0 ? std::sqrt(allowed / whole) : 0;
}

}  // namespace gate

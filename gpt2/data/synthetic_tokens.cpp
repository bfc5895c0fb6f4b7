#include "gpt2/data/synthetic_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/counter_rng.h"
#include "base/errors.h"

namespace gpt2 {
namespace {

constexpr double kTopShare = 0.045;
constexpr int kGuideBits = 12;
constexpr uint64_t kTopics = 64, kTopicWords = 64;

// Only + and / on doubles, in a fixed order: the same table on every IEEE machine.
double weight_sum(int64_t words, double q) {
  double sum = 0;
  for (int64_t r = words; r >= 1; --r) sum += 1.0 / (static_cast<double>(r) + q);
  return sum;
}

// Larger q flattens the head. 40 halvings are below what a 2^-53 quantile can tell.
double offset_for_top_share(int64_t words) {
  if (1.0 / static_cast<double>(words) >= kTopShare) return 1e9;
  double low = 0, high = 64;
  for (int i = 0; i < 40; ++i) {
    const double q = 0.5 * (low + high);
    (1.0 / (1.0 + q) / weight_sum(words, q) > kTopShare ? low : high) = q;
  }
  return 0.5 * (low + high);
}

}  // namespace

SyntheticSource::SyntheticSource(const SourceOptions& options) : options_(options), key_(combine(options.seed, 0x70c)) {
  check_batch_shape(options.batch_size, options.seq_len);
  if (options.vocab_size < 1)
    throw stepscope::InputError(fmt::format("synthetic tokens: vocabulary of {} words, expected at least 1", options.vocab_size));
  const int64_t words = std::min<int64_t>(options.vocab_size, int64_t{1} << 20);
  const double q = offset_for_top_share(words), total = weight_sum(words, q);
  cumulative_.resize(static_cast<size_t>(words));
  double sum = 0;
  for (int64_t r = 1; r <= words; ++r) {
    sum += 1.0 / (static_cast<double>(r) + q);
    cumulative_[static_cast<size_t>(r - 1)] = static_cast<uint64_t>(std::min(sum / total, 1.0 - 0x1.0p-53) * 0x1.0p64);
  }
  cumulative_.back() = ~uint64_t{0};
  guide_.resize(size_t{1} << kGuideBits);
  for (size_t slot = 0; slot < guide_.size(); ++slot) {
    const uint64_t u = static_cast<uint64_t>(slot) << (64 - kGuideBits);
    guide_[slot] = static_cast<int32_t>(std::lower_bound(cumulative_.begin(), cumulative_.end(), u) - cumulative_.begin());
  }
}

int32_t SyntheticSource::token_at_quantile(uint64_t u) const {
  const size_t slot = u >> (64 - kGuideBits);
  const auto begin = cumulative_.begin() + guide_[slot];
  const auto end = slot + 1 < guide_.size() ? cumulative_.begin() + guide_[slot + 1] + 1 : cumulative_.end();
  return static_cast<int32_t>(std::lower_bound(begin, end, u) - cumulative_.begin());
}

void SyntheticSource::next(std::span<int32_t> inputs, std::span<int32_t> targets) {
  const size_t B = static_cast<size_t>(options_.batch_size), T = static_cast<size_t>(options_.seq_len);
  if (inputs.size() != B * T || targets.size() != B * T) throw std::logic_error("a batch is B*T tokens");
  for (size_t b = 0; b < B; ++b) {
    CounterRng rng(combine(key_, sequence_++));
    const uint64_t topic = rng.bits() % kTopics;
    int32_t token = token_at_quantile(rng.bits());
    for (size_t t = 0; t < T; ++t) {
      inputs[b * T + t] = token;
      const uint64_t coin = rng.bits();
      const uint64_t choice = coin >> 32;  // 32 bits; the low ones pick the successor or the word
      constexpr uint64_t kUnit = uint64_t{1} << 32;
      if (choice < kUnit * 45 / 100) {
        constexpr std::array<uint64_t, 8> kSuccessor{0, 0, 0, 0, 1, 1, 2, 3};
        const uint64_t k = kSuccessor[coin & 7];
        token = token_at_quantile(combine(combine(key_, 1 + k), static_cast<uint64_t>(token)));
      } else if (choice < kUnit * 60 / 100) {
        token = token_at_quantile(combine(combine(key_, 16 + topic), coin % kTopicWords));
      } else {
        token = token_at_quantile(rng.bits());
      }
      targets[b * T + t] = token;
    }
  }
}

void SyntheticSource::seek(const DataPosition& p) {
  if (p.epoch != 0 || p.shard != 0) {
    throw stepscope::InputError(
        fmt::format("the saved data position (epoch {}, shard {}) is not one of synthetic tokens", p.epoch, p.shard));
  }
  sequence_ = p.sequence;
}

uint64_t SyntheticSource::fingerprint() const {
  return combine(combine(key_, static_cast<uint64_t>(options_.vocab_size)), static_cast<uint64_t>(options_.seq_len));
}

std::string SyntheticSource::describe() const { return fmt::format("synthetic (seed {}, {} words)", options_.seed, cumulative_.size()); }

}  // namespace gpt2

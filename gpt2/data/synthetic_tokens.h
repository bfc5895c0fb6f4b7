// Tokens without a file: a profile needs the cost of real text, and a training run something to learn.
//
// Single tokens follow a Zipf-Mandelbrot law, P(rank r) ~ 1 / (r + q) with q chosen so that the most frequent
// token is 4.5% of all (English in GPT-2's tokens: 4-5%); plain Zipf(1.3) would make it 25% and every
// embedding kernel's hot row a fiction. Each next token is, by a coin, one of four fixed successors of the
// one before (45%), one of 64 words of the sequence's topic (15%), or a fresh draw (40%). Successors and
// topic words are drawn from the same law, so the mixture keeps it approximately. Id = rank - 1: as with
// byte-pair merges, low ids are the frequent ones. Sequence number and seed determine a sequence completely.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpt2/data/token_source.h"

namespace gpt2 {

class SyntheticSource : public TokenSource {
 public:
  // Any vocabulary >= 1; ids above 2^20 never occur. Below about 23 words all are equally frequent.
  explicit SyntheticSource(const SourceOptions& options);

  void next(std::span<int32_t> inputs, std::span<int32_t> targets) override;
  void skip(int64_t batches) override { sequence_ += static_cast<uint64_t>(batches * options_.batch_size); }
  DataPosition position() const override { return {0, 0, sequence_}; }
  void seek(const DataPosition& position) override;
  uint64_t fingerprint() const override;
  std::optional<int64_t> batches_per_epoch() const override { return std::nullopt; }
  std::string describe() const override;

  // The token at quantile u / 2^64 of the law: monotonic, 0 first.
  int32_t token_at_quantile(uint64_t u) const;

 private:
  SourceOptions options_;
  uint64_t key_;
  uint64_t sequence_ = 0;
  std::vector<uint64_t> cumulative_;  // [r] = P(token <= r) * 2^64
  std::vector<int32_t> guide_;        // first token whose range reaches into slot u >> 52: bounds the search
};

}  // namespace gpt2

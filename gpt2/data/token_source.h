// Where batches come from: files of tokens or the built-in synthetic stream, behind one interface. A source
// is a pure function of (its data, T, seed, position): setting the position of a saved run gives the batches
// that run would have seen.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpt2/data/data_position.h"

namespace gpt2 {

struct SourceOptions {
  int64_t batch_size = 1;  // B
  int64_t seq_len = 1;     // T
  int64_t vocab_size = 1;  // V: every token id must be below
  uint64_t seed = 0;
  bool shuffle = true;  // false: the order of the files, as llm.c's loader without shuffling reads them
};

class TokenSource {
 public:
  virtual ~TokenSource() = default;
  // The next batch: both (B, T) row-major, targets are the inputs one token later. Throws
  // stepscope::InputError naming file, offset and id for a token id outside the vocabulary.
  virtual void next(std::span<int32_t> inputs, std::span<int32_t> targets) = 0;
  // Moves as if next() had been called so often, without reading tokens: ranks pass over each other's batches.
  virtual void skip(int64_t batches) = 0;
  virtual DataPosition position() const = 0;
  // Throws stepscope::InputError when this source has no such position (other files, other T).
  virtual void seek(const DataPosition& position) = 0;
  // Equal for two sources that give the same batches at the same position.
  virtual uint64_t fingerprint() const = 0;
  // Batches before anything repeats; absent for an endless stream.
  virtual std::optional<int64_t> batches_per_epoch() const = 0;
  virtual std::string describe() const = 0;
};

// {"synthetic"}, or files and globs of token shards. Everything about the data that can be wrong is checked
// here (see ShardSource), so that a run does not die of it an hour later. Throws stepscope::InputError.
std::unique_ptr<TokenSource> open_token_source(const std::vector<std::string>& data, const SourceOptions& options);

// Throws stepscope::InputError unless B >= 1, T >= 1 and B*T < 2^31 tokens.
void check_batch_shape(int64_t batch_size, int64_t seq_len);

}  // namespace gpt2

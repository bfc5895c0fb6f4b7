// llm.c's token files: 256 x int32 header (magic 20240520, version 1, count), then `count` uint16 token ids.
//
// A shard is cut into windows of T tokens (plus the one that follows, for the targets); a batch is B windows.
// What is left over at a shard's end is dropped, and a batch never spans two shards. Shuffled, the order of
// the shards and of the windows in each is a fresh keyed permutation per epoch, computed and not stored.
// Unshuffled, batches are those of llm.c's DataLoader.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "gpt2/data/token_source.h"

namespace gpt2 {

// Checks the header against the file's length; the result views `file`. Throws stepscope::InputError.
std::span<const uint16_t> parse_token_shard(std::span<const std::byte> file, const std::string& source);
// Atomic. Throws stepscope::InputError for an empty shard or more than 2^31-1 tokens.
void write_token_shard(const std::filesystem::path& path, std::span<const uint16_t> tokens);

// A shard written as its tokens come: in memory is a part, on disk nothing under `path` before commit(). All
// throw stepscope::InputError: the path cannot be written (a pipe cannot: the count stands in front of the
// tokens), no token, or more than kMost.
class ShardFile {
 public:
  static constexpr size_t kMost = 0x7fffffff;  // the header counts in int32
  explicit ShardFile(const std::filesystem::path& path);
  void append(std::span<const uint16_t> tokens);
  void commit();
  size_t count() const { return count_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  void flush();
  std::filesystem::path path_;
  AtomicFile file_;
  std::vector<uint16_t> pending_;
  size_t count_ = 0;
};

// The files that a list of names and globs stands for, in order. Throws stepscope::InputError for a pattern
// that matches nothing.
std::vector<std::string> expand_globs(const std::vector<std::string>& patterns);

class ShardSource : public TokenSource {
 public:
  // Maps all files, checks each header, that each holds a batch (B*T + 1 tokens), and the token ids of the
  // first 2^29 tokens; ids after those are checked as batches are cut.
  ShardSource(const std::vector<std::string>& patterns, const SourceOptions& options);

  void next(std::span<int32_t> inputs, std::span<int32_t> targets) override;
  void skip(int64_t batches) override;
  DataPosition position() const override { return position_; }
  void seek(const DataPosition& position) override;
  uint64_t fingerprint() const override;
  std::optional<int64_t> batches_per_epoch() const override;
  std::string describe() const override;

 private:
  struct Shard {
    MappedFile file;
    std::span<const uint16_t> tokens;
    uint64_t windows;
  };
  size_t shard_at(const DataPosition& position) const;
  size_t shard_of_next_batch();
  void check_ids(const Shard& shard, uint64_t first, uint64_t count) const;

  SourceOptions options_;
  std::vector<Shard> shards_;
  DataPosition position_;
};

}  // namespace gpt2

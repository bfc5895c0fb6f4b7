// A stream of tokens cut into the token shards of one data set: PREFIX_val.bin with the first tokens, as
// llm.c's data scripts do it, and PREFIX_train.bin with the rest; or, with a size for shards,
// PREFIX_val_000000.bin, … and PREFIX_train_000000.bin, …
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpt2/data/token_shards.h"

namespace gpt2 {

struct ShardSetOptions {
  std::string out;                       // PREFIX, or FILE.bin for one file and no validation
  uint64_t validation_tokens = 0;        // 0: no validation files
  std::optional<uint64_t> shard_tokens;  // at most so many in a file; absent: one file
};

struct WrittenShard {
  std::filesystem::path path;
  size_t tokens;
};

class ShardSet {
 public:
  // Throws stepscope::InputError for options that contradict each other, a folder that cannot be written into,
  // and numbered shards of the same prefix that are there already: a pattern would read two sets as one.
  explicit ShardSet(ShardSetOptions options);
  void append(std::span<const uint16_t> tokens);
  // Names the files in order, validation first. Throws stepscope::InputError when no token is left for training.
  // Without a shard size nothing is on disk before this; with it, full shards are, since holding hundreds of
  // files open to the end would fail.
  std::vector<WrittenShard> finish();

 private:
  std::filesystem::path next_path();
  void close_file();

  ShardSetOptions options_;
  bool validation_;     // which part is being written
  size_t index_ = 0;    // of the file in its part
  uint64_t room_ = 0;   // tokens that still fit into it
  uint64_t part_left_;  // tokens that still belong to the part
  uint64_t total_ = 0;
  std::unique_ptr<ShardFile> file_;
  std::vector<std::unique_ptr<ShardFile>> uncommitted_;
  std::vector<WrittenShard> written_;
};

}  // namespace gpt2

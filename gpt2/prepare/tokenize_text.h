// Text files to token shards: what `stepscope data TEXT…` does, and `data --fetch` after the download.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpt2/data/documents.h"
#include "gpt2/data/shard_set.h"

namespace gpt2 {

struct TokenizeOptions {
  std::vector<std::string> texts;
  std::string vocab;    // vocab.bpe
  std::string encoder;  // encoder.json, only compared; may be empty
  std::string out;      // PREFIX or FILE.bin
  Documents documents = Documents::file;
  std::string json_field;   // not empty: the texts are JSON lines, and this member of each is a document (`documents` is not looked at)
  bool end_of_text = true;  // before each document
  uint64_t validation_tokens = 0;
  std::optional<double> validation_share;  // of all tokens, instead of validation_tokens; the text is read twice
  std::optional<uint64_t> shard_tokens;
};

struct Tokenized {
  std::vector<WrittenShard> shards;
  uint64_t text_bytes;
};

// Throws stepscope::InputError and stepscope::MachineError; see gpt2/data/bpe.h and gpt2/data/shard_set.h. Every input is
// opened before anything is written.
Tokenized tokenize_texts(const TokenizeOptions& options);

}  // namespace gpt2

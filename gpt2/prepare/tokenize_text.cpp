#include "gpt2/prepare/tokenize_text.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "base/encoding.h"
#include "base/errors.h"
#include "base/mapped_file.h"
#include "base/progress_line.h"
#include "gpt2/data/bpe.h"
#include "gpt2/data/json_lines.h"
#include "gpt2/data/pretokenizer.h"
#include "gpt2/prepare/vocabulary.h"

namespace gpt2 {
namespace {

// How many bytes of the files were tokenized.
class Progress {
 public:
  Progress(uint64_t all_bytes, const char* doing) : all_bytes_(all_bytes), doing_(doing) {}
  void advance(uint64_t bytes) {
    done_bytes_ += bytes;
    line_.show([&] {
      return fmt::format("{} {:.0f} of {:.0f} MB", doing_, static_cast<double>(done_bytes_) / 1e6, static_cast<double>(all_bytes_) / 1e6);
    });
  }

 private:
  uint64_t all_bytes_, done_bytes_ = 0;
  const char* doing_;
  stepscope::ProgressLine line_;
};

// Returns the bytes of text that were tokenized: in JSON, what the field holds.
uint64_t encode_all(const std::vector<MappedFile>& files, const TokenizeOptions& options, Bpe& bpe, const TokenSink& sink) {
  const uint16_t end_of_text = bpe.end_of_text();
  uint64_t text_bytes = 0;
  for (const MappedFile& file : files) {
    const auto encode = [&](std::string_view document) {
      if (options.end_of_text) sink({&end_of_text, 1}, 0);
      text_bytes += document.size();
      try {
        bpe.encode(document, sink);
      } catch (const stepscope::InputError& e) {
        throw stepscope::InputError(fmt::format("{}: {}", file.path(), e.what()));
      }
    };
    if (options.json_field.empty()) {
      for_each_document(file.text(), options.documents, encode);
    } else {
      for_each_json_line(file.text(), file.path(), [&](const JsonLine& line) { encode(line.text(options.json_field)); });
    }
  }
  return text_bytes;
}

}  // namespace

Tokenized tokenize_texts(const TokenizeOptions& options) {
  require_unicode_tables();
  std::vector<MappedFile> files;
  uint64_t file_bytes = 0;
  for (const std::string& path : options.texts) {
    files.emplace_back(path);
    if (files.back().bytes().empty()) throw stepscope::InputError(fmt::format("{}: the file is empty, expected text", path));
    // Its bytes have tokens too, of which no model would learn to write text.
    if (const std::string problem = stepscope::not_utf8(files.back().text(), path); !problem.empty())
      throw stepscope::InputError(fmt::format("{}: {}", path, problem));
    file_bytes += files.back().bytes().size();
  }
  Bpe bpe = load_vocabulary(options.vocab, options.encoder);

  ShardSetOptions set{options.out, options.validation_tokens, options.shard_tokens};
  if (options.validation_share) {
    set.validation_tokens = 1;
    ShardSet refuses_bad_options_before_the_first_pass(set);
    uint64_t tokens = 0;
    Progress progress(file_bytes, "counting tokens:");
    encode_all(files, options, bpe, [&](std::span<const uint16_t> some, size_t bytes) {
      tokens += some.size();
      progress.advance(bytes);
    });
    set.validation_tokens = static_cast<uint64_t>(std::floor(static_cast<double>(tokens) * *options.validation_share));
    if (set.validation_tokens == 0) {
      throw stepscope::InputError(fmt::format("--validation-share {}: less than one of the {} tokens", *options.validation_share, tokens));
    }
  }
  ShardSet shards(set);
  Progress progress(file_bytes, "tokenizing:");
  const uint64_t text_bytes = encode_all(files, options, bpe, [&](std::span<const uint16_t> tokens, size_t bytes) {
    shards.append(tokens);
    progress.advance(bytes);
  });
  return {shards.finish(), text_bytes};
}

}  // namespace gpt2

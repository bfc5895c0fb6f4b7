// `stepscope data`: looks into the binary files that the trainers read.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "gpt2/checkpoint.h"
#include "gpt2/errors.h"
#include "gpt2/mapped_file.h"
#include "gpt2/token_shards.h"
#include "gpt2/tokenizer.h"

namespace cli {
namespace {

// The first int32 of every format; design §5.
constexpr int32_t kTokens = 20240520, kCheckpoint = 20240326, kState = 20240327, kTokenizer = 20240328;

void check(const std::string& path) {
  const gpt2::MappedFile file(path);
  int32_t magic = 0;
  if (file.bytes().size() >= sizeof magic) std::copy_n(file.bytes().data(), sizeof magic, reinterpret_cast<std::byte*>(&magic));
  switch (magic) {
    case kTokens: {
      const auto tokens = gpt2::parse_token_shard(file.bytes(), path);
      const auto largest = tokens.empty() ? 0 : *std::max_element(tokens.begin(), tokens.end());
      fmt::print("{}: tokens, {} of them, largest id {}\n", path, tokens.size(), largest);
      return;
    }
    case kCheckpoint: {
      const gpt2::Checkpoint c = gpt2::parse_checkpoint(file.bytes(), path);
      fmt::print("{}: checkpoint, {}, {} parameters\n", path, gpt2::describe(c.config), c.parameters.size());
      return;
    }
    case kTokenizer: {
      const gpt2::Tokenizer t = gpt2::Tokenizer::parse(file.bytes(), path);
      fmt::print("{}: tokenizer, {} tokens, end of text {}\n", path, t.vocab_size(), t.end_of_text());
      return;
    }
    case kState:
      fmt::print("{}: reference state; `stepscope gate --trainer reference --checkpoint F --state {}` checks it\n", path, path);
      return;
    default:
      throw stepscope::InputError(fmt::format(
          "{}: begins with magic {}, expected {} (tokens), {} (checkpoint), {} (reference state) or {} (tokenizer)", path, magic,
          kTokens, kCheckpoint, kState, kTokenizer));
  }
}

}  // namespace

void add_data_command(CLI::App& app, int&) {
  auto files = std::make_shared<std::vector<std::string>>();
  CLI::App* c = app.add_subcommand("data", "Check token shards, checkpoints, tokenizers and reference states");
  c->add_option("--check", *files, "files to check; the first that is damaged ends with exit 2 and what is wrong")->required();
  c->footer("Example:\n  stepscope data --check tiny_shakespeare_train.bin gpt2_124M.bin");
  c->callback([files] {
    for (const std::string& file : *files) check(file);
  });
}

}  // namespace cli

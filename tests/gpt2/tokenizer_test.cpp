#include "gpt2/data/tokenizer.h"

#include <cstring>

#include "tests/gpt2/files.h"

namespace gpt2 {
namespace {
using testing::read_bytes;
using testing::TemporaryFolder;

TEST(Tokenizer, DecodesWhatWasWrittenAndKeepsBytesThatAreNotText) {
  TemporaryFolder folder;
  const std::vector<std::string> tokens{"Hello", " world", std::string("\0\xff", 2), std::string(255, 'x'), "<|endoftext|>"};
  write_tokenizer(folder / "t.bin", tokens, 4);
  const Tokenizer t = Tokenizer::load(folder / "t.bin");
  EXPECT_EQ(t.vocab_size(), 5);
  EXPECT_EQ(t.end_of_text(), 4);
  for (int32_t i = 0; i < 5; ++i) EXPECT_EQ(t.decode(i), tokens[static_cast<size_t>(i)]);
  const std::vector<int32_t> ids{0, 1, 1};
  EXPECT_EQ(t.decode(ids), "Hello world world");
  EXPECT_EQ(t.decode(-1), "");
  EXPECT_EQ(t.decode(5), "");
}

TEST(Tokenizer, BadCountsAndEmptyTokensAreRefused) {
  TemporaryFolder folder;
  write_tokenizer(folder / "t.bin", std::vector<std::string>{"a", "b"}, 1);
  const auto good = read_bytes(folder / "t.bin");
  auto with = [&](size_t offset, int32_t value) {
    auto bytes = good;
    std::memcpy(bytes.data() + offset, &value, 4);
    return bytes;
  };
  EXPECT_INPUT_ERROR(Tokenizer::parse(with(0, 20240326), "t"), "t: not a tokenizer", "20240328");
  // vocab.bpe, which `data --vocab` takes, begins with "#version".
  EXPECT_INPUT_ERROR(Tokenizer::parse(with(0, 1919252003), "t"), "`stepscope data --fetch tinyshakespeare` makes gpt2_tokenizer.bin");
  EXPECT_INPUT_ERROR(Tokenizer::parse(with(4, 1), "t"), "version 1, expected 2");
  EXPECT_INPUT_ERROR(Tokenizer::parse(with(8, 2147483647), "t"), "counts 2147483647 tokens", "1 to 2");
  EXPECT_INPUT_ERROR(Tokenizer::parse(with(12, 2), "t"), "end-of-text id 2, expected 0 to 1");
  auto empty = good;
  empty[1024] = std::byte{0};
  EXPECT_INPUT_ERROR(Tokenizer::parse(empty, "t"), "token 0 is empty");
}

}  // namespace
}  // namespace gpt2

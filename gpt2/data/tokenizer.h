// Token ids to text, from llm.c's tokenizer file: 256 x int32 header (magic 20240328, version 2, count, id of
// end-of-text), then for each token one length byte and that many bytes. A token is bytes, not characters:
// UTF-8 may be split across tokens.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2 {

class Tokenizer {
 public:
  // Throw stepscope::InputError naming the file, what was found and what was expected.
  static Tokenizer load(const std::filesystem::path& path);
  static Tokenizer parse(std::span<const std::byte> file, const std::string& source);

  int64_t vocab_size() const { return static_cast<int64_t>(begin_.size()) - 1; }
  int32_t end_of_text() const { return end_of_text_; }
  // Absent ids (a model's padded vocabulary) decode to the empty text.
  std::string_view decode(int32_t id) const;
  std::string decode(std::span<const int32_t> ids) const;

 private:
  std::string bytes_;
  std::vector<uint32_t> begin_;  // vocab_size + 1
  int32_t end_of_text_ = 0;
};

// Writes such a file; each token must have 1 to 255 bytes.
void write_tokenizer(const std::filesystem::path& path, std::span<const std::string> tokens, int32_t end_of_text);
class Bpe;
// The file that decodes what `bpe` encodes.
void write_tokenizer(const std::filesystem::path& path, const Bpe& bpe);

}  // namespace gpt2

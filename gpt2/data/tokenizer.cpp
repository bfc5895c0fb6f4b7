#include "gpt2/data/tokenizer.h"

#include <fmt/format.h>

#include <stdexcept>

#include "base/atomic_file.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "gpt2/data/bpe.h"

namespace gpt2 {

Tokenizer Tokenizer::parse(std::span<const std::byte> file, const std::string& source) {
  ByteReader reader(file, source);
  const LlmcHeader h =
      read_llmc_header(reader, kLlmcTokenizer, "tokenizer", "; `stepscope data --fetch tinyshakespeare` makes gpt2_tokenizer.bin");
  if (h[1] != 2) reader.fail(fmt::format("tokenizer version {}, expected 2", h[1]));
  // Each token takes at least two bytes, so the file's length bounds what the count may make us allocate.
  if (h[2] < 1 || static_cast<uint64_t>(h[2]) > reader.remaining() / 2) {
    reader.fail(fmt::format("the header counts {} tokens, expected 1 to {} in a file of this length", h[2], reader.remaining() / 2));
  }
  if (h[3] < 0 || h[3] >= h[2]) reader.fail(fmt::format("end-of-text id {}, expected 0 to {}", h[3], h[2] - 1));
  Tokenizer t;
  t.end_of_text_ = h[3];
  const size_t count = static_cast<size_t>(h[2]);
  t.begin_.reserve(count + 1);
  t.bytes_.reserve(reader.remaining() - count);
  for (size_t i = 0; i < count; ++i) {
    t.begin_.push_back(static_cast<uint32_t>(t.bytes_.size()));
    const auto length = reader.read<uint8_t>("length of a token");
    if (length == 0) reader.fail(fmt::format("token {} is empty, expected 1 to 255 bytes", i));
    const auto text = reader.take(length, "text of a token");
    t.bytes_.append(reinterpret_cast<const char*>(text.data()), text.size());
  }
  t.begin_.push_back(static_cast<uint32_t>(t.bytes_.size()));
  reader.expect_end();
  return t;
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  const MappedFile file(path);
  return parse(file.bytes(), file.path());
}

std::string_view Tokenizer::decode(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const size_t i = static_cast<size_t>(id);
  return std::string_view(bytes_).substr(begin_[i], begin_[i + 1] - begin_[i]);
}

std::string Tokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (int32_t id : ids) text += decode(id);
  return text;
}

void write_tokenizer(const std::filesystem::path& path, std::span<const std::string> tokens, int32_t end_of_text) {
  LlmcHeader h{};
  h[0] = kLlmcTokenizer;
  h[1] = 2;
  h[2] = static_cast<int32_t>(tokens.size());
  h[3] = end_of_text;
  AtomicFile out(stepscope::output_place(path));
  out.write(h.data(), sizeof(h));
  for (const std::string& t : tokens) {
    if (t.empty() || t.size() > 255) throw std::logic_error(fmt::format("{}: a token of {} bytes", path.string(), t.size()));
    out.write(std::string(1, static_cast<char>(t.size())) + t);
  }
  out.commit();
}

void write_tokenizer(const std::filesystem::path& path, const Bpe& bpe) {
  std::vector<std::string> tokens;
  for (size_t id = 0; id < bpe.vocab_size(); ++id) tokens.emplace_back(bpe.bytes(static_cast<uint16_t>(id)));
  write_tokenizer(path, tokens, bpe.end_of_text());
}

}  // namespace gpt2

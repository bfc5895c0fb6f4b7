// GPT-2's byte-level BPE: text to token ids.
//
// Files (openaipublic.blob.core.windows.net/gpt-2/encodings/main): vocab.bpe, one merge "LEFT RIGHT" per line
// in order of priority after a "#version" line, and encoder.json, token to id. Both spell bytes as printable
// characters, see byte_spelling. The ids of encoder.json follow from the merges: the 256 bytes in the order of
// their spellings, then the merges in theirs, then <|endoftext|>. So vocab.bpe alone is enough.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace gpt2 {

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

// Token ids, and how many bytes of text they stand for.
using TokenSink = std::function<void(std::span<const uint16_t> tokens, size_t text_bytes)>;

// Not for use by several threads at once: encoding remembers words.
class Bpe {
 public:
  // Throw stepscope::InputError naming the file and, for a bad merge, its line.
  static Bpe load(const std::filesystem::path& merges);
  static Bpe parse(std::string_view merges, const std::string& source);
  // Throws stepscope::InputError for the first token whose id is another in encoder.json, for missing and for
  // additional tokens.
  void check_ids(const std::filesystem::path& encoder) const;
  void check_ids(std::string_view encoder, const std::string& source) const;

  // "" for as many merges as GPT-2 has; else a sentence. A file that was cut between two lines reads as a smaller vocabulary.
  std::string not_gpt2() const;

  size_t vocab_size() const { return begin_.size(); }  // 256 + merges + 1
  uint16_t end_of_text() const { return static_cast<uint16_t>(vocab_size() - 1); }
  // The bytes of a token; those of end-of-text are its name.
  std::string_view bytes(uint16_t id) const;
  std::string decode(std::span<const uint16_t> ids) const;

  // The text may hold any bytes (pretokenizer.h says what becomes of those that are not UTF-8). The name of
  // end-of-text in it is text like any other, never the token. The sink is called every few ten thousand
  // tokens. Throws stepscope::InputError for a piece, a "word", above kMaxPieceBytes (its merging takes about
  // 20 times its size in memory), stepscope::MachineError in a program without ICU.
  void encode(std::string_view text, const TokenSink& sink);
  std::vector<uint16_t> encode(std::string_view text);
  static constexpr size_t kMaxPieceBytes = size_t{64} << 20;

 private:
  static constexpr uint16_t kNone = 0xffff;
  Bpe();
  void add_token(std::string_view bytes);
  uint16_t merged(uint16_t left, uint16_t right) const;
  void encode_piece(std::string_view piece, std::vector<uint16_t>& out);
  void merge_short(std::string_view piece, std::vector<uint16_t>& out) const;
  void merge_long(std::string_view piece, std::vector<uint16_t>& out) const;

  std::string bytes_;
  std::vector<uint32_t> begin_;  // of each token in bytes_
  std::vector<uint16_t> of_byte_;
  std::unordered_map<uint32_t, uint16_t> merges_;  // left << 16 | right -> id; a smaller id merges first

  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  struct Cached {
    uint32_t begin;
    uint32_t count;
  };
  std::unordered_map<std::string, Cached, Hash, std::equal_to<>> words_;  // piece -> range of word_tokens_
  std::vector<uint16_t> word_tokens_;
};

// How the two files write a sequence of bytes: 0x21-0x7e, 0xa1-0xac and 0xae-0xff as the character of that
// number, the other 68 bytes, in order, as U+0100 and on ("Ġ" is the space). UTF-8.
std::string byte_spelling(std::string_view bytes);

}  // namespace gpt2

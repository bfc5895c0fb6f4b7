#include "gpt2/data/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <queue>
#include <unordered_set>

#include "base/errors.h"
#include "base/json_read.h"
#include "base/mapped_file.h"
#include "gpt2/data/pretokenizer.h"

namespace gpt2 {
namespace {

constexpr size_t kByteValues = 256;
constexpr size_t kGpt2Merges = 50000;
// A shard's ids are uint16. Bpe::kNone is the last of them, which only end-of-text can get and no merge.
constexpr size_t kMaxMerges = 0x10000 - kByteValues - 1;

constexpr bool spells_itself(size_t byte) { return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae; }
// Number of the character that stands for each byte; at most U+0143.
constexpr std::array<uint16_t, kByteValues> kSpelling = [] {
  std::array<uint16_t, kByteValues> spelling{};
  uint16_t next = 0x100;
  for (size_t b = 0; b < kByteValues; ++b) spelling[b] = spells_itself(b) ? static_cast<uint16_t>(b) : next++;
  return spelling;
}();

// The bytes that `spelled` stands for; on failure the character that stands for none.
struct Unspelled {
  std::string bytes;
  std::string_view wrong;
};
Unspelled unspell(std::string_view spelled) {
  Unspelled result;
  for (size_t at = 0; at < spelled.size();) {
    const auto lead = static_cast<unsigned char>(spelled[at]);
    size_t number = lead, length = 1;
    if (lead >= 0xc2 && lead <= 0xdf && at + 1 < spelled.size()) {
      number = (lead & 0x1fu) << 6 | (static_cast<unsigned char>(spelled[at + 1]) & 0x3fu);
      length = 2;
    }
    const auto found = std::find(kSpelling.begin(), kSpelling.end(), number);
    if (found == kSpelling.end() || (lead >= 0x80 && length == 1)) {
      result.wrong = spelled.substr(at, length);
      return result;
    }
    result.bytes += static_cast<char>(found - kSpelling.begin());
    at += length;
  }
  return result;
}

std::string shown(std::string_view text) {
  constexpr size_t kShown = 40;
  std::string out = "\"";
  for (const char c : text.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out + (text.size() > kShown ? "…\"" : "\"");
}

}  // namespace

std::string byte_spelling(std::string_view bytes) {
  std::string spelled;
  for (const char c : bytes) {
    const uint32_t number = kSpelling[static_cast<unsigned char>(c)];
    if (number < 0x80) {
      spelled += static_cast<char>(number);
    } else {
      spelled += static_cast<char>(0xc0 | number >> 6);
      spelled += static_cast<char>(0x80 | (number & 0x3f));
    }
  }
  return spelled;
}

// ---- the vocabulary -------------------------------------------------------------------------------------------

Bpe::Bpe() : of_byte_(kByteValues) {
  for (const bool itself : {true, false}) {
    for (size_t b = 0; b < kByteValues; ++b) {
      if (spells_itself(b) != itself) continue;
      of_byte_[b] = static_cast<uint16_t>(begin_.size());
      add_token(std::string(1, static_cast<char>(b)));
    }
  }
}

void Bpe::add_token(std::string_view bytes) {
  begin_.push_back(static_cast<uint32_t>(bytes_.size()));
  bytes_ += bytes;
}

Bpe Bpe::load(const std::filesystem::path& merges) {
  const MappedFile file(merges);
  return parse(file.text(), file.path());
}

Bpe Bpe::parse(std::string_view merges, const std::string& source) {
  Bpe bpe;
  std::unordered_map<std::string, uint16_t> ids;
  for (uint16_t id = 0; id < kByteValues; ++id) ids.emplace(bpe.bytes(id), id);
  size_t line = 0;
  auto refuse = [&](const std::string& what) { throw stepscope::InputError(fmt::format("{}: line {}: {}", source, line, what)); };
  for (size_t at = 0; at < merges.size();) {
    const size_t end = std::min(merges.find('\n', at), merges.size());
    const std::string_view text = merges.substr(at, end - at);
    at = end + 1;
    ++line;
    if (line == 1 && text.starts_with("#version")) continue;
    if (text.empty()) refuse("empty, expected a merge \"LEFT RIGHT\"");
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == text.size() || text.find(' ', space + 1) != std::string_view::npos)
      refuse(fmt::format("{}, expected two tokens with one space between them", shown(text)));
    std::array<uint16_t, 2> side{};
    std::string whole;
    for (size_t i = 0; i < 2; ++i) {
      const std::string_view spelled = i == 0 ? text.substr(0, space) : text.substr(space + 1);
      const Unspelled token = unspell(spelled);
      if (!token.wrong.empty()) refuse(fmt::format("the character {} in {} stands for no byte", shown(token.wrong), shown(text)));
      const auto known = ids.find(token.bytes);
      if (known == ids.end()) refuse(fmt::format("{} is neither a byte nor made by an earlier merge", shown(spelled)));
      side[i] = known->second;
      whole += token.bytes;
    }
    if (bpe.merges_.size() == kMaxMerges)
      refuse(fmt::format("more than {} merges, whose ids a token shard (16 bits) cannot hold", kMaxMerges));
    const auto id = static_cast<uint16_t>(bpe.begin_.size());
    // Two merges to one token would leave one of the two ids that GPT-2 counts without a use.
    if (!ids.emplace(whole, id).second) refuse(fmt::format("{} makes a token that there is already", shown(text)));
    bpe.merges_.emplace(static_cast<uint32_t>(side[0]) << 16 | side[1], id);
    bpe.add_token(whole);
  }
  if (bpe.merges_.empty())
    throw stepscope::InputError(
        fmt::format("{}: no merges in it, expected GPT-2's vocab.bpe ({} lines \"LEFT RIGHT\")", source, kGpt2Merges));
  bpe.add_token(kEndOfText);
  return bpe;
}

std::string Bpe::not_gpt2() const {
  if (merges_.size() == kGpt2Merges) return "";
  return fmt::format("{} merges, GPT-2's has {}: ids are not those of GPT-2, and the end of text is {}", merges_.size(), kGpt2Merges,
                     end_of_text());
}

void Bpe::check_ids(const std::filesystem::path& encoder) const {
  const MappedFile file(encoder);
  check_ids(file.text(), file.path());
}

void Bpe::check_ids(std::string_view encoder, const std::string& source) const {
  auto refuse = [&](const std::string& what) { throw stepscope::InputError(fmt::format("{}: {}", source, what)); };
  const auto given = stepscope::read_json<nlohmann::json>(encoder);
  if (!given.is_object())
    refuse(fmt::format("not GPT-2's encoder.json, one object of token to id: {}", stepscope::why_no_object(encoder, source)));
  for (size_t id = 0; id < vocab_size(); ++id) {
    const bool last = id == end_of_text();
    const std::string token = last ? std::string(kEndOfText) : byte_spelling(bytes(static_cast<uint16_t>(id)));
    const auto found = given.find(token);
    if (found == given.end()) refuse(fmt::format("token {} is missing, which the merges give id {}", shown(token), id));
    if (!found->is_number_integer() || *found != id)
      refuse(fmt::format("token {} has id {}, but the merges give it {}", shown(token), stepscope::shown_json(*found), id));
  }
  if (given.size() != vocab_size()) refuse(fmt::format("{} tokens, but the merges make {}", given.size(), vocab_size()));
}

std::string_view Bpe::bytes(uint16_t id) const {
  const size_t i = id;
  const size_t end = i + 1 < begin_.size() ? begin_[i + 1] : bytes_.size();
  return std::string_view(bytes_).substr(begin_.at(i), end - begin_.at(i));
}

std::string Bpe::decode(std::span<const uint16_t> ids) const {
  std::string text;
  for (const uint16_t id : ids) text += bytes(id);
  return text;
}

// ---- encoding -------------------------------------------------------------------------------------------------
//
// GPT-2 merges, in a piece, all places of the pair with the first priority, then looks again. Here the leftmost
// place of the pair with the smallest id is merged each time. The result is the same: a pair that a merge makes
// contains the merge's token, so it was added later and its id is larger.

uint16_t Bpe::merged(uint16_t left, uint16_t right) const {
  const auto found = merges_.find(static_cast<uint32_t>(left) << 16 | right);
  return found == merges_.end() ? kNone : found->second;
}

// Quadratic, and for words the faster of the two.
void Bpe::merge_short(std::string_view piece, std::vector<uint16_t>& out) const {
  const size_t first = out.size();
  for (const char c : piece) out.push_back(of_byte_[static_cast<unsigned char>(c)]);
  const auto pair = [&](size_t i) { return i + 1 < out.size() ? merged(out[i], out[i + 1]) : kNone; };
  std::vector<uint16_t> pairs;
  for (size_t i = first; i < out.size(); ++i) pairs.push_back(pair(i));
  while (true) {
    const auto best = std::min_element(pairs.begin(), pairs.end());
    if (*best == kNone) return;
    const size_t i = static_cast<size_t>(best - pairs.begin());
    out[first + i] = *best;
    out.erase(out.begin() + static_cast<ptrdiff_t>(first + i + 1));
    pairs.erase(best + 1);
    pairs[i] = pair(first + i);
    if (i > 0) pairs[i - 1] = pair(first + i - 1);
  }
}

// A linked list of symbols and a heap of pairs, n log n. An entry of the heap whose symbols have since been
// merged is noticed by its pair no longer making its token.
void Bpe::merge_long(std::string_view piece, std::vector<uint16_t>& out) const {
  const auto n = static_cast<uint32_t>(piece.size());
  constexpr uint32_t kEnd = std::numeric_limits<uint32_t>::max();
  std::vector<uint16_t> symbol(n);  // kNone: swallowed by the one before it
  std::vector<uint32_t> next(n), previous(n);
  for (uint32_t i = 0; i < n; ++i) {
    symbol[i] = of_byte_[static_cast<unsigned char>(piece[i])];
    next[i] = i + 1 < n ? i + 1 : kEnd;
    previous[i] = i > 0 ? i - 1 : kEnd;
  }
  const auto pair = [&](uint32_t i) { return i == kEnd || next[i] == kEnd ? kNone : merged(symbol[i], symbol[next[i]]); };
  std::vector<uint64_t> places;  // id of the merge << 32 | left symbol
  const auto place = [](uint16_t id, uint32_t i) { return static_cast<uint64_t>(id) << 32 | i; };
  for (uint32_t i = 0; i < n; ++i)
    if (const uint16_t id = pair(i); id != kNone) places.push_back(place(id, i));
  std::priority_queue heap(std::greater<uint64_t>(), std::move(places));
  while (!heap.empty()) {
    const auto id = static_cast<uint16_t>(heap.top() >> 32);
    const auto i = static_cast<uint32_t>(heap.top());
    heap.pop();
    if (symbol[i] == kNone || pair(i) != id) continue;
    const uint32_t right = next[i];
    symbol[i] = id;
    symbol[right] = kNone;
    next[i] = next[right];
    if (next[i] != kEnd) previous[next[i]] = i;
    for (const uint32_t left : {previous[i], i})
      if (const uint16_t fresh = pair(left); fresh != kNone) heap.push(place(fresh, left));
  }
  for (uint32_t i = 0; i != kEnd; i = next[i]) out.push_back(symbol[i]);
}

void Bpe::encode_piece(std::string_view piece, std::vector<uint16_t>& out) {
  constexpr size_t kShortBytes = 64, kMostWords = size_t{1} << 18;
  if (piece.size() == 1) {
    out.push_back(of_byte_[static_cast<unsigned char>(piece[0])]);
    return;
  }
  if (piece.size() > kShortBytes) return merge_long(piece, out);
  const size_t before = out.size();
  if (const auto known = words_.find(piece); known != words_.end()) {
    const auto from = word_tokens_.begin() + known->second.begin;
    out.insert(out.end(), from, from + known->second.count);
    return;
  }
  merge_short(piece, out);
  // Forgetting all at once keeps the words of where the text is now; a corpus may change its language.
  if (words_.size() == kMostWords) {
    words_.clear();
    word_tokens_.clear();
  }
  words_.emplace(piece, Cached{static_cast<uint32_t>(word_tokens_.size()), static_cast<uint32_t>(out.size() - before)});
  word_tokens_.insert(word_tokens_.end(), out.begin() + static_cast<ptrdiff_t>(before), out.end());
}

void Bpe::encode(std::string_view text, const TokenSink& sink) {
  require_unicode_tables();  // also for ASCII: half a tokenizer would be found out by the first accent
  constexpr size_t kBatch = size_t{1} << 16;
  std::vector<uint16_t> tokens;
  size_t done = 0, handed_over = 0;
  const auto flush = [&] {
    if (!tokens.empty()) sink(tokens, done - handed_over);
    handed_over = done;
    tokens.clear();
  };
  while (done < text.size()) {
    const size_t bytes = first_piece(text.substr(done));
    if (bytes > kMaxPieceBytes) {
      throw stepscope::InputError(
          fmt::format("{} bytes from byte {} of a document on are one word to GPT-2's tokenizer, expected at most {}: is "
                      "this text?",
                      bytes, done, kMaxPieceBytes));
    }
    encode_piece(text.substr(done, bytes), tokens);
    done += bytes;
    if (tokens.size() >= kBatch) flush();
  }
  flush();
}

std::vector<uint16_t> Bpe::encode(std::string_view text) {
  std::vector<uint16_t> all;
  encode(text, [&](std::span<const uint16_t> tokens, size_t) { all.insert(all.end(), tokens.begin(), tokens.end()); });
  return all;
}

}  // namespace gpt2

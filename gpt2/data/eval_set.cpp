#include "gpt2/data/eval_set.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/mapped_file.h"
#include "base/output_file.h"

namespace gpt2 {
namespace {

constexpr uint16_t kStart = 65535;
constexpr uint64_t kMost = 65535;  // examples, and bytes of one: both stand in a uint16
// Five words, then a context and two completions of one token each with their lengths.
constexpr uint64_t kLeastBytes = 2 * (5 + 3 * 2);

class ExampleReader {
 public:
  ExampleReader(ByteReader& reader, uint64_t index, int64_t vocabulary)
      : reader_(reader), index_(index), vocabulary_(vocabulary), begin_(reader.position()) {}

  EvalExample read() {
    if (const uint16_t start = word("start"); start != kStart) fail(begin_, fmt::format("starts with {}, expected {}", start, kStart));
    bytes_ = word("size");
    if (bytes_ < kLeastBytes || bytes_ % 2 != 0)
      fail(begin_ + 2, fmt::format("says it has {} bytes, expected an even number, {} or more", bytes_, kLeastBytes));
    if (const uint16_t index = word("index"); index != index_) fail(begin_ + 4, fmt::format("has index {}, expected {}", index, index_));
    EvalExample e;
    e.label = word("label");
    const uint16_t count = word("number of completions");
    if (count < 2) fail(begin_ + 8, fmt::format("has {} completions, expected at least 2", count));
    if (e.label >= count) fail(begin_ + 6, fmt::format("has label {}, expected 0 to {}", e.label, count - 1));
    e.context = tokens("context");
    for (uint16_t i = 0; i < count; ++i) e.completions.push_back(tokens(fmt::format("completion {}", i)));
    if (const uint64_t read = reader_.position() - begin_; read != bytes_)
      fail(begin_ + 2, fmt::format("says it has {} bytes, its contents have {}", bytes_, read));
    return e;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  uint16_t word(const std::string& what) { return reader_.read<uint16_t>(fmt::format("{} of example {}", what, index_)); }
  [[noreturn]] void fail(uint64_t offset, const std::string& what) const {
    reader_.fail(fmt::format("example {} {} (offset {})", index_, what, offset));
  }
  std::vector<uint16_t> tokens(const std::string& what) {
    const uint64_t at = reader_.position();
    const uint16_t count = word("length of " + what);
    if (count == 0) fail(at, fmt::format("has a {} of 0 tokens, expected at least 1", what));
    if (reader_.position() + 2 * uint64_t{count} > begin_ + bytes_)
      fail(at, fmt::format("has a {} of {} tokens, which end behind its {} bytes", what, count, bytes_));
    std::vector<uint16_t> out(count);
    reader_.read_into(std::span(out), fmt::format("{} of example {}", what, index_));
    for (size_t i = 0; i < out.size(); ++i)
      if (out[i] >= vocabulary_)
        fail(at + 2 + 2 * i, fmt::format("has token {} in its {}, expected 0 to {}", out[i], what, vocabulary_ - 1));
    return out;
  }

  ByteReader& reader_;
  uint64_t index_;
  int64_t vocabulary_;
  uint64_t begin_, bytes_ = 0;
};

std::vector<uint16_t> words_of(const EvalExample& e, uint64_t index, const std::string& path) {
  const auto fail = [&](const std::string& what) { throw stepscope::InputError(fmt::format("{}: example {} {}", path, index, what)); };
  const auto count = static_cast<int64_t>(e.completions.size());
  if (count < 2) fail(fmt::format("has {} completions, expected at least 2", count));
  if (e.label < 0 || e.label >= count) fail(fmt::format("has label {}, expected 0 to {}", e.label, count - 1));
  uint64_t size = 5 + 1 + e.context.size();
  for (const auto& c : e.completions) size += 1 + c.size();
  if (2 * size > kMost) fail(fmt::format("takes {} bytes, expected at most {}", 2 * size, kMost));
  std::vector<uint16_t> words{kStart, static_cast<uint16_t>(2 * size), static_cast<uint16_t>(index), static_cast<uint16_t>(e.label),
                              static_cast<uint16_t>(count)};
  const auto append = [&](const std::vector<uint16_t>& tokens, const std::string& what) {
    if (tokens.empty()) fail(fmt::format("has a {} of 0 tokens, expected at least 1", what));
    if (std::find(tokens.begin(), tokens.end(), kStart) != tokens.end())
      fail(fmt::format("has token {} in its {}, expected 0 to {}", kStart, what, kEvalTokens - 1));
    words.push_back(static_cast<uint16_t>(tokens.size()));
    words.insert(words.end(), tokens.begin(), tokens.end());
  };
  append(e.context, "context");
  for (size_t i = 0; i < e.completions.size(); ++i) append(e.completions[i], fmt::format("completion {}", i));
  return words;
}

}  // namespace

std::vector<EvalExample> parse_eval_set(std::span<const std::byte> file, const std::string& source, int64_t vocabulary) {
  ByteReader reader(file, source);
  const LlmcHeader h = read_llmc_header(reader, kLlmcEvalSet, "set of evaluation examples",
                                        "; `stepscope data --eval-set` makes one of HellaSwag's or MMLU's questions");
  if (h[1] != 1) reader.fail(fmt::format("evaluation set version {}, expected 1", h[1]));
  if (h[2] < 1 || static_cast<uint64_t>(h[2]) > kMost)
    reader.fail(fmt::format("the header counts {} examples, expected 1 to {}", h[2], kMost));
  std::vector<EvalExample> examples;
  uint64_t longest = 0;
  for (uint64_t i = 0; i < static_cast<uint64_t>(h[2]); ++i) {
    ExampleReader example(reader, i, std::min(vocabulary, kEvalTokens));
    examples.push_back(example.read());
    longest = std::max(longest, example.bytes());
  }
  reader.expect_end();
  if (h[3] < 0 || static_cast<uint64_t>(h[3]) != longest)
    reader.fail(fmt::format("the header says that the longest example has {} bytes (offset 12), expected {}", h[3], longest));
  return examples;
}

std::vector<EvalExample> load_eval_set(const std::filesystem::path& path, int64_t vocabulary) {
  const MappedFile file(path);
  return parse_eval_set(file.bytes(), file.path(), vocabulary);
}

void write_eval_set(const std::filesystem::path& path, std::span<const EvalExample> examples) {
  if (examples.empty() || examples.size() > kMost)
    throw stepscope::InputError(
        fmt::format("{}: an evaluation set of {} examples, expected 1 to {}", path.string(), examples.size(), kMost));
  std::vector<uint16_t> stream;
  size_t longest = 0;
  for (size_t i = 0; i < examples.size(); ++i) {
    const std::vector<uint16_t> words = words_of(examples[i], i, path.string());
    stream.insert(stream.end(), words.begin(), words.end());
    longest = std::max(longest, words.size() * sizeof(uint16_t));
  }
  LlmcHeader h{};
  h[0] = kLlmcEvalSet;
  h[1] = 1;
  h[2] = static_cast<int32_t>(examples.size());
  h[3] = static_cast<int32_t>(longest);
  AtomicFile out(stepscope::output_place(path));
  out.write(h.data(), sizeof(h));
  out.write(stream.data(), stream.size() * sizeof(uint16_t));
  out.commit();
}

}  // namespace gpt2

// Evaluation sets: the bytes that llm.c's script makes, and every class of damage. Truncations and flipped header bytes of all formats are
// in damaged_files_test.cpp.
#include "gpt2/data/eval_set.h"

#include <cstring>
#include <functional>
#include <limits>
#include <map>

#include "tests/gpt2/files.h"

namespace gpt2 {
namespace {
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

// Two examples. Word positions below are counted from the end of the header.
std::vector<EvalExample> small_set() { return {{1, {100, 101}, {{102}, {103, 104}}}, {2, {200}, {{201}, {202}, {203, 204, 205}}}}; }
// What write_evalfile of llm.c's dev/data/data_common.py makes of them, without its limit to four completions.
const std::vector<uint16_t> kWords{65535, 26, 0, 1, 2, 2, 100, 101, 1,   102, 2,   103, 104,  //
                                   65535, 30, 1, 2, 3, 1, 200, 1,   201, 1,   202, 3,   203, 204, 205};

std::vector<std::byte> bytes_of(const std::vector<int32_t>& header, const std::vector<uint16_t>& words) {
  std::vector<std::byte> bytes(1024 + 2 * words.size());
  std::memcpy(bytes.data(), header.data(), header.size() * sizeof(int32_t));
  std::memcpy(bytes.data() + 1024, words.data(), 2 * words.size());
  return bytes;
}
std::vector<std::byte> small_file(const std::map<size_t, uint16_t>& changed = {}) {
  std::vector<uint16_t> words = kWords;
  for (const auto& [at, value] : changed) words.at(at) = value;
  return bytes_of({20240522, 1, 2, 30}, words);
}
#define EXPECT_REFUSED(bytes, ...) EXPECT_INPUT_ERROR(parse_eval_set(bytes, "set.bin"), "set.bin: ", __VA_ARGS__)

TEST(EvalSet, TheBytesAreThoseOfLlmc) {
  TemporaryFolder folder;
  write_eval_set(folder / "set.bin", small_set());
  EXPECT_EQ(read_bytes(folder / "set.bin"), small_file());
  EXPECT_EQ(load_eval_set(folder / "set.bin"), small_set());
  EXPECT_THAT(testing::names_in(folder.path()), ::testing::ElementsAre("set.bin")) << "no temporary stays";
}

TEST(EvalSet, AWriteThatFailsLeavesTheOldFile) {
  TemporaryFolder folder;
  write_eval_set(folder / "set.bin", small_set());
  std::vector<EvalExample> bad = small_set();
  bad[1].completions[2].clear();
  EXPECT_INPUT_ERROR(write_eval_set(folder / "set.bin", bad), "set.bin", "example 1", "completion 2 of 0 tokens");
  EXPECT_EQ(load_eval_set(folder / "set.bin"), small_set());
  EXPECT_INPUT_ERROR(write_eval_set(folder / "none" / "set.bin", small_set()), "none/set.bin");
}

TEST(EvalSet, TheWriterRefusesWhatTheFormatCannotHold) {
  TemporaryFolder folder;
  const auto refused = [&](const std::function<void(std::vector<EvalExample>&)>& change, const char* why) {
    std::vector<EvalExample> set = small_set();
    change(set);
    EXPECT_INPUT_ERROR(write_eval_set(folder / "x", set), why);
    EXPECT_FALSE(std::filesystem::exists(folder / "x"));
  };
  refused([](auto& s) { s.clear(); }, "0 examples, expected 1 to 65535");
  refused([](auto& s) { s.resize(65536, s[0]); }, "65536 examples");
  refused([](auto& s) { s[0].label = 2; }, "label 2, expected 0 to 1");
  refused([](auto& s) { s[0].label = -1; }, "label -1");
  refused([](auto& s) { s[0].completions.resize(1); }, "1 completions, expected at least 2");
  refused([](auto& s) { s[0].context.clear(); }, "context of 0 tokens");
  refused([](auto& s) { s[1].context[0] = 65535; }, "token 65535 in its context");
  refused([](auto& s) { s[1].completions[1][0] = 65535; }, "token 65535 in its completion 1");
  refused([](auto& s) { s[0].context.resize(32800, 7); }, "expected at most 65535");
}

TEST(EvalSet, TheLargestThatTheFormatHoldsGoesThrough) {
  TemporaryFolder folder;
  EvalExample e{0, std::vector<uint16_t>(32767 - 5 - 3 - 2, 65534), {{1}, {2}}};  // 65534 bytes
  write_eval_set(folder / "x", std::vector{e});
  EXPECT_EQ(load_eval_set(folder / "x"), std::vector{e});
  const std::vector<EvalExample> many(65535, small_set()[0]);
  write_eval_set(folder / "y", many);
  EXPECT_EQ(load_eval_set(folder / "y").size(), 65535u);
}

TEST(EvalSet, ADamagedHeaderIsRefused) {
  EXPECT_REFUSED(bytes_of({20240520, 1, 2, 30}, kWords),
                 "not a set of evaluation examples: magic number 20240520 (tokens), expected 20240522");
  EXPECT_REFUSED(bytes_of({1, 1, 2, 30}, kWords), "magic number 1, expected 20240522; `stepscope data --eval-set` makes one");
  EXPECT_REFUSED(bytes_of({20240522, 2, 2, 30}, kWords), "version 2, expected 1");
  for (const int32_t count : {0, -1, 65536, std::numeric_limits<int32_t>::max()})
    EXPECT_REFUSED(bytes_of({20240522, 1, count, 30}, kWords), "examples, expected 1 to 65535");
  EXPECT_REFUSED(bytes_of({20240522, 1, 3, 30}, kWords), "truncated: start of example 2 needs 2 bytes at offset 1080");
  EXPECT_REFUSED(bytes_of({20240522, 1, 1, 26}, kWords), "30 bytes follow", "offset 1050");
  for (const int32_t longest : {0, -1, 26, 28, 32}) EXPECT_REFUSED(bytes_of({20240522, 1, 2, longest}, kWords), "offset 12", "expected 30");
}

TEST(EvalSet, DamagedExamplesNameOffsetAndExpectation) {
  EXPECT_REFUSED(small_file({{13, 65534}}), "example 1 starts with 65534, expected 65535 (offset 1050)");
  EXPECT_REFUSED(small_file({{1, 28}}), "example 0 says it has 28 bytes, its contents have 26 (offset 1026)");
  EXPECT_REFUSED(small_file({{1, 24}}), "example 0", "completion 1 of 2 tokens, which end behind its 24 bytes");
  EXPECT_REFUSED(small_file({{1, 27}}), "27 bytes, expected an even number, 22 or more");
  EXPECT_REFUSED(small_file({{1, 0}}), "example 0 says it has 0 bytes");
  EXPECT_REFUSED(small_file({{15, 0}}), "example 1 has index 0, expected 1 (offset 1054)");
  EXPECT_REFUSED(small_file({{3, 2}}), "example 0 has label 2, expected 0 to 1 (offset 1030)");
  EXPECT_REFUSED(small_file({{4, 0}}), "example 0 has 0 completions, expected at least 2 (offset 1032)");
  EXPECT_REFUSED(small_file({{3, 0}, {4, 1}}), "example 0 has 1 completions");
  EXPECT_REFUSED(small_file({{5, 0}}), "example 0 has a context of 0 tokens, expected at least 1 (offset 1034)");
  EXPECT_REFUSED(small_file({{8, 0}}), "example 0 has a completion 0 of 0 tokens, expected at least 1 (offset 1040)");
  EXPECT_REFUSED(small_file({{24, 4}}), "example 1 has a completion 2 of 4 tokens, which end behind its 30 bytes (offset 1072)");
  EXPECT_REFUSED(small_file({{9, 65535}}), "example 0 has token 65535 in its completion 0, expected 0 to 65534 (offset 1042)");
}

TEST(EvalSet, TokensMustLieInTheVocabulary) {
  EXPECT_EQ(parse_eval_set(small_file(), "set.bin", 206), small_set());
  EXPECT_INPUT_ERROR(parse_eval_set(small_file(), "set.bin", 205),
                     "set.bin: example 1 has token 205 in its completion 2, expected 0 to 204 (offset 1078)");
  EXPECT_INPUT_ERROR(parse_eval_set(small_file(), "set.bin", 101),
                     "example 0 has token 101 in its context, expected 0 to 100 (offset 1038)");
}

// No damaged word gets by unless it is still a token of the vocabulary or another label.
TEST(EvalSet, EveryChangedWordIsRefusedOrRead) {
  const std::vector<size_t> labels{3, 16}, tokens{6, 7, 9, 11, 12, 19, 21, 23, 25, 26, 27};
  const auto in = [](const std::vector<size_t>& list, size_t at) { return std::find(list.begin(), list.end(), at) != list.end(); };
  for (size_t at = 0; at < kWords.size(); ++at) {
    for (uint32_t value = 0; value < 65536; value += value < 400 || value > 65500 ? 1 : 97) {
      if (value == kWords[at]) continue;
      const auto good = in(tokens, at) ? value < 300 : in(labels, at) && value < kWords[at + 1];
      bool read = true;
      try {
        parse_eval_set(small_file({{at, static_cast<uint16_t>(value)}}), "set.bin", 300);
      } catch (const stepscope::InputError&) {
        read = false;
      }
      ASSERT_EQ(read, good) << "word " << at << " = " << value;
    }
  }
}

}  // namespace
}  // namespace gpt2

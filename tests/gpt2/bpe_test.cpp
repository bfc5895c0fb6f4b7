#include "gpt2/data/bpe.h"

#include <map>
#include <random>
#include <utility>

#include "gpt2/data/pretokenizer.h"
#include "gpt2/data/token_shards.h"
#include "tests/gpt2/files.h"
#include "tests/gpt2/small_vocabulary.h"

namespace gpt2 {
namespace {
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::kSmallEndOfText;
using testing::kSmallMerges;
using testing::TemporaryFolder;

Bpe small() { return Bpe::parse(kSmallMerges, "merges"); }

class BpeEncoding : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!unicode_tables_built_in()) GTEST_SKIP() << "built without ICU (libicu-dev)";
  }
};

TEST(BpeVocabulary, BytesComeInTheOrderOfTheirSpellingsThenMergesThenEndOfText) {
  const Bpe bpe = small();
  EXPECT_EQ(bpe.vocab_size(), 269u);
  EXPECT_EQ(bpe.end_of_text(), kSmallEndOfText);
  const std::vector<std::pair<uint16_t, std::string>> expected{
      {0, "!"},         {93, "~"},   {94, "\xa1"},    {105, "\xac"}, {106, "\xae"}, {187, "\xff"},
      {188, {"\0", 1}}, {198, "\n"}, {220, " "},      {221, "\x7f"}, {222, "\x80"}, {254, "\xa0"},
      {255, "\xad"},    {256, "he"}, {264, " world"}, {265, "\n\n"}, {267, "é"},    {kSmallEndOfText, "<|endoftext|>"}};
  for (const auto& [id, bytes] : expected) EXPECT_EQ(bpe.bytes(id), bytes) << id;
}

TEST(BpeVocabulary, SpellingOfBytes) {
  EXPECT_EQ(byte_spelling(" a\n~"), "ĠaĊ~");
  EXPECT_EQ(byte_spelling("é\xad\x7f"), "Ã©\u0143\u0121");
  EXPECT_EQ(byte_spelling({"\0", 1}), "\u0100");
}

TEST(BpeVocabulary, MalformedMergesAreRefusedWithTheirLine) {
  auto parse = [](const std::string& text) { Bpe::parse(text, "v.bpe"); };
  EXPECT_INPUT_ERROR(parse(""), "v.bpe: no merges");
  EXPECT_INPUT_ERROR(parse("#version: 0.2\n"), "v.bpe: no merges");
  EXPECT_EQ(Bpe::parse("a b\nab c\n", "v.bpe").not_gpt2(),
            "2 merges, GPT-2's has 50000: ids are not those of GPT-2, and the end of text is 258");
  EXPECT_INPUT_ERROR(parse("#version: 0.2\nh e\nhe\n"), "v.bpe: line 3: \"he\"", "two tokens");
  EXPECT_INPUT_ERROR(parse("h e\n\nl l\n"), "line 2: empty");
  EXPECT_INPUT_ERROR(parse("a b c\n"), "line 1: \"a b c\"");
  EXPECT_INPUT_ERROR(parse(" b\n"), "line 1");
  EXPECT_INPUT_ERROR(parse("b \n"), "line 1");
  EXPECT_INPUT_ERROR(parse("h e\nhe ll\n"), "line 2: \"ll\" is neither a byte nor made by an earlier merge");
  EXPECT_INPUT_ERROR(parse("h e\nh e\n"), "line 2", "there is already");
  EXPECT_INPUT_ERROR(parse("h e\r\n"), "line 1: the character \"\\x0d\"");
  EXPECT_INPUT_ERROR(parse("h €\n"), "line 1", "stands for no byte");
  EXPECT_INPUT_ERROR(parse("h \xc4"), "line 1", "stands for no byte");
  EXPECT_INPUT_ERROR(parse("{\"!\": 0}"), "line 1", "neither a byte nor");
}

TEST(BpeVocabulary, MoreMergesThanAShardHasIdsAreRefused) {
  std::string merges;
  size_t lines = 0;
  // All pairs of bytes that spell themselves, 188 x 188 of them, then each with one more.
  std::vector<std::string> bytes;
  for (int c = '!'; c <= '~'; ++c) bytes.emplace_back(1, static_cast<char>(c));
  for (const auto& a : bytes)
    for (const auto& b : bytes) merges += a + " " + b + "\n", ++lines;
  for (const auto& a : bytes) {
    for (const auto& b : bytes) {
      for (const auto& c : bytes) {
        if (lines == 65279) goto full;
        merges += a + b + " " + c + "\n", ++lines;
      }
    }
  }
full:
  EXPECT_EQ(Bpe::parse(merges, "m").vocab_size(), 65536u);
  EXPECT_INPUT_ERROR(Bpe::parse(merges + "~~ ~\n", "m"), "line 65280", "65279 merges");
}

std::string small_encoder(const Bpe& bpe) {
  std::string json = "{";
  for (size_t id = 0; id + 1 < bpe.vocab_size(); ++id) {
    for (const char c : "\"" + byte_spelling(bpe.bytes(static_cast<uint16_t>(id)))) {
      if ((c == '"' && json.back() != ' ' && json.back() != '{') || c == '\\') json += '\\';
      json += c;
    }
    json += "\": " + std::to_string(id) + ", ";
  }
  return json + "\"<|endoftext|>\": " + std::to_string(bpe.end_of_text()) + "}";
}

TEST(BpeVocabulary, IdsOfEncoderJsonMustBeThoseOfTheMerges) {
  const Bpe bpe = small();
  const std::string good = small_encoder(bpe);
  bpe.check_ids(good, "e.json");
  auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << from;
    bpe.check_ids(text.replace(at, from.size(), to), "e.json");
  };
  EXPECT_INPUT_ERROR(with("\"he\": 256", "\"he\": 257"), "e.json: token \"he\" has id 257", "the merges give it 256");
  EXPECT_INPUT_ERROR(with("\"Ġ\": 220", "\"Ġ\": \"220\""), "\"Ġ\" has id \"220\"");
  EXPECT_INPUT_ERROR(with("\"he\": 256, ", ""), "token \"he\" is missing", "256");
  EXPECT_INPUT_ERROR(with("\"he\": 256", "\"he\": 256, \"hex\": 400"), "270 tokens", "the merges make 269");
  EXPECT_INPUT_ERROR(with("\"<|endoftext|>\": 268", "\"<|endoftext|>\": 0"), "<|endoftext|>", "268");
  EXPECT_INPUT_ERROR(bpe.check_ids("{", "e.json"), "e.json: not GPT-2's encoder.json", "the file ends within the JSON");
  EXPECT_INPUT_ERROR(bpe.check_ids("[1]", "e.json"), "e.json: not GPT-2's encoder.json", "JSON of type array");
}

TEST(BpeVocabulary, FilesThatCannotBeReadAreNamed) {
  TemporaryFolder folder;
  EXPECT_INPUT_ERROR(Bpe::load(folder / "absent.bpe"), "absent.bpe", "No such file");
  EXPECT_INPUT_ERROR(Bpe::load(folder.path()), folder.path().c_str(), "folder");
  EXPECT_INPUT_ERROR(small().check_ids(folder / "absent.json"), "absent.json", "No such file");
}

TEST_F(BpeEncoding, WorkedOutByHand) {
  Bpe bpe = small();
  EXPECT_THAT(bpe.encode("hello world"), ElementsAre(259, 264));
  EXPECT_THAT(bpe.encode("hell"), ElementsAre(258));
  EXPECT_THAT(bpe.encode("ell"), ElementsAre(68, 257));
  EXPECT_THAT(bpe.encode("aaa"), ElementsAre(266, 64)) << "from the left";
  EXPECT_THAT(bpe.encode("aaaa"), ElementsAre(266, 266));
  EXPECT_THAT(bpe.encode("é"), ElementsAre(267));
  EXPECT_THAT(bpe.encode("a\n\n"), ElementsAre(64, 265));
  EXPECT_THAT(bpe.encode("\n\na"), ElementsAre(198, 198, 64)) << "no merge across pieces";
  EXPECT_THAT(bpe.encode(""), IsEmpty());
}

TEST_F(BpeEncoding, TheEarlierMergeWinsWhereverItStands) {
  EXPECT_THAT(Bpe::parse("b c\na b\n", "m").encode("abc"), ElementsAre(64, 256));
  EXPECT_THAT(Bpe::parse("a b\nb c\n", "m").encode("abc"), ElementsAre(256, 66));
}

TEST_F(BpeEncoding, TheNameOfEndOfTextIsText) {
  Bpe bpe = small();
  const auto ids = bpe.encode("<|endoftext|>");
  EXPECT_THAT(ids, ::testing::Not(::testing::Contains(kSmallEndOfText)));
  EXPECT_EQ(bpe.decode(ids), "<|endoftext|>");
}

// GPT-2's own procedure, as slow as it is: the pair of the first priority is merged everywhere, from the left.
std::vector<std::string> merged_slowly(const std::string& word, const std::map<std::pair<std::string, std::string>, size_t>& rank) {
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  while (true) {
    auto best = rank.end();
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto r = rank.find({parts[i], parts[i + 1]});
      if (r != rank.end() && (best == rank.end() || r->second < best->second)) best = r;
    }
    if (best == rank.end()) return parts;
    std::vector<std::string> next;
    for (size_t i = 0; i < parts.size(); ++i) {
      const bool here = i + 1 < parts.size() && std::pair(parts[i], parts[i + 1]) == best->first;
      next.push_back(here ? parts[i] + parts[i + 1] : parts[i]);
      if (here) ++i;
    }
    parts = next;
  }
}

TEST_F(BpeEncoding, ShortAndLongWordsAreMergedAsGpt2MergesThem) {
  std::mt19937 random(7);
  for (int vocabulary = 0; vocabulary < 20; ++vocabulary) {
    std::vector<std::string> tokens{"a", "b", "c"};
    std::map<std::pair<std::string, std::string>, size_t> rank;
    std::string merges;
    for (int tries = 0; tries < 60; ++tries) {
      const std::string l = tokens[random() % tokens.size()], r = tokens[random() % tokens.size()];
      if (l.size() + r.size() > 12 || std::find(tokens.begin(), tokens.end(), l + r) != tokens.end()) continue;
      rank.emplace(std::pair(l, r), rank.size());
      tokens.push_back(l + r);
      merges += l + " " + r + "\n";
    }
    Bpe bpe = Bpe::parse(merges, "random");
    for (const size_t length : {2, 3, 5, 12, 40, 63, 64, 65, 66, 200, 500}) {
      std::string word;
      while (word.size() < length) word += static_cast<char>('a' + random() % 3);
      for (int again = 0; again < 2; ++again) {  // the second time short words are remembered
        std::vector<std::string> got;
        for (const uint16_t id : bpe.encode(word)) got.emplace_back(bpe.bytes(id));
        ASSERT_EQ(got, merged_slowly(word, rank)) << word << " with\n" << merges;
      }
    }
  }
}

TEST_F(BpeEncoding, DecodingGivesBackEveryByte) {
  Bpe bpe = small();
  std::mt19937 random(3);
  const std::vector<std::string> parts{"hello", " world", "é", "中", "😀", "\n\n", "   ", "'s", "\xff", "\xe2\x82"};
  for (int round = 0; round < 300; ++round) {
    std::string text;
    const size_t length = random() % 300;
    while (text.size() < length) {
      if (round % 2)
        text += static_cast<char>(random());
      else
        text += parts[random() % parts.size()];
    }
    ASSERT_EQ(bpe.decode(bpe.encode(text)), text) << "round " << round;
  }
}

TEST_F(BpeEncoding, MoreWordsThanAreRememberedComeOutTheSame) {
  Bpe bpe = small(), fresh = small();
  std::string text;
  for (int i = 0; i < 300000; ++i) {  // 2^18 are remembered
    for (int rest = i, digit = 0; digit < 5; ++digit, rest /= 16) text += static_cast<char>('a' + rest % 16);
    text += ' ';
  }
  const auto ids = bpe.encode(text);
  EXPECT_EQ(bpe.decode(ids), text);
  // Words from before and after the forgetting, each of which must have kept its own tokens.
  for (const size_t at : {size_t{0}, text.size() / 2, text.size() - 60000}) {
    const std::string part = text.substr(at, 60000);
    EXPECT_EQ(bpe.encode(part), fresh.encode(part)) << at;
  }
}

TEST_F(BpeEncoding, TheSinkIsToldHowMuchTextItsTokensAre) {
  Bpe bpe = small();
  std::string text;
  for (int i = 0; i < 100000; ++i) text += "hello world\n";
  size_t calls = 0, bytes = 0;
  bpe.encode(text, [&](std::span<const uint16_t> tokens, size_t text_bytes) {
    EXPECT_EQ(bpe.decode(tokens), text.substr(bytes, text_bytes));
    bytes += text_bytes;
    ++calls;
  });
  EXPECT_EQ(bytes, text.size());
  EXPECT_GT(calls, 2u) << "it must not wait for the end of the text";
}

TEST_F(BpeEncoding, LongRunsTakeNoQuadraticTime) {
  // 4 MB of one word: a second or so; the quadratic way takes hours, which the test's time limit ends.
  Bpe bpe = small();
  EXPECT_EQ(bpe.encode(std::string(4 << 20, 'a')).size(), size_t{2} << 20);
  EXPECT_EQ(bpe.encode(std::string(4 << 20, ' ')).size(), size_t{4} << 20);
}

TEST_F(BpeEncoding, AWordTooLongToMergeIsRefused) {
  Bpe bpe = small();
  EXPECT_INPUT_ERROR(bpe.encode("x " + std::string(Bpe::kMaxPieceBytes + 1, '?')), "67108866 bytes from byte 1", "one word");
}

TEST_F(BpeEncoding, WithTheRealVocabularyWellKnownIds) {
  const std::string folder = testing::real_data_folder();
  if (folder.empty()) GTEST_SKIP() << testing::kNoRealData;
  Bpe bpe = Bpe::load(folder + "/vocab.bpe");
  bpe.check_ids(std::filesystem::path(folder + "/encoder.json"));
  EXPECT_EQ(bpe.end_of_text(), 50256);
  EXPECT_THAT(bpe.encode("Hello world"), ElementsAre(15496, 995));
  for (size_t id = 0; id < bpe.vocab_size() - 1; ++id) {
    const auto token = static_cast<uint16_t>(id);
    const std::string text(bpe.bytes(token));
    ASSERT_EQ(bpe.decode(bpe.encode(text)), text);
  }
}

}  // namespace
}  // namespace gpt2

// Text for eyes: from files on its way to a terminal, words that were mistyped, ranks in runs.
#include "base/text.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace {

using stepscope::named_ranks;
using stepscope::nearest_word;
using stepscope::printable;
using stepscope::printable_lines;

// A character of at most three bytes in UTF-8.
std::string utf8(unsigned c) {
  const auto byte = [](unsigned b) { return static_cast<char>(b); };
  if (c < 0x80) return {byte(c)};
  if (c < 0x800) return {byte(0xC0 | c >> 6), byte(0x80 | (c & 0x3F))};
  return {byte(0xE0 | c >> 12), byte(0x80 | (c >> 6 & 0x3F)), byte(0x80 | (c & 0x3F))};
}

TEST(NamedRanks, ListsThemInRuns) {
  EXPECT_EQ(named_ranks({3}), "rank 3");
  EXPECT_EQ(named_ranks({3, 5}), "ranks 3, 5");
  EXPECT_EQ(named_ranks({1, 2}), "ranks 1, 2");
  EXPECT_EQ(named_ranks({0, 2, 3, 4, 7}), "ranks 0, 2-4, 7");
  EXPECT_EQ(named_ranks({1, 2, 3}), "ranks 1-3");
}

TEST(Printable, ReplacesTheseCharactersAndNoOther) {
  for (unsigned c = 0; c <= 0xFFFF; ++c) {
    const bool control = c <= 0x1F || (c >= 0x7F && c <= 0x9F) || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
    EXPECT_EQ(printable("<" + utf8(c) + ">"), control ? "<?>" : "<" + utf8(c) + ">") << "U+" << std::hex << c;
  }
}

TEST(Printable, ControlCharactersBecomeQuestionMarks) {
  EXPECT_EQ(printable("a\x1b[31mb\x07\n\r\t\x7f"), "a?[31mb?????");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "?31m")
      << "an escape sequence may begin with one of U+0080 to U+009F as well";
  EXPECT_EQ(printable("\xE2\x80\xAE"
                      "drowssap\xE2\x81\xA9"),
            "?drowssap?")
      << "text that would be written from right to left";
  EXPECT_EQ(printable_lines("a\n\x1b[2Jb\n"), "a\n?[2Jb\n");
}

TEST(NearestWord, IsOneSlipAwayOrTwoInALongWord) {
  const std::vector<std::string> words{"steps", "seed", "batch-size", "learning-rate", "report"};
  for (const auto& [typed, meant] : {std::pair("stpes", "steps"),
                                     {"steps", "steps"},
                                     {"step", "steps"},
                                     {"sed", "seed"},
                                     {"batch_sise", "batch-size"},
                                     {"learningrate", "learning-rate"},
                                     {"reprot", "report"},
                                     {"stpe", ""},
                                     {"now", ""},
                                     {"", ""},
                                     {"rate", ""}})
    EXPECT_EQ(nearest_word(typed, words), meant) << typed;
  EXPECT_EQ(nearest_word("steps", {}), "");
}

TEST(Printable, OtherTextStays) {
  for (const char* text : {"", "kernel<float, 4>", "\xC2\xA0\xC3\xA4\xE2\x80\x94\xE2\x81\xAA\xF0\x9F\x98\x80", "\xFF no UTF-8 \xC2"}) {
    EXPECT_EQ(printable(text), text);
    EXPECT_EQ(printable_lines(text), text);
  }
}

}  // namespace

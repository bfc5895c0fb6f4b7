// Cuts that GPT-2's expression makes; the expected pieces were those of Python's `regex`.
#include "gpt2/data/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/errors.h"

namespace gpt2 {
namespace {
using ::testing::ElementsAre;
using namespace std::string_literals;

std::vector<std::string> pieces(std::string_view text) {
  std::vector<std::string> found;
  while (!text.empty()) {
    const size_t bytes = first_piece(text);
    if (bytes < 1 || bytes > text.size()) {
      ADD_FAILURE() << "a piece of " << bytes << " of " << text.size() << " bytes";
      break;
    }
    found.emplace_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return found;
}

class Pretokenizer : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!unicode_tables_built_in()) GTEST_SKIP() << "built without ICU (libicu-dev)";
  }
};

TEST(PretokenizerWithoutTables, SaysWhichPackageIsMissing) {
  if (unicode_tables_built_in()) GTEST_SKIP() << "built with ICU";
  try {
    first_character("\xc3\xa9");
    FAIL() << "classified without tables";
  } catch (const stepscope::MachineError& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("libicu-dev"));
  }
}

TEST_F(Pretokenizer, ASpaceGoesWithTheWordAfterIt) {
  EXPECT_THAT(pieces("Hello world"), ElementsAre("Hello", " world"));
  EXPECT_THAT(pieces(" x"), ElementsAre(" x"));
  EXPECT_THAT(pieces(" !? 42"), ElementsAre(" !?", " 42"));
  EXPECT_THAT(pieces(""), ElementsAre());
}

TEST_F(Pretokenizer, ContractionsAreCutOffInLowerCaseOnly) {
  EXPECT_THAT(pieces("I'm you're he's we've I'd they'll don't"),
              ElementsAre("I", "'m", " you", "'re", " he", "'s", " we", "'ve", " I", "'d", " they", "'ll", " don", "'t"));
  EXPECT_THAT(pieces("HE'S"), ElementsAre("HE", "'", "S"));
  EXPECT_THAT(pieces("'rest 'vex 'lo"), ElementsAre("'re", "st", " '", "vex", " '", "lo"));
  EXPECT_THAT(pieces("''s"), ElementsAre("''", "s"));
  EXPECT_THAT(pieces(" 's"), ElementsAre(" '", "s"));
  EXPECT_THAT(pieces("'"), ElementsAre("'"));
  EXPECT_THAT(pieces("a'r"), ElementsAre("a", "'", "r"));
  EXPECT_THAT(pieces("'l"), ElementsAre("'", "l"));
}

TEST_F(Pretokenizer, LettersNumbersAndTheRestAreApart) {
  EXPECT_THAT(pieces("ab12cd"), ElementsAre("ab", "12", "cd"));
  EXPECT_THAT(pieces("3.14, x_y"), ElementsAre("3", ".", "14", ",", " x", "_", "y"));
  EXPECT_THAT(pieces("12345678901"), ElementsAre("12345678901"));
}

TEST_F(Pretokenizer, OfARunOfSpacesTheLastIsLeftToTheWord) {
  EXPECT_THAT(pieces("a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(pieces("a  "), ElementsAre("a", "  "));
  EXPECT_THAT(pieces(" "), ElementsAre(" "));
  EXPECT_THAT(pieces("   "), ElementsAre("   "));
  EXPECT_THAT(pieces("a \n b"), ElementsAre("a", " \n", " b"));
}

TEST_F(Pretokenizer, OnlyTheSpaceItselfIsTakenAlong) {
  EXPECT_THAT(pieces("a\nb"), ElementsAre("a", "\n", "b"));
  EXPECT_THAT(pieces("a\n\nb"), ElementsAre("a", "\n", "\n", "b"));
  EXPECT_THAT(pieces("a\n\n"), ElementsAre("a", "\n\n"));
  EXPECT_THAT(pieces("\t\tif"), ElementsAre("\t", "\t", "if"));
  EXPECT_THAT(pieces("a\r\nb"), ElementsAre("a", "\r", "\n", "b"));
  EXPECT_THAT(pieces("a\u00a0b"), ElementsAre("a", "\u00a0", "b")) << "no-break space";
  EXPECT_THAT(pieces("a\u3000\u3000b"), ElementsAre("a", "\u3000", "\u3000", "b")) << "the last is 3 bytes";
  EXPECT_THAT(pieces("a\u2028 b"), ElementsAre("a", "\u2028", " b"));
}

TEST_F(Pretokenizer, WhatIsASpaceIsThePropertyWhiteSpace) {
  // Python's str.isspace and ICU's u_isspace count U+001C to U+001F, the property does not.
  EXPECT_THAT(pieces("\x1c\x1d!"), ElementsAre("\x1c\x1d!"));
  EXPECT_EQ(first_character("\x1c").kind, CharacterClass::other);
  EXPECT_THAT(pieces("\v\f"), ElementsAre("\v\f"));
  EXPECT_THAT(pieces("\u0085x"), ElementsAre("\u0085", "x"));
  EXPECT_THAT(pieces("\u200b!"), ElementsAre("\u200b!")) << "zero width space is none";
  EXPECT_THAT(pieces("a\0\0b"s), ElementsAre("a", "\0\0"s, "b"));
}

TEST_F(Pretokenizer, LettersAndNumbersOfAllScripts) {
  EXPECT_THAT(pieces("naïve Привет 中文字"), ElementsAre("naïve", " Привет", " 中文字"));
  EXPECT_THAT(pieces("x²½Ⅷ٣"), ElementsAre("x", "²½Ⅷ٣"));
  EXPECT_THAT(pieces("e\u0301a"), ElementsAre("e", "\u0301", "a")) << "a combining accent is no letter";
  EXPECT_THAT(pieces("ªʰ"), ElementsAre("ªʰ"));
}

TEST_F(Pretokenizer, Emoji) {
  EXPECT_THAT(pieces("ok 😀👍🏽!"), ElementsAre("ok", " 😀👍🏽!"));
  EXPECT_THAT(pieces("👩‍👧a"), ElementsAre("👩‍👧", "a"));
}

TEST_F(Pretokenizer, BytesThatAreNotTextAreNeitherLettersNorSpaces) {
  EXPECT_THAT(pieces("a\xff\xfe b"), ElementsAre("a", "\xff\xfe", " b"));
  EXPECT_THAT(pieces("\xe2\x82"), ElementsAre("\xe2\x82")) << "cut off in the middle of a character";
  EXPECT_THAT(pieces("\xe2\x82z"), ElementsAre("\xe2\x82", "z"));
  EXPECT_THAT(pieces(" \x80!"), ElementsAre(" \x80!"));
  EXPECT_THAT(pieces("\xc0\xa0x"), ElementsAre("\xc0\xa0", "x")) << "an overlong space";
  EXPECT_THAT(pieces("\xed\xa0\x80x"), ElementsAre("\xed\xa0\x80", "x")) << "half of a surrogate pair";
  EXPECT_THAT(pieces("\xf5\x80\x80\x80x"), ElementsAre("\xf5\x80\x80\x80", "x")) << "above U+10FFFF";
}

}  // namespace
}  // namespace gpt2

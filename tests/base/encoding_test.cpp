// Text that is not UTF-8 is known by its marks and without them; nothing else is called so.
#include "base/encoding.h"

#include <gtest/gtest.h>

#include <string>

namespace {

using namespace std::string_literals;
using stepscope::other_encoding;

std::string wide_text(const std::string& text, bool little_endian) {
  std::string wide;
  for (const char c : text) wide += little_endian ? std::string{c, '\0'} : std::string{'\0', c};
  return wide;
}

TEST(OtherEncoding, MessageNamesTheFileAndTheCure) {
  EXPECT_EQ(stepscope::not_utf8("\xFF\xFE" + wide_text("text", true), "a b.csv"),
            "the text is UTF-16, expected UTF-8; convert it with `iconv -f UTF-16 -t UTF-8 a b.csv > NEW`");
  EXPECT_EQ(stepscope::not_utf8("text", "a.csv"), "");
}

TEST(OtherEncoding, Utf16IsKnownWithAndWithoutItsMark) {
  for (const std::string& text : {"{}"s, "[]\n"s, "{\n \"schema\": \"x\"\n}\n"s, "\"ID\",\"Process ID\"\n"s})
    for (const bool little : {true, false}) {
      EXPECT_EQ(other_encoding(wide_text(text, little)), "UTF-16") << text << little;
      EXPECT_EQ(other_encoding((little ? "\xFF\xFE" : "\xFE\xFF") + wide_text(text, little)), "UTF-16") << text << little;
    }
}

// PowerShell's >> behind a file in UTF-8; an odd number of bytes stands before.
TEST(OtherEncoding, Utf16BehindOtherTextIsKnown) {
  for (const char* before : {"==PROF== done\n", "==PROF== done.\n"})
    for (const bool little : {true, false}) EXPECT_EQ(other_encoding(before + wide_text("ID,Process ID\n", little)), "UTF-16") << before;
}

TEST(OtherEncoding, Utf32IsKnownByItsMark) {
  EXPECT_EQ(other_encoding("\xFF\xFE\0\0{\0\0\0"s), "UTF-32");
  EXPECT_EQ(other_encoding("\0\0\xFE\xFF\0\0\0{"s), "UTF-32");
}

TEST(OtherEncoding, Utf8AndBytesThatAreNoTextAreNot) {
  EXPECT_EQ(other_encoding(""), "");
  EXPECT_EQ(other_encoding("{\"a\": \"\xC3\xA4\"}\n"), "");
  EXPECT_EQ(other_encoding("\xEF\xBB\xBF{}"), "");
  EXPECT_EQ(other_encoding("some bytes a\0b\0c\0 in a row"s), "") << "three letters may be chance";
  EXPECT_EQ(other_encoding("some bytes a\0b\0c\0d\0 in a row"s), "UTF-16");
  EXPECT_EQ(other_encoding("a\0 b"s), "");
  EXPECT_EQ(other_encoding("a line with \0one zero byte\n"s), "");
  // Sixteen-bit numbers in a binary file, which happen to be letters.
  EXPECT_EQ(other_encoding("\x08\x96\x01\x12\x05"
                           "a\0b\0c\0d\0\x03\x04\x1a"s),
            "");
}

}  // namespace

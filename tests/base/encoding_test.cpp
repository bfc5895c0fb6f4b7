// Text that is not UTF-8 is known by its marks and without them; nothing else is called so.
#include "base/encoding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace {

using namespace std::string_literals;
using stepscope::other_encoding;
using testing::AllOf;
using testing::HasSubstr;

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

TEST(OtherEncoding, PackedFilesAreNamedWithWhatUnpacksThem) {
  std::string tar("texts/a.txt", 11);
  tar.resize(257, '\0');
  tar += "ustar  ";
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"\x1F\x8B\x08\x08rest", "the file is compressed by gzip, expected text; `gzip -dk a.gz` unpacks it"},
           {"\x28\xB5\x2F\xFDrest", "the file is compressed by zstd, expected text; `zstd -d a.gz` unpacks it"},
           {"\xFD"
            "7zXZ",
            "the file is compressed by xz, expected text; `xz -dk a.gz` unpacks it"},
           {"BZh91AY&SY", "the file is compressed by bzip2, expected text; `bzip2 -dk a.gz` unpacks it"},
           {"PK\x03\x04", "the file is a zip archive, expected text; `unzip a.gz` unpacks it"},
           {tar, "the file is a tar archive, expected text; `tar xf a.gz` unpacks it"}})
    EXPECT_EQ(stepscope::not_utf8(text, "a.gz"), message);
  EXPECT_THAT(
      stepscope::not_utf8("PAR1rest", "a.parquet"),
      AllOf(HasSubstr("in the Parquet format"), HasSubstr("to_json(sys.argv[2], orient='records', lines=True)\" a.parquet NEW.jsonl`")));
  for (const char* text : {"PK is no archive", "PAR 1", "1AY&SY", "ustar", "BZh9", ""}) EXPECT_EQ(stepscope::not_utf8(text, "a"), "");
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

// One character repeated, and one beside four letters: which count as letters of a wide text, and which as signs of a binary file.
TEST(OtherEncoding, PrintableAsciiIsTextAndControlsAreNot) {
  const std::string letters = wide_text("abcd", true);
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    EXPECT_EQ(other_encoding(wide_text(std::string(4, c), true)), c >= ' ' && c <= '~' ? "UTF-16" : "") << byte;
    const bool control = (byte >= 1 && byte <= 8) || (byte >= 14 && byte <= 31);
    EXPECT_EQ(other_encoding(letters + c), control ? "" : "UTF-16") << byte;
  }
}

TEST(OtherEncoding, EightZeroBytesOutweighOneControl) {
  EXPECT_EQ(other_encoding(wide_text("abcdefgh", true) + "\x01"), "UTF-16");
  EXPECT_EQ(other_encoding(wide_text("abcdefg", true) + "\x01"), "");
}

TEST(OtherEncoding, FourLettersInARowWhereverTheyBeginAndTwoOfAShortText) {
  EXPECT_EQ(other_encoding("x a\0b\0c\0d\0"s), "UTF-16") << "up to the last byte";
  EXPECT_EQ(other_encoding(std::string_view("x a\0b\0c\0d\0", 9)), "") << "the byte behind the text is not looked at";
  EXPECT_EQ(other_encoding("a\0b\0xyz"s), "UTF-16");
  EXPECT_EQ(other_encoding("a\0b\0wxyz"s), "") << "eight bytes are no short text";
  EXPECT_EQ(other_encoding("a\0"s), "");
}

TEST(OtherEncoding, TheFirst64KiBDecide) {
  const std::string letters = wide_text("abcd", true);
  EXPECT_EQ(other_encoding(std::string(65536 - letters.size(), '-') + letters), "UTF-16");
  EXPECT_EQ(other_encoding(std::string(65536 - letters.size() + 1, '-') + letters), "");
}

}  // namespace

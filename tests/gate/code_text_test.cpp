// What is left of a source when comments and spaces are gone, and that nothing else goes with them.
#include "experiments/gate/code_text.h"

#include <gtest/gtest.h>

namespace gate {
namespace {

TEST(CodeOf, LeavesCommentsAndTheWidthOfSpacesOut) {
  EXPECT_EQ(code_of("int  a;  // one\n\n  /* two\n lines */ int\tb;\n"), "int a;\nint b;\n");
  EXPECT_EQ(code_of("int a;"), "int a;\n");
  EXPECT_EQ(code_of("a/**/b"), "a b\n") << "a comment is a space";
  EXPECT_EQ(code_of("// goes on \\\nhere\nint a;\n"), "int a;\n");
  EXPECT_EQ(code_of("// goes on \\\r\nhere\r\nint a;\r\n"), "int a;\n");
  EXPECT_EQ(code_of("//"), "");
  EXPECT_EQ(code_of("//\nint a;"), "int a;\n");
  EXPECT_EQ(code_of("/* without an end"), "");
  EXPECT_EQ(code_of(""), "");
}

TEST(CodeOf, KeepsTheEndsOfLinesThatEndDirectives) {
  EXPECT_EQ(code_of("#define A  1\nB\n"), "#define A 1\nB\n");
  EXPECT_EQ(code_of("#define A \\\n  1\n"), "#define A \\\n1\n");
}

TEST(CodeOf, KeepsLiteralsAsTheyAre) {
  for (const char* line : {R"(f("a  // b", "/* c */", "\\", "\"//"))", R"(g('"', '/', '\'', u8'"', L'  '))", R"(x = 1'000'000 / 2'0)",
                           "R\"x(  // \" )\" /* )x\"", "u8R\"(a  b)\"", "0x'ff"})
    EXPECT_EQ(code_of(std::string(line) + "  // c"), std::string(line) + "\n") << line;
  EXPECT_EQ(code_of("R\"(a\n\n  // b\n)\""), "R\"(a\n\n  // b\n)\"\n") << "lines of a raw literal are its text";
}

// What is open at the end of a source, or of a line, swallows nothing of the next.
TEST(CodeOf, EndsALiteralWithItsLine) {
  EXPECT_EQ(code_of("#error don't\nint  a;\n"), "#error don't\nint a;\n");
  EXPECT_EQ(code_of("\"open"), "\"open\n");
  EXPECT_EQ(code_of("\"open\\"), "\"open\\\n");
  EXPECT_EQ(code_of("R\"x(open"), "R\"x(open\n");
}

}  // namespace
}  // namespace gate

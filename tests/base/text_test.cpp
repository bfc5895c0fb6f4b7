// Text from files on its way to a terminal.
#include "base/text.h"

#include <gtest/gtest.h>

namespace {

using stepscope::printable;
using stepscope::printable_lines;

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

TEST(Printable, OtherTextStays) {
  for (const char* text : {"", "kernel<float, 4>", "\xC2\xA0\xC3\xA4\xE2\x80\x94\xE2\x81\xAA\xF0\x9F\x98\x80", "\xFF no UTF-8 \xC2"}) {
    EXPECT_EQ(printable(text), text);
    EXPECT_EQ(printable_lines(text), text);
  }
}

}  // namespace

#include "gpt2/data/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace gpt2 {
namespace {
using ::testing::ElementsAre;

std::vector<std::string> documents(std::string_view text, Documents how) {
  std::vector<std::string> all;
  for_each_document(text, how, [&](std::string_view d) { all.emplace_back(d); });
  return all;
}

TEST(Documents, AFileIsOne) { EXPECT_THAT(documents("a\n\nb<|endoftext|>", Documents::file), ElementsAre("a\n\nb<|endoftext|>")); }

// llm.c: "<|endoftext|>" + text.replace("\n\n", "\n\n<|endoftext|>").
TEST(Documents, AParagraphKeepsTheEmptyLineAfterIt) {
  EXPECT_THAT(documents("a\n\nb\nc\n\nd", Documents::paragraph), ElementsAre("a\n\n", "b\nc\n\n", "d"));
  EXPECT_THAT(documents("a\n\n\nb", Documents::paragraph), ElementsAre("a\n\n", "\nb")) << "from the left";
  EXPECT_THAT(documents("x\r\n\r\ny\r\nz\r\n\r\nw", Documents::paragraph), ElementsAre("x\r\n\r\n", "y\r\nz\r\n\r\n", "w"));
  EXPECT_THAT(documents("a\n\nb\r\n\r\nc\n\nd", Documents::paragraph), ElementsAre("a\n\n", "b\r\n\r\n", "c\n\n", "d")) << "of both kinds";
  EXPECT_THAT(documents("a\r\n\r\n\nb", Documents::paragraph), ElementsAre("a\r\n\r\n", "\nb")) << "which begins first";
  EXPECT_THAT(documents("a\n\n", Documents::paragraph), ElementsAre("a\n\n", ""));
  EXPECT_THAT(documents("\n\n\n\n", Documents::paragraph), ElementsAre("\n\n", "\n\n", ""));
}

// Read to its end for every paragraph, 20 MB took an hour. Lines of either kind may be the only ones.
TEST(Documents, ManyParagraphsOfOneKindAreReadOnce) {
  for (const std::string paragraph : {"a line\n\n\n", "a line\r\n\r\n"}) {
    std::string text;
    for (int i = 0; i < 2'000'000; ++i) text += paragraph;
    size_t count = 0;
    for_each_document(text, Documents::paragraph, [&](std::string_view) { ++count; });
    EXPECT_EQ(count, 2'000'001u);
  }
}

TEST(Documents, MarkersStandBetweenAndBelongToNone) {
  EXPECT_THAT(documents("a\n<|endoftext|>\nb", Documents::marker), ElementsAre("a\n", "\nb"));
  EXPECT_THAT(documents("<|endoftext|>a<|endoftext|><|endoftext|>b<|endoftext|>", Documents::marker), ElementsAre("a", "b"));
}

}  // namespace
}  // namespace gpt2

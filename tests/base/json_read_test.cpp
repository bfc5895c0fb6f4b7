// Documents edited by hand: what parse() takes and this program does not, and how a message shows a value.
#include "base/json_read.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/json_text.h"

namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using stepscope::kMostJsonLevels;
using stepscope::read_json;
using stepscope::shown_json;
using stepscope::why_no_object;

std::string nested(size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); }
std::string problem(const std::string& text) { return why_no_object(text, "x.json"); }

TEST(ReadJson, ReadsWhatParseReads) {
  const std::string text = R"({"a": [1, {"b": "x:y", "c": "{[\\\"", "d\u0041": {}}], "e": {"a": 2, "b": null}, "f": ":"})";
  EXPECT_EQ(read_json<json>(text), json::parse(text));
  EXPECT_EQ(read_json<ordered_json>(text), ordered_json::parse(text));
  EXPECT_EQ(read_json<json>("\xEF\xBB\xBF[1]"), json::parse("[1]"));
  EXPECT_EQ(read_json<json>(nested(kMostJsonLevels)).size(), 1u);
  for (const char* broken : {"", "{", "{]", "nan", "{\"a\":1,}", "\"\\"}) EXPECT_TRUE(read_json<json>(broken).is_discarded()) << broken;
}

TEST(ReadJson, ValuesNestedTooDeepAreRefusedWithTheirPlace) {
  EXPECT_TRUE(read_json<json>(nested(kMostJsonLevels + 1)).is_discarded());
  const std::string text = "{\n\"a\": " + nested(200'000) + "}";
  EXPECT_TRUE(read_json<ordered_json>(text).is_discarded());
  EXPECT_EQ(problem(text), "line 2, column 505: a value more than 500 levels deep");
}

TEST(ReadJson, NothingBehindAByteOfValue0IsLost) {
  using namespace std::string_literals;
  for (const std::string& text : {"{\"a\": 1}\0{\"b\": 2}"s, "{\"a\": 1}\0\0"s, "1\n\0]}:"s, "\0{}"s}) {
    EXPECT_TRUE(read_json<json>(text).is_discarded()) << text;
    EXPECT_TRUE(read_json<ordered_json>(text).is_discarded()) << text;
  }
  EXPECT_EQ(problem("{\"a\":\n 1}\0{}"s), "line 2, column 4: a byte of value 0, as files have that were cut off or were never text");
}

TEST(ReadJson, AKeyThatStandsTwiceIsRefusedWithItsPlace) {
  const std::string text = "{\"a\": 1,\n \"b\": {\"a\": 2, \"c\": [],\n  \"a\" : 3}}";
  EXPECT_TRUE(read_json<json>(text).is_discarded());
  EXPECT_TRUE(read_json<ordered_json>(text).is_discarded());
  EXPECT_EQ(problem(text), "line 3, column 3: \"a\" stands twice in one object");
  const std::string spelled = R"({"a": 1, "\u0061": 2})";
  EXPECT_TRUE(read_json<json>(spelled).is_discarded());
  EXPECT_EQ(problem(spelled), "line 1, column 10: \"a\" stands twice in one object");
  EXPECT_FALSE(read_json<json>(R"([{"a": 1}, {"a": 1, "b": {"a": "a"}}])").is_discarded()) << "once in each";
}

TEST(ReadJson, OtherTextsAreRefusedWithAReason) {
  EXPECT_EQ(problem(" \n"), "the file is empty");
  EXPECT_EQ(problem("[1]"), "JSON of type array, expected an object");
  EXPECT_EQ(problem("{\"a\": 1e999}"), "line 1, column 7: 1e999 is too large for a number");
  EXPECT_EQ(problem(std::string("{\0\"\0a\0\"\0", 8)),
            "the text is UTF-16, expected UTF-8; convert it with `iconv -f UTF-16 -t UTF-8 x.json > NEW`");
}

TEST(ReadJson, InALineThePlaceIsAColumn) {
  const auto of_line = [](const std::string& line) { return stepscope::why_no_object_in_line(line, "x.jsonl"); };
  EXPECT_EQ(of_line(""), "the line is empty");
  EXPECT_EQ(of_line("{\"a\": 1"), "column 8: the line ends within the JSON");
  EXPECT_EQ(of_line("{\"a\": b}"), "column 7: no JSON from here on");
  EXPECT_EQ(of_line("{\"a\": 1, \"a\": 2}"), "column 10: \"a\" stands twice in one object");
}

TEST(ShownJson, IsShortHoweverLargeTheValueIs) {
  EXPECT_EQ(shown_json(json::parse(R"({"a": 1})")), R"({"a":1})");
  EXPECT_EQ(shown_json(json::parse("[2,-3]")), "[2,-3]");
  EXPECT_EQ(shown_json(json::parse("[[1],2,3]")), "a list of 3");
  EXPECT_EQ(shown_json(json::parse(R"({"a": {}})")), "an object");
  EXPECT_EQ(shown_json(json(std::string(200, 'x'))), '"' + std::string(59, 'x') + "...");
  // Not cut within the two bytes of a character.
  EXPECT_EQ(shown_json(json(std::string(58, 'x') + "\xC3\xA4" + "yyy")), '"' + std::string(58, 'x') + "...");
  EXPECT_EQ(shown_json(json::parse(nested(200'000))), "a list of 1");
}

TEST(JsonText, HoldsOtherBytesOnlyWhereATextIsNoUtf8) {
  for (const std::string text : {"", "k<4>", "\xC3\xA4\xF0\x9F\x98\x80", "\"\\\n"}) EXPECT_EQ(stepscope::as_json_holds(text), text);
  EXPECT_EQ(stepscope::as_json_holds("a\xFF\xC3"), "a\uFFFD\uFFFD");
}

}  // namespace

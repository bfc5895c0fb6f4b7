// `data --eval-set` and `data --jsonl-field`: what becomes of the questions and documents, byte for byte.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>

#include "base/sha256.h"
#include "gpt2/data/eval_set.h"
#include "gpt2/data/token_shards.h"
#include "tests/cli/with_vocabulary.h"

namespace {

using gpt2::testing::kNoRealData;
using gpt2::testing::real_data_folder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

class EvalSetCli : public WithVocabulary {
 protected:
  std::vector<uint16_t> words(const std::string& name) const {  // behind the header
    const std::string bytes = slurp(file(name)).substr(1024);
    std::vector<uint16_t> out(bytes.size() / 2);
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
  std::vector<int32_t> header(const std::string& name) const {
    std::vector<int32_t> out(256);
    std::memcpy(out.data(), slurp(file(name)).data(), 1024);
    return out;
  }
  void refused(const std::string& form, const std::string& name, const std::string& text, const std::string& where,
               const std::string& why) const {
    write(name, text);
    const Outcome o = data("--eval-set " + form + " " + file(name) + " --out " + file("bad.bin"));
    EXPECT_EQ(o.exit_code, 2) << text;
    EXPECT_THAT(o.err, AllOf(HasSubstr(where), HasSubstr(why), HasSubstr("expected")));
    EXPECT_FALSE(fs::exists(file("bad.bin")));
  }
};

// "hello" is 259, " world" 264, " " 220, "hell" 258, " w" 260, "a" 64.
TEST_F(EvalSetCli, hellaswag_as_llm_c_writes_it) {
  write("h.jsonl", R"({"ind": 24, "ctx_a": "x", "ctx": "hello", "label": 3, "endings": ["world", "a", "", "w"]})"
                   "\n"
                   R"({"ctx": "hell", "label": "0", "endings": ["a", "world", "world world", "w"]})"
                   "\n");
  const Outcome o = data("--eval-set hellaswag " + file("h.jsonl") + " --out " + file("h.bin"));
  ASSERT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("h.bin: 2 examples, longest row 2 positions"));
  EXPECT_THAT(words("h.bin"), ElementsAre(65535, 32, 0, 3, 4, 1, 259, 1, 264, 2, 220, 64, 1, 220, 1, 260,  //
                                          65535, 34, 1, 0, 4, 1, 258, 2, 220, 64, 1, 264, 2, 264, 264, 1, 260));
  std::vector<int32_t> expected(256);
  expected[0] = 20240522;
  expected[1] = 1;
  expected[2] = 2;
  expected[3] = 34;
  EXPECT_EQ(header("h.bin"), expected);
  EXPECT_EQ(stepscope("data --check " + file("h.bin")).exit_code, 0);
}

TEST_F(EvalSetCli, mmlu_of_csv_and_of_jsonl_is_the_same) {
  write("m.csv", "\"a, \"\"a\"\"\na\",world,None,7,\"w\nw\",B\r\nhello,a,a,a,a,D\n");
  write("m.jsonl", R"({"question": "a, \"a\"\na", "subject": "x", "choices": ["world", "None", "7", "w\nw"], "answer": 1})"
                   "\n"
                   R"({"question": "hello", "choices": ["a", "a", "a", "a"], "answer": "D"})");
  ASSERT_EQ(data("--eval-set mmlu " + file("m.csv") + " --out " + file("c.bin")).exit_code, 0);
  ASSERT_EQ(data("--eval-set mmlu " + file("m.jsonl") + " -o " + file("j.bin")).exit_code, 0);
  EXPECT_EQ(slurp(file("c.bin")), slurp(file("j.bin")));
  // The second question: "Question: hello\n\nAnswer:", then four times " a".
  const std::vector<uint16_t> w = words("c.bin");
  const size_t second = w[1] / 2;
  EXPECT_EQ(w[3], 1);
  EXPECT_EQ(w[second + 2], 1);
  EXPECT_EQ(w[second + 3], 3);
  EXPECT_THAT(std::vector(w.end() - 12, w.end()), ElementsAre(2, 220, 64, 2, 220, 64, 2, 220, 64, 2, 220, 64));
  const std::vector<uint16_t> context(w.begin() + static_cast<ptrdiff_t>(second) + 6, w.end() - 12);
  // Q u e s t i o n : | ' ' | hello | \n\n | A n s w e r : ; ' hello' has no merge with its space
  EXPECT_EQ(context.size(), w[second + 5]);
  write("t.txt", "Question: hello\n\nAnswer:");
  ASSERT_EQ(data(file("t.txt") + " --end-of-text none --out " + file("t.bin")).exit_code, 0);
  EXPECT_EQ(context, words("t.bin"));
}

TEST_F(EvalSetCli, a_spreadsheets_byte_order_mark_is_no_part_of_the_first_question_and_utf16_is_named) {
  const std::string text = "hello,a,a,a,a,D\n";
  write("plain.csv", text);
  write("marked.csv", "\xEF\xBB\xBF" + text);
  ASSERT_EQ(data("--eval-set mmlu " + file("plain.csv") + " --out " + file("plain.bin")).exit_code, 0);
  ASSERT_EQ(data("--eval-set mmlu " + file("marked.csv") + " --out " + file("marked.bin")).exit_code, 0);
  EXPECT_EQ(slurp(file("marked.bin")), slurp(file("plain.bin")));
  std::string wide = "\xFF\xFE";
  for (const char c : text) wide += {c, '\0'};
  for (const char* name : {"w.csv", "w.jsonl"})
    refused("mmlu", name, wide, std::string(name) + ": ",
            "the text is UTF-16, expected UTF-8; convert it with `iconv -f UTF-16 -t UTF-8 /");
}

TEST_F(EvalSetCli, the_last_row_may_end_in_half_a_line_end) {
  write("whole.csv", "hello,a,a,a,a,D\r\n");
  write("half.csv", "hello,a,a,a,a,D\r");
  ASSERT_EQ(data("--eval-set mmlu " + file("whole.csv") + " --out " + file("whole.bin")).exit_code, 0);
  ASSERT_EQ(data("--eval-set mmlu " + file("half.csv") + " --out " + file("half.bin")).exit_code, 0);
  EXPECT_EQ(slurp(file("half.bin")), slurp(file("whole.bin")));
}

TEST_F(EvalSetCli, several_files_are_one_set) {
  write("1.csv", "a,a,a,a,a,A\n");
  write("2.csv", "a,a,a,a,a,C\n");
  ASSERT_EQ(data("--eval-set mmlu " + file("1.csv") + " " + file("2.csv") + " --json --out " + file("x.bin")).exit_code, 0);
  EXPECT_EQ(header("x.bin")[2], 2);
}

TEST_F(EvalSetCli, a_folder_is_its_files_in_the_order_of_their_names) {
  fs::create_directories(file("test"));
  for (const auto& [name, answer] : std::map<std::string, std::string>{{"b_test.csv", "B"}, {"a_test.csv", "A"}, {"c_test.csv", "C"}})
    write("test/" + name, "a,a,a,a,a," + answer + "\n");
  write("test/README.txt", "no question");
  write("test/._a_test.csv", "what a Mac leaves in an archive");
  ASSERT_EQ(data("--eval-set mmlu " + file("test") + " --out " + file("x.bin")).exit_code, 0);
  std::vector<int64_t> labels;
  for (const auto& e : gpt2::load_eval_set(file("x.bin"))) labels.push_back(e.label);
  EXPECT_THAT(labels, ElementsAre(0, 1, 2));
  fs::create_directories(file("data/test"));
  const Outcome o = data("--eval-set mmlu " + file("data") + " --out " + file("y.bin"));
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("data: the folder has no file that ends in .csv"), HasSubstr("those of MMLU are in data/test")));
}

TEST_F(EvalSetCli, empty_lines_at_the_end_are_no_questions) {
  write("m.csv", "a,a,a,a,a,A\n\r\n\n");
  write("h.jsonl", "{\"ctx\": \"a\", \"label\": 0, \"endings\": [\"a\", \"a\", \"a\", \"a\"]}\n\n\r\n");
  for (const std::string& input : {"mmlu " + file("m.csv"), "hellaswag " + file("h.jsonl")}) {
    const Outcome o = data("--eval-set " + input + " --out " + file("x.bin"));
    EXPECT_EQ(o.exit_code, 0) << o.err;
    EXPECT_EQ(header("x.bin")[2], 1);
  }
}

TEST_F(EvalSetCli, bad_questions_name_file_and_line) {
  const std::string good = R"({"ctx": "a", "label": 0, "endings": ["a", "a", "a", "a"]})"
                           "\n";
  refused("hellaswag", "b.jsonl", good + "x\n", "b.jsonl:2", "no JSON");
  refused("hellaswag", "b.jsonl", good + "\n" + good, "b.jsonl:2", "an empty line");
  refused("hellaswag", "b.jsonl", "[" + good + "]", "b.jsonl: a JSON list", "`jq -c '.[]' ");
  refused("hellaswag", "b.jsonl", good + "[]\n", "b.jsonl:2", "no JSON object: JSON of type array");
  refused("hellaswag", "b.jsonl", R"({"label": 0, "endings": ["a", "a", "a", "a"]})", "b.jsonl:1", "no \"ctx\"");
  refused("hellaswag", "b.jsonl", R"({"ctx": 1, "label": 0, "endings": ["a", "a", "a", "a"]})", "b.jsonl:1",
          "\"ctx\" is 1, expected a text");
  refused("hellaswag", "b.jsonl", R"({"ctx": "", "label": 0, "endings": ["a", "a", "a", "a"]})", "b.jsonl:1", "an empty context");
  refused("hellaswag", "b.jsonl", R"({"ctx": "a", "label": 4, "endings": ["a", "a", "a", "a"]})", "b.jsonl:1", "\"label\" is 4");
  for (const std::string label : {"4", "9", "E", "e", "a", "-", "00"})
    refused("hellaswag", "b.jsonl", R"({"ctx": "a", "label": ")" + label + R"(", "endings": ["a", "a", "a", "a"]})", "b.jsonl:1",
            "\"label\" is \"" + label + "\", expected 0 to 3, or A to D");
  refused("hellaswag", "b.jsonl", R"({"ctx": "a", "label": "", "endings": ["a", "a", "a", "a"]})", "b.jsonl:1", "\"label\" is \"\"");
  refused("hellaswag", "b.jsonl", R"({"ctx": "a", "label": 0, "endings": ["a", "a", "a"]})", "b.jsonl:1", "a list of 3");
  refused("hellaswag", "b.jsonl", R"({"ctx": "a", "label": 0, "endings": ["a", "a", "a", 4]})", "b.jsonl:1", "holds 4");
  refused("mmlu", "b.csv", "q,a,b,c,d,A\nq,a,,c,d,A\n", "b.csv:2", "an empty answer");
  refused("mmlu", "b.csv", "q,a,b,\" \",d,A\n", "b.csv:1", "an empty answer");
  refused("mmlu", "b.jsonl", good, "b.jsonl:1", "no \"question\"");
  refused("mmlu", "b.csv", "q,a,b,c,d,A\nq,a,b,c,A\n", "b.csv:2", "5 fields");
  refused("mmlu", "b.csv", "question,A,B,C,D,answer\n", "b.csv:1", "the right answer is 'answer', expected A to D, and no header line");
  refused("mmlu", "b.csv", "q,a,b,c,d,A\nq,a,b,c,d,E\n", "b.csv:2", "the right answer is 'E', expected A to D\n");
  refused("mmlu", "b.csv", "q,a,b,c,d,A\n\nq,a,b,c,d,A\n", "b.csv:2", "1 fields");
  refused("mmlu", "b.csv", "\"q\nq\",a,b,c,d,A\nq,\"a,b,c,d,A\n", "b.csv:3", "quoted field that does not end");
  refused("mmlu", "b.csv", "\"q\"x,a,b,c,d,A\n", "b.csv:1", "text behind a closing quote");
  std::string long_context(40000, 'b');
  for (size_t i = 1; i < long_context.size(); i += 2) long_context[i] = ' ';
  refused("hellaswag", "b.jsonl", R"({"ctx": ")" + long_context + R"(", "label": 0, "endings": ["a", "a", "a", "a"]})", "b.jsonl:1",
          "at most 65535");
  // All texts together are too long, the context alone is not.
  const std::string most = long_context.substr(0, 30000), rest = long_context.substr(0, 3000);
  refused("hellaswag", "b.jsonl", R"({"ctx": ")" + most + R"(", "label": 0, "endings": ["a", "a", "a", ")" + rest + R"("]})", "b.jsonl:1",
          "at most 65535");
  refused("hellaswag", "b.jsonl", "", "b.jsonl", "no question");
  EXPECT_EQ(data("--eval-set arc " + file("b.jsonl") + " --out " + file("x.bin")).exit_code, 2);
  EXPECT_EQ(stepscope("data --eval-set mmlu " + file("b.csv") + " --out " + file("x.bin")).exit_code, 2) << "without --vocab";
}

TEST_F(EvalSetCli, hellaswag_with_the_real_vocabulary) {
  if (real_data_folder().empty()) GTEST_SKIP() << kNoRealData;
  write(
      "h.jsonl",
      R"({"ctx": "A man is sitting on a roof. he", "label": 3, "endings": ["is using wrap to wrap a pair of skis.", "is ripping level tiles off.", "is holding a rubik's cube.", "starts pulling up roofing on a roof."]})"
      "\n");
  ASSERT_EQ(
      stepscope("data --vocab " + real_data_folder() + "/vocab.bpe --eval-set hellaswag " + file("h.jsonl") + " --out " + file("h.bin"))
          .exit_code,
      0);
  const std::vector<uint16_t> w = words("h.bin");
  // tiktoken's gpt2: 32,582,318,5586,319,257,9753,13,339 and so on.
  EXPECT_THAT(std::vector(w.begin(), w.begin() + 15),
              ElementsAre(65535, w.size() * 2, 0, 3, 4, 9, 32, 582, 318, 5586, 319, 257, 9753, 13, 339));
}

TEST_F(EvalSetCli, each_line_of_jsonl_is_a_document) {
  write("s.jsonl", R"({"id": 1, "text": "hello world"})"
                   "\n"
                   R"({"text": "hell\n\nhell"})"
                   "\r\n"
                   R"({"text": ""})");
  const Outcome o = data(file("s.jsonl") + " --jsonl-field text --out " + file("s.bin"));
  ASSERT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(words("s.bin"), ElementsAre(268, 259, 264, 268, 258, 198, 198, 258, 268));
  EXPECT_EQ(o.err, vocabulary_note());
  write("s.jsonl", R"({"text": "hello<|endoftext|>hello"})");
  EXPECT_THAT(data(file("s.jsonl") + " --jsonl-field text --out " + file("s.bin")).err,
              testing::EndsWith("s.jsonl: has \"<|endoftext|>\" in it, tokenized as text like any other\n" + vocabulary_note()));
  write("s.jsonl", R"({"text": "hello"})"
                   "\n"
                   R"({"body": "hello"})"
                   "\n");
  const Outcome bad = data(file("s.jsonl") + " --jsonl-field text --out " + file("t.bin"));
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, AllOf(HasSubstr("s.jsonl:2"), HasSubstr("no \"text\""), HasSubstr("which are body")));
  EXPECT_FALSE(fs::exists(file("t.bin")));
  EXPECT_EQ(data(file("s.jsonl") + " --jsonl-field text --document file --out " + file("t.bin")).exit_code, 2);
}

}  // namespace

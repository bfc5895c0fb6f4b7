// `stepscope data` as a user calls it. What becomes of a text is tested in tests/gpt2.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gpt2/checkpoint.h"
#include "gpt2/data/token_shards.h"
#include "gpt2/tensor_table.h"
#include "tests/cli/with_vocabulary.h"

namespace {

using gpt2::testing::kNoRealData;
using gpt2::testing::real_data_folder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

class DataCli : public WithVocabulary {
 protected:
  std::vector<uint16_t> tokens(const std::string& name) const {
    const gpt2::MappedFile shard(file(name));
    const auto found = gpt2::parse_token_shard(shard.bytes(), name);
    return {found.begin(), found.end()};
  }
  // A `curl` for PATH: `script` sees the URL in $url and writes "$to".
  Outcome fetch(const std::string& script) const {
    fs::create_directory(folder_ / "bin");
    write("bin/curl",
          "#!/bin/sh\nwhile [ $# -gt 0 ]; do case $1 in -o) to=$2; shift;; http*) url=$1;; esac; shift; "
          "done\n" +
              script);
    fs::permissions(file("bin/curl"), fs::perms::owner_all);
    return stepscope("data --fetch tinyshakespeare --out " + file("set"), "PATH=" + file("bin") + ":$PATH");
  }
};

TEST_F(DataCli, text_becomes_a_shard_that_check_accepts) {
  write("a.txt", "hello world");
  write("b.txt", "hell");
  const Outcome o = data(file("a.txt") + " " + file("b.txt") + " --out " + file("x.bin"));
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("x.bin: 5 tokens"), HasSubstr("15 bytes of text")));
  EXPECT_THAT(tokens("x.bin"), ElementsAre(268, 259, 264, 268, 258));
  EXPECT_THAT(stepscope("data --check " + file("x.bin")).out, HasSubstr("tokens, 5 of them, largest id 268"));
}

TEST_F(DataCli, a_terminal_is_shown_how_far_it_is_and_nothing_of_that_stays) {
  const int leader = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (leader < 0 || ::grantpt(leader) != 0 || ::unlockpt(leader) != 0) GTEST_SKIP() << "no pseudo terminals here";
  const std::string name = ::ptsname(leader);
  const int terminal = ::open(name.c_str(), O_RDWR | O_NOCTTY);  // open on, or what the program wrote would go with it
  ASSERT_GE(terminal, 0);
  write("a.txt", "hello");
  const std::string command = stepscope_program() + " data --vocab " + file("vocab.bpe") + " " + file("a.txt") + " --out " + file("x.bin") +
                              " >/dev/null 2>" + name;
  EXPECT_EQ(std::system(command.c_str()), 0);
  const std::string expected = "\rtokenizing: 0 of 0 MB\x1b[K\r\x1b[K";
  std::string shown;
  std::array<char, 4096> some{};
  for (pollfd from{leader, POLLIN, 0}; shown.find(expected) == std::string::npos && ::poll(&from, 1, 10000) == 1;) {
    const ssize_t n = ::read(leader, some.data(), some.size());
    if (n <= 0) break;
    shown.append(some.data(), static_cast<size_t>(n));
  }
  EXPECT_THAT(shown, HasSubstr(expected));
  ::close(terminal);
  ::close(leader);
}

TEST_F(DataCli, says_that_the_vocabulary_is_smaller_than_that_of_gpt2) {
  write("a.txt", "hello");
  EXPECT_THAT(data(file("a.txt") + " --out " + file("x.bin")).err, vocabulary_note());
}

TEST_F(DataCli, bytes_of_text_are_those_of_the_field_and_not_of_its_json) {
  write("a.jsonl", "{\"id\": 17, \"text\": \"hell\"}\n{\"id\": 18, \"text\": \"hell\"}\n");
  const Outcome o = data(file("a.jsonl") + " --jsonl-field text --out " + file("x.bin"));
  EXPECT_THAT(o.out, HasSubstr("8 bytes of text, 4 tokens, 2.00 bytes each")) << o.err;
}

TEST_F(DataCli, json_lines_without_a_field_are_said_to_be_tokenized_as_they_stand) {
  write("hello.jsonl", "hello");
  const Outcome o = data(file("hello.jsonl") + " --out " + file("x.bin"));
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_THAT(o.err, HasSubstr("hello.jsonl: tokenized as it stands, braces and quotes included; --jsonl-field NAME"));
}

TEST_F(DataCli, a_compressed_text_is_refused_with_the_cure) {
  write("a.txt.gz", std::string("\x1F\x8B\x08\0hello", 9));
  const Outcome o = data(file("a.txt.gz") + " --out " + file("x.bin"));
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("a.txt.gz: the file is compressed by gzip, expected text; `gzip -dk "));
  EXPECT_FALSE(fs::exists(file("x.bin")));
}

TEST_F(DataCli, documents_and_end_of_text) {
  write("a.txt", "hell\n\nhello\n");
  ASSERT_EQ(data(file("a.txt") + " --document paragraph --out " + file("p.bin")).exit_code, 0);
  EXPECT_THAT(tokens("p.bin"), ElementsAre(268, 258, 265, 268, 259, 198));
  ASSERT_EQ(data(file("a.txt") + " --document paragraph --end-of-text none --out " + file("n.bin")).exit_code, 0);
  EXPECT_THAT(tokens("n.bin"), ElementsAre(258, 265, 259, 198));
  write("m.txt", "hell<|endoftext|>hello");
  ASSERT_EQ(data(file("m.txt") + " --document marker --out " + file("m.bin")).exit_code, 0);
  EXPECT_THAT(tokens("m.bin"), ElementsAre(268, 258, 268, 259));
  fs::copy_file(folder_ / "m.txt", folder_ / "m.jsonl");
  const Outcome told = data(file("m.jsonl") + " --document marker --out " + file("j.bin"));
  EXPECT_EQ(told.exit_code, 0);
  EXPECT_EQ(told.err, vocabulary_note()) << "who says where documents end has looked at the file";
  const Outcome o = data(file("m.txt") + " --out " + file("t.bin"));
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_THAT(o.err, HasSubstr("--document marker")) << "tokenized as text, which is seldom meant";
  EXPECT_EQ(tokens("t.bin").size(), 16u);
}

TEST_F(DataCli, validation_and_shards) {
  write("a.txt", "abcdefghi");
  ASSERT_EQ(data(file("a.txt") + " --validation-tokens 3 --out " + file("v")).exit_code, 0);
  EXPECT_THAT(tokens("v_val.bin"), ElementsAre(268, 64, 65));
  EXPECT_EQ(tokens("v_train.bin").size(), 7u);
  const Outcome o = data(file("a.txt") + " --validation-share 0.25 --shard-tokens 5 --json --out " + file("s"));
  ASSERT_EQ(o.exit_code, 0) << o.err;
  const auto j = nlohmann::json::parse(o.out);
  EXPECT_EQ(j["text_bytes"], 9);
  ASSERT_EQ(j["shards"].size(), 3u);
  EXPECT_EQ(j["shards"][0]["tokens"], 2) << "a quarter of 10, rounded down";
  EXPECT_EQ(j["shards"][1]["path"], file("s_train_000000.bin"));
  EXPECT_EQ(j["shards"][2]["tokens"], 3);
  EXPECT_THAT(tokens("s_train_000000.bin"), ElementsAre(65, 66, 67, 68, 69));
}

TEST_F(DataCli, bad_input_is_refused_with_a_sentence_and_nothing_is_written) {
  write("a.txt", "hello");
  write("empty.txt", "");
  write("wide.txt", std::string("h\0e\0l\0l\0o\0 \0h\0", 14));
  write("marked.txt", std::string("\xff\xfeh\0e\0", 6));
  write("bad.bpe", "#version: 0.2\nh e\nhello\n");
  write("encoder.json", "{\"!\": 1}");
  fs::create_directory(folder_ / "sub");
  const std::string a = file("a.txt") + " ", out = " --out " + file("x");
  const std::pair<std::string, std::string> cases[] = {
      {a + file("absent.txt") + out, "absent.txt: cannot read: No such file"},
      {a + file("sub") + out, "sub: cannot read: it is a folder"},
      {a + file("empty.txt") + out, "empty.txt: the file is empty"},
      {file("wide.txt") + out, "wide.txt: the text is UTF-16, expected UTF-8; convert it with `iconv -f UTF-16"},
      {a + file("marked.txt") + out, "marked.txt: the text is UTF-16"},
      {a + out + " --encoder " + file("encoder.json"), "encoder.json: token \"!\" has id 1"},
      {a + out + " --encoder " + file("absent.json"), "absent.json"},
      {a + "--out " + file("absent/x"), "absent"},
      {a + "--out " + file("sub"), "a folder"},
      {a, "--out: expected"},
      {a + out + " --validation-tokens 6", "none is left for training"},
      {a + out + " --validation-share 0.1", "less than one"},
      {a + out + " --validation-share 1", "above 0 and below 1"},
      {a + out + " --validation-share nan", "above 0 and below 1"},
      {a + out + " --validation-share 0.5 --validation-tokens 1", "excludes"},
      {a + out + " --shard-tokens 0", "--shard-tokens: found '0'"},
      {a + out + " --shard-tokens -1", "--shard-tokens"},
      {a + out + " --document page", "page"},
      {a + out + " --end-of-text after", "after"},
      {a + out + " --check " + file("a.txt"), "excludes"},
      {"", "--vocab: expected text with it"},
  };
  for (const auto& [arguments, message] : cases) {
    const Outcome o = data(arguments);
    EXPECT_EQ(o.exit_code, 2) << arguments;
    EXPECT_THAT(o.err, HasSubstr(message)) << arguments;
  }
  Outcome o = stepscope("data " + a + out + " --vocab " + file("bad.bpe"));
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("bad.bpe: line 3: \"hello\""));
  o = stepscope("data " + a + out);
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("--vocab"), HasSubstr("--fetch")));
  for (const auto& [arguments, message] :
       {std::pair(file("empty.txt"), "empty.txt: 0 bytes, too few for any of the formats"),
        std::pair(file("a.txt") + out, "--out: --check writes nothing"), std::pair(file("a.txt"), "a.txt: begins with magic")}) {
    o = stepscope("data --check " + arguments);
    EXPECT_EQ(o.exit_code, 2) << arguments;
    EXPECT_THAT(o.err, HasSubstr(message)) << arguments;
  }
  std::ofstream(file("state"), std::ios::binary) << std::string("SSTATE\r\n", 8) << std::string(100, '\0');
  o = stepscope("data --check " + file("state"));
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("state: truncated: 108 bytes, a training state has at least 120"));
  o = stepscope("data");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("expected text files"));
  for (const auto& entry : fs::directory_iterator(folder_)) EXPECT_NE(entry.path().extension(), ".bin") << entry.path();
}

TEST_F(DataCli, a_full_disk_is_an_error) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  write("a.txt", "hello");
  fs::create_symlink("/dev/full", file("full.bin"));
  const Outcome o = data(file("a.txt") + " --out " + file("full.bin"));
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("full"), HasSubstr("No space left")));
}

TEST_F(DataCli, a_stderr_that_takes_no_notice_ends_nothing) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  write("a.jsonl", "hello<|endoftext|>");
  const Outcome o = stepscope("data --vocab " + file("vocab.bpe") + " " + file("a.jsonl") + " --out " + file("x.bin"),
                              "CUDA_VISIBLE_DEVICES= sh -c '\"$@\" 2>/dev/full' sh");
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_TRUE(fs::exists(file("x.bin")));
}

TEST_F(DataCli, a_link_to_a_shard_that_is_not_there_yet_stays) {
  write("a.txt", "hello world");
  fs::create_directory(file("big"));
  fs::create_symlink("big/out.bin", file("link.bin"));
  const Outcome o = data(file("a.txt") + " --out " + file("link.bin"));
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_TRUE(fs::is_symlink(file("link.bin")));
  EXPECT_THAT(tokens("big/out.bin"), ElementsAre(268, 259, 264));
}

TEST_F(DataCli, fetch_without_a_network_says_what_to_download_by_hand) {
  const Outcome o = fetch("echo 'curl: (6) Could not resolve host' >&2; exit 6");
  EXPECT_EQ(o.exit_code, 3);
  EXPECT_THAT(o.err, AllOf(HasSubstr("could not download https://raw.githubusercontent.com"), HasSubstr("(exit 6)"), HasSubstr("by hand"),
                           HasSubstr("main/encoder.json  to  " + file("set/encoder.json"))));
  EXPECT_FALSE(fs::exists(folder_ / "set")) << "an empty folder is left";
}

TEST_F(DataCli, fetch_says_by_which_signal_curl_was_killed) {
  const Outcome o = fetch("kill -9 $$");
  EXPECT_EQ(o.exit_code, 3);
  EXPECT_THAT(o.err, HasSubstr("(signal 9)"));
}

TEST_F(DataCli, fetch_without_curl_is_for_another_machine) {
  const Outcome o = stepscope("data --fetch tinyshakespeare --out " + file("set"), "PATH=" + file("nowhere"));
  EXPECT_EQ(o.exit_code, 3);
  EXPECT_THAT(o.err, AllOf(HasSubstr("cannot start 'curl'"), HasSubstr("by hand"), HasSubstr("vocab.bpe")));
}

TEST_F(DataCli, fetch_keeps_nothing_of_another_file_than_expected) {
  const Outcome o = fetch("echo '<html>please log in</html>' >\"$to\"");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("input.txt: got 27 bytes with sha256"), HasSubstr("expected 86c4e6aa")));
  EXPECT_FALSE(fs::exists(folder_ / "set"));
}

TEST_F(DataCli, fetch_leaves_a_file_alone_that_is_another) {
  fs::create_directory(folder_ / "set");
  write("set/vocab.bpe", "mine");
  const Outcome o = fetch("touch " + file("called"));
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("set/vocab.bpe: not the expected"), HasSubstr("remove it")));
  EXPECT_EQ(slurp(file("set/vocab.bpe")), "mine");
  EXPECT_FALSE(fs::exists(file("called")));
}

TEST_F(DataCli, fetch_of_an_unknown_set_lists_the_known) {
  const Outcome o = stepscope("data --fetch shakespeare");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("expected tinyshakespeare"));
}

TEST_F(DataCli, fetch_of_tinyshakespeare_takes_no_flag_of_the_sets_in_shards) {
  for (const std::string flag : {"--shards", "--from", "--jobs", "--retries"}) {
    const Outcome o = stepscope("data --fetch tinyshakespeare --out " + file("set") + " " + flag + " 7");
    EXPECT_EQ(o.exit_code, 2) << flag;
    EXPECT_EQ(o.err, "stepscope: " + flag + ": expected --fetch fineweb or fineweb-edu or tinystories with it\n");
  }
  EXPECT_FALSE(fs::exists(file("set")));
}

TEST_F(DataCli, fetch_makes_llmc_s_files_of_the_real_ones) {
  const std::string real = real_data_folder();
  if (real.empty()) GTEST_SKIP() << kNoRealData;
  const std::string copy =
      "case $url in */input.txt) cp " + real + "/tinyshakespeare.txt \"$to\";; *) cp " + real + "/${url##*/} \"$to\";; esac";
  ASSERT_EQ(fetch(copy).exit_code, 0);
  for (const char* name : {"tiny_shakespeare_train.bin", "tiny_shakespeare_val.bin"})
    EXPECT_TRUE(slurp(file("set/") + name) == slurp(fs::path(real) / name)) << name;
  const Outcome again = fetch("exit 6");
  EXPECT_EQ(again.exit_code, 0) << "what is there is not downloaded again: " << again.err;
}

TEST_F(DataCli, tinyshakespeare_is_llmc_s_byte_for_byte) {
  const std::string real = real_data_folder();
  if (real.empty()) GTEST_SKIP() << kNoRealData;
  const Outcome o = stepscope("data " + real + "/tinyshakespeare.txt --vocab " + real + "/vocab.bpe --encoder " + real +
                              "/encoder.json --document paragraph --validation-tokens 32768 --out " + file("tiny_shakespeare"));
  ASSERT_EQ(o.exit_code, 0) << o.err;
  for (const char* name : {"tiny_shakespeare_train.bin", "tiny_shakespeare_val.bin"})
    EXPECT_TRUE(slurp(file(name)) == slurp(fs::path(real) / name)) << name;
}

TEST(DataCliWithoutIcu, says_which_package_is_missing) {
  if (gpt2::unicode_tables_built_in()) GTEST_SKIP() << "built with ICU";
  const Outcome o = stepscope("data " SOURCE_DIR "/README.md --vocab /absent --out /tmp/x");
  EXPECT_EQ(o.exit_code, 3);
  EXPECT_THAT(o.err, HasSubstr("libicu-dev"));
}

// Without a text: weights need no Unicode tables.
class WeightsCli : public InAFolder {
 protected:
  static constexpr gpt2::ModelConfig config{8, 100, 128, 2, 2, 128};
  void SetUp() override {
    gpt2::save_checkpoint(file("fp32.bin"), config, gpt2::init_parameters(config, 3));
    gpt2::save_checkpoint(file("bf16.bin"), config, gpt2::init_parameters(config, 3), gpt2::CheckpointPrecision::bf16);
  }
};

TEST_F(WeightsCli, check_refuses_weights_that_are_no_numbers_and_says_where) {
  std::vector<float> weights = gpt2::init_parameters(config, 3);
  const gpt2::TensorSpan fcb = gpt2::tensor_layout(config)[gpt2::Tensor::fcb];
  for (const int64_t i : {int64_t{5}, fcb.size - 1}) weights[static_cast<size_t>(fcb.offset + i)] = std::nanf("");
  gpt2::save_checkpoint(file("nan.bin"), config, weights);
  const Outcome o = stepscope("data --check " + file("nan.bin"));
  EXPECT_EQ(o.exit_code, 2) << o.out;
  EXPECT_THAT(o.err, HasSubstr("nan.bin: 2 of 1024 values of fcb are no finite numbers, the first (nan) at index 5"));
  EXPECT_EQ(stepscope("data --check " + file("fp32.bin") + " " + file("bf16.bin")).exit_code, 0);
}

TEST_F(WeightsCli, check_of_a_runs_model_asks_the_training_state_beside_it) {
  ASSERT_EQ(
      stepscope("train --trainer reference --model tiny --batch-size 1 --seq-len 8 --steps 1 -q --checkpoints " + file("run")).exit_code,
      0);
  const std::string model = file("run/step-00000001/model.bin");
  ASSERT_EQ(stepscope("data --check " + model).exit_code, 0);
  std::fstream(model, std::ios::in | std::ios::out | std::ios::binary).seekp(4000).write("\0\0\0\0", 4);
  const Outcome o = stepscope("data --check " + model);
  EXPECT_EQ(o.exit_code, 2) << o.out;
  EXPECT_THAT(o.err, HasSubstr(model + ": damaged, or not of this training state: checksum"));
  std::filesystem::rename(model, file("alone.bin"));
  EXPECT_EQ(stepscope("data --check " + file("alone.bin")).exit_code, 0);
}

TEST_F(WeightsCli, a_checkpoint_goes_to_safetensors_and_back) {
  for (const std::string from : {"fp32", "bf16"}) {
    SCOPED_TRACE(from);
    const Outcome there = stepscope("data --export " + file(from + ".bin") + " --out " + file("m.safetensors"));
    EXPECT_EQ(there.exit_code, 0) << there.err;
    EXPECT_THAT(there.out, AllOf(HasSubstr(from == "bf16" ? "BF16" : "F32"), HasSubstr("n_head of config.json: 2")));
    const Outcome back =
        stepscope("data --import " + file("m.safetensors") + " --out " + file("back.bin") + (from == "bf16" ? " --bf16" : ""));
    EXPECT_EQ(back.exit_code, 0) << back.err;
    EXPECT_THAT(back.out, AllOf(HasSubstr(from + " checkpoint, 2 layers, 2 heads"), HasSubstr("2 were taken, with 64 channels each")));
    EXPECT_TRUE(slurp(file("back.bin")) == slurp(file(from + ".bin")));
  }
  const Outcome heads = stepscope("data --import " + file("m.safetensors") + " --heads 4 --out " + file("four.bin"));
  EXPECT_EQ(heads.exit_code, 0) << heads.err;
  EXPECT_THAT(heads.out, AllOf(HasSubstr("4 heads"), testing::Not(HasSubstr("were taken"))));
  EXPECT_EQ(gpt2::checkpoint_config(file("four.bin")).heads, 4);
}

TEST_F(WeightsCli, a_link_to_a_checkpoint_that_is_not_there_yet_stays) {
  fs::create_directory(file("big"));
  fs::create_symlink("big/out.bin", file("link.bin"));
  ASSERT_EQ(stepscope("data --export " + file("fp32.bin") + " --out " + file("m.safetensors")).exit_code, 0);
  const Outcome o = stepscope("data --import " + file("m.safetensors") + " --out " + file("link.bin"));
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_TRUE(fs::is_symlink(file("link.bin")));
  EXPECT_TRUE(slurp(file("big/out.bin")) == slurp(file("fp32.bin")));
}

TEST_F(WeightsCli, a_folder_has_what_from_pretrained_needs_and_comes_back) {
  for (const std::string from : {"fp32", "bf16"}) {
    SCOPED_TRACE(from);
    const std::string model = file("model_" + from);
    const Outcome there = stepscope("data --export " + file(from + ".bin") + " --out " + model);
    EXPECT_EQ(there.exit_code, 0) << there.err;
    EXPECT_THAT(there.out, AllOf(HasSubstr(model + "/model.safetensors: "), HasSubstr(model + "/config.json: for from_pretrained")));
    const Outcome back = stepscope("data --import " + model + " --out " + file("back.bin") + (from == "bf16" ? " --bf16" : ""));
    EXPECT_EQ(back.exit_code, 0) << back.err;
    EXPECT_THAT(back.out, testing::Not(HasSubstr("were taken")));
    EXPECT_TRUE(slurp(file("back.bin")) == slurp(file(from + ".bin")));
    // Nothing of the model is an output by mistake.
    for (const char* read : {"/model.safetensors", "/config.json"}) {
      const std::string before = slurp(model + read);
      const Outcome o = stepscope("data --import " + model + " --out " + model + read);
      EXPECT_EQ(o.exit_code, 2);
      EXPECT_THAT(o.err, HasSubstr("--import and --out both name"));
      EXPECT_TRUE(slurp(model + read) == before);
    }
  }
}

TEST_F(WeightsCli, where_a_checkpoint_is_read_a_model_of_hugging_face_is_told_from_it) {
  ASSERT_EQ(stepscope("data --export " + file("fp32.bin") + " --out " + file("hf")).exit_code, 0);
  for (const std::string& model : {file("hf"), file("hf/model.safetensors")}) {
    for (const std::string& command :
         {std::string("train --steps 1 --model "), "data --out " + file("x") + " --export ", std::string("data --check ")}) {
      const Outcome o = stepscope(command + model);
      EXPECT_EQ(o.exit_code, 2) << command;
      EXPECT_THAT(o.err, AllOf(HasSubstr(model + ": a "), HasSubstr("`stepscope data --import " + model + " --out FILE.bin`"))) << command;
    }
  }
}

// A run's own folder was sent to --import, which takes models of Hugging Face.
TEST_F(WeightsCli, where_a_checkpoint_is_read_a_runs_folder_or_state_is_told_from_it) {
  for (const char* step : {"run/step-00000002", "run/step-00000010"}) {
    fs::create_directories(file(step));
    fs::copy_file(file("fp32.bin"), file(step) + std::string("/model.bin"));
    std::ofstream(file(step) + std::string("/state.bin"), std::ios::binary) << "SSTATE\r\n";
  }
  const std::string older = file("run/step-00000002"), newest = file("run/step-00000010");
  for (const auto& [given, said] :
       {std::pair(file("run"), "its weights are " + newest + "/model.bin\n"), std::pair(older, "its weights are " + older + "/model.bin\n"),
        std::pair(older + "/state.bin", "a training state, expected a checkpoint: the weights are in " + older + "/model.bin\n")}) {
    for (const std::string& command :
         {std::string("train --trainer reference --steps 1 --model "), "data --out " + file("x") + " --export "}) {
      const Outcome o = stepscope(command + given);
      EXPECT_EQ(o.exit_code, 2) << command;
      EXPECT_THAT(o.err, AllOf(HasSubstr(given + ": a "), HasSubstr(said))) << command;
    }
  }
}

TEST_F(WeightsCli, wrong_uses_say_what_was_expected) {
  const std::string m = file("m.safetensors"), to = " --out " + file("x");
  ASSERT_EQ(stepscope("data --export " + file("fp32.bin") + " --out " + m).exit_code, 0);
  const std::string good = slurp(m);
  for (const auto& [arguments, message] : std::vector<std::pair<std::string, std::string>>{
           {"--import " + m, "--out: expected the name of the checkpoint to write"},
           {"--export " + file("fp32.bin"), "--out: expected the name of the folder, or of the FILE.safetensors, to write"},
           {"--import " + m + " --out " + m, "--import and --out both name"},
           {"--export " + m + " --out " + m, "--export and --out both name"},
           {"--export " + file("fp32.bin") + " --out " + file("bf16.bin"), "expected a folder or a name that ends in .safetensors"},
           {"--export " + file("fp32.bin") + " --out " + file("bf16.bin/in_a_file"), "--out: cannot write into"},
           {"--import " + m + to + " --export " + file("fp32.bin"), "excludes"},
           {"--import " + m + to + " --check " + m, "excludes"},
           {"--export " + file("fp32.bin") + to + " --fetch tinyshakespeare", "excludes"},
           {"--import " + m + to + " " + m, "excludes"},
           {"--export " + file("fp32.bin") + to + " --bf16", "--bf16: expected --import with it"},
           {"--export " + file("fp32.bin") + to + " --heads 2", "--heads: expected --import with it"},
           {"--import " + m + to + " --json", "--json: expected text with it"},
           {"--import " + m + to + " --heads 3", "3 heads do not divide 128 channels"},
           {"--import " + file("fp32.bin") + to, "fp32.bin: "},
           {"--export " + m + to, "m.safetensors: "},
           {"--import " + file("absent") + to, "absent"},
           {"--import " + m + " --out " + file("no/such/x"), "--out"}}) {
    const Outcome o = stepscope("data " + arguments);
    EXPECT_EQ(o.exit_code, 2) << arguments;
    EXPECT_THAT(o.err, HasSubstr(message)) << arguments;
  }
  EXPECT_FALSE(fs::exists(file("x")));
  EXPECT_TRUE(slurp(m) == good);
}

}  // namespace

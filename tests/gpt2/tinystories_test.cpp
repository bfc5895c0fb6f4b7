// The parts of TinyStories that must be as Python does them, and the whole on a made-up archive.
#include "gpt2/prepare/tinystories.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/errors.h"
#include "base/mapped_file.h"
#include "base/temporary_folder.h"
#include "gpt2/data/bpe.h"
#include "gpt2/data/pretokenizer.h"
#include "gpt2/data/token_shards.h"
#include "tests/gpt2/small_vocabulary.h"

namespace gpt2 {
namespace {
using ::testing::ElementsAre;

// CPython 3: r = random.Random(1337); x = list(range(10)); r.shuffle(x)
TEST(PythonShuffle, is_pythons) {
  EXPECT_THAT(python_shuffle(1337, 10), ElementsAre(0, 3, 7, 2, 1, 6, 4, 5, 8, 9));
  EXPECT_THAT(python_shuffle(1338, 7), ElementsAre(0, 1, 3, 4, 2, 5, 6));
  EXPECT_THAT(python_shuffle(1337, 0), ElementsAre());
  EXPECT_THAT(python_shuffle(1337, 1), ElementsAre(0));
}

TEST(PythonStrip, takes_unicode_white_space_only) {
  EXPECT_EQ(python_strip(" \t\n\x1c a b\xc2\xa0\xe2\x80\x83\xe3\x80\x80\r\n"), "a b");
  EXPECT_EQ(python_strip("\xe2\x80\x8b"
                         "a\xe2\x80\x8b"),
            "\xe2\x80\x8b"
            "a\xe2\x80\x8b");  // a zero-width space is none
  EXPECT_EQ(python_strip(" \xe2\x80\xa8 "), "");
  EXPECT_EQ(python_strip("\xff a \xa0"), "\xff a \xa0");
  EXPECT_EQ(python_strip(""), "");
}

class TinyStories : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!unicode_tables_built_in()) GTEST_SKIP() << "built without ICU (libicu-dev)";
    write("vocab.bpe", testing::kSmallMerges);
    const Bpe bpe = Bpe::load(folder_.file("vocab.bpe"));
    std::string json = "{";
    for (size_t id = 0; id < bpe.vocab_size(); ++id) {
      std::string name = id == bpe.end_of_text() ? "<|endoftext|>" : byte_spelling(bpe.bytes(static_cast<uint16_t>(id)));
      std::string escaped;
      for (const char c : name) escaped += (c == '"' || c == '\\') ? std::string("\\") + c : std::string(1, c);
      json += (id ? ",\"" : "\"") + escaped + "\":" + std::to_string(id);
    }
    write("encoder.json", json + "}");
  }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_.file(name), std::ios::binary) << text; }
  void pack() const {
    ASSERT_EQ(
        std::system(("cd " + folder_.path().string() + " && tar -czf TinyStories_all_data.tar.gz data*.json && rm data*.json").c_str()), 0);
  }
  std::vector<uint16_t> tokens(const std::string& name) const {
    const MappedFile shard(folder_.file(name));
    const auto found = parse_token_shard(shard.bytes(), name);
    return {found.begin(), found.end()};
  }
  stepscope::TemporaryFolder folder_;
};

// Random(1337) leaves two entries in their order; the seeds count from 1337 again for training.
TEST_F(TinyStories, first_file_is_for_validation) {
  write("data00.json", R"([{"story": " hello\n", "summary": "x"}, {"story": "hell"}])");
  write("data01.json", R"([{"story": "a"}])");
  write("data02.json", R"([{"story": "aa"}])");
  pack();
  make_tinystories(folder_.path());
  const auto two = python_shuffle(1337, 2);
  EXPECT_THAT(tokens("TinyStories_val.bin"), two[0] == 0 ? ElementsAre(268, 259, 268, 258) : ElementsAre(268, 258, 268, 259));
  EXPECT_THAT(tokens("TinyStories_train.bin"), ElementsAre(268, 64, 268, 266));
  EXPECT_TRUE(std::filesystem::exists(folder_.file("gpt2_tokenizer.bin")));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / ".unpacked"));
}

TEST_F(TinyStories, damage_leaves_nothing) {
  write("data00.json", R"([{"story": "a"}])");
  write("data01.json", R"([{"tale": "a"}])");
  pack();
  EXPECT_THROW(make_tinystories(folder_.path()), stepscope::InputError);
  write("TinyStories_all_data.tar.gz", "no archive");
  EXPECT_THROW(make_tinystories(folder_.path()), stepscope::InputError);
  for (const char* name : {"TinyStories_val.bin", "TinyStories_train.bin", ".unpacked"})
    EXPECT_FALSE(std::filesystem::exists(folder_.path() / name)) << name;
}

// It has not failed, and has not unpacked everything either.
TEST_F(TinyStories, a_tar_that_is_killed_leaves_nothing) {
  write("data00.json", R"([{"story": "a"}])");
  write("data01.json", R"([{"story": "a"}])");
  pack();
  std::filesystem::create_directory(folder_.path() / "bin");
  write("bin/tar", "#!/bin/sh\nkill -9 $$\n");
  std::filesystem::permissions(folder_.path() / "bin" / "tar", std::filesystem::perms::owner_all);
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (folder_.file("bin") + ":" + path).c_str(), 1);
  std::string error;
  try {
    make_tinystories(folder_.path());
  } catch (const stepscope::InputError& e) {
    error = e.what();
  }
  ::setenv("PATH", path.c_str(), 1);
  EXPECT_THAT(error, ::testing::EndsWith("TinyStories_all_data.tar.gz: tar cannot unpack it, expected a whole tar.gz archive"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / ".unpacked"));
}

}  // namespace
}  // namespace gpt2

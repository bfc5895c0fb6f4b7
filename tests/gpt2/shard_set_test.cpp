#include "gpt2/data/shard_set.h"

#include <numeric>

#include "base/mapped_file.h"
#include "tests/gpt2/files.h"

namespace gpt2 {
namespace {
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::names_in;
using testing::read_bytes;
using testing::TemporaryFolder;
using ::testing::UnorderedElementsAre;
using testing::write_bytes;

std::vector<uint16_t> first_numbers(size_t count) {
  std::vector<uint16_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), uint16_t{0});
  return tokens;
}

class ShardSetTest : public ::testing::Test {
 protected:
  std::string out(const std::string& name) const { return (folder_ / name).string(); }
  // Writes 0, 1, … in parts of `part` tokens; "name: first-last" of each file.
  std::vector<std::string> write(ShardSetOptions options, size_t count, size_t part) {
    ShardSet set(std::move(options));
    const auto all = first_numbers(count);
    for (size_t at = 0; at < count; at += part) set.append(std::span(all).subspan(at, std::min(part, count - at)));
    std::vector<std::string> files;
    for (const WrittenShard& w : set.finish()) {
      const MappedFile file(w.path);
      const auto tokens = parse_token_shard(file.bytes(), w.path.string());
      EXPECT_EQ(tokens.size(), w.tokens);
      for (size_t i = 1; i < tokens.size(); ++i) EXPECT_EQ(tokens[i], tokens[i - 1] + 1);
      files.push_back(w.path.filename().string() + ": " + std::to_string(tokens.front()) + "-" + std::to_string(tokens.back()));
    }
    return files;
  }
  TemporaryFolder folder_;
};

TEST_F(ShardSetTest, OneFile) {
  EXPECT_THAT(write({out("x.bin"), 0, {}}, 10, 3), ElementsAre("x.bin: 0-9"));
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("x.bin"));
}

TEST_F(ShardSetTest, TheFirstTokensAreForValidation) {
  for (const size_t part : {1, 3, 4, 5, 100})
    EXPECT_THAT(write({out("x"), 4, {}}, 10, part), ElementsAre("x_val.bin: 0-3", "x_train.bin: 4-9")) << part;
}

TEST_F(ShardSetTest, ShardsAreFullAndTheLastHasTheRest) {
  for (const size_t part : {1, 2, 3, 5, 100}) {
    const std::string name = "p" + std::to_string(part);
    EXPECT_THAT(write({out(name), 0, 3}, 7, part),
                ElementsAre(name + "_train_000000.bin: 0-2", name + "_train_000001.bin: 3-5", name + "_train_000002.bin: 6-6"));
    EXPECT_THAT(write({out("even" + name), 0, 3}, 6, part),
                ElementsAre("even" + name + "_train_000000.bin: 0-2", "even" + name + "_train_000001.bin: 3-5"))
        << "no empty shard at the end";
    EXPECT_THAT(write({out("both" + name), 4, 3}, 8, part),
                ElementsAre("both" + name + "_val_000000.bin: 0-2", "both" + name + "_val_000001.bin: 3-3",
                            "both" + name + "_train_000000.bin: 4-6", "both" + name + "_train_000001.bin: 7-7"));
  }
}

TEST_F(ShardSetTest, MoreTokensThanAreHeldInMemory) {
  ShardSet set({out("long.bin"), 0, {}});
  const std::vector<uint16_t> part(100000, 7);
  for (int i = 0; i < 20; ++i) set.append(part);
  set.finish();
  write_token_shard(folder_ / "whole.bin", std::vector<uint16_t>(2000000, 7));
  EXPECT_EQ(read_bytes(out("long.bin")), read_bytes(folder_ / "whole.bin"));
}

TEST_F(ShardSetTest, WithoutFinishNothingIsWrittenAndOldFilesStay) {
  write({out("x"), 4, {}}, 10, 10);
  const auto old_validation = read_bytes(out("x_val.bin"));
  {
    ShardSet set({out("x"), 2, {}});
    set.append(first_numbers(100));
  }
  EXPECT_EQ(read_bytes(out("x_val.bin")), old_validation);
  EXPECT_THAT(names_in(folder_.path()), UnorderedElementsAre("x_val.bin", "x_train.bin"));
}

TEST_F(ShardSetTest, NumberedShardsAreNotPutBesideAWholeOne) {
  for (const std::string of : {"train", "val"}) {
    const std::string expected = of + "_" + of + ".bin of an earlier run without --shard-tokens";
    std::ofstream(out(of + "_" + of + ".bin")) << "older";
    EXPECT_INPUT_ERROR(ShardSet({out(of), 0, 100}), expected.c_str());
  }
}

TEST_F(ShardSetTest, ATrainingShardIsNotPutBesideAnOlderValidationShard) {
  write({out("x"), 4, {}}, 10, 10);
  const auto before = read_bytes(out("x_train.bin"));
  EXPECT_INPUT_ERROR(ShardSet({out("x"), 0, {}}), "x_val.bin of an earlier run");
  EXPECT_EQ(read_bytes(out("x_train.bin")), before);
  EXPECT_THAT(write({out("x"), 2, {}}, 10, 10), ElementsAre("x_val.bin: 0-1", "x_train.bin: 2-9"));
}

TEST_F(ShardSetTest, NothingLeftForTrainingIsRefusedAndNothingWritten) {
  EXPECT_INPUT_ERROR(write({out("x"), 4, {}}, 0, 1), "the text has no tokens");
  for (const size_t count : {3, 4}) {
    EXPECT_INPUT_ERROR(write({out("x"), 4, {}}, count, 1), "the text has ", "none is left for training");
    EXPECT_THAT(names_in(folder_.path()), IsEmpty()) << count;
  }
  EXPECT_INPUT_ERROR(write({out("x"), 0, {}}, 0, 1), "no tokens");
}

TEST_F(ShardSetTest, NumberedShardsOfAnEarlierRunAreNotMixedWithNewOnes) {
  write({out("x"), 0, 3}, 7, 7);
  for (const std::optional<uint64_t> size : {std::optional<uint64_t>(5), std::optional<uint64_t>()})
    EXPECT_INPUT_ERROR(ShardSet({out("x"), 0, size}), "3 numbered shards", "x_train_000002.bin", "remove them");
  EXPECT_NO_THROW(ShardSet({out("x2"), 0, 5}));
  for (const char* name : {"y_train_000000.txt", "y_train_.bin", "y_val_00000a.bin", "y_test_000000.bin"}) write_bytes(out(name), {});
  EXPECT_NO_THROW(ShardSet({out("y"), 0, 5})) << "files of others";
  EXPECT_NO_THROW(ShardSet({out("x.bin"), 0, {}}));
}

TEST_F(ShardSetTest, OptionsThatContradictEachOther) {
  EXPECT_INPUT_ERROR(ShardSet({out("x.bin"), 4, {}}), "x.bin", "prefix without .bin");
  EXPECT_INPUT_ERROR(ShardSet({out("x.bin"), 0, 5}), "x.bin", "prefix without .bin");
  EXPECT_INPUT_ERROR(ShardSet({out("x"), 0, 0}), "--shard-tokens 0");
  EXPECT_INPUT_ERROR(ShardSet({out("x"), 0, uint64_t{1} << 31}), "--shard-tokens 2147483648", "2^31-1");
  EXPECT_INPUT_ERROR(ShardSet({out("absent/x"), 0, {}}), "--out", "absent/x_train.bin", "folder does not exist");
  EXPECT_INPUT_ERROR(ShardSet({out("absent/x.bin"), 0, {}}), "--out", "absent/x.bin:", "folder does not exist");
  EXPECT_INPUT_ERROR(ShardSet({folder_.path().string(), 0, {}}), "a folder", "/NAME");
  EXPECT_INPUT_ERROR(ShardSet({folder_.path().string() + "/", 0, {}}), "a folder", "/NAME");
  write_bytes(out("file"), {});
  EXPECT_INPUT_ERROR(ShardSet({out("file/x"), 0, {}}), "--out", "file");
}

}  // namespace
}  // namespace gpt2

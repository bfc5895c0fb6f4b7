#include "gpt2/data/token_source.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "gpt2/data/synthetic_tokens.h"
#include "gpt2/data/token_shards.h"
#include "tests/gpt2/files.h"

namespace gpt2 {
namespace {
using ::testing::ElementsAre;
using testing::TemporaryFolder;

struct BatchCopy {
  std::vector<int32_t> inputs, targets;
  bool operator==(const BatchCopy&) const = default;
};
BatchCopy take(TokenSource& source, const SourceOptions& o) {
  BatchCopy b;
  b.inputs.resize(static_cast<size_t>(o.batch_size * o.seq_len));
  b.targets.resize(b.inputs.size());
  source.next(b.inputs, b.targets);
  return b;
}
// Token i of the shard is first + i: a batch tells where it was cut.
std::string counting_shard(const std::filesystem::path& path, uint16_t first, size_t count) {
  std::vector<uint16_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<uint16_t>(first + i);
  write_token_shard(path, tokens);
  return path.string();
}

TEST(Shards, UnshuffledBatchesAreConsecutiveAndTheTailIsDropped) {
  TemporaryFolder folder;
  const SourceOptions o{2, 3, 60000, 1, false};
  // 14 tokens: 4 windows of 3 and a target, 2 batches; token 13 is never an input. Then 8 tokens: 2 windows,
  // 1 batch.
  const auto s = open_token_source({counting_shard(folder / "a.bin", 0, 14), counting_shard(folder / "b.bin", 100, 8)}, o);
  EXPECT_EQ(s->batches_per_epoch(), 3);
  EXPECT_THAT(s->describe(), ::testing::HasSubstr("a.bin (2 files, 22 tokens)"));
  const BatchCopy first = take(*s, o);
  EXPECT_THAT(first.inputs, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(first.targets, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(take(*s, o).inputs, ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_THAT(take(*s, o).inputs, ElementsAre(100, 101, 102, 103, 104, 105));
  EXPECT_EQ(take(*s, o), first) << "the next epoch begins again";
}

TEST(Shards, AWindowNeedsTheTokenBehindIt) {
  TemporaryFolder folder;
  const SourceOptions o{1, 3, 60000, 1, false};
  for (const auto& [tokens, windows] : {std::pair<size_t, int64_t>{10, 3}, {11, 3}, {12, 3}, {13, 4}}) {
    const auto s = open_token_source({counting_shard(folder / "a.bin", 0, tokens)}, o);
    EXPECT_EQ(s->batches_per_epoch(), windows) << tokens;
    for (int64_t i = 0; i < windows; ++i) take(*s, o);
    EXPECT_THAT(take(*s, o).inputs, ElementsAre(0, 1, 2)) << tokens;
  }
}

TEST(Shards, ShuffledEveryWindowComesOncePerEpochInAnOrderOfItsOwn) {
  TemporaryFolder folder;
  std::vector<std::string> files;
  for (int i = 0; i < 5; ++i) files.push_back(counting_shard(folder / ("s" + std::to_string(i)), static_cast<uint16_t>(1000 * i), 401));
  const SourceOptions o{4, 10, 60000, 9, true};  // 40 windows = 10 batches in each
  const auto s = open_token_source({(folder / "s*").string()}, o);
  std::vector<std::vector<int32_t>> orders;
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<int32_t> starts;
    for (int b = 0; b < 50; ++b) {
      const BatchCopy batch = take(*s, o);
      for (size_t i = 0; i < batch.inputs.size(); ++i) ASSERT_EQ(batch.targets[i], batch.inputs[i] + 1);
      for (size_t row = 0; row < 4; ++row) starts.push_back(batch.inputs[row * 10]);
    }
    EXPECT_EQ(std::set<int32_t>(starts.begin(), starts.end()).size(), 200u);
    orders.push_back(starts);
  }
  EXPECT_NE(orders[0], orders[1]) << "each epoch has its own order";
  SourceOptions other = o;
  other.seed = 10;
  const auto different = open_token_source(files, other);
  EXPECT_NE(take(*different, other).inputs[0], orders[0][0]);
  EXPECT_NE(different->fingerprint(), s->fingerprint());
}

TEST(Shards, ShufflingGivesEveryShardAnOrderOfItsOwnAndTheShardsOneOfTheSeed) {
  TemporaryFolder folder;
  std::vector<std::string> files;
  for (int i = 0; i < 4; ++i) files.push_back(counting_shard(folder / ("s" + std::to_string(i)), static_cast<uint16_t>(1000 * i), 401));
  std::set<std::vector<int32_t>> orders_of_shards;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const SourceOptions o{1, 10, 60000, seed, true};
    const auto s = open_token_source(files, o);
    std::vector<int32_t> shards;
    std::set<std::vector<int32_t>> within;
    for (int shard = 0; shard < 4; ++shard) {
      std::vector<int32_t> starts;
      for (int b = 0; b < 40; ++b) starts.push_back(take(*s, o).inputs[0]);
      shards.push_back(starts[0] / 1000);
      for (int32_t& start : starts) start %= 1000;
      within.insert(starts);
    }
    EXPECT_EQ(within.size(), 4u) << "seed " << seed;
    orders_of_shards.insert(shards);
  }
  EXPECT_GT(orders_of_shards.size(), 1u);
}

// Only the first tokens of a file are read for it: a file that grew is told by its length.
TEST(Shards, TheFingerprintKnowsALongerFileWithTheSameBeginning) {
  TemporaryFolder folder;
  const SourceOptions o{1, 10, 60000, 9, false};
  const auto shorter = open_token_source({counting_shard(folder / "a", 0, 5000)}, o);
  const auto longer = open_token_source({counting_shard(folder / "b", 0, 6000)}, o);
  EXPECT_NE(shorter->fingerprint(), longer->fingerprint());
}

TEST(Shards, AnEpochOfASingleShardHasAnOrderOfItsOwnToo) {
  TemporaryFolder folder;
  const SourceOptions o{1, 10, 60000, 9, true};
  const auto s = open_token_source({counting_shard(folder / "a", 0, 401)}, o);
  std::vector<int32_t> starts;
  for (int b = 0; b < 80; ++b) starts.push_back(take(*s, o).inputs[0]);
  EXPECT_FALSE(std::equal(starts.begin(), starts.begin() + 40, starts.begin() + 40));
  EXPECT_TRUE(std::is_permutation(starts.begin(), starts.begin() + 40, starts.begin() + 40));
}

TEST(Shards, ASavedPositionGivesTheSameBatchesAgain) {
  TemporaryFolder folder;
  counting_shard(folder / "a", 0, 100);
  counting_shard(folder / "b", 200, 77);
  const SourceOptions o{3, 5, 60000, 4, true};
  const std::vector<std::string> data{(folder / "a").string(), (folder / "b").string()};
  const auto s = open_token_source(data, o);
  for (int skip = 0; skip < 40; ++skip) {
    const DataPosition p = s->position();
    const BatchCopy expected = take(*s, o);
    const auto resumed = open_token_source(data, o);
    EXPECT_EQ(resumed->fingerprint(), s->fingerprint());
    resumed->seek(p);
    ASSERT_EQ(take(*resumed, o), expected) << "after " << skip << " batches";
  }
  EXPECT_INPUT_ERROR(s->seek({0, 2, 0}), "shard 2", "does not exist");
}

// What a rank leaves out are the batches of the other ranks, across the ends of shards and epochs too.
TEST(Shards, SkippedBatchesAreThoseThatWouldHaveBeenRead) {
  TemporaryFolder folder;
  const SourceOptions o{3, 5, 60000, 4, true};
  const std::vector<std::string> data{counting_shard(folder / "a", 0, 100), counting_shard(folder / "b", 200, 77)};
  const auto read = open_token_source(data, o);
  for (int64_t batches = 0; batches < 40; ++batches) {
    const auto skipped = open_token_source(data, o);
    skipped->skip(batches);
    ASSERT_EQ(take(*skipped, o), take(*read, o)) << "after " << batches << " batches";
  }
}

TEST(Shards, APositionBeyondAShardsLastWindowDoesNotExist) {
  TemporaryFolder folder;
  const SourceOptions o{2, 3, 60000, 1, false};
  const auto s = open_token_source({counting_shard(folder / "a.bin", 0, 14), counting_shard(folder / "b.bin", 100, 8)}, o);
  s->seek({0, 0, 2});
  EXPECT_THAT(take(*s, o).inputs, ElementsAre(6, 7, 8, 9, 10, 11));
  s->seek({0, 0, 4});  // the end of the shard, where a run may have stopped
  EXPECT_THAT(take(*s, o).inputs, ElementsAre(100, 101, 102, 103, 104, 105));
  EXPECT_INPUT_ERROR(s->seek({0, 0, 5}), "shard 0, sequence 5", "does not exist");
  EXPECT_INPUT_ERROR(s->seek({0, 1, 3}), "shard 1, sequence 3", "does not exist");
}

TEST(Shards, ATokenBeyondTheVocabularyNamesFileOffsetAndId) {
  TemporaryFolder folder;
  std::vector<uint16_t> tokens(50, 3);
  tokens[17] = 509;
  write_token_shard(folder / "bad.bin", tokens);
  EXPECT_INPUT_ERROR(open_token_source({(folder / "bad.bin").string()}, {1, 4, 509, 1, true}), "bad.bin", "token 17", "offset 1058",
                     "id 509",
                     "0 to 508 (the model's vocabulary); GPT-2's tokens need a model with GPT-2's vocabulary, such as --model d12");
  open_token_source({(folder / "bad.bin").string()}, {1, 4, 510, 1, true});
  // No model of ours has so many: another one would not help.
  tokens[17] = 50257;
  write_token_shard(folder / "worse.bin", tokens);
  try {
    open_token_source({(folder / "worse.bin").string()}, {1, 4, 509, 1, true});
    ADD_FAILURE();
  } catch (const stepscope::InputError& e) {
    EXPECT_THAT(e.what(), ::testing::EndsWith("(the model's vocabulary)"));
  }
}

TEST(Shards, ATextIsNoneAndTheMessageSaysWhatMakesOne) {
  for (const size_t length : {size_t{20}, size_t{2000}}) {
    const std::string text(length, 'a');
    EXPECT_INPUT_ERROR(parse_token_shard(std::as_bytes(std::span(text)), "book.txt"),
                       "book.txt: ", "; `stepscope data` makes one of a text");
  }
}

TEST(Shards, AShardShorterThanABatchIsRefused) {
  TemporaryFolder folder;
  counting_shard(folder / "short", 0, 12);
  EXPECT_INPUT_ERROR(open_token_source({(folder / "short").string()}, {3, 4, 60000, 1, false}), "short", "12 tokens", "at least 13");
  open_token_source({(folder / "short").string()}, {1, 11, 60000, 1, false});
}

TEST(Shards, PatternsWithoutFilesAndMixedSourcesAreRefused) {
  TemporaryFolder folder;
  EXPECT_INPUT_ERROR(open_token_source({(folder / "none*.bin").string()}, {1, 1, 10, 1, false}), "none*.bin", "no file matches");
  EXPECT_INPUT_ERROR(open_token_source({"synthetic", "x.bin"}, {1, 1, 10, 1, false}), "synthetic");
  EXPECT_INPUT_ERROR(open_token_source({}, {1, 1, 10, 1, false}), "--data");
  EXPECT_INPUT_ERROR(open_token_source({folder.path().string()}, {1, 1, 10, 1, false}), "folder");
}

TEST(BatchShape, OverflowAndEmptyShapesAreRefused) {
  EXPECT_INPUT_ERROR(check_batch_shape(0, 4), "--batch-size 0");
  EXPECT_INPUT_ERROR(check_batch_shape(4, -1), "--seq-len -1");
  EXPECT_INPUT_ERROR(check_batch_shape(int64_t{1} << 62, 1024), "--batch-size 4611686018427387904");
  EXPECT_INPUT_ERROR(check_batch_shape(int64_t{1} << 21, 1024), "2147483647 tokens");
  check_batch_shape((int64_t{1} << 21) - 1, 1024);
}

TEST(Synthetic, TheMostFrequentTokenIsAsFrequentAsInRealText) {
  for (int64_t vocab : {512, 5000, 50257}) {
    for (uint64_t seed : {1, 2, 3, 1337}) {
      const SourceOptions o{64, 1024, vocab, seed, true};
      SyntheticSource s(o);
      std::map<int32_t, int64_t> count;
      int64_t total = 0;
      for (int b = 0; b < 4; ++b) {
        for (int32_t id : take(s, o).inputs) {
          ASSERT_GE(id, 0);
          ASSERT_LT(id, vocab);
          ++count[id];
          ++total;
        }
      }
      int64_t most = 0;
      for (auto [id, n] : count) most = std::max(most, n);
      const double share = static_cast<double>(most) / static_cast<double>(total);
      EXPECT_GE(share, 0.03) << vocab << " words, seed " << seed;
      EXPECT_LE(share, 0.07) << vocab << " words, seed " << seed;
      EXPECT_GE(count.size(), static_cast<size_t>(std::min<int64_t>(vocab, 20000)) * 9 / 10) << "the tail is there";
    }
  }
}

TEST(Synthetic, KnowingThePreviousTokenTellsMuchAboutTheNext) {
  const SourceOptions o{64, 1024, 512, 5, true};
  SyntheticSource s(o);
  std::map<int32_t, double> single;
  std::map<std::pair<int32_t, int32_t>, double> pair;
  double n = 0;
  for (int b = 0; b < 32; ++b) {
    const BatchCopy batch = take(s, o);
    for (size_t i = 0; i < batch.inputs.size(); ++i, n += 1) {
      single[batch.inputs[i]] += 1;
      pair[{batch.inputs[i], batch.targets[i]}] += 1;
    }
  }
  double unigram = 0, joint = 0;
  for (auto [t, c] : single) unigram -= c / n * std::log(c / n);
  for (auto [t, c] : pair) joint -= c / n * std::log(c / n);
  const double conditional = joint - unigram;  // nats; the pair table's bias (2^21 pairs, 2^18 cells) is below 0.1
  EXPECT_LE(unigram, std::log(512.0) - 0.5) << "frequencies alone can be learned";
  EXPECT_LE(conditional, unigram - 0.8) << "and the order of the tokens";
  EXPECT_GE(conditional, 1.0) << "but it is no table to be learned by heart";
}

TEST(Synthetic, DependsOnSeedAndPositionAlone) {
  const SourceOptions o{2, 8, 300, 5, true};
  SyntheticSource s(o);
  take(s, o);
  const DataPosition p = s.position();
  const BatchCopy second = take(s, o);
  SyntheticSource resumed(o);
  resumed.seek(p);
  EXPECT_EQ(take(resumed, o), second);
  for (size_t i = 0; i + 1 < 8; ++i) EXPECT_EQ(second.targets[i], second.inputs[i + 1]);
  SourceOptions other = o;
  other.seed = 6;
  SyntheticSource different(other);
  different.seek(p);
  EXPECT_NE(take(different, other), second);
  EXPECT_NE(different.fingerprint(), s.fingerprint());
  SourceOptions longer = o, larger = o;
  longer.seq_len = 9, larger.vocab_size = 301;
  EXPECT_NE(SyntheticSource(longer).fingerprint(), s.fingerprint());
  EXPECT_NE(SyntheticSource(larger).fingerprint(), s.fingerprint());
}

// Known values: a compiler, flag or library that changed them would change every synthetic run.
TEST(Synthetic, TheStreamOfASeedNeverChanges) {
  const SourceOptions o{1, 12, 50257, 1337, true};
  SyntheticSource s(o);
  EXPECT_THAT(take(s, o).inputs, ElementsAre(1, 67, 21, 126, 1, 101, 1952, 408, 1344, 64, 1759, 36417));
}

TEST(Synthetic, AnyVocabularyWorks) {
  for (int64_t vocab : {1, 2, 3, 22, 23, 24, 1 << 24}) {
    const SourceOptions o{2, 64, vocab, 5, true};
    SyntheticSource s(o);
    for (int32_t id : take(s, o).targets) {
      ASSERT_GE(id, 0);
      ASSERT_LT(id, vocab);
    }
    EXPECT_EQ(s.token_at_quantile(0), 0);
    EXPECT_EQ(s.token_at_quantile(~uint64_t{0}), std::min<int64_t>(vocab, 1 << 20) - 1);
  }
}

}  // namespace
}  // namespace gpt2

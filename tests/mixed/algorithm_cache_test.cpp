// What is found again, and that a cache nobody can use is the same as none.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "mixed/attention_plans.h"
#include "mixed/matmul.h"
#include "tests/temporary_folder.h"

namespace mixed {
namespace {

namespace fs = std::filesystem;

constexpr MatmulAlgorithm kRule = MatmulAlgorithm::search;

class Cache : public ::testing::Test {
 protected:
  ~Cache() override { fs::remove_all(folder_); }
  fs::path file() const { return folder_ / "below" / "matmul.json"; }
  static cublasLtMatmulAlgo_t algorithm(uint64_t seed) {
    cublasLtMatmulAlgo_t a{};
    for (size_t i = 0; i < std::size(a.data); ++i) a.data[i] = seed * 0x9e3779b97f4a7c15ull + i;
    return a;
  }
  static bool same(const cublasLtMatmulAlgo_t& a, const cublasLtMatmulAlgo_t& b) {
    return std::equal(std::begin(a.data), std::end(a.data), std::begin(b.data));
  }
  void write(const std::string& text) const {
    fs::create_directories(file().parent_path());
    std::ofstream(file()) << text;
  }
  fs::path folder_ = fresh_test_folder();
};

TEST_F(Cache, FindsInANewProcessWhatItRemembered) {
  {
    AlgorithmCache cache(file(), kRule);
    cache.remember("TN 1x2x3", {algorithm(1), 12.5});
    cache.remember("NN 4x5x6", {algorithm(2), 1.0});
    cache.save();
  }
  const AlgorithmCache cache(file(), kRule);
  ASSERT_TRUE(cache.find("TN 1x2x3"));
  EXPECT_TRUE(same(cache.find("TN 1x2x3")->algorithm, algorithm(1)));
  EXPECT_TRUE(same(cache.find("NN 4x5x6")->algorithm, algorithm(2)));
  EXPECT_FALSE(cache.find("TN 1x2x4"));
}

TEST_F(Cache, KeepsWhatAnEarlierRunFound) {
  {
    AlgorithmCache cache(file(), kRule);
    cache.remember("old", {algorithm(1), 1});
    cache.save();
  }
  {
    AlgorithmCache cache(file(), kRule);
    cache.remember("new", {algorithm(2), 1});
    cache.save();
  }
  const AlgorithmCache cache(file(), kRule);
  EXPECT_TRUE(cache.find("old"));
  EXPECT_TRUE(cache.find("new"));
}

TEST_F(Cache, FindsTheJoulesOrWhyTimeChose) {
  {
    AlgorithmCache cache(file(), kRule);
    cache.remember("weighed", {algorithm(1), 6889, 4.713});
    cache.remember("timed", {.algorithm = algorithm(2), .time_us = 6845, .why_by_time = "no counter"});
    cache.save();
  }
  const AlgorithmCache cache(file(), kRule);
  const auto weighed = cache.find("weighed"), timed = cache.find("timed");
  ASSERT_TRUE(weighed && timed);
  EXPECT_EQ(weighed->time_us, 6889);
  EXPECT_EQ(weighed->joules, 4.713);
  EXPECT_EQ(weighed->why_by_time, "");
  EXPECT_EQ(timed->time_us, 6845);
  EXPECT_EQ(timed->joules, std::nullopt);
  EXPECT_EQ(timed->why_by_time, "no counter");
}

// One file, which trainers of other rules and of before the rules write too.
TEST_F(Cache, EveryRuleFindsItsOwnChoiceAndKeepsTheOthers) {
  constexpr MatmulAlgorithm kRules[] = {MatmulAlgorithm::fitting_tiles, MatmulAlgorithm::search, MatmulAlgorithm::fewest_joules,
                                        MatmulAlgorithm::fastest};
  for (uint64_t i = 0; i < std::size(kRules); ++i) {
    AlgorithmCache cache(file(), kRules[i]);
    EXPECT_FALSE(cache.find("p")) << i;
    cache.remember("p", {algorithm(i), 1});
    cache.save();
  }
  for (uint64_t i = 0; i < std::size(kRules); ++i) {
    const auto found = AlgorithmCache(file(), kRules[i]).find("p");
    ASSERT_TRUE(found) << i;
    EXPECT_TRUE(same(found->algorithm, algorithm(i))) << i;
  }
}

// Its keys are problems without a rule; what it holds was chosen by time.
TEST_F(Cache, AFileOfBeforeTheRulesIsOfTheFastest) {
  const std::string hex(sizeof(cublasLtMatmulAlgo_t) * 2, 'a');
  write(R"({"schema":"stepscope.matmul-algorithms/1","algorithms":{"p":{"algorithm":")" + hex + R"(","time_us":7.5}}})");
  EXPECT_FALSE(AlgorithmCache(file(), MatmulAlgorithm::search).find("p"));
  EXPECT_FALSE(AlgorithmCache(file(), MatmulAlgorithm::fewest_joules).find("p"));
  const auto found = AlgorithmCache(file(), MatmulAlgorithm::fastest).find("p");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->time_us, 7.5);
  EXPECT_EQ(found->joules, std::nullopt);
}

TEST_F(Cache, ADamagedFileIsTheSameAsNone) {
  const std::string hex(sizeof(cublasLtMatmulAlgo_t) * 2, 'a');
  for (const std::string& text :
       {std::string(""), std::string("{"), std::string("[]"), std::string("{\"schema\":1}"),
        std::string(R"({"schema":"stepscope.matmul-algorithms/2","algorithms":{"p":{"algorithm":")") + hex + "\"}}}",
        std::string(R"({"schema":"stepscope.matmul-algorithms/1","algorithms":{"p":{"algorithm":"12"}}})"),
        std::string(R"({"schema":"stepscope.matmul-algorithms/1","algorithms":{"p":{"algorithm":7}}})"),
        std::string(R"({"schema":"stepscope.matmul-algorithms/1","algorithms":{"p":{"algorithm":")") + std::string(hex.size(), 'g') +
            "\"}}}",
        std::string(R"({"schema":"stepscope.matmul-algorithms/1","algorithms":7})")}) {
    write(text);
    AlgorithmCache cache(file(), kRule);
    EXPECT_FALSE(cache.find("p")) << text;
    cache.remember("q", {algorithm(3), 1});
    cache.save();
    EXPECT_TRUE(AlgorithmCache(file(), kRule).find("q")) << text;
  }
}

TEST_F(Cache, WhereItCannotWriteItStillRemembers) {
  write("");
  AlgorithmCache cache(file() / "under-a-file" / "matmul.json", kRule);
  cache.remember("p", {algorithm(1), 1});
  cache.save();
  EXPECT_TRUE(cache.find("p"));
}

// Both caches say it on stderr, and their functions may not throw.
TEST_F(Cache, WhereItCannotSaySoEitherNothingEnds) {
  write("");
  const fs::path nowhere = file() / "under-a-file" / "cache.json";
  const auto keep_both = [&] {
    if (std::freopen("/dev/full", "w", stderr) == nullptr) return 1;
    std::setvbuf(stderr, nullptr, _IONBF, 0);
    AlgorithmCache cache(nowhere, kRule);
    cache.remember("p", {algorithm(1), 1});
    cache.save();
    AttentionPlanCache(nowhere).remember("p", "plan", 1, 2);
    return 0;
  };
  EXPECT_EXIT(std::exit(keep_both()), ::testing::ExitedWithCode(0), "");
}

TEST_F(Cache, WithoutAFileItRemembersWithinTheProcess) {
  AlgorithmCache cache(fs::path(), kRule);
  cache.remember("p", {algorithm(1), 1});
  cache.save();
  EXPECT_TRUE(cache.find("p"));
}

}  // namespace
}  // namespace mixed

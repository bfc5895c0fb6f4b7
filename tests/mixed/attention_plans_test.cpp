// Which plan a search takes, and what a later process finds of it.
#include "mixed/attention_plans.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"

namespace mixed {
namespace {

namespace fs = std::filesystem;
using Times = std::vector<std::vector<double>>;

TEST(AttentionPlanChoice, ThePlanThatWinsEveryRoundIsTaken) {
  EXPECT_EQ(fastest_beyond_noise(Times{{31.7, 31.9, 31.6, 31.7}, {29.7, 29.8, 29.6, 29.7}, {41, 41, 41, 41}}), 1u);
}

TEST(AttentionPlanChoice, OfTwoThatWinTheFasterIsTakenWhateverTheirOrder) {
  EXPECT_EQ(fastest_beyond_noise(Times{{10, 10, 10, 10}, {9.5, 9.5, 9.5, 9.5}, {9, 9, 9, 9}}), 2u);
  EXPECT_EQ(fastest_beyond_noise(Times{{10, 10, 10, 10}, {9, 9, 9, 9}, {9.5, 9.5, 9.5, 9.5}}), 1u);
}

TEST(AttentionPlanChoice, OnePercentIsNoise) {
  EXPECT_EQ(fastest_beyond_noise(Times{{100, 100, 100, 100}, {99.1, 99.1, 99.1, 99.1}}), 0u);
  EXPECT_EQ(fastest_beyond_noise(Times{{100, 100, 100, 100}, {98.9, 98.9, 98.9, 98.9}}), 1u);
}

// A clock that falls during the search hits the rounds, not one plan: ratios are taken within a round.
TEST(AttentionPlanChoice, AClockThatDriftsOverTheRoundsDecidesNothing) {
  EXPECT_EQ(fastest_beyond_noise(Times{{10, 11, 12, 13, 14, 15}, {10.1, 11.1, 12.1, 13.1, 14.1, 15.1}}), 0u);
  EXPECT_EQ(fastest_beyond_noise(Times{{10, 11, 12, 13, 14, 15}, {9.5, 10.5, 11.5, 12.5, 13.4, 14.4}}), 1u);
}

TEST(AttentionPlanChoice, OneDisturbedRoundIsForgivenAndTwoAreNot) {
  EXPECT_EQ(fastest_beyond_noise(Times{{10, 10, 10, 10, 10, 10}, {9, 9, 20, 9, 9, 9}}), 1u);
  EXPECT_EQ(fastest_beyond_noise(Times{{10, 10, 10, 10, 10, 10}, {9, 9, 20, 20, 9, 9}}), 0u);
}

TEST(AttentionPlanChoice, AloneTheFirstIsTaken) { EXPECT_EQ(fastest_beyond_noise(Times{{10, 10}}), 0u); }

TEST(AttentionPlanChoice, UnevenOrMissingRoundsAreAnError) {
  EXPECT_THROW(fastest_beyond_noise({}), std::invalid_argument);
  EXPECT_THROW(fastest_beyond_noise(Times{{}}), std::invalid_argument);
  EXPECT_THROW(fastest_beyond_noise(Times{{1, 2}, {1}}), std::invalid_argument);
}

class AttentionPlanFile : public ::testing::Test {
 protected:
  ~AttentionPlanFile() override { fs::remove_all(folder_); }
  fs::path file() const { return folder_ / "below" / "plans.json"; }
  void write(const std::string& text) const {
    fs::create_directories(file().parent_path());
    std::ofstream(file()) << text;
  }
  fs::path folder_ = fresh_test_folder();
};

TEST_F(AttentionPlanFile, ALaterProcessFindsWhatWasRemembered) {
  AttentionPlanCache(file()).remember("forward of B=4", "eng2_k24=7", 29.7, 31.7);
  AttentionPlanCache(file()).remember("backward of B=4", "eng3", 90, 90);
  const AttentionPlanCache later(file());
  EXPECT_EQ(later.find("forward of B=4"), "eng2_k24=7");
  EXPECT_EQ(later.find("backward of B=4"), "eng3");
  EXPECT_FALSE(later.find("forward of B=64"));
}

TEST_F(AttentionPlanFile, ADamagedOrForeignFileIsTheSameAsNone) {
  for (const char* text : {"", "{", "[]", "{\"schema\": \"other/1\", \"plans\": {\"p\": {\"plan\": \"x\"}}}",
                           "{\"schema\": \"stepscope.attention-plans/1\", \"plans\": {\"p\": {\"plan\": 7}, \"q\": 1}}"}) {
    write(text);
    EXPECT_FALSE(AttentionPlanCache(file()).find("p")) << text;
  }
}

TEST_F(AttentionPlanFile, WithoutAFileItRemembersWithinTheProcess) {
  AttentionPlanCache cache{fs::path()};
  cache.remember("p", "x", 1, 2);
  EXPECT_EQ(cache.find("p"), "x");
}

TEST_F(AttentionPlanFile, OneThatCannotBeWrittenIsANoteAndNoError) {
  write("kept");
  AttentionPlanCache cache(file() / "a-file-is-no-folder" / "plans.json");
  cache.remember("p", "x", 1, 2);
  EXPECT_EQ(cache.find("p"), "x");
}

TEST(AttentionPlanFileName, DeviceAndVersionAreInIt) {
  const fs::path a = attention_plan_cache_file("NVIDIA H200", "9.14.0");
  if (a.empty()) GTEST_SKIP() << "no cache folder here";
  EXPECT_EQ(a.filename(), "attention-NVIDIA-H200-cudnn-9.14.0.json");
  EXPECT_NE(a, attention_plan_cache_file("NVIDIA H200", "9.19.0"));
}

}  // namespace
}  // namespace mixed

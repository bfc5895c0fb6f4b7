// Error rates of the procedure on noise that was measured, not assumed: A/A recordings (`experiment aa --record`) of real
// machines, resampled. A recording that shows a bias or false claims says that the procedure is wrong there.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "experiments/runner/run_log.h"
#include "experiments/statistics/error_rate.h"

namespace experiments {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::vector<fs::path> recordings() {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(TEST_DATA "/aa"))
    if (entry.path().extension() == ".json") out.push_back(entry.path());
  return out;
}

class Recording : public ::testing::TestWithParam<fs::path> {
 protected:
  void SetUp() override {
    std::ifstream in(GetParam());
    document_ = ordered_json::parse(in);
    if (document_.contains("runs")) {
      pairs_ = sustained_values(runs_from_json(document_.at("runs"), GetParam().string()));
      plan_.looks = alone_looks();
    } else {
      pairs_ = pair_values_from_json(document_.at("pairs"), GetParam().string());
    }
  }
  bool alone() const { return document_.contains("runs"); }
  bool on_gpu() const { return document_.at("device").get<std::string>().rfind("CPU", 0) != 0; }
  ordered_json document_;
  std::vector<PairValue> pairs_;
  Thresholds plan_;  // of the procedure that recorded it
};

TEST_P(Recording, of_identical_code_is_called_different_in_at_most_2_percent_of_2000_trials) {
  ASSERT_GE(pairs_.size(), alone() ? 16u : 40u);  // alone: enough for two of the three looks
  const ResampledRates r = resample_trials(pairs_, plan_, 2000, 0, 1).value();
  EXPECT_EQ(r.trials, 2000);
  EXPECT_LE(r.rate(), 0.02);
}

// Resampling flips labels at random, and a claim needs the exact sign test: what it calls different is bounded whatever the
// recording. So also as it was recorded, with its order and its signs.
TEST_P(Recording, of_identical_code_is_never_called_different_in_twelve_pairs_in_a_row) {
  int claimed = 0;
  for (size_t first = 0; first + 12 <= pairs_.size(); ++first) {
    Thresholds one_look;
    one_look.looks = extended_looks(12, 12);
    const Verdict v = decide(std::span(pairs_).subspan(first, 12), one_look, 1).verdict;
    claimed += v == Verdict::faster || v == Verdict::slower;
  }
  EXPECT_EQ(claimed, 0);
}

TEST_P(Recording, has_no_bias_towards_an_arm) { EXPECT_GT(slot_bias_p_value(pairs_).value(), 0.01); }

TEST_P(Recording, of_a_gpu_would_show_a_planted_percent) {
  if (!on_gpu()) GTEST_SKIP() << "a shared CPU is too noisy for 1%: " << document_.at("device");
  EXPECT_GE(resample_trials(pairs_, plan_, 1000, std::log(1.01), 2)->rate(), 0.9);
  EXPECT_EQ(resample_trials(pairs_, plan_, 1000, std::log(1.05), 3)->rate(), 1.0);
  if (!alone()) return;
  EXPECT_GE(resample_trials(pairs_, plan_, 1000, std::log(1.005), 4)->rate(), 0.9);
  // And soon: 1% by the first look, after 16 processes, 0.5% by the second, after 32. A process takes 6 to 7 s of the device.
  Thresholds first = plan_, second = plan_;
  first.looks.resize(1);
  second.looks.resize(2);
  EXPECT_GE(resample_trials(pairs_, first, 1000, std::log(1.01), 5)->rate(), 0.9);
  EXPECT_GE(resample_trials(pairs_, second, 1000, std::log(1.005), 6)->rate(), 0.9);
}

INSTANTIATE_TEST_SUITE_P(each, Recording, ::testing::ValuesIn(recordings()), [](const auto& file) {
  std::string name = file.param.stem().string();
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

}  // namespace
}  // namespace experiments

// The reader of recorded results: what is there is complete and consistent, or it is refused by name.
#include "experiments/baseline/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "tests/temporary_folder.h"

namespace {

using nlohmann::json;

class RecordedResults : public testing::Test {
 protected:
  void SetUp() override { folder_ = fresh_test_folder(); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static json good() {
    return {{"schema", experiments::kResultsSchema},
            {"results",
             {{{"date", "2026-01-02"},
               {"device", "a device"},
               {"driver", "1"},
               {"cuda", "13.0"},
               {"command", "c"},
               {"matmul", "tf32"},
               {"batch_size", 2},
               {"seq_len", 500},
               {"steps", 10},
               {"step_time_ns", 1e7},
               {"tokens_per_s", 100000.0}}}}};
  }
  auto read(const std::string& text) {
    std::ofstream(folder_ / experiments::kResultsFile) << text;
    return experiments::read_results(folder_);
  }
  std::filesystem::path folder_;
};

TEST_F(RecordedResults, AreAbsentWithoutAFile) { EXPECT_FALSE(experiments::read_results(folder_).has_value()); }

TEST_F(RecordedResults, AreReadWhole) {
  const auto results = read(good().dump());
  ASSERT_TRUE(results.has_value());
  ASSERT_EQ(results->size(), 1u);
  const experiments::BaselineResult& r = results->front();
  EXPECT_EQ(r.batch_size, 2);
  EXPECT_EQ(r.seq_len, 500);
  EXPECT_EQ(r.step_time_ns, 1e7);
  EXPECT_EQ(r.device, "a device");
  EXPECT_EQ(r.note, "");
}

TEST_F(RecordedResults, AreRefusedByTheNameOfTheBadField) {
  const auto refused = [&](const std::function<void(json&)>& change, const char* field) {
    json j = good();
    change(j);
    try {
      read(j.dump());
      ADD_FAILURE() << field;
    } catch (const stepscope::InputError& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr(field));
    }
  };
  refused([](json& j) { j["schema"] = "x"; }, "schema");
  refused([](json& j) { j["results"] = json::array(); }, "results");
  refused([](json& j) { j["results"][0].erase("device"); }, "device");
  refused([](json& j) { j["results"][0]["command"] = ""; }, "command");
  refused([](json& j) { j["results"][0]["batch_size"] = 0; }, "batch_size");
  refused([](json& j) { j["results"][0]["seq_len"] = 1.5; }, "seq_len");
  refused([](json& j) { j["results"][0]["step_time_ns"] = nullptr; }, "step_time_ns");
  refused([](json& j) { j["results"][0]["tokens_per_s"] = 103000.0; }, "tokens/s");
  refused([](json& j) { j["results"][0] = 1; }, "results[0]");
  EXPECT_THROW(read("{"), stepscope::InputError);
}

}  // namespace

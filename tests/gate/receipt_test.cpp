#include "experiments/gate/receipt.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "gpt2/errors.h"
#include "tests/temporary_folder.h"

namespace gate {
namespace {

namespace fs = std::filesystem;

// The one that CI without a GPU stands on.
TEST(Receipt, TheCommittedReceiptsMatchTheDeviceSources) {
  const fs::path root = SOURCE_DIR;
  for (const std::string trainer : {"fp32", "mixed"})
    for (const std::string& problem : receipt_problems(root / "receipts" / (trainer + ".json"), root, trainer))
      ADD_FAILURE() << problem;
}

class ReceiptTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fresh_test_folder();
    write("fp32/kernels/gelu.cu", "a kernel");
    write("fp32/CMakeLists.txt", "flags");
    write("gpt2/cuda/check.h", "a check");
    write("gpt2/trainer.h", "not device code");
    write("binary", "elf");
    fs::create_directories(root_ / "receipts");
    good_.trainer = "fp32";
    good_.add(must_be_zero("causality", "logits", 0, "elements"));
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  nlohmann::ordered_json make(const std::vector<GateReport>& reports) const {
    return make_receipt("fp32", reports, device_, root_, root_ / "binary", "abc");
  }
  std::vector<std::string> problems() const {
    return receipt_problems(root_ / "receipts/fp32.json", root_, "fp32");
  }

  fs::path root_;
  GateReport good_;
  DeviceFacts device_{"NVIDIA H200", "GPU-1", "13.0", "13.0", "13.1"};
};

TEST_F(ReceiptTest, HoldsForTheSourcesItWasMadeFrom) {
  EXPECT_EQ(write_receipt(root_ / "receipts", make({good_})), root_ / "receipts/fp32.json");
  EXPECT_TRUE(problems().empty());
  std::ifstream in(root_ / "receipts/fp32.json");
  const auto j = nlohmann::json::parse(in);
  EXPECT_EQ(j["schema"], "stepscope.receipt/1");
  EXPECT_EQ(j["sources"].size(), 3u);
  EXPECT_EQ(j["sources"]["fp32/kernels/gelu.cu"].get<std::string>().size(), 64u);
  EXPECT_EQ(j["device"]["name"], "NVIDIA H200");
}

TEST_F(ReceiptTest, AChangedSourceIsNamed) {
  write_receipt(root_ / "receipts", make({good_}));
  write("fp32/kernels/gelu.cu", "a kernel with one more blank ");
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_EQ(problems()[0].find("fp32/kernels/gelu.cu differs"), 0u) << problems()[0];
}

TEST_F(ReceiptTest, ANewAndAMissingSourceAreNamed) {
  write_receipt(root_ / "receipts", make({good_}));
  write("fp32/kernels/new.cu", "");
  fs::remove(root_ / "gpt2/cuda/check.h");
  ASSERT_EQ(problems().size(), 2u);
  EXPECT_NE(problems()[0].find("fp32/kernels/new.cu is not in"), std::string::npos);
  EXPECT_NE(problems()[1].find("gpt2/cuda/check.h"), std::string::npos);
}

TEST_F(ReceiptTest, HostSourcesDoNotMatter) {
  write_receipt(root_ / "receipts", make({good_}));
  write("gpt2/trainer.h", "changed");
  EXPECT_TRUE(problems().empty());
}

TEST_F(ReceiptTest, DeviceSourcesWithoutAReceiptAreAProblem) {
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_NE(problems()[0].find("no receipt"), std::string::npos);
  fs::remove_all(root_ / "fp32");
  fs::remove_all(root_ / "gpt2/cuda");
  EXPECT_TRUE(problems().empty()) << "without device sources there is nothing to prove";
}

TEST_F(ReceiptTest, OnlyAPassingGateOnADeviceMakesOne) {
  GateReport bad = good_;
  bad.add(must_be_zero("causality", "logits", 1, "elements"));
  EXPECT_THROW(make({good_, bad}), std::logic_error);
  EXPECT_THROW(make({}), std::logic_error);
  EXPECT_THROW(make({GateReport{}}), std::logic_error) << "a report that checked nothing";
  device_.name.clear();
  EXPECT_THROW(make({good_}), std::logic_error);
}

TEST_F(ReceiptTest, ATamperedOrForeignReceiptIsAProblem) {
  auto j = make({good_});
  for (const auto& [key, value] : {std::pair<std::string, nlohmann::json>{"schema", "stepscope.receipt/2"},
                                   {"passed", false},
                                   {"trainer", "mixed"},
                                   {"sources", nlohmann::json::array()}}) {
    auto changed = j;
    changed[key] = value;
    write("receipts/fp32.json", changed.dump());
    EXPECT_FALSE(problems().empty()) << key;
  }
  write("receipts/fp32.json", "{");
  EXPECT_FALSE(problems().empty());
}

}  // namespace
}  // namespace gate

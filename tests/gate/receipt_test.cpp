#include "experiments/gate/receipt.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "experiments/gate/source_scan.h"
#include "tests/temporary_folder.h"

namespace gate {
namespace {

namespace fs = std::filesystem;

// The one that CI without a GPU stands on.
TEST(Receipt, TheCommittedReceiptsMatchTheDeviceSources) {
  const fs::path root = SOURCE_DIR;
  for (const std::string trainer : {"fp32", "mixed"})
    for (const auto& p = receipt_problems(root / "receipts" / (trainer + ".json"), root, trainer);
         const auto* list : {&p.damaged, &p.changed})
      for (const std::string& problem : *list) ADD_FAILURE() << problem;
}

class ReceiptTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fresh_test_folder();
    write("CMakeLists.txt", "set(CMAKE_CUDA_FLAGS -O3)\nadd_subdirectory(fp32)\n");
    write("fp32/CMakeLists.txt", "stepscope_stage(fp32_trainer RANK 20\n  SOURCES kernels/gelu.cu)\n");
    write("fp32/kernels/gelu.cu", "#include \"gpt2/cuda/check.h\"\na kernel");
    write("gpt2/cuda/check.h", "a check");
    write("gpt2/data/documents.h", "no part of a step");
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
  ReceiptProblems all_problems() const { return receipt_problems(root_ / "receipts/fp32.json", root_, "fp32"); }
  std::vector<std::string> problems() const {
    const ReceiptProblems p = all_problems();
    EXPECT_TRUE(p.damaged.empty());
    return p.changed;
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
  EXPECT_EQ(j["schema"], "stepscope.receipt/2");
  EXPECT_EQ(j["hashed"], "code");
  EXPECT_EQ(j["sources"].size(), 4u);  // two files, the flags of two
  EXPECT_EQ(j["sources"]["fp32/kernels/gelu.cu"].get<std::string>().size(), 64u);
  EXPECT_EQ(j["device"]["name"], "NVIDIA H200");
}

// As where a program runs elsewhere than it was built: the gate would take minutes, and its receipt would name nothing.
TEST_F(ReceiptTest, ATreeWithoutSourcesIsRefusedBeforeTheGate) {
  EXPECT_EQ(receipt_sources(root_, "fp32").size(), 4u);
  try {
    receipt_sources(root_ / "elsewhere", "fp32");
    FAIL() << "nothing to hash was taken";
  } catch (const stepscope::InputError& e) {
    EXPECT_NE(std::string(e.what()).find((root_ / "elsewhere").string()), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("build stepscope where"), std::string::npos) << e.what();
  }
}

TEST_F(ReceiptTest, WhereItIsNoJsonIsNamed) {
  write("receipts/fp32.json", "{\"schema\": \"stepscope.receipt/2\",\n \"passed\": yes}\n");
  const ReceiptProblems p = all_problems();
  ASSERT_EQ(p.damaged.size(), 1u);
  EXPECT_EQ(p.damaged[0], "receipt fp32.json: line 2, column 12: no JSON from here on");
}

TEST_F(ReceiptTest, AChangedSourceIsNamed) {
  write_receipt(root_ / "receipts", make({good_}));
  write("fp32/kernels/gelu.cu", "#include \"gpt2/cuda/check.h\"\na kernel with one more blank ");
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_EQ(problems()[0].find("fp32/kernels/gelu.cu differs"), 0u) << problems()[0];
}

TEST_F(ReceiptTest, ACommentOfASourceIsNoChange) {
  write_receipt(root_ / "receipts", make({good_}));
  write("fp32/kernels/gelu.cu", "// one more line\n#include \"gpt2/cuda/check.h\"\na  kernel");
  EXPECT_TRUE(problems().empty());
}

// Those made up to 2026-12-01 stay what they are: of every byte.
TEST_F(ReceiptTest, OfWholeFilesHoldsForTheseBytes) {
  nlohmann::ordered_json j = make({good_});
  j.erase("hashed");
  j["sources"] = hash_step_sources(root_, "fp32", HashOf::bytes);
  write_receipt(root_ / "receipts", j);
  EXPECT_TRUE(problems().empty());
  write("fp32/kernels/gelu.cu", "#include \"gpt2/cuda/check.h\"\na kernel  // a comment");
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_EQ(problems()[0].find("fp32/kernels/gelu.cu differs"), 0u) << problems()[0];
  j["hashed"] = "words";
  write_receipt(root_ / "receipts", j);
  ASSERT_EQ(all_problems().damaged.size(), 1u);
  EXPECT_EQ(all_problems().damaged[0].find("receipt fp32.json has hashes of 'words', expected code"), 0u) << all_problems().damaged[0];
}

TEST_F(ReceiptTest, ANewAndAMissingSourceAreNamed) {
  write_receipt(root_ / "receipts", make({good_}));
  write("fp32/kernels/new.cuh", "");
  write("fp32/kernels/gelu.cu", "#include \"fp32/kernels/new.cuh\"\na kernel");
  ASSERT_EQ(problems().size(), 3u);
  EXPECT_NE(problems()[1].find("fp32/kernels/new.cuh is not in"), std::string::npos);
  EXPECT_NE(problems()[2].find("gpt2/cuda/check.h of receipt fp32.json is no source of the step any more"), std::string::npos);
}

TEST_F(ReceiptTest, SourcesThatNoStepIncludesDoNotMatter) {
  write_receipt(root_ / "receipts", make({good_}));
  write("gpt2/data/documents.h", "changed");
  write("CMakeLists.txt", "set(CMAKE_CUDA_FLAGS -O3)\nadd_subdirectory(fp32)\nadd_subdirectory(docs)\n");
  EXPECT_TRUE(problems().empty());
}

TEST_F(ReceiptTest, DeviceSourcesWithoutAReceiptAreAProblem) {
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_NE(problems()[0].find("no receipt"), std::string::npos);
  fs::remove_all(root_ / "fp32");
  ASSERT_EQ(problems().size(), 1u);
  EXPECT_NE(problems()[0].find("no CMake target fp32_trainer"), std::string::npos);
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
  for (const auto& [key, value] : {std::pair<std::string, nlohmann::json>{"schema", "stepscope.receipt/1"},
                                   {"passed", false},
                                   {"trainer", "mixed"},
                                   {"reports", nlohmann::json::array()},
                                   {"reports", {nlohmann::json::object()}},
                                   {"reports", {j["reports"][0], {{"checks", nlohmann::json::array()}}}},
                                   {"sources", nlohmann::json::array()}}) {
    auto changed = j;
    changed[key] = value;
    write("receipts/fp32.json", changed.dump());
    EXPECT_FALSE(all_problems().damaged.empty()) << key << " " << value;
  }
  write("receipts/fp32.json", "{");
  EXPECT_FALSE(all_problems().damaged.empty());
}

}  // namespace
}  // namespace gate

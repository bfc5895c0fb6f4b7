// What a receipt is of: every class of file that a step is compiled from, each changed by one byte in a copy.
#include "experiments/gate/source_scan.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace gate {
namespace {

namespace fs = std::filesystem;

class SourceScan : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / ("gate_source_scan_test_" + std::to_string(getpid()));
    for (const char* part : {"CMakeLists.txt", "CMakePresets.json", "cmake", "fp32", "mixed", "gpt2", "base"})
      if (fs::exists(fs::path(SOURCE_DIR) / part)) {
        fs::create_directories(root_);
        fs::copy(fs::path(SOURCE_DIR) / part, root_ / part, fs::copy_options::recursive);
      }
  }
  void TearDown() override { fs::remove_all(root_); }

  // The names whose hash is another after `from` became `to` in the file.
  std::vector<std::string> changed_by(const std::string& file, const std::string& from, const std::string& to,
                                      const std::string& trainer) const {
    const auto before = hash_step_sources(root_, trainer);
    std::ifstream in(root_ / file, std::ios::binary);
    const std::string old{std::istreambuf_iterator<char>(in), {}};
    std::string text = old;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << file << " does not hold " << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
    std::ofstream(root_ / file, std::ios::binary) << text;
    const auto after = hash_step_sources(root_, trainer);
    std::ofstream(root_ / file, std::ios::binary) << old;
    std::vector<std::string> names;
    for (const auto& [name, hash] : after)
      if (const auto was = before.find(name); was == before.end() || was->second != hash) names.push_back(name);
    return names;
  }
  fs::path root_;
};

using FileNames = std::vector<std::string>;

TEST_F(SourceScan, OneByteOfEveryClassOfFileIsNamed) {
  for (const std::string trainer : {"fp32", "mixed"}) {
    const auto sources = hash_step_sources(root_, trainer);
    ASSERT_GT(sources.size(), 40u);
    int64_t files = 0;
    for (const auto& [name, hash] : sources) {
      if (name.ends_with("#flags")) continue;
      ++files;
      const auto size = fs::file_size(root_ / name);
      std::ofstream(root_ / name, std::ios::app) << "x";
      const auto now = hash_step_sources(root_, trainer);
      EXPECT_NE(now.at(name), hash) << name;
      for (const auto& [other, was] : sources) {
        if (other == name) continue;
        EXPECT_EQ(now.at(other), was) << other;
      }
      fs::resize_file(root_ / name, size);
      if (files >= 12) break;  // the first dozen; the classes follow
    }
    // A kernel, a kernel header, a step, headers of the model, the device helpers with their sources.
    for (const std::string& name : std::initializer_list<std::string>{
             std::string("gpt2/ops/adamw.cu"), std::string("gpt2/ops/storage.cuh"), trainer + "/kernels/attention.cuh",
             trainer + "/kernels/attention_flash.cu", trainer + "/model.cpp", trainer + "/trainer.cpp", std::string("gpt2/trainer.h"),
             std::string("gpt2/config.h"), std::string("gpt2/tensor_table.h"), std::string("gpt2/tensor_table.cpp"),
             std::string("gpt2/cuda/launch.cuh"), std::string("gpt2/cuda/launch.cpp"), std::string("gpt2/cuda/device_buffer.h"),
             std::string("gpt2/op_range.h")})
      EXPECT_TRUE(sources.contains(name)) << trainer << " does not hash " << name;
  }
}

// Both trainers are made of all of it: kernels there are instantiated for the storage types of both.
TEST_F(SourceScan, EveryFileOfTheSharedKernelsIsHashed) {
  for (const std::string trainer : {"fp32", "mixed"}) {
    const auto sources = hash_step_sources(root_, trainer);
    int64_t files = 0;
    for (const auto& file : fs::directory_iterator(root_ / "gpt2/ops")) {
      if (file.path().extension() == ".cmake") continue;
      ++files;
      EXPECT_TRUE(sources.contains("gpt2/ops/" + file.path().filename().string())) << trainer << " does not hash " << file.path();
    }
    EXPECT_GE(files, 10);
  }
}

TEST_F(SourceScan, FlagsOfDeviceCodeAreHashedAndOtherLinesOfTheBuildAreNot) {
  EXPECT_EQ(changed_by("cmake/Flags.cmake", "CMAKE_CUDA_FLAGS_RELWITHDEBINFO \"-O3\"", "CMAKE_CUDA_FLAGS_RELWITHDEBINFO \"-O2\"", "fp32"),
            FileNames{"cmake/Flags.cmake#flags"});
  EXPECT_EQ(changed_by("cmake/Flags.cmake", "--expt-relaxed-constexpr", "--use_fast_math", "mixed"), FileNames{"cmake/Flags.cmake#flags"});
  EXPECT_EQ(changed_by("CMakeLists.txt", "add_subdirectory(cli)", "add_subdirectory(cli)\nadd_subdirectory(more)", "fp32"), FileNames{});
}

// Nobody has to find a GPU for a word of a comment; whole files are still hashed where that is asked for.
TEST_F(SourceScan, ACommentOrItsPlaceChangesNoCode) {
  EXPECT_EQ(changed_by("gpt2/ops/adamw.cu", "// AdamW kernels.", "// Kernels of\n// AdamW. /* \" ' */", "mixed"), FileNames{});
  EXPECT_EQ(changed_by("gpt2/ops/adamw.cu", "if (first >= n) return;", "if (first >= n) return;  // behind the end", "fp32"), FileNames{});
  EXPECT_EQ(changed_by("gpt2/ops/adamw.cu", "if (first >= n) return;", "if (first >= n)  return;", "fp32"), FileNames{});
  EXPECT_EQ(changed_by("gpt2/ops/adamw.cu", "if (first >= n) return;", "// if (first >= n) return;", "fp32"),
            FileNames{"gpt2/ops/adamw.cu"});
  const auto whole = hash_step_sources(root_, "fp32", HashOf::bytes);
  std::ofstream(root_ / "gpt2/ops/adamw.cu", std::ios::app) << "// the end\n";
  EXPECT_NE(hash_step_sources(root_, "fp32", HashOf::bytes).at("gpt2/ops/adamw.cu"), whole.at("gpt2/ops/adamw.cu"));
}

TEST_F(SourceScan, BothAnswersToCudnnBelongToTheMixedTrainer) {
  const auto mixed = hash_step_sources(root_, "mixed");
  EXPECT_TRUE(mixed.contains("mixed/attention_cudnn.cpp"));
  EXPECT_TRUE(mixed.contains("mixed/attention_cudnn_absent.cpp"));
  EXPECT_FALSE(hash_step_sources(root_, "fp32").contains("mixed/model.h"));
}

TEST_F(SourceScan, AMovedFileIsFollowedByItsInclude) {
  fs::create_directories(root_ / "base");
  fs::rename(root_ / "gpt2/cuda/check.h", root_ / "base/check_cuda.h");
  const auto file = root_ / "gpt2/ops/adamw.cu";
  std::ofstream(file, std::ios::app) << "\n#include \"base/check_cuda.h\"\n";
  EXPECT_TRUE(hash_step_sources(root_, "fp32").contains("base/check_cuda.h"));
}

// A Python environment with CMake in it, and a git worktree in which somebody tries something.
TEST_F(SourceScan, OtherTreesInsideTheCheckoutChangeNothing) {
  const auto before = hash_step_sources(root_, "mixed");
  const auto put = [&](const fs::path& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  };
  put("a/environment/without/a/mark/CheckCompilerFlag.cmake", "set(CMAKE_CXX_FLAGS -O1)\n");
  put("an-environment/pyvenv.cfg", "home = /usr\n");
  put("an-environment/CMakeLists.txt", "add_library(mixed_trainer x.cpp)\n");
  put("a-worktree/.git", "gitdir: ../.git/worktrees/a-worktree\n");
  fs::copy(root_ / "mixed", root_ / "a-worktree/mixed", fs::copy_options::recursive);
  put("a-worktree/mixed/CMakeLists.txt", "stepscope_stage(mixed_trainer RANK 1 SOURCES other.cpp)\n");
  EXPECT_EQ(hash_step_sources(root_, "mixed"), before);
}

TEST_F(SourceScan, ATreeWithoutTheTargetHasNoSources) { EXPECT_TRUE(hash_step_sources(root_, "fp64").empty()); }

}  // namespace
}  // namespace gate

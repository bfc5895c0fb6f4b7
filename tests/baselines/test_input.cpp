// baseline-fp32-v1 refuses bad input with exit code 2 and a sentence that names the flag or file, before it
// looks for a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

struct Outcome {
  int exit_code;
  std::string text;  // stdout and stderr
};

Outcome run(const std::string& arguments) {
  const std::string command = std::string("CUDA_VISIBLE_DEVICES= '") + BASELINE_PROGRAM + "' " + arguments + " 2>&1";
  std::FILE* pipe = ::popen(command.c_str(), "r");
  Outcome outcome{-1, ""};
  if (!pipe) return outcome;
  std::array<char, 4096> piece;
  while (const size_t n = std::fread(piece.data(), 1, piece.size(), pipe)) outcome.text.append(piece.data(), n);
  const int status = ::pclose(pipe);
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  return outcome;
}

class Input : public testing::Test {
 protected:
  void SetUp() override { folder_ = fresh_test_folder(); }
  void TearDown() override { fs::remove_all(folder_); }

  // A file of 256 header words, then `bytes` zeros.
  std::string file(const char* name, std::vector<int32_t> header, int64_t bytes) {
    header.resize(256);
    std::ofstream out(folder_ / name, std::ios::binary);
    out.write(reinterpret_cast<const char*>(header.data()), 1024);
    out << std::string(static_cast<size_t>(bytes), '\0');
    return (folder_ / name).string();
  }
  void refuses(const std::string& arguments, const std::string& says) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(says)) << arguments;
  }
  fs::path folder_;
};

// 1 layer, 2 heads, 4 channels, vocabulary 5 padded to 8, 6 positions: 32 + 24 + 228 + 8 parameters.
const std::vector<int32_t> kModel = {20240326, 3, 6, 5, 1, 2, 4, 8};
constexpr int64_t kModelBytes = 4 * (8 * 4 + 6 * 4 + (4 + 4 + 48 + 12 + 16 + 4 + 4 + 4 + 64 + 16 + 64 + 4) + 4 + 4);

TEST_F(Input, GoodInputWithoutADeviceExitsThree) {
  const std::string model = file("m.bin", kModel, kModelBytes);
  const Outcome outcome = run("--model " + model + " --seq-len 6");
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.text, HasSubstr("no usable GPU"));
  EXPECT_EQ(run("--help").exit_code, 0);
}

TEST_F(Input, BadFlagsAreNamed) {
  refuses("--batchsize 4", "--batchsize");
  refuses("--steps", "--steps needs a value");
  refuses("--steps ten", "--steps");
  refuses("--batch-size 0", "--batch-size");
  refuses("--batch-size -1", "--batch-size");
  refuses("--batch-size 99999999999999999999", "--batch-size");
  refuses("--batch-size 1048576 --seq-len 1024", "tokens");
  refuses("--seq-len 1025", "--seq-len");
  refuses("--learning-rate nan", "--learning-rate");
  refuses("--clip ''", "--clip");
  refuses("--matmul bf16", "--matmul");
  refuses("--model d13", "d13");
}

TEST_F(Input, BadModelsAreNamed) {
  refuses("--model " + folder_.string(), folder_.string());
  refuses("--model " + file("short.bin", kModel, kModelBytes - 4) + " --seq-len 6", "short.bin");
  refuses("--model " + file("long.bin", kModel, kModelBytes + 1) + " --seq-len 6", "long.bin");
  const auto with = [&](size_t at, int32_t value, const char* says) {
    std::vector<int32_t> header = kModel;
    header[at] = value;
    refuses("--model " + file("bad.bin", header, kModelBytes) + " --seq-len 6", says);
  };
  with(0, 20240520, "magic");
  with(1, 5, "version 5");
  with(2, -6, "longest sequence");
  with(3, 9, "padded vocabulary");
  with(4, 0, "layers");
  with(5, 3, "3 heads do not divide 4 channels");
  with(6, INT32_MAX, "channels");
}

TEST_F(Input, BadTokensAreNamed) {
  const std::string model = "--seq-len 3 --batch-size 2 --model " + file("m.bin", kModel, kModelBytes) + " --data ";
  EXPECT_EQ(run(model + file("good.bin", {20240520, 1, 7}, 14)).exit_code, 3);
  refuses(model + "/nowhere", "/nowhere");
  refuses(model + file("t.bin", {20240520, 1, 6}, 12), "fewer than one batch");
  refuses(model + file("t.bin", {20240520, 1, 7}, 12), "1036 bytes, its header means 1038");
  refuses(model + file("t.bin", {20240520, 2, 7}, 14), "version 2");
  refuses(model + file("t.bin", {20240520, 1, -7}, 14), "-7");
  refuses(model + file("t.bin", {1, 1, 7}, 14), "magic");
  const std::string outside = file("o.bin", {20240520, 1, 7}, 12);
  std::ofstream(outside, std::ios::binary | std::ios::app).write("\5\0", 2);
  refuses(model + outside, "token 5 at position 6");
  refuses(model + file("s.bin", {20240327, 2, 2, 4}, 100), "2 x 4");
}

}  // namespace

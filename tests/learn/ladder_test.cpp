// The ladders of docs/learn: predictions by hand, sizes read from the gate's cases, and on a device every rung against the oracle, with a
// right and a wrong solution of a reader.
#include "experiments/learn/ladder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/errors.h"
#include "base/temporary_folder.h"
#include "experiments/kernels/kernel_bench.h"
#include "gpt2/cuda/device_info.h"

namespace learn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const gpt2::ModelConfig kSmall{64, 509, 512, 2, 2, 128};

gate::OpCase first_case(const std::string& op) {
  std::vector<gate::OpCase> out;
  gate::for_each_case(gate::fp32_ops(), gate::model_sizes(kSmall, 3, 8), {.space = gate::Space::host, .only = op, .with_answers = false},
                      [&](const gate::OpCase& c) { out.push_back(c); });
  return out.at(0);
}

const Rung& rung(const std::vector<Rung>& rungs, const std::string& name) {
  for (const Rung& r : rungs)
    if (r.name == name) return r;
  throw std::out_of_range(name);
}

TEST(ladder, sizes_are_those_of_the_case) {
  const Sizes norm = sizes_of(first_case("layernorm_backward"), 509);
  EXPECT_EQ(norm.rows, 24);
  EXPECT_EQ(norm.C, 128);
  const Sizes linear = sizes_of(first_case("linear_forward"), 509);
  EXPECT_EQ(linear.rows, 24);
  EXPECT_EQ(linear.in, 128);
  EXPECT_EQ(linear.out, 384);
  EXPECT_TRUE(linear.bias);
  const Sizes attention = sizes_of(first_case("attention_forward"), 509);
  EXPECT_EQ(attention.B, 3);
  EXPECT_EQ(attention.T, 8);
  EXPECT_EQ(attention.NH, 2);
  EXPECT_EQ(attention.C, 128);
  const Sizes classifier = sizes_of(first_case("classifier"), 509);
  EXPECT_EQ(classifier.rows, 24);
  EXPECT_EQ(classifier.V, 509);
  EXPECT_EQ(classifier.Vp, 512);
  EXPECT_THROW(sizes_of(first_case("gelu_forward"), 509), std::logic_error);
}

// By hand, on a machine of 1 TB/s, 10 TFLOP/s and 100 SMs at 1 GHz.
TEST(ladder, predicts_the_longest_of_three_times) {
  const Machine m{1e12, 1e13, 100, 1e9};
  EXPECT_DOUBLE_EQ(predicted_ns({.bytes = 5000}, m), 5);
  EXPECT_DOUBLE_EQ(predicted_ns({.bytes = 5000, .wavefronts = 700}, m), 7);
  EXPECT_DOUBLE_EQ(predicted_ns({.bytes = 5000, .wavefronts = 700, .flops = 9e4}, m), 9);
  EXPECT_DOUBLE_EQ(predicted_ns({.bytes = 5000, .wavefronts = 700}, {1e12, 0, 0, 0}), 5);

  Sizes z;
  z.rows = 16;
  z.C = 128;
  const auto norm = ladder_of("layernorm_forward");
  EXPECT_DOUBLE_EQ(rung(norm, "three_kernels").predict(z).bytes, 4 * 16 * 128 * 4);
  EXPECT_DOUBLE_EQ(rung(norm, "warp_two_passes").predict(z).bytes, 2 * 16 * 128 * 4);
  z.in = 128;
  z.out = 64;
  const auto linear = ladder_of("linear_forward");
  EXPECT_DOUBLE_EQ(rung(linear, "scattered").predict(z).wavefronts, 33.0 * 16 * 128 * 64 / 32);
  EXPECT_DOUBLE_EQ(rung(linear, "register_tiles").predict(z).flops, 2.0 * 16 * 128 * 64);
  EXPECT_DOUBLE_EQ(rung(linear, "shared_tiles").predict(z).bytes, 4.0 * (16 * 128 + 128 * 64 + 16 * 64));
  Sizes a;
  a.B = 2, a.T = 8, a.NH = 2, a.C = 128;  // 4 heads of 64 channels with 36 pairs each
  EXPECT_DOUBLE_EQ(rung(ladder_of("attention_forward"), "warp_per_query").predict(a).wavefronts, 4 * 36 * 9.0);
  z.Vp = 512;
  EXPECT_DOUBLE_EQ(rung(ladder_of("classifier"), "online").predict(z).bytes, 3 * 16 * 512 * 4);
}

TEST(ladder, stands_for_the_ops_of_the_chapters) {
  EXPECT_THAT(ops_with_a_ladder(),
              ElementsAre("layernorm_forward", "layernorm_backward", "linear_forward", "attention_forward", "classifier"));
  EXPECT_TRUE(ladder_of("gelu_forward").empty());
  for (const std::string& op : ops_with_a_ladder())
    for (const Rung& r : ladder_of(op)) EXPECT_FALSE(r.idea.empty()) << r.name;
}

TEST(ladder, is_refused_where_there_is_none) {
  experiments::KernelBenchOptions options;
  options.ladder = true;
  EXPECT_THROW(experiments::bench_kernels("gelu_forward", kSmall, 2, 8, 1, options), stepscope::InputError);
  options.trainer = "mixed";
  options.matmul = "bf16";
  EXPECT_THROW(experiments::bench_kernels("layernorm_forward", kSmall, 2, 8, 1, options), stepscope::InputError);
}

// Without a device, and before the ceilings of one are measured.
TEST(ladder, a_solution_that_is_no_file_is_refused_at_once) {
  experiments::KernelBenchOptions options;
  options.ladder = true;
  options.solution = SOURCE_DIR "/tests/learn/no_such_file.cu";
  EXPECT_THROW(experiments::check_kernel_options("layernorm_forward", options), stepscope::InputError);
  options.solution = SOURCE_DIR "/tests/learn/right_layernorm.cu";
  EXPECT_NO_THROW(experiments::check_kernel_options("layernorm_forward", options));
}

std::string why_no_solution() {
  try {
    solution("layernorm_forward", SOURCE_DIR "/tests/learn/right_layernorm.cu");
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

// CMake takes CUDACXX=nvcc for the nvcc of the PATH.
TEST(ladder, the_compiler_may_be_a_name_of_the_path) {
  const char* before = std::getenv("CUDACXX");
  const std::string path = std::getenv("PATH"), kept = before ? before : "";
  const stepscope::TemporaryFolder folder;
  std::ofstream(folder.file("an-nvcc")) << "#!/bin/sh\nexit 1\n";
  std::filesystem::permissions(folder.file("an-nvcc"), std::filesystem::perms::owner_all);
  setenv("PATH", (folder.path().string() + ":" + path).c_str(), 1);
  setenv("CUDACXX", "an-nvcc", 1);
  EXPECT_THAT(why_no_solution(), Not(HasSubstr("an-nvcc")));  // found; then there is no device, or it compiles nothing
  EXPECT_THAT(why_no_solution(), Not(HasSubstr("in PATH")));
  setenv("CUDACXX", "no-such-nvcc", 1);
  EXPECT_THAT(why_no_solution(), HasSubstr("CUDACXX, which is 'no-such-nvcc', and there is no such program"));
  setenv("PATH", path.c_str(), 1);
  if (before)
    setenv("CUDACXX", kept.c_str(), 1);
  else
    unsetenv("CUDACXX");
}

class OnTheDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = gpt2::cuda::why_no_device()) GTEST_SKIP() << *why;
    options_.ladder = true;
    options_.rounds = 3;
    options_.copy_bytes_per_s = 1e12;
    options_.fp32_flops_per_s = 1e13;
  }
  experiments::KernelBenchOptions options_;
};

// 3 x 37 tokens, 96 and 384 channels, heads of 48 and 128: no power of two, no multiple of a tile.
TEST_F(OnTheDevice, every_rung_is_right_but_the_one_that_teaches_an_error) {
  for (const gpt2::ModelConfig& model : {gpt2::ModelConfig{64, 509, 512, 2, 2, 96}, gpt2::ModelConfig{64, 1021, 1024, 1, 3, 384}})
    for (const std::string& op : ops_with_a_ladder()) {
      bool refused_the_error = false;
      for (const auto& r : experiments::bench_kernels(op, model, 3, 37, 5, options_)) {
        if (r.teaches_an_error && !r.right)
          refused_the_error = true;
        else
          EXPECT_TRUE(r.right || r.refused) << r.op << " " << r.variant << " " << r.shape << ": " << r.wrong;
        if (r.is_rung) {
          EXPECT_GT(r.predicted_ns, 0) << r.variant;
        }
      }
      EXPECT_EQ(refused_the_error, op == "layernorm_forward") << op;
    }
}

TEST_F(OnTheDevice, a_readers_solution_is_judged) {
  options_.solution = SOURCE_DIR "/tests/learn/right_layernorm.cu";
  int yours = 0;
  for (const auto& r : experiments::bench_kernels("layernorm_forward", kSmall, 2, 37, 7, options_))
    if (r.variant == "yours") {
      EXPECT_TRUE(r.right) << r.wrong;
      EXPECT_GT(r.median_ns, 0);
      ++yours;
    }
  EXPECT_EQ(yours, 2);                                               // ordinary rows and far means
  options_.solution = SOURCE_DIR "/tests/learn/wrong_layernorm.cu";  // leaves the last channel of each row out of the mean
  for (const auto& r : experiments::bench_kernels("layernorm_forward", kSmall, 2, 37, 7, options_))
    if (r.variant == "yours") {
      EXPECT_FALSE(r.right);
      EXPECT_THAT(r.wrong, HasSubstr("error"));
    }
}

TEST_F(OnTheDevice, a_solution_that_is_none_is_refused) {
  options_.solution = SOURCE_DIR "/tests/learn/no_such_file.cu";
  EXPECT_THROW(experiments::bench_kernels("layernorm_forward", kSmall, 2, 8, 1, options_), stepscope::InputError);
  options_.solution = SOURCE_DIR "/tests/learn/right_layernorm.cu";  // has no such function
  EXPECT_THROW(experiments::bench_kernels("classifier", kSmall, 2, 8, 1, options_), stepscope::InputError);
}

}  // namespace
}  // namespace learn

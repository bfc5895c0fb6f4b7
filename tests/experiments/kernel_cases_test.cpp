// The quick loop: bytes and FLOPs of its cases by hand, and on a device every variant right and timed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/errors.h"
#include "experiments/gate/op_case.h"
#include "experiments/kernels/kernel_bench.h"
#include "experiments/kernels/operand_turns.h"
#include "gpt2/cuda/device_info.h"

namespace experiments {
namespace {

using ::testing::Contains;

const gpt2::ModelConfig kSmall{64, 509, 512, 2, 2, 128};

std::vector<gate::OpCase> cases(const std::string& op) {
  std::vector<gate::OpCase> out;
  gate::for_each_case(gate::fp32_ops(), gate::model_sizes(kSmall, 2, 8), {.space = gate::Space::host, .only = op, .with_answers = false},
                      [&](const gate::OpCase& c) { out.push_back(c); });
  return out;
}

TEST(kernel_cases, count_bytes_and_flops_of_the_mathematics) {
  // B=2 T=8: 16 rows of 128 channels.
  const auto norm = cases("layernorm_forward");
  ASSERT_EQ(norm.size(), 1u);
  EXPECT_EQ(norm[0].min_bytes(), 4.0 * (16 * 128 * 2 + 16 * 2 + 128 * 2));
  EXPECT_EQ(norm[0].flops, 0);
  const auto linear = cases("linear_forward");
  ASSERT_EQ(linear.size(), 5u);  // qkv, attproj, mlp_up, mlp_down, lm_head
  EXPECT_EQ(linear[0].flops, 2.0 * 16 * 128 * 384);
  EXPECT_EQ(linear[0].min_bytes(), 4.0 * (16 * 384 + 16 * 128 + 384 * 128 + 384));
  EXPECT_EQ(linear[4].min_bytes(), 4.0 * (16 * 512 + 16 * 128 + 512 * 128));  // no bias
  EXPECT_EQ(cases("linear_backward").at(0).flops, 4.0 * 16 * 128 * 384);
  EXPECT_EQ(cases("attention_forward").at(0).flops, 2.0 * 2 * 8 * 8 * 128);
  EXPECT_EQ(cases("attention_backward").at(0).flops, 5.0 * 2 * 8 * 8 * 128);
  // The classifier replaces the logits: read and written.
  EXPECT_EQ(cases("classifier").at(0).min_bytes(), 4.0 * (16 * 512 * 2 + 16 + 16));
}

TEST(operand_turns, let_three_times_l2_pass_before_a_copy_comes_again) {
  constexpr double kL2 = 50e6;
  for (const double bytes : {1e6, 2.5e6, 7e6, 49e6, 51e6, 149e6, 151e6, 1e9}) {
    OperandTurns turns(kL2, bytes);
    std::map<size_t, int> last;
    for (int launch = 0; launch < 200; ++launch) {
      const size_t copy = turns.next();
      ASSERT_LT(copy, turns.copies());
      const auto before = last.find(copy);
      // What this copy's last launch and those since then touched.
      if (before != last.end() && turns.copies() < 64) {
        EXPECT_GE((launch - before->second) * bytes, 3 * kL2) << bytes;
      }
      last[copy] = launch;
    }
    EXPECT_EQ(last.size(), turns.copies()) << "a copy that no launch meets only takes memory";
  }
  // The memory for thousands of copies is not spent on a small case.
  EXPECT_EQ(OperandTurns(kL2, 100).copies(), 64u);
  EXPECT_EQ(OperandTurns(kL2, 1e6).copies(), 64u);
  EXPECT_EQ(OperandTurns(kL2, 151e6).copies(), 1u);
}

TEST(kernel_bench, names_the_ops_there_are_when_asked_for_another) {
  EXPECT_THAT(kernel_ops("fp32"), Contains("gelu_forward"));
  EXPECT_THAT(kernel_ops("mixed"), Contains("linear_gelu_backward_input"));
  EXPECT_THROW(bench_kernels("attention", kSmall, 2, 8, 1, {}), stepscope::InputError);
}

TEST(kernel_bench, finds_every_variant_right_and_times_it) {
  if (const auto why = gpt2::cuda::why_no_device()) GTEST_SKIP() << *why;
  for (const char* trainer : {"fp32", "mixed"}) {
    KernelBenchOptions options;
    options.trainer = trainer;
    options.matmul = options.trainer == "mixed" ? "bf16" : "fp32";
    options.rounds = 5;
    for (const std::string& op : kernel_ops(trainer))
      for (const KernelResult& r : bench_kernels(op, kSmall, 2, 64, 3, options)) {
        EXPECT_TRUE(r.right || r.refused) << trainer << " " << r.op << " " << r.variant << " " << r.shape << ": " << r.wrong;
        if (r.refused) continue;
        EXPECT_GT(r.median_ns, 0) << r.op << " " << r.variant;
        EXPECT_LE(r.p05_ns, r.median_ns);
      }
  }
}

}  // namespace
}  // namespace experiments

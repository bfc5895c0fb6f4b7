// The quick loop's cases: bytes and FLOPs by hand, and on a device every variant right and timed.
#include "experiments/kernels/kernel_cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "experiments/kernels/kernel_bench.h"
#include "gpt2/cuda/device_info.h"
#include "gpt2/errors.h"

namespace experiments {
namespace {

const gpt2::ModelConfig kSmall{64, 509, 512, 2, 2, 128};

TEST(kernel_cases, count_bytes_and_flops_of_the_mathematics) {
  // B=2 T=8: 16 rows of 128 channels.
  const KernelCase norm = kernel_cases("layernorm_forward", kSmall, 2, 8, 1).at(0);
  EXPECT_EQ(norm.min_bytes(), 4.0 * (16 * 128 * 2 + 16 * 2 + 128 * 2));
  EXPECT_EQ(norm.flops, 0);
  const auto linear = kernel_cases("linear_forward", kSmall, 2, 8, 1);
  ASSERT_EQ(linear.size(), 5u);  // qkv, attproj, mlp_up, mlp_down, lm_head
  EXPECT_EQ(linear[0].flops, 2.0 * 16 * 128 * 384);
  EXPECT_EQ(linear[0].min_bytes(), 4.0 * (16 * 384 + 16 * 128 + 384 * 128 + 384));
  EXPECT_EQ(linear[4].min_bytes(), 4.0 * (16 * 512 + 16 * 128 + 512 * 128));  // no bias
  EXPECT_EQ(kernel_cases("attention_forward", kSmall, 2, 8, 1).at(0).flops, 2.0 * 2 * 8 * 8 * 128);
  EXPECT_EQ(kernel_cases("attention_backward", kSmall, 2, 8, 1).at(0).flops, 5.0 * 2 * 8 * 8 * 128);
  // The classifier replaces the logits: read and written.
  EXPECT_EQ(kernel_cases("classifier", kSmall, 2, 8, 1).at(0).min_bytes(), 4.0 * (16 * 512 * 2 + 16 + 16));
}

TEST(kernel_cases, know_what_must_come_out_of_what_is_checked) {
  for (const std::string& op : kernel_ops())
    for (const KernelCase& k : kernel_cases(op, kSmall, 2, 8, 1))
      for (const gate::OpTensor& t : k.check.tensors) {
        const bool checked = t.role != gate::Role::input;
        EXPECT_EQ(t.want.size(), checked ? static_cast<size_t>(t.count()) : 0) << op << " " << t.name;
      }
}

TEST(kernel_cases, name_the_ops_there_are_when_asked_for_another) {
  EXPECT_THROW(kernel_cases("attention", kSmall, 2, 8, 1), stepscope::InputError);
}

TEST(kernel_bench, finds_every_variant_right_and_times_it) {
  if (const auto why = gpt2::cuda::why_no_device()) GTEST_SKIP() << *why;
  KernelBenchOptions options;
  options.rounds = 5;
  for (const std::string& op : kernel_ops())
    for (const KernelResult& r : bench_kernels(op, kSmall, 2, 64, 3, options)) {
      EXPECT_TRUE(r.right) << r.op << " " << r.variant << " " << r.shape << ": " << r.wrong;
      EXPECT_GT(r.median_ns, 0) << r.op << " " << r.variant;
      EXPECT_LE(r.p05_ns, r.median_ns);
    }
}

}  // namespace
}  // namespace experiments

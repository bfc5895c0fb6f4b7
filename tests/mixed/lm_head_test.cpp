// The head without logits: losses, factors and rows of X against softmax in double, and what rows that are too large for exponentials over
// their target's logit do to themselves and to the others. Gradients are the op gate's (op case lm_head).
#include "mixed/kernels/lm_head.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_buffer.h"
#include "tests/prototypes/hopper_here.h"

namespace mixed {
namespace {

using gpt2::cuda::DeviceBuffer;

template <class T>
DeviceBuffer<T> on_device(const std::vector<T>& host) {
  DeviceBuffer<T> out(static_cast<int64_t>(host.size()));
  STEPSCOPE_CUDA_CHECK(cudaMemcpy(out.data(), host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return out;
}
template <class T>
std::vector<T> to_host(const DeviceBuffer<T>& there) {
  std::vector<T> out(static_cast<size_t>(there.size()));
  STEPSCOPE_CUDA_CHECK(cudaMemcpy(out.data(), there.data(), out.size() * sizeof(T), cudaMemcpyDeviceToHost));
  return out;
}
float number(bf16 x) { return __bfloat162float(x); }

constexpr size_t kRows = 200, kChannels = 136, kVocabulary = 1000, kPadded = 1016, kSpecial = 500;

struct Inputs {
  std::vector<bf16> x, w;
  std::vector<int> targets;
};
// The logit of kSpecial is 3 times a row's channel 1, and of no row the target.
Inputs ordinary() {
  Inputs in{std::vector<bf16>(kRows * kChannels), std::vector<bf16>(kPadded * kChannels), std::vector<int>(kRows)};
  std::mt19937 random(1);
  std::normal_distribution<float> value(0, 1);
  for (bf16& v : in.x) v = __float2bfloat16(value(random));
  for (bf16& v : in.w) v = __float2bfloat16(0.1f * value(random));
  in.w[kSpecial * kChannels + 1] = __float2bfloat16(3);
  for (size_t i = 0; i < kRows; ++i) in.targets[i] = static_cast<int>(i * 37 % kSpecial);
  return in;
}

struct Results {
  std::vector<float> losses, factors;
  std::vector<bf16> scaled, exponentials;
};
Results run(const Inputs& in, float gradient_scale) {
  auto x = on_device(in.x);
  const auto w = on_device(in.w);
  const auto targets = on_device(in.targets);
  gpt2::ops::StepScalars set;
  set.gradient_scale = gradient_scale;
  const auto scalars = on_device(std::vector<gpt2::ops::StepScalars>{set});
  DeviceBuffer<float> losses(kRows), factors(kRows);
  DeviceBuffer<bf16> exponentials(kRows * kPadded);
  DeviceBuffer<unsigned char> scratch(head_scratch_bytes(kRows, kPadded));
  STEPSCOPE_CUDA_CHECK(cudaMemset(scratch.data(), 0xff, static_cast<size_t>(scratch.bytes())));
  const Head head{kRows, kChannels, kVocabulary, kPadded, x.data(), w.data(), targets.data(), exponentials.data(), scratch.data()};
  HopperProducts products;
  head_forward(products, head, nullptr);
  head_losses(losses.data(), factors.data(), head, scalars.data(), nullptr);
  STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
  return {to_host(losses), to_host(factors), to_host(x), to_host(exponentials)};
}

std::vector<double> logits_of(const Inputs& in, size_t row) {
  std::vector<double> z(kVocabulary, 0);
  for (size_t j = 0; j < kVocabulary; ++j)
    for (size_t c = 0; c < kChannels; ++c)
      z[j] += static_cast<double>(number(in.x[row * kChannels + c])) * static_cast<double>(number(in.w[j * kChannels + c]));
  return z;
}

// Of one row: its loss, and with its factor its gradient of the logits and its row of X.
void expect_softmax(const Inputs& in, const Results& got, size_t row, double gradient_scale) {
  const std::vector<double> z = logits_of(in, row);
  const auto target = static_cast<size_t>(in.targets[row]);
  const double max = *std::max_element(z.begin(), z.end());
  double sum = 0;
  for (const double v : z) sum += std::exp(v - max);
  const double loss = std::log(sum) + max - z[target];
  ASSERT_NEAR(got.losses[row], loss, 1e-4 * (1 + std::abs(loss))) << row;
  const double factor = static_cast<double>(got.factors[row]);
  for (size_t j = 0; j < kPadded; ++j) {
    double want = j < kVocabulary ? std::exp(z[j] - max) / sum : 0;
    const double error = want / 200 + 2e-3 * (j == target ? 1 : 0);
    if (j == target) want -= 1;
    ASSERT_NEAR(factor * static_cast<double>(number(got.exponentials[row * kPadded + j])), gradient_scale * want,
                gradient_scale * (error + std::abs(want) / 200 + 1e-9))
        << row << ", " << j;
  }
  for (size_t c = 0; c < kChannels; ++c) {
    const double want = factor * static_cast<double>(number(in.x[row * kChannels + c]));
    ASSERT_NEAR(static_cast<double>(number(got.scaled[row * kChannels + c])), want, std::abs(want) / 200) << row << ", " << c;
  }
}

class LmHead : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = why_no_hopper()) GTEST_SKIP() << *why;
  }
};

TEST_F(LmHead, IsSoftmaxAndItsGradient) {
  constexpr float kScale = 1.0f / kRows;
  const Inputs in = ordinary();
  const Results got = run(in, kScale);
  for (size_t row = 0; row < kRows; ++row) expect_softmax(in, got, row, static_cast<double>(kScale));
}

// A loss of 36 is granted, 60 and 300 are not; exp(300) is no number of bf16 or fp32.
TEST_F(LmHead, ARowThatIsTooLargeIsMadeAgainAndLeavesTheOthersTheirBits) {
  constexpr float kScale = 1e-6f;  // as small as steps of a million tokens make it
  const Inputs before = ordinary();
  const Results alone = run(before, kScale);
  for (const float channel : {12.0f, 20.0f, 100.0f}) {
    Inputs in = before;
    const std::vector<size_t> large{0, 77, 128, kRows - 1};
    for (const size_t row : large) in.x[row * kChannels + 1] = __float2bfloat16(channel);
    const Results got = run(in, kScale);
    for (size_t row = 0; row < kRows; ++row) {
      if (std::find(large.begin(), large.end(), row) != large.end()) {
        expect_softmax(in, got, row, static_cast<double>(kScale));
        continue;
      }
      ASSERT_EQ(got.losses[row], alone.losses[row]) << row;
      ASSERT_EQ(got.factors[row], alone.factors[row]) << row;
      for (size_t j = 0; j < kPadded; ++j)
        ASSERT_EQ(number(got.exponentials[row * kPadded + j]), number(alone.exponentials[row * kPadded + j])) << row << ", " << j;
    }
  }
}

}  // namespace
}  // namespace mixed

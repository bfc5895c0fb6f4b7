// The head without logits, from X and W to losses, dX and the rows that dW is made of, against softmax and its gradient in double.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "experiments/prototypes/hopper_product/lm_head.h"
#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_buffer.h"
#include "mixed/hopper/multiply.h"

namespace {

using bf16 = __nv_bfloat16;
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

constexpr int kRows = 200, kChannels = 136, kVocabulary = 1000, kPadded = 1016;
constexpr float kScale = 1.0f / kRows;

// Softmax of a row in double.
std::vector<double> probabilities(const std::vector<double>& x, const std::vector<double>& w, size_t row, double& log_sum,
                                  std::vector<double>& logits) {
  logits.assign(kVocabulary, 0);
  double max = -1e300, sum = 0;
  for (size_t j = 0; j < kVocabulary; ++j) {
    for (size_t c = 0; c < kChannels; ++c) logits[j] += x[row * kChannels + c] * w[j * kChannels + c];
    max = std::max(max, logits[j]);
  }
  std::vector<double> p(kVocabulary);
  for (size_t j = 0; j < kVocabulary; ++j) sum += p[j] = std::exp(logits[j] - max);
  for (double& v : p) v /= sum;
  log_sum = max + std::log(sum);
  return p;
}

TEST(HopperLmHead, IsSoftmaxAndItsGradient) {
  int devices = 0, major = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU";
  STEPSCOPE_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  if (major != 9) GTEST_SKIP() << "wgmma needs compute capability 9.0";
  std::mt19937 random(1);
  std::normal_distribution<float> value(0, 1);
  std::vector<bf16> x(kRows * kChannels), w(kPadded * kChannels);
  for (bf16& v : x) v = __float2bfloat16(value(random));
  for (bf16& v : w) v = __float2bfloat16(0.3f * value(random));
  std::vector<int> targets(kRows);
  for (int i = 0; i < kRows; ++i) targets[static_cast<size_t>(i)] = i * 37 % kVocabulary;
  const auto dx = on_device(x), dw = on_device(w);
  const auto dtargets = on_device(targets);
  const auto scale = on_device(std::vector<float>{kScale});
  const hopper::Cut cut;
  const int widths = (kPadded + cut.columns - 1) / cut.columns;
  DeviceBuffer<float> offset(kRows), sums(int64_t{widths} * kRows), losses(kRows), factors(kRows);
  DeviceBuffer<bf16> e(kRows * kPadded), scaled(kRows * kChannels), gradient(kRows * kChannels);
  DeviceBuffer<int> overflow(1);
  STEPSCOPE_CUDA_CHECK(cudaMemset(overflow.data(), 0, sizeof(int)));
  const hopper::Head head{kRows, kChannels, dx.data(), dw.data(), dtargets.data()};
  hopper::head_offsets(offset.data(), head, nullptr);
  hopper::Problem p;
  p.m = kRows, p.n = kPadded, p.k = kChannels, p.a = dx.data(), p.b = dw.data(), p.out = e.data(), p.offset = offset.data();
  p.row_sums = sums.data(), p.overflow = overflow.data(), p.kept = kVocabulary;
  hopper::Product(p, hopper::Tail::exponential, cut).run(nullptr);
  hopper::head_losses(losses.data(), factors.data(), scaled.data(), sums.data(), widths, scale.data(), head, nullptr);
  hopper::Problem q;  // E W
  q.m = kRows, q.n = kChannels, q.k = kPadded, q.a = e.data(), q.b = dw.data(), q.b_across = true, q.out = gradient.data();
  hopper::Product(q, hopper::Tail::plain, cut).run(nullptr);
  hopper::head_input_gradient(gradient.data(), factors.data(), scale.data(), head, nullptr);
  STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());

  EXPECT_EQ(to_host(overflow)[0], 0);
  const auto got_losses = to_host(losses), got_factors = to_host(factors);
  const auto got = to_host(gradient), got_scaled = to_host(scaled), got_e = to_host(e);
  std::vector<double> xd, wd, logits;
  for (const bf16 v : x) xd.push_back(__bfloat162float(v));
  for (const bf16 v : w) wd.push_back(__bfloat162float(v));
  for (size_t row = 0; row < kRows; ++row) {
    double log_sum = 0;
    const auto prob = probabilities(xd, wd, row, log_sum, logits);
    const auto target = static_cast<size_t>(targets[row]);
    const double loss = log_sum - logits[target];
    ASSERT_NEAR(got_losses[row], loss, 1e-4 * (1 + std::abs(loss))) << row;
    ASSERT_NEAR(got_factors[row], kScale * std::exp(-loss), 2e-4 * kScale * std::exp(-loss)) << row;
    for (size_t j = kVocabulary; j < kPadded; ++j) ASSERT_EQ(__bfloat162float(got_e[row * kPadded + j]), 0) << row << ", " << j;
    for (size_t c = 0; c < kChannels; ++c) {
      double want = -wd[target * kChannels + c], size = std::abs(want);
      for (size_t j = 0; j < kVocabulary; ++j) {
        want += prob[j] * wd[j * kChannels + c];
        size += prob[j] * std::abs(wd[j * kChannels + c]);
      }
      // E, E W and the result are each rounded to bf16.
      ASSERT_NEAR(__bfloat162float(got[row * kChannels + c]), kScale * want, kScale * size / 128) << row << ", " << c;
      const double s = kScale * std::exp(-loss) * xd[row * kChannels + c];
      ASSERT_NEAR(__bfloat162float(got_scaled[row * kChannels + c]), s, std::abs(s) / 200 + 1e-30) << row << ", " << c;
    }
  }
}

}  // namespace

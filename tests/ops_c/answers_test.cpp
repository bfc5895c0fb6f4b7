// Each op of the C interface on a device, on a handful of numbers, against the formula in double. What the kernels do at other shapes is
// the gate's to check; here it is whether every argument reaches the place it is named for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gpt2/cuda/device_buffer.h"
#include "gpt2/cuda/device_info.h"
#include "python/native/stepscope_ops.h"

namespace {

using gpt2::cuda::DeviceBuffer;

template <class T>
DeviceBuffer<T> to_device(const std::vector<T>& host) {
  DeviceBuffer<T> buffer(static_cast<int64_t>(host.size()));
  EXPECT_EQ(cudaMemcpy(buffer.data(), host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  return buffer;
}
template <class T>
std::vector<T> to_host(const DeviceBuffer<T>& buffer) {
  std::vector<T> host(static_cast<size_t>(buffer.size()));
  EXPECT_EQ(cudaMemcpy(host.data(), buffer.data(), host.size() * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
  return host;
}
std::vector<float> numbers(size_t n, uint32_t seed) {
  std::vector<float> x(n);
  for (float& v : x) {
    seed = seed * 1664525u + 1013904223u;
    v = static_cast<float>(seed >> 8) / 8388608.0f - 1.0f;
  }
  return x;
}
void expect_near(const std::vector<float>& got, const std::vector<double>& truth, double tolerance) {
  ASSERT_EQ(got.size(), truth.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], truth[i], tolerance) << "element " << i;
}
#define ASSERT_OK(call) ASSERT_EQ(call, STEPSCOPE_OPS_OK) << stepscope_ops_last_error()

class OpsCAnswers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = gpt2::cuda::why_no_device()) GTEST_SKIP() << *why;
  }
};

TEST_F(OpsCAnswers, LayernormForwardAndBackward) {
  constexpr int64_t kRows = 5, kC = 8;
  const auto x = numbers(kRows * kC, 1), w = numbers(kC, 2), b = numbers(kC, 3), d = numbers(kRows * kC, 4);
  const auto dx = to_device(x), dw = to_device(w), db = to_device(b), dd = to_device(d);
  DeviceBuffer<float> out(kRows * kC), mean(kRows), rstd(kRows), dinp(kRows * kC), dweight(kC), dbias(kC);
  ASSERT_OK(stepscope_ops_layernorm_forward("block_per_row", 0, 0, out.data(), mean.data(), rstd.data(), nullptr, dx.data(), dw.data(),
                                            db.data(), kRows, kC, nullptr));
  int64_t bytes = 0;
  ASSERT_OK(stepscope_ops_layernorm_backward_scratch("fused_rows", 0, kRows, kC, &bytes));
  DeviceBuffer<unsigned char> scratch(bytes);
  ASSERT_OK(stepscope_ops_layernorm_backward("fused_rows", 0, 0, dinp.data(), dweight.data(), dbias.data(), dd.data(), dx.data(),
                                             mean.data(), rstd.data(), dw.data(), kRows, kC, scratch.data(), bytes, nullptr));
  std::vector<double> want(kRows * kC), want_dinp(kRows * kC), want_dw(kC, 0), want_db(kC, 0);
  for (int64_t r = 0; r < kRows; ++r) {
    double m = 0, v = 0, sum_dn = 0, sum_dnx = 0;
    for (int64_t c = 0; c < kC; ++c) m += x[r * kC + c] / static_cast<double>(kC);
    for (int64_t c = 0; c < kC; ++c) v += (x[r * kC + c] - m) * (x[r * kC + c] - m) / kC;
    const double s = 1 / std::sqrt(v + 1e-5);
    for (int64_t c = 0; c < kC; ++c) {
      const double xhat = (x[r * kC + c] - m) * s, g = d[r * kC + c];
      want[r * kC + c] = xhat * w[c] + b[c];
      want_dw[c] += g * xhat, want_db[c] += g;
      sum_dn += g * w[c] / kC, sum_dnx += g * w[c] * xhat / kC;
    }
    for (int64_t c = 0; c < kC; ++c)
      want_dinp[r * kC + c] = s * (d[r * kC + c] * static_cast<double>(w[c]) - sum_dn - (x[r * kC + c] - m) * s * sum_dnx);
  }
  expect_near(to_host(out), want, 1e-5);
  expect_near(to_host(dinp), want_dinp, 1e-4);
  expect_near(to_host(dweight), want_dw, 1e-5);
  expect_near(to_host(dbias), want_db, 1e-5);
}

TEST_F(OpsCAnswers, GeluForwardAndBackward) {
  auto x = numbers(33, 5);
  for (float& v : x) v *= 4;
  const auto d = numbers(33, 6);
  const auto dx = to_device(x), dd = to_device(d);
  DeviceBuffer<float> out(33), dinp(33);
  ASSERT_OK(stepscope_ops_gelu_forward(0, out.data(), dx.data(), 33, nullptr));
  ASSERT_OK(stepscope_ops_gelu_backward(0, dinp.data(), dd.data(), dx.data(), 33, nullptr));
  const auto gelu = [](double v) { return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))); };
  std::vector<double> want(33), want_dinp(33);
  for (size_t i = 0; i < 33; ++i) {
    want[i] = gelu(x[i]);
    want_dinp[i] = d[i] * (gelu(x[i] + 1e-5) - gelu(x[i] - 1e-5)) / 2e-5;
  }
  expect_near(to_host(out), want, 1e-5);
  expect_near(to_host(dinp), want_dinp, 1e-4);
}

// logits of 4 rows, 5 classes in 8 columns; row 1 is ignored. The padding holds what must never be read.
class OpsCCrossEntropy : public OpsCAnswers {
 protected:
  static constexpr int64_t kRows = 4, kV = 5, kVp = 8;
  std::vector<float> logits() const {
    auto x = numbers(kRows * kVp, 9);
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t c = kV; c < kVp; ++c) x[r * kVp + c] = 1e30f;
    return x;
  }
  struct Answer {
    float loss;
    std::vector<float> gradient;
  };
  // pitch: of the logits that kept_sum reads; the others read rows of kVp.
  Answer run(const char* variant, const std::vector<int64_t>& targets, float upstream, int64_t pitch = kV) const {
    const auto x = to_device(logits());
    const auto t = to_device(targets);
    const auto up = to_device(std::vector<float>{upstream});
    int64_t bytes = 0;
    EXPECT_EQ(stepscope_ops_cross_entropy_scratch(kRows, &bytes), 0);
    DeviceBuffer<unsigned char> scratch(bytes);
    DeviceBuffer<float> loss(1);
    if (std::string(variant) == "kept_sum") return run_kept_sum(t.data(), up.data(), scratch.data(), bytes, pitch);
    EXPECT_EQ(stepscope_ops_cross_entropy_forward(variant, 0, loss.data(), x.data(), t.data(), kRows, kV, kVp, -100, scratch.data(), bytes,
                                                  nullptr),
              0)
        << stepscope_ops_last_error();
    EXPECT_EQ(to_host(x), logits()) << "the forward changed the logits";
    EXPECT_EQ(stepscope_ops_cross_entropy_backward(variant, 0, x.data(), t.data(), up.data(), kRows, kV, kVp, -100, scratch.data(), bytes,
                                                   nullptr),
              0)
        << stepscope_ops_last_error();
    return {to_host(loss)[0], to_host(x)};
  }

 private:
  // Between the rows lies what must never be read; the gradient's memory begins as NaN, so that a column left out shows.
  Answer run_kept_sum(const int64_t* targets, const float* upstream, void* scratch, int64_t bytes, int64_t pitch) const {
    std::vector<float> rows(kRows * pitch, 1e30f);
    const auto padded = logits();
    for (int64_t r = 0; r < kRows; ++r) std::copy_n(padded.begin() + r * kVp, kV, rows.begin() + r * pitch);
    const auto x = to_device(rows), gradient = to_device(std::vector<float>(kRows * kVp, NAN));
    DeviceBuffer<float> loss(1), kept(2 * kRows);
    EXPECT_EQ(stepscope_ops_cross_entropy_kept_sum_forward(0, loss.data(), kept.data(), x.data(), targets, kRows, kV, pitch, -100, scratch,
                                                           bytes, nullptr),
              0)
        << stepscope_ops_last_error();
    EXPECT_EQ(stepscope_ops_cross_entropy_kept_sum_backward(0, gradient.data(), x.data(), kept.data(), targets, upstream, kRows, kV, pitch,
                                                            kVp, -100, scratch, bytes, nullptr),
              0)
        << stepscope_ops_last_error();
    EXPECT_EQ(to_host(x), rows) << "the logits changed";
    return {to_host(loss)[0], to_host(gradient)};
  }
};

TEST_F(OpsCCrossEntropy, KeptSumReadsRowsOfAnyPitchToTheSameBits) {
  const std::vector<int64_t> targets = {3, -100, 0, 4};
  const Answer contiguous = run("kept_sum", targets, 2.0f, kV);
  ASSERT_TRUE(std::isfinite(contiguous.loss));
  for (const int64_t pitch : {kV + 1, kVp, kVp + 3}) {
    SCOPED_TRACE(pitch);
    const Answer strided = run("kept_sum", targets, 2.0f, pitch);
    EXPECT_EQ(strided.loss, contiguous.loss);
    EXPECT_EQ(strided.gradient, contiguous.gradient);
  }
}

TEST_F(OpsCCrossEntropy, CountsOnlyRowsThatAreNotIgnored) {
  const std::vector<int64_t> targets = {3, -100, 0, 4};
  for (const char* variant : {"two_pass", "one_read", "kept_sum"}) {
    SCOPED_TRACE(variant);
    const Answer answer = run(variant, targets, 2.0f);
    const auto x = logits();
    double loss = 0;
    std::vector<double> want(kRows * kVp, 0);
    for (int64_t r = 0; r < kRows; ++r) {
      if (targets[r] == -100) continue;
      double sum = 0;
      for (int64_t c = 0; c < kV; ++c) sum += std::exp(static_cast<double>(x[r * kVp + c]));
      loss += (std::log(sum) - x[r * kVp + targets[r]]) / 3;
      for (int64_t c = 0; c < kV; ++c)
        want[r * kVp + c] = 2.0 / 3 * (std::exp(static_cast<double>(x[r * kVp + c])) / sum - (c == targets[r] ? 1 : 0));
    }
    EXPECT_NEAR(answer.loss, loss, 1e-5);
    expect_near(answer.gradient, want, 1e-6);
  }
}

TEST_F(OpsCCrossEntropy, ATargetOutsideGivesNanAndNoOtherRow) {
  for (const int64_t outside : {int64_t{5}, int64_t{-1}, std::numeric_limits<int64_t>::max()}) {
    SCOPED_TRACE(outside);
    for (const char* variant : {"two_pass", "kept_sum"}) {
      SCOPED_TRACE(variant);
      const Answer answer = run(variant, {3, outside, 0, 4}, 1.0f);
      EXPECT_TRUE(std::isnan(answer.loss));
      for (int64_t i = 0; i < kRows * kVp; ++i) EXPECT_EQ(std::isnan(answer.gradient[i]), i / kVp == 1) << i;
    }
  }
}

TEST_F(OpsCAnswers, AttentionOfEveryVariantIsCausal) {
  constexpr int64_t kB = 2, kT = 6, kC = 16, kNH = 2, kHS = 8;
  const auto qkv = numbers(kB * kT * 3 * kC, 11);
  std::vector<double> want(kB * kT * kC, 0);
  for (int64_t b = 0; b < kB; ++b)
    for (int64_t h = 0; h < kNH; ++h)
      for (int64_t t = 0; t < kT; ++t) {
        const auto at = [&](int64_t token, int64_t part, int64_t i) {
          return static_cast<double>(qkv[(b * kT + token) * 3 * kC + part * kC + h * kHS + i]);
        };
        std::vector<double> p(t + 1);
        double sum = 0;
        for (int64_t u = 0; u <= t; ++u) {
          double s = 0;
          for (int64_t i = 0; i < kHS; ++i) s += at(t, 0, i) * at(u, 1, i);
          sum += p[u] = std::exp(s / std::sqrt(static_cast<double>(kHS)));
        }
        for (int64_t u = 0; u <= t; ++u)
          for (int64_t i = 0; i < kHS; ++i) want[(b * kT + t) * kC + h * kHS + i] += p[u] / sum * at(u, 2, i);
      }
  const auto device = to_device(qkv);
  for (const char* variant : {"flash", "unfused", "unfused_causal_blocks"}) {
    SCOPED_TRACE(variant);
    int64_t bytes = 0;
    ASSERT_OK(stepscope_ops_attention_forward_scratch(variant, 0, kB, kT, kC, kNH, &bytes));
    DeviceBuffer<unsigned char> scratch(bytes);
    DeviceBuffer<float> out(kB * kT * kC), lse(kB * kNH * kT), dqkv(kB * kT * 3 * kC);
    ASSERT_OK(stepscope_ops_attention_forward(variant, 0, out.data(), lse.data(), device.data(), kB, kT, kC, kNH, scratch.data(), bytes,
                                              nullptr));
    expect_near(to_host(out), want, 1e-5);
    ASSERT_OK(stepscope_ops_attention_backward_scratch(variant, 0, kB, kT, kC, kNH, &bytes));
    DeviceBuffer<unsigned char> more(bytes);
    // With the output as its own gradient, the last token's values get at least its own probability times it: not zero, and finite.
    ASSERT_OK(stepscope_ops_attention_backward(variant, 0, dqkv.data(), out.data(), device.data(), out.data(), lse.data(), kB, kT, kC, kNH,
                                               more.data(), bytes, nullptr));
    double square = 0;
    for (const float g : to_host(dqkv)) square += static_cast<double>(g) * g;
    EXPECT_GT(square, 1e-3);
    EXPECT_TRUE(std::isfinite(square));
  }
}

TEST_F(OpsCAnswers, AdamWDecaysOnlyTheFirstPart) {
  constexpr int64_t kDecayed = 16, kTotal = 40;
  const auto p = numbers(kTotal, 21), g = numbers(kTotal, 22), m = numbers(kTotal, 23);
  auto v = numbers(kTotal, 24);
  for (float& x : v) x = std::abs(x);
  const auto dp = to_device(p), dg = to_device(g), dm = to_device(m), dv = to_device(v), clip = to_device(std::vector<float>{0.5f});
  std::vector<unsigned char> settings(static_cast<size_t>(stepscope_ops_adamw_settings_bytes()));
  ASSERT_OK(stepscope_ops_adamw_settings(settings.data(), 1e-2, 0.9, 0.99, 1e-8, 0.3, 4));
  const auto on_device = to_device(settings);
  ASSERT_OK(stepscope_ops_adamw("all_tensors", 0, nullptr, dp.data(), dm.data(), dv.data(), dg.data(), kDecayed, kTotal, on_device.data(),
                                clip.data(), nullptr));
  std::vector<double> want(kTotal);
  for (int64_t i = 0; i < kTotal; ++i) {
    const double gg = 0.5 * g[i], mm = 0.9 * m[i] + 0.1 * gg, vv = 0.99 * v[i] + 0.01 * gg * gg;
    const double step = mm / (1 - std::pow(0.9, 4)) / (std::sqrt(vv / (1 - std::pow(0.99, 4))) + 1e-8);
    want[i] = p[i] - 1e-2 * (step + (i < kDecayed ? 0.3 : 0.0) * p[i]);
  }
  expect_near(to_host(dp), want, 1e-5);
}

}  // namespace

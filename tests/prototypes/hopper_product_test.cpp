// The product of experiments/prototypes/hopper_product against sums in double on the host, at shapes that fill no tile and at shapes where
// every CTA takes several tiles.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "experiments/prototypes/hopper_product/multiply.h"
#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_buffer.h"

namespace {

using bf16 = __nv_bfloat16;
using hopper::Problem;
using hopper::Tail;

struct Case {
  int m, n, k;
  bool across;
  Tail tail;
};

std::vector<bf16> random_values(int64_t n, float scale, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> value(0, scale);
  std::vector<bf16> out(static_cast<size_t>(n));
  for (bf16& v : out) v = __float2bfloat16(value(random));
  return out;
}

struct OnDevice {
  explicit OnDevice(const std::vector<bf16>& host) : buffer(static_cast<int64_t>(host.size())) {
    STEPSCOPE_CUDA_CHECK(cudaMemcpy(buffer.data(), host.data(), host.size() * sizeof(bf16), cudaMemcpyHostToDevice));
  }
  gpt2::cuda::DeviceBuffer<bf16> buffer;
};

template <class T>
std::vector<T> to_host(const T* p, int64_t n) {
  std::vector<T> out(static_cast<size_t>(n));
  STEPSCOPE_CUDA_CHECK(cudaMemcpy(out.data(), p, out.size() * sizeof(T), cudaMemcpyDeviceToHost));
  return out;
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double slope(double x) {
  const double a = std::sqrt(2 / M_PI), t = std::tanh(a * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * a * (1 + 3 * 0.044715 * x * x);
}

class HopperProduct : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no GPU";
    int major = 0;
    STEPSCOPE_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    if (major != 9) GTEST_SKIP() << "wgmma needs compute capability 9.0";
  }
};

TEST_P(HopperProduct, IsTheSumAndItsTail) {
  const auto [m, n, k, across, tail] = GetParam();
  const auto at = [](int64_t row, int64_t columns, int64_t column) { return static_cast<size_t>(row * columns + column); };
  const auto a = random_values(int64_t{m} * k, 1, 1), b = random_values(int64_t{n} * k, 0.05f, 2),
             given = random_values(int64_t{m} * n, 1, 3), bias = random_values(n, 0.5f, 4),
             poison = std::vector<bf16>(static_cast<size_t>(m) * static_cast<size_t>(n), __float2bfloat16(NAN));
  OnDevice da(a), db(b), dgiven(given), dbias(bias), out(poison), stored(poison);
  const int64_t tiles = (m + 127) / 128;
  gpt2::cuda::DeviceBuffer<float> partial(tiles * n);
  const Problem p{m,
                  n,
                  k,
                  da.buffer.data(),
                  db.buffer.data(),
                  across,
                  out.buffer.data(),
                  dbias.buffer.data(),
                  stored.buffer.data(),
                  dgiven.buffer.data(),
                  partial.data()};
  hopper::multiply(p, tail, nullptr);
  STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
  const auto got = to_host(out.buffer.data(), int64_t{m} * n), slopes = to_host(stored.buffer.data(), int64_t{m} * n);

  // Every row is looked at in some column and every column in some row; all edges of tiles are among them.
  for (int64_t row = 0; row < m; ++row)
    for (int64_t column = row % 13; column < n; column += row % 64 == 0 ? 1 : 61) {
      double sum = 0, size = 0;
      for (int64_t i = 0; i < k; ++i) {
        const double x = __bfloat162float(a[at(row, k, i)]) * __bfloat162float(b[across ? at(i, n, column) : at(column, k, i)]);
        sum += x;
        size += std::abs(x);
      }
      // The product is rounded to bf16 (2^-9) before its tail, and the result again.
      const double given_here = __bfloat162float(given[at(row, n, column)]), error = std::abs(sum) / 256 + 1e-5 * size + 1e-6;
      double want = sum, allowed = error;
      if (tail == Tail::gelu) {
        const double x = sum + __bfloat162float(bias[static_cast<size_t>(column)]);
        want = gelu(x);
        allowed = 1.2 * error + std::abs(want) / 128;
        ASSERT_NEAR(__bfloat162float(slopes[at(row, n, column)]), slope(x), error + 0.01) << row << ", " << column;
      } else if (tail != Tail::plain) {
        const double factor = tail == Tail::gelu_backward_of_x ? slope(given_here) : given_here;
        want = sum * factor;
        allowed = error * std::abs(factor) + std::abs(want) / 128 + 1e-6;
      }
      ASSERT_NEAR(__bfloat162float(got[at(row, n, column)]), want, allowed) << row << ", " << column;
    }
  if (tail == Tail::plain || tail == Tail::gelu) return;
  const auto sums = to_host(partial.data(), tiles * n);
  for (int64_t tile = 0; tile < tiles; ++tile)
    for (int64_t column = 0; column < n; ++column) {
      double want = 0, size = 0;
      for (int64_t row = tile * 128; row < std::min<int64_t>(m, tile * 128 + 128); ++row) {
        const double x = __bfloat162float(got[at(row, n, column)]);
        want += x;
        size += std::abs(x);
      }
      ASSERT_NEAR(sums[at(tile, n, column)], want, size / 256 + 1e-6) << tile << ", " << column;
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, HopperProduct,
                         ::testing::Values(Case{256, 192, 64, false, Tail::plain}, Case{256, 192, 64, true, Tail::plain},
                                           Case{300, 520, 200, false, Tail::plain}, Case{300, 520, 200, true, Tail::plain},
                                           Case{1000, 3072, 136, false, Tail::gelu}, Case{1000, 3072, 136, true, Tail::gelu_backward_of_x},
                                           Case{4100, 3080, 72, true, Tail::gelu_backward_of_slope},
                                           Case{4100, 3080, 72, false, Tail::plain}, Case{1, 8, 8, false, Tail::gelu},
                                           Case{1, 8, 8, true, Tail::gelu_backward_of_x}));

}  // namespace

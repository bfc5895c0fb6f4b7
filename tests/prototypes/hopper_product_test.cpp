// The product of experiments/prototypes/hopper_product against sums in double on the host, at shapes that fill no tile and at shapes where
// every CTA takes several tiles.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <tuple>
#include <vector>

#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_buffer.h"
#include "mixed/hopper/multiply.h"
#include "tests/prototypes/hopper_here.h"

namespace {

using bf16 = __nv_bfloat16;
using hopper::Cut;
using hopper::Problem;
using hopper::Tail;

struct Case {
  int m, n, k;
  Tail tail;
  bool a_across, b_across;
  Cut cut;
};

// What a test of such a product is called.
void PrintTo(const Case& c, std::ostream* out) {
  const hopper::Plan& plan = c.cut.plan;
  const char* tail = "plain";
  if (c.tail == Tail::gelu) tail = "gelu";
  if (c.tail == Tail::gelu_backward) tail = "gelu_backward";
  if (c.tail == Tail::exponential) tail = "exponential";
  *out << fmt::format("{}_{}x{}x{}{}{}_n{}_c{}x{}_s{}", tail, c.m, c.n, c.k, c.a_across ? "_a_across" : "", c.b_across ? "_b_across" : "",
                      c.cut.columns, plan.across_m, plan.across_n, plan.stages);
}

// The same values again after a prime number of them, which is no multiple of a row: each case is a process of its own, and to draw 12
// million of them would take most of its time.
std::vector<bf16> random_values(int64_t n, float scale, unsigned seed) {
  constexpr int64_t kDrawn = 65521;
  std::mt19937 random(seed);
  std::normal_distribution<float> value(0, scale);
  std::vector<bf16> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < std::min(n, kDrawn); ++i) out[static_cast<size_t>(i)] = __float2bfloat16(value(random));
  for (int64_t i = kDrawn; i < n; i += kDrawn)
    std::memcpy(&out[static_cast<size_t>(i)], out.data(), static_cast<size_t>(std::min(kDrawn, n - i)) * sizeof(bf16));
  return out;
}

std::vector<float> floats(const std::vector<bf16>& values) {
  std::vector<float> out;
  out.reserve(values.size());
  for (const bf16 v : values) out.push_back(__bfloat162float(v));
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
    if (const auto why = why_no_hopper()) GTEST_SKIP() << *why;
  }
};

TEST_P(HopperProduct, IsTheSumAndItsTail) {
  const auto& [m, n, k, tail, a_across, b_across, cut] = GetParam();
  const auto at = [](int64_t row, int64_t columns, int64_t column) { return static_cast<size_t>(row * columns + column); };
  const auto a = random_values(int64_t{m} * k, 1, 1), b = random_values(int64_t{n} * k, 0.05f, 2),
             given = random_values(int64_t{m} * n, 1, 3), bias = random_values(n, 0.5f, 4);
  const std::vector<bf16> poison(static_cast<size_t>(m) * static_cast<size_t>(n), __float2bfloat16(NAN));
  OnDevice da(a), db(b), dgiven(given), dbias(bias), out(poison), stored(poison);
  const int64_t tiles = (m + 127) / 128, widths = (n + cut.columns - 1) / cut.columns;
  gpt2::cuda::DeviceBuffer<float> partial(tiles * n), offset(m), row_sums(widths * m);
  gpt2::cuda::DeviceBuffer<int> overflow(1);
  STEPSCOPE_CUDA_CHECK(cudaMemset(overflow.data(), 0, sizeof(int)));
  std::vector<float> offsets(static_cast<size_t>(m));
  for (size_t i = 0; i < offsets.size(); ++i) offsets[i] = static_cast<float>(i % 7) - 3;
  STEPSCOPE_CUDA_CHECK(cudaMemcpy(offset.data(), offsets.data(), offsets.size() * sizeof(float), cudaMemcpyHostToDevice));
  Problem p;
  p.m = m, p.n = n, p.k = k;
  p.a = da.buffer.data(), p.b = db.buffer.data(), p.a_across = a_across, p.b_across = b_across;
  p.out = out.buffer.data(), p.bias = dbias.buffer.data(), p.slope = stored.buffer.data(), p.given = dgiven.buffer.data();
  p.partial = partial.data(), p.offset = offset.data(), p.row_sums = row_sums.data(), p.overflow = overflow.data();
  p.kept = n - 3;
  hopper::Product(p, tail, cut).run(nullptr);
  STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
  const auto got = to_host(out.buffer.data(), int64_t{m} * n), slopes = to_host(stored.buffer.data(), int64_t{m} * n);

  // Tests are compiled without optimization, and the innermost loop is nearly all that runs here: no conversion and no call in it.
  const std::vector<float> a_floats = floats(a), b_floats = floats(b);
  const int64_t a_step = a_across ? m : 1, b_step = b_across ? n : 1;
  // Every row is looked at in some column and every column in some row; all edges of tiles are among them.
  for (int64_t row = 0; row < m; ++row)
    for (int64_t column = row % 13; column < n; column += row % 64 == 0 ? 1 : 61) {
      double sum = 0, size = 0;
      const float *in_a = a_floats.data() + (a_across ? row : row * k), *in_b = b_floats.data() + (b_across ? column : column * k);
      for (int64_t i = 0; i < k; ++i) {
        const double x = in_a[i * a_step] * in_b[i * b_step];
        sum += x;
        size += x < 0 ? -x : x;
      }
      // Rounded once, after its tail, to bf16's 8 bits: by at most 2^-8 = 1 / 256 of itself.
      const double given_here = __bfloat162float(given[at(row, n, column)]), error = 1e-5 * size + 1e-6;
      double want = sum, allowed = error + std::abs(sum) / 256;
      if (tail == Tail::gelu) {
        const double x = sum + __bfloat162float(bias[static_cast<size_t>(column)]);
        want = gelu(x);
        allowed = 1.2 * error + std::abs(want) / 256;
        ASSERT_NEAR(__bfloat162float(slopes[at(row, n, column)]), slope(x), 1.2 * error + std::abs(slope(x)) / 256)
            << row << ", " << column;
      } else if (tail == Tail::exponential) {
        want = column < p.kept ? std::exp(sum - offsets[static_cast<size_t>(row)]) : 0;
        allowed = want * (error + 1.0 / 256);
      } else if (tail != Tail::plain) {
        want = sum * given_here;
        allowed = error * (std::abs(given_here) + 0.01) + std::abs(want) / 256;
      }
      ASSERT_NEAR(__bfloat162float(got[at(row, n, column)]), want, allowed) << row << ", " << column;
    }
  if (tail == Tail::exponential) {
    const auto sums = to_host(row_sums.data(), widths * m);
    for (int64_t row = 0; row < m; ++row)
      for (int64_t width = 0; width < widths; ++width) {
        double want = 0;
        for (int64_t column = width * cut.columns; column < std::min<int64_t>(n, (width + 1) * cut.columns); ++column)
          want += __bfloat162float(got[at(row, n, column)]);
        ASSERT_NEAR(sums[at(width, m, row)], want, want / 256) << row << ", " << width;
      }
    ASSERT_EQ(to_host(overflow.data(), 1)[0], 0);
  }
  if (tail != Tail::gelu_backward) return;
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

std::vector<Case> cases() {
  std::vector<Case> out;
  const auto cut = [](int columns, int across_m, int across_n, int stages) { return Cut{columns, {across_m, across_n, stages, 8}}; };
  for (const auto& [m, n, k] : {std::tuple{256, 192, 64}, std::tuple{304, 520, 200}, std::tuple{8, 8, 8}, std::tuple{4104, 3080, 72}}) {
    // With five places in the ring results are staged in three places, with fewer in as many as a tile has where a tail reads.
    for (const Cut& c :
         {cut(192, 1, 1, 5), cut(192, 2, 2, 5), cut(192, 2, 2, 4), cut(192, 4, 1, 3), cut(128, 1, 2, 6), cut(128, 2, 1, 5)}) {
      out.push_back({m, n, k, Tail::plain, false, false, c});
      out.push_back({m, n, k, Tail::gelu, false, false, c});
      out.push_back({m, n, k, Tail::gelu_backward, false, true, c});
      out.push_back({m, n, k, Tail::exponential, false, false, c});
    }
    for (const Cut& c : {cut(192, 1, 1, 5), cut(192, 2, 1, 5), cut(192, 2, 2, 4)}) {
      out.push_back({m, n, k, Tail::plain, false, true, c});
      out.push_back({m, n, k, Tail::plain, true, true, c});
    }
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Shapes, HopperProduct, ::testing::ValuesIn(cases()));

// Both plans run the same kernel, whose shared memory has one limit.
TEST(HopperProductPlans, OneWithFewerPlacesLeavesTheOthersTheirMemory) {
  if (const auto why = why_no_hopper()) GTEST_SKIP() << *why;
  const OnDevice a(random_values(128 * 64, 1, 1)), b(random_values(192 * 64, 0.05f, 2)), out(random_values(128 * 192, 1, 3));
  Problem p;
  p.m = 128, p.n = 192, p.k = 64;
  p.a = a.buffer.data(), p.b = b.buffer.data(), p.out = out.buffer.data();
  const hopper::Product more(p, Tail::plain, {.plan = {.stages = 5}}), fewer(p, Tail::plain, {.plan = {.stages = 2}});
  EXPECT_NO_THROW(more.run(nullptr));
  EXPECT_NO_THROW(fewer.run(nullptr));
  STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
}

// A row whose results would pass what bf16 and the sums hold is told, not stored in silence.
TEST(HopperProductOverflow, IsTold) {
  if (const auto why = why_no_hopper()) GTEST_SKIP() << *why;
  const OnDevice a(random_values(128 * 64, 1, 1)), b(random_values(192 * 64, 0.05f, 2)), out(random_values(128 * 192, 1, 3));
  gpt2::cuda::DeviceBuffer<float> offset(128), row_sums(128);
  gpt2::cuda::DeviceBuffer<int> overflow(1);
  for (const float low : {0.0f, -30.0f, -50.0f, -100.0f}) {
    std::vector<float> offsets(128, 0);
    offsets[77] = low;
    STEPSCOPE_CUDA_CHECK(cudaMemcpy(offset.data(), offsets.data(), 512, cudaMemcpyHostToDevice));
    STEPSCOPE_CUDA_CHECK(cudaMemset(overflow.data(), 0, sizeof(int)));
    Problem p;
    p.m = 128, p.n = 192, p.k = 64, p.kept = 192;
    p.a = a.buffer.data(), p.b = b.buffer.data(), p.out = out.buffer.data();
    p.offset = offset.data(), p.row_sums = row_sums.data(), p.overflow = overflow.data();
    hopper::Product(p, Tail::exponential, Cut{}).run(nullptr);
    STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
    EXPECT_EQ(to_host(overflow.data(), 1)[0], low < -40 ? 1 : 0) << low;
  }
}

}  // namespace

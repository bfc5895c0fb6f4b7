#include "gpt2/reference/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <tuple>
#include <vector>

namespace reference_test {
namespace {

using namespace gpt2::reference;

struct GemmCase {
  int64_t rows, columns, depth;
};

// Against the plain triple loop in long double, in all four orientations, with bias and accumulation, on one
// thread and on all; the columns behind the output's edge must keep their poison.
template <typename Real>
void check(const GemmCase& c, double budget) {
  std::mt19937 bits(11);
  const auto draw = [&](int64_t n) {
    std::vector<Real> v(static_cast<size_t>(n));
    for (Real& x : v) x = static_cast<Real>(bits() % 2001) / Real(1000) - Real(1);
    return v;
  };
  const std::vector<Real> a = draw(c.rows * c.depth), b = draw(c.depth * c.columns), bias = draw(c.columns);
  const int64_t stride = c.columns + 3;
  const std::vector<Real> start = draw(c.rows * stride);
  PackBuffers<Real> buffers(64, 96);  // small: several blocks in each direction
  for (int variant = 0; variant < 16; ++variant) {
    const bool ta = variant & 1, tb = variant & 2, accumulate = variant & 4, serial = variant & 8;
    const Operand<Real> oa = ta ? Operand<Real>{a.data(), 1, c.rows} : Operand<Real>{a.data(), c.depth, 1};
    const Operand<Real> ob = tb ? Operand<Real>{b.data(), 1, c.depth} : Operand<Real>{b.data(), c.columns, 1};
    std::vector<Real> out = start;
    const Product<Real> p{c.rows, c.columns, c.depth, oa, ob, out.data(), stride, accumulate ? nullptr : bias.data(), accumulate};
    serial ? multiply_on_one_thread(p, buffers) : multiply(p, buffers);
    for (int64_t i = 0; i < c.rows; ++i)
      for (int64_t j = 0; j < stride; ++j) {
        const size_t at = static_cast<size_t>(i * stride + j);
        if (j >= c.columns) {
          ASSERT_EQ(out[at], start[at]) << "written behind the edge";
          continue;
        }
        long double expected = accumulate ? start[at] : bias[static_cast<size_t>(j)];
        for (int64_t k = 0; k < c.depth; ++k)
          expected += static_cast<long double>(oa.data[i * oa.row_stride + k * oa.column_stride]) *
                      static_cast<long double>(ob.data[k * ob.row_stride + j * ob.column_stride]);
        ASSERT_LE(std::abs(static_cast<double>(out[at] - expected)), budget * (1 + std::sqrt(static_cast<double>(c.depth))))
            << "variant " << variant << " row " << i << " column " << j;
      }
  }
}

class Gemm : public testing::TestWithParam<GemmCase> {};
TEST_P(Gemm, MatchesTheTripleLoopInFloat) { check<float>(GetParam(), 1e-6); }
TEST_P(Gemm, MatchesTheTripleLoopInDouble) { check<double>(GetParam(), 2e-15); }
INSTANTIATE_TEST_SUITE_P(Shapes, Gemm,
                         testing::Values(GemmCase{1, 1, 1}, GemmCase{8, 48, 192}, GemmCase{64, 64, 64}, GemmCase{7, 49, 193},
                                         GemmCase{130, 97, 17}, GemmCase{65, 200, 400}, GemmCase{97, 101, 103}, GemmCase{3, 300, 0}),
                         [](const auto& shape) {
                           return std::to_string(shape.param.rows) + "x" + std::to_string(shape.param.columns) + "x" +
                                  std::to_string(shape.param.depth);
                         });

}  // namespace
}  // namespace reference_test

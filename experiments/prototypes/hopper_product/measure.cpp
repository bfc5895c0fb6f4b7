// Checks and times the products of this folder, each cut in several ways, against the fastest algorithm that cuBLASLt's heuristics offer
// and, where it was compiled in, CUTLASS.
//   hopper_product_measure list                        the names of all ways to cut a product
//   hopper_product_measure check NAME                  sampled rows of all products against sums in double; exit 1 where one is wrong
//   hopper_product_measure time SECONDS PRODUCTS NAME…   CSV of medians of the first PRODUCTS products (12: those with tails and the plain
//                                                      ones beside them), in turns, then cuBLASLt and the best way alone with joules
//   hopper_product_measure joules ROWS PRODUCT NAME…   CSV of joules a launch of the products of a block whose names contain PRODUCT, or of all
// Each check is a process of its own, so that one that hangs can be ended.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "experiments/prototypes/hopper_product/measure_cases.h"
#include "experiments/prototypes/hopper_product/measure_kernels.h"
#include "experiments/prototypes/hopper_product/measure_timing.h"
#include "gpt2/cuda/check.h"

namespace hopper {
namespace {

double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double slope(double x) {
  const double a = std::sqrt(2 / M_PI), t = std::tanh(a * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * a * (1 + 3 * 0.044715 * x * x);
}

template <class T>
std::vector<T> to_host(const T* p, int64_t n) {
  std::vector<T> out(static_cast<size_t>(n));
  STEPSCOPE_CUDA_CHECK(cudaMemcpy(out.data(), p, out.size() * sizeof(T), cudaMemcpyDeviceToHost));
  return out;
}

// Rows that a mistake at an edge of tiles, warps or matrices would meet.
std::vector<int> sampled_rows(int m) {
  std::vector<int> rows;
  for (const int r :
       {0, 1, 7, 8, 15, 16, 63, 64, 65, 127, 128, 200, 255, 256, 257, 383, 511, 512, m / 2, m / 3, m - 129, m - 65, m - 9, m - 1})
    if (r >= 0 && r < m) rows.push_back(r);
  return rows;
}

struct Error {
  double worst = 0;  // error over what is allowed
  std::string where;
  void see(double got, double want, double allowed, const char* what, int row, int column) {
    const double ratio = std::isnan(got) ? 1e9 : std::abs(got - want) / allowed;
    if (ratio <= worst) return;
    worst = ratio;
    where = fmt::format("{} {} {}: {} instead of {}", what, row, column, got, want);
  }
};

// fp32 sums of k products of size 0.05; of one result, before its tail.
double slack_of(int k) { return 5e-6 * std::sqrt(static_cast<double>(k)); }

// One row of results against sums in double. The sum is rounded once, after its tail: to 8 bits, so by at most 2^-8 = 1 / 256 of itself.
void check_row(const Case& c, const Buffers& buffers, int row, const float* sums, Error& error) {
  const Problem& p = buffers.problem;
  const int64_t at = int64_t{row} * p.n;
  const auto out = to_host(p.out + at, p.n);
  const bool two = c.tail == Tail::gelu, reads = c.tail == Tail::gelu_backward;
  const auto second = two ? to_host(p.slope + at, p.n) : std::vector<__nv_bfloat16>{};
  const auto given = reads ? to_host(p.given + at, p.n) : std::vector<__nv_bfloat16>{};
  const auto bias = two ? to_host(p.bias, p.n) : std::vector<__nv_bfloat16>{};
  const float offset = c.tail == Tail::exponential ? to_host(p.offset + row, 1)[0] : 0;
  double total = 0;
  for (int i = 0; i < p.n; ++i) {
    const auto j = static_cast<size_t>(i);
    double want = sums[i], slack = slack_of(p.k);
    if (two) {
      const double x = want + __bfloat162float(bias[j]);
      want = gelu(x);
      error.see(__bfloat162float(second[j]), slope(x), std::abs(slope(x)) / 256 + slack + 1e-5, "slope", row, i);
    } else if (reads) {
      const double factor = __bfloat162float(given[j]);
      want *= factor;
      slack *= std::abs(factor) + 0.01;
    } else if (c.tail == Tail::exponential) {
      want = i < p.kept ? std::exp(want - offset) : 0;
      slack *= want;
      total += want;
    }
    error.see(__bfloat162float(out[j]), want, std::abs(want) / 256 + slack + 1e-5, "result", row, i);
  }
  if (c.tail != Tail::exponential) return;
  double got = 0;
  for (int tile = 0; tile * buffers.columns < p.n; ++tile) got += to_host(p.row_sums + int64_t{tile} * p.m + row, 1)[0];
  error.see(got, total, total * 1e-3, "sum of row", row, 0);
}

// The sums in double of the given rows, [rows][n].
std::vector<float> sums_in_double(const Problem& p, const std::vector<int>& rows) {
  const auto count = static_cast<int64_t>(rows.size());
  DeviceBuffer<int> rows_there(count);
  STEPSCOPE_CUDA_CHECK(cudaMemcpy(rows_there.data(), rows.data(), rows.size() * sizeof(int), cudaMemcpyHostToDevice));
  DeviceBuffer<float> sums_there(count * p.n);
  sampled_sums(p, rows_there.data(), static_cast<int>(count), sums_there.data());
  return to_host(sums_there.data(), sums_there.size());
}

// Sums of columns of the first, a middle and the last group of 128 rows. A tail sums what it has before rounding, so the reference does too:
// the budget is that of the sums in fp32, of each result and then of the column.
void check_column_sums(const Buffers& buffers, Error& error) {
  const Problem& p = buffers.problem;
  const int tiles = (p.m + 127) / 128;
  for (const int tile : {0, tiles / 2, tiles - 1}) {
    std::vector<int> rows;
    for (int r = tile * 128; r < std::min(p.m, tile * 128 + 128); ++r) rows.push_back(r);
    const auto sums = sums_in_double(p, rows);
    const auto given = to_host(p.given + int64_t{tile} * 128 * p.n, static_cast<int64_t>(sums.size()));
    const auto got = to_host(p.partial + int64_t{tile} * p.n, p.n);
    for (size_t i = 0; i < got.size(); ++i) {
      double want = 0, size = 0, factors = 0;
      for (size_t at = i; at < sums.size(); at += got.size()) {
        const double factor = __bfloat162float(given[at]);
        want += sums[at] * factor;
        size += std::abs(sums[at] * factor);
        factors += std::abs(factor) + 0.01;
      }
      error.see(got[i], want, factors * slack_of(p.k) + size * 1e-6 + 1e-6, "column sum", tile, static_cast<int>(i));
    }
  }
}

bool check(const Case& c, const Way& way) {
  const Buffers buffers(c, way.cut.columns);
  if (why_not(buffers.problem, c.tail, way.cut)) return true;  // not for this product
  std::unique_ptr<Product> product;
  try {
    product = std::make_unique<Product>(buffers.problem, c.tail, way.cut);
  } catch (const std::exception&) {
    return true;
  }
  product->run(nullptr);
  product->run(nullptr);
  STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
  const auto rows = sampled_rows(c.m);
  const auto sums = sums_in_double(buffers.problem, rows);
  Error error;
  for (size_t i = 0; i < rows.size(); ++i) check_row(c, buffers, rows[i], sums.data() + i * static_cast<size_t>(c.n), error);
  if (c.tail == Tail::gelu_backward) check_column_sums(buffers, error);
  if (c.tail == Tail::exponential && to_host(buffers.problem.overflow, 1)[0] != 0) error.see(1, 0, 1e-9, "overflow reported", 0, 0);
  fmt::print("{},{},{}x{}x{},{:.3f},{}\n", way.name, c.name, c.m, c.n, c.k, error.worst, error.worst <= 1 ? "" : error.where);
  std::fflush(stdout);
  return error.worst <= 1;
}

int check_way(const std::string& name) {
  const auto all = ways();
  const auto way = std::find_if(all.begin(), all.end(), [&](const Way& w) { return w.name == name; });
  if (way == all.end()) throw std::runtime_error("there is no way " + name);
  bool right = true;
  for (const Case& c : check_cases()) right = check(c, *way) && right;
  return right ? 0 : 1;
}

}  // namespace
}  // namespace hopper

int main(int argc, char** argv) try {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 1 && words[0] == "list") {
    for (const auto& way : hopper::ways()) fmt::print("{}\n", way.name);
    return 0;
  }
  if (words.size() == 2 && words[0] == "check") return hopper::check_way(words[1]);
  if (words.size() >= 4 && words[0] == "time") {
    hopper::time_all(std::stod(words[1]), std::stoul(words[2]), {words.begin() + 3, words.end()});
    return 0;
  }
  if (words.size() >= 4 && words[0] == "joules") {
    hopper::joules_all(std::stoi(words[1]), words[2] == "all" ? "" : words[2], {words.begin() + 3, words.end()});
    return 0;
  }
  fmt::print(stderr, "usage: hopper_product_measure list | check NAME | time SECONDS PRODUCTS NAME… | joules ROWS PRODUCT|all NAME…\n");
  return 2;
} catch (const std::exception& e) {
  fmt::print(stderr, "hopper_product_measure: {}\n", e.what());
  return 3;
}

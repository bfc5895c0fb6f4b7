#include "experiments/prototypes/hopper_product/measure_cases.h"

#include <fmt/format.h>

#include <tuple>

#include "experiments/prototypes/hopper_product/measure_kernels.h"

namespace hopper {
namespace {

constexpr int kVocabulary = 50257, kPadded = 50304;

Way way(int columns, int across_m, int across_n, int stages, int group) {
  return {fmt::format("n{}-c{}x{}-s{}-g{}", columns, across_m, across_n, stages, group), {columns, {across_m, across_n, stages, group}}};
}

std::vector<Case> at(int m) {
  return {{"mlp_down dX, dGELU, sums", m, 3072, 768, false, true, Tail::gelu_backward},
          {"mlp_up, GELU", m, 3072, 768, false, false, Tail::gelu},
          {"mlp_up", m, 3072, 768, false, false, Tail::plain},
          {"lm_head, exp", m, kPadded, 768, false, false, Tail::exponential},
          {"mlp_down", m, 768, 3072, false, false, Tail::plain},
          {"mlp_up dX", m, 768, 3072, false, true, Tail::plain},
          {"qkv", m, 2304, 768, false, false, Tail::plain},
          {"attproj", m, 768, 768, false, false, Tail::plain},
          {"lm_head", m, kPadded, 768, false, false, Tail::plain},
          {"mlp_down dX", m, 3072, 768, false, true, Tail::plain},
          {"qkv dX", m, 768, 2304, false, true, Tail::plain},
          {"lm_head dX", m, 768, kPadded, false, true, Tail::plain},
          {"lm_head dW", kPadded, 768, m, true, true, Tail::plain}};
}

}  // namespace

std::vector<Way> ways() {
  return {way(192, 1, 1, 5, 8),  way(192, 2, 1, 5, 8),  way(192, 1, 2, 5, 8),  way(192, 2, 2, 5, 8),
          way(192, 2, 1, 5, 16), way(192, 1, 1, 4, 8),  way(192, 2, 1, 4, 8),  way(192, 1, 2, 4, 8),
          way(192, 2, 2, 4, 8),  way(128, 1, 1, 6, 8),  way(128, 2, 1, 6, 8),  way(128, 1, 2, 6, 8),
          way(192, 1, 1, 5, 4),  way(192, 1, 1, 5, 16), way(192, 2, 1, 5, 64), way(192, 1, 1, 3, 8)};
}

std::vector<Case> check_cases() {
  std::vector<Case> out;
  for (const auto& [m, n, k] : {std::tuple{256, 384, 64}, std::tuple{304, 520, 200}, std::tuple{8, 8, 8}, std::tuple{4104, 3080, 72}}) {
    for (const auto& [a, b] : {std::pair{false, false}, std::pair{false, true}, std::pair{true, true}})
      out.push_back({"plain", m, n, k, a, b, Tail::plain});
    out.push_back({"gelu", m, n, k, false, false, Tail::gelu});
    out.push_back({"gelu backward", m, n, k, false, true, Tail::gelu_backward});
    out.push_back({"exponential", m, n, k, false, false, Tail::exponential});
  }
  for (const Case& c : at(4096))
    if (c.k <= 3072) out.push_back(c);
  return out;
}

std::vector<Case> timed_cases() {
  std::vector<Case> out;
  const auto large = at(65536), small = at(4096);
  for (size_t i = 0; i < large.size(); ++i) {
    out.push_back(large[i]);
    out.push_back(small[i]);
  }
  return out;
}

std::vector<Case> block_cases(int rows) {
  return {
      {"qkv", rows, 2304, 768, false, false, Tail::plain},        {"attproj", rows, 768, 768, false, false, Tail::plain},
      {"mlp_down", rows, 768, 3072, false, false, Tail::plain},   {"mlp_up dX", rows, 768, 3072, false, true, Tail::plain},
      {"attproj dX", rows, 768, 768, false, true, Tail::plain},   {"qkv dX", rows, 768, 2304, false, true, Tail::plain},
      {"mlp_down dW", 768, 3072, rows, true, true, Tail::plain},  {"mlp_up dW", 3072, 768, rows, true, true, Tail::plain},
      {"attproj dW", 768, 768, rows, true, true, Tail::plain},    {"qkv dW", 2304, 768, rows, true, true, Tail::plain},
      {"mlp_up GELU", rows, 3072, 768, false, false, Tail::gelu}, {"mlp_down dX dGELU", rows, 3072, 768, false, true, Tail::gelu_backward}};
}

Buffers::Buffers(const Case& c, int columns_of_a_tile) : columns(columns_of_a_tile) {
  const int64_t m = c.m, n = c.n, k = c.k;
  const bool backward = c.tail == Tail::gelu_backward, exponential = c.tail == Tail::exponential;
  a = DeviceBuffer<__nv_bfloat16>(m * k);
  b = DeviceBuffer<__nv_bfloat16>(n * k);
  out = DeviceBuffer<__nv_bfloat16>(m * n);
  fill_normal(a.data(), m * k, 1, 1);
  fill_normal(b.data(), n * k, 0.05f, 2);
  if (c.tail == Tail::gelu) {
    second = DeviceBuffer<__nv_bfloat16>(m * n);
    bias = DeviceBuffer<__nv_bfloat16>(n);
    fill_normal(bias.data(), n, 0.5f, 4);
  }
  if (backward) {
    given = DeviceBuffer<__nv_bfloat16>(m * n);
    fill_normal(given.data(), m * n, 1, 3);
    partial = DeviceBuffer<float>((m + 127) / 128 * n);
  }
  if (exponential) {
    offset = DeviceBuffer<float>(m);
    fill_normal(offset.data(), m, 1, 5);
    row_sums = DeviceBuffer<float>((n + columns - 1) / columns * m);
    overflow = DeviceBuffer<int>(1);
    STEPSCOPE_CUDA_CHECK(cudaMemset(overflow.data(), 0, sizeof(int)));
  }
  STEPSCOPE_CUDA_CHECK(cudaMemset(out.data(), 0xff, static_cast<size_t>(m * n) * 2));  // no number
  problem.m = c.m, problem.n = c.n, problem.k = c.k;
  problem.a = a.data(), problem.b = b.data(), problem.out = out.data();
  problem.a_across = c.a_across, problem.b_across = c.b_across;
  problem.bias = bias.data(), problem.slope = second.data(), problem.given = given.data();
  problem.partial = partial.data(), problem.offset = offset.data(), problem.row_sums = row_sums.data();
  problem.overflow = overflow.data();
  problem.kept = c.n == kPadded ? kVocabulary : c.n - 3;
}

}  // namespace hopper

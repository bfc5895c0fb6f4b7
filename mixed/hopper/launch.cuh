// A kernel of product.cuh made ready for a problem: its tensor maps, its grid, its shared memory. For the .cu files of this folder only.
#pragma once
#include <cudaTypedefs.h>

#include <functional>

#include "gpt2/cuda/check.h"
#include "mixed/hopper/tails.cuh"

namespace hopper {

using Launch = std::function<void(cudaStream_t)>;

// Boxes of box_rows x 64 values of a matrix of whole rows. Throws gpt2::cuda::CallError.
CUtensorMap matrix_map(const bf16* p, int rows, int columns, int box_rows);

template <int kN, bool kTurns, bool kAcrossA, bool kAcrossB, class Tail>
Launch prepare(const Problem& p, const Plan& plan, const Tail& tail) {
  const auto kernel = hopper_product_kernel<kN, kTurns, kAcrossA, kAcrossB, Tail>;
  const int bytes = Sizes<kN>::shared_bytes(plan.stages), size = plan.across_m * plan.across_n;
  STEPSCOPE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  Maps maps{};
  maps.a = kAcrossA ? matrix_map(p.a, p.k, p.m, kTileK / plan.across_n) : matrix_map(p.a, p.m, p.k, kTileM / plan.across_n);
  maps.b = kAcrossB ? matrix_map(p.b, p.k, p.n, kTileK / plan.across_m) : matrix_map(p.b, p.n, p.k, kN / plan.across_m);
  maps.out = matrix_map(p.out, p.m, p.n, 64);
  if constexpr (Tail::kOutputs == 2) maps.second = matrix_map(p.slope, p.m, p.n, 64);
  if constexpr (Tail::kGiven) maps.given = matrix_map(p.given, p.m, p.n, 64);

  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(size));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(bytes);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(size);
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  config.attrs = &cluster;
  config.numAttrs = 1;
  int clusters = 0;
  STEPSCOPE_CUDA_CHECK(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config));
  const auto up = [](int x, int unit) { return (x + unit - 1) / unit; };
  const int tiles = up(p.m, plan.across_m * kTileM) * up(p.n, plan.across_n * kN);
  const auto blocks = static_cast<unsigned>(std::min(clusters, tiles) * size);
  return [=, shape = Shape{p.m, p.n, p.k}](cudaStream_t stream) {
    cudaLaunchAttribute attribute = cluster;
    cudaLaunchConfig_t with = config;
    with.attrs = &attribute;
    with.gridDim = dim3(blocks);
    with.stream = stream;
    STEPSCOPE_CUDA_CHECK(cudaLaunchKernelEx(&with, kernel, maps, shape, plan, tail));
  };
}

// One file each, so that they compile beside each other. Empty where there is no kernel for the layout and the cut.
Launch prepare_plain(const Problem& p, const Cut& cut);
Launch prepare_gelu(const Problem& p, const Cut& cut);
Launch prepare_gelu_backward(const Problem& p, bool of_slope, const Cut& cut);
Launch prepare_exponential(const Problem& p, const Cut& cut);

}  // namespace hopper

// A kernel of product.cuh made ready for a problem: its tensor maps, its grid, its shared memory. For the .cu files of this folder only.
#pragma once
#include <cudaTypedefs.h>

#include <functional>

#include "gpt2/cuda/check.h"
#include "mixed/hopper/tails.cuh"

namespace hopper {

using Launch = std::function<void(cudaStream_t)>;

// Boxes of box_rows x box_columns values of a matrix of whole rows, swizzled over the 64 or 128 bytes of their rows. Throws
// gpt2::cuda::CallError.
CUtensorMap matrix_map(const bf16* p, int rows, int columns, int box_rows, int box_columns = 64);

// Boxes of 64 x 64 values of matrices that lie one behind the other: rows beyond a matrix's end are read as zeros and not written. Throws
// gpt2::cuda::CallError.
CUtensorMap stack_map(const bf16* p, int64_t matrices, int64_t rows, int64_t columns);

template <int kN, int kStaged, bool kAcrossA, bool kAcrossB, class Tail>
Launch prepare_staged(const Problem& p, const Plan& plan, const Tail& tail) {
  const auto kernel = hopper_product_kernel<kN, kStaged, kAcrossA, kAcrossB, Tail>;
  const int bytes = Sizes<kN>::shared_bytes(plan.stages, kStaged), size = plan.across_m * plan.across_n;
  // Not this plan's bytes: a limit is the kernel's, and a plan with fewer places that is prepared later would lower it for this one.
  STEPSCOPE_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMaxSharedBytes));
  Maps maps{};
  maps.a = kAcrossA ? matrix_map(p.a, p.k, p.m, kTileK / plan.across_n) : matrix_map(p.a, p.m, p.k, kTileM / plan.across_n);
  maps.b = kAcrossB ? matrix_map(p.b, p.k, p.n, kTileK / plan.across_m) : matrix_map(p.b, p.n, p.k, kN / plan.across_m);
  maps.out = matrix_map(p.out, p.m, p.n, 64, 32);
  if constexpr (Tail::kOutputs == 2) maps.second = matrix_map(p.slope, p.m, p.n, 64, 32);
  if constexpr (Tail::kGiven) maps.given = matrix_map(p.given, p.m, p.n, 64, 32);

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
  return [=, shape = Shape{p.m, p.n, p.k}, only_if = p.only_if](cudaStream_t stream) {
    cudaLaunchAttribute attribute = cluster;
    cudaLaunchConfig_t with = config;
    with.attrs = &attribute;
    with.gridDim = dim3(blocks);
    with.stream = stream;
    STEPSCOPE_CUDA_CHECK(cudaLaunchKernelEx(&with, kernel, maps, shape, plan, tail, only_if));
  };
}

// All results of a tile have their places where a tail reads a matrix and the ring leaves room.
template <int kN, bool kAcrossA, bool kAcrossB, class Tail>
Launch prepare(const Problem& p, const Plan& plan, const Tail& tail) {
  if constexpr (Tail::kGiven)
    if (Sizes<kN>::shared_bytes(plan.stages, kN / 32) <= kMaxSharedBytes)
      return prepare_staged<kN, kN / 32, kAcrossA, kAcrossB>(p, plan, tail);
  return prepare_staged<kN, Sizes<kN>::kStaged, kAcrossA, kAcrossB>(p, plan, tail);
}

// One file each, so that they compile beside each other. Empty where there is no kernel for the layout and the cut.
Launch prepare_plain(const Problem& p, const Cut& cut);
Launch prepare_gelu(const Problem& p, const Cut& cut);
Launch prepare_gelu_backward(const Problem& p, const Cut& cut);
Launch prepare_exponential(const Problem& p, const Cut& cut);

}  // namespace hopper

#include "experiments/prototypes/hopper_product/first/multiply.h"

#include <cudaTypedefs.h>

#include "experiments/prototypes/hopper_product/first/tails.cuh"
#include "gpt2/cuda/check.h"

namespace hopper_first {
namespace {

// The driver's function, which no library links: cuTensorMapEncodeTiled.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  STEPSCOPE_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess) throw gpt2::cuda::CallError("the driver has no cuTensorMapEncodeTiled");
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

// Boxes of box_rows x 64 values of a matrix of whole rows.
CUtensorMap matrix(const bf16* p, int rows, int columns, int box_rows) {
  CUtensorMap map;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)}, pitch[1] = {sizes[0] * sizeof(bf16)};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows)}, step[2] = {1, 1};
  const CUresult result =
      encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<bf16*>(p), sizes, pitch, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) throw gpt2::cuda::CallError("cuTensorMapEncodeTiled refuses the matrix: n and k must be multiples of 8");
  return map;
}

template <bool kAcross, class Finish>
void launch(const Problem& p, const Finish& finish, cudaStream_t stream) {
  int device = 0, multiprocessors = 0;
  STEPSCOPE_CUDA_CHECK(cudaGetDevice(&device));
  STEPSCOPE_CUDA_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  STEPSCOPE_CUDA_CHECK(cudaFuncSetAttribute(first_form_kernel<kAcross, Finish>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  const CUtensorMap a = matrix(p.a, p.m, p.k, kTileM);
  const CUtensorMap b = kAcross ? matrix(p.b, p.k, p.n, kTileK / 2) : matrix(p.b, p.n, p.k, kTileN / 2);
  first_form_kernel<kAcross, Finish><<<multiprocessors / 2 * 2, kThreads, kSharedBytes, stream>>>(a, b, Shape{p.m, p.n, p.k}, finish);
  STEPSCOPE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void multiply(const Problem& p, Tail tail, cudaStream_t stream) {
  switch (tail) {
    case Tail::plain:
      return p.across ? launch<true>(p, Plain{p.out, p.n}, stream) : launch<false>(p, Plain{p.out, p.n}, stream);
    case Tail::gelu:
      return launch<false>(p, GeluForward{p.out, p.slope, p.bias, p.n, {}}, stream);
    case Tail::gelu_backward_of_slope:
      return launch<true>(p, GeluBackward<true>{p.out, p.given, p.partial, p.n, {}}, stream);
    case Tail::gelu_backward_of_x:
      return launch<true>(p, GeluBackward<false>{p.out, p.given, p.partial, p.n, {}}, stream);
  }
}

}  // namespace hopper_first

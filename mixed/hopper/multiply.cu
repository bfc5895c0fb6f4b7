#include "mixed/hopper/multiply.h"

#include <type_traits>

#include "base/errors.h"
#include "gpt2/cuda/driver_function.h"
#include "mixed/hopper/launch.cuh"

namespace hopper {
namespace {

PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  auto* encode = gpt2::cuda::driver_function<std::remove_pointer_t<PFN_cuTensorMapEncodeTiled_v12000>>("cuTensorMapEncodeTiled");
  if (encode == nullptr) throw gpt2::cuda::CallError("the driver has no cuTensorMapEncodeTiled");
  return encode;
}

int shared_bytes(const Cut& cut) {
  return cut.columns == 128 ? Sizes<128>::shared_bytes(cut.plan.stages, Sizes<128>::kStaged)
                            : Sizes<192>::shared_bytes(cut.plan.stages, Sizes<192>::kStaged);
}

std::optional<std::string> why_not_cut(const Cut& cut) {
  if (cut.columns != 128 && cut.columns != 192) return "there are tiles of 128 and 192 columns";
  const int size = cut.plan.across_m * cut.plan.across_n;
  if (size != 1 && size != 2 && size != 4) return "a cluster has 1, 2 or 4 CTAs";
  if (cut.plan.stages < 2 || cut.plan.stages > kMaxStages || shared_bytes(cut) > kMaxSharedBytes)
    return "the ring has fewer than two places or more than shared memory holds";
  return std::nullopt;
}

std::optional<std::string> why_not_layout(const Problem& p, Tail tail) {
  if (p.m < 1 || p.n < 1 || p.k < 1) return "a side of the product is empty";
  if (p.n % 8 != 0 || ((!p.a_across || !p.b_across) && p.k % 8 != 0) || (p.a_across && p.m % 8 != 0))
    return "rows must be multiples of 8 values long";
  switch (tail) {
    case Tail::plain:
      if (p.a_across && !p.b_across) return "there is no product with only a across";
      return std::nullopt;
    case Tail::gelu:
    case Tail::exponential:
      if (p.a_across || p.b_across) return "this tail takes a as [m][k] and b as [n][k]";
      return std::nullopt;
    case Tail::gelu_backward:
      if (p.a_across || !p.b_across) return "this tail takes a as [m][k] and b as [k][n]";
      return std::nullopt;
  }
  return std::nullopt;
}

Launch prepare_any(const Problem& p, Tail tail, const Cut& cut) {
  switch (tail) {
    case Tail::plain:
      return prepare_plain(p, cut);
    case Tail::gelu:
      return prepare_gelu(p, cut);
    case Tail::gelu_backward:
      return prepare_gelu_backward(p, cut);
    case Tail::exponential:
      return prepare_exponential(p, cut);
  }
  return {};
}

}  // namespace

CUtensorMap matrix_map(const bf16* p, int rows, int columns, int box_rows, int box_columns) {
  CUtensorMap map;
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)}, pitch[1] = {sizes[0] * sizeof(bf16)};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(box_columns), static_cast<cuuint32_t>(box_rows)}, step[2] = {1, 1};
  const CUresult result =
      encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<bf16*>(p), sizes, pitch, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                box_columns == 32 ? CU_TENSOR_MAP_SWIZZLE_64B : CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw gpt2::cuda::CallError("cuTensorMapEncodeTiled refuses the matrix: its address or the length of its rows");
  return map;
}

CUtensorMap stack_map(const bf16* p, int64_t matrices, int64_t rows, int64_t columns) {
  CUtensorMap map;
  const auto number = [](int64_t n) { return static_cast<cuuint64_t>(n); };
  const cuuint64_t sizes[3] = {number(columns), number(rows), number(matrices)};
  const cuuint64_t pitch[2] = {sizes[0] * sizeof(bf16), sizes[0] * sizes[1] * sizeof(bf16)};
  const cuuint32_t box[3] = {64, 64, 1}, step[3] = {1, 1, 1};
  const CUresult result =
      encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<bf16*>(p), sizes, pitch, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw gpt2::cuda::CallError("cuTensorMapEncodeTiled refuses the stack of matrices: its address or the length of its rows");
  return map;
}

std::optional<std::string> why_not_device(int major, int minor) {
  if (major == 9 && minor == 0) return std::nullopt;
  return "its product is made of instructions (wgmma) that only GPUs of compute capability 9.0 have, and this one has " +
         std::to_string(major) + "." + std::to_string(minor);
}

std::optional<std::string> why_not_current_device() {
  int device = 0, major = 0, minor = 0;
  STEPSCOPE_CUDA_CHECK(cudaGetDevice(&device));
  STEPSCOPE_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  STEPSCOPE_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return why_not_device(major, minor);
}

std::optional<std::string> why_not_product(const Problem& p, Tail tail, const Cut& cut) {
  if (auto why = why_not_layout(p, tail)) return why;
  return why_not_cut(cut);
}

std::optional<std::string> why_not(const Problem& p, Tail tail, const Cut& cut) {
  if (auto why = why_not_current_device()) return why;
  return why_not_product(p, tail, cut);
}

Product::Product(const Problem& p, Tail tail, const Cut& cut) {
  if (const auto why = why_not_current_device()) throw stepscope::MachineError(*why);
  if (const auto why = why_not_product(p, tail, cut)) throw stepscope::InputError(*why);
  launch_ = prepare_any(p, tail, cut);
  if (!launch_) throw stepscope::InputError("there is no kernel for this layout with tiles of this width");
}

}  // namespace hopper

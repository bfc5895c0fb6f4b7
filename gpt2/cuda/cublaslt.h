// Owners of cuBLASLt's descriptors, and what both trainers tell it of their products.
#pragma once
#include <cublasLt.h>

#include <cstdint>

#include "gpt2/cuda/check.h"

namespace gpt2::cuda::lt {

// Owner of a cuBLASLt object made by `Create` and destroyed by `Destroy`.
template <class Handle, auto Destroy>
struct Owned {
  Handle handle = nullptr;
  Owned() = default;
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle != nullptr) STEPSCOPE_CUDA_CHECK_NOEXCEPT(Destroy(handle));
  }
};
using Description = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

template <class T>
void set(const Description& d, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  STEPSCOPE_CUDA_CHECK(cublasLtMatmulDescSetAttribute(d.handle, attribute, &value, sizeof(value)));
}
template <class T>
void set(const Preference& p, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  STEPSCOPE_CUDA_CHECK(cublasLtMatmulPreferenceSetAttribute(p.handle, attribute, &value, sizeof(value)));
}

// Column-major rows x columns, `batch` of them `stride` elements apart.
inline void create(Layout& layout, cudaDataType type, int64_t rows, int64_t columns, int64_t ld, int64_t batch, int64_t stride) {
  STEPSCOPE_CUDA_CHECK(cublasLtMatrixLayoutCreate(&layout.handle, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), ld));
  if (batch == 1) return;
  const auto count = static_cast<int32_t>(batch);
  STEPSCOPE_CUDA_CHECK(cublasLtMatrixLayoutSetAttribute(layout.handle, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)));
  STEPSCOPE_CUDA_CHECK(
      cublasLtMatrixLayoutSetAttribute(layout.handle, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)));
}

// The largest power of two, up to 256, that divides the address: what the library may assume of it. It assumes 256 unless told.
inline uint32_t alignment_bytes(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  uint32_t bytes = 256;
  while (address % bytes != 0) bytes /= 2;
  return bytes;
}

}  // namespace gpt2::cuda::lt

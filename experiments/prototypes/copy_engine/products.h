// What a trainer computes while others communicate: bf16 products by cuBLASLt, one after the other.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

#include "gpt2/cuda/device_buffer.h"

namespace copy_engine {

// out[m, 3072] = x[m, 768] w[3072, 768]^T, the first product of a d12 MLP with m = B * T rows.
class Product {
 public:
  explicit Product(int64_t m);
  ~Product();
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  int64_t rows() const { return m_; }
  void run(cudaStream_t stream) const;

 private:
  int64_t m_;
  gpt2::cuda::CublasLtHandle lt_;
  cublasLtMatmulDesc_t product_{};
  cublasLtMatrixLayout_t w_layout_{}, x_layout_{}, out_layout_{};
  cublasLtMatmulAlgo_t algorithm_{};
  gpt2::cuda::DeviceBuffer<__nv_bfloat16> x_, w_, out_;
  gpt2::cuda::DeviceBuffer<unsigned char> workspace_;
};

}  // namespace copy_engine

#include "experiments/prototypes/copy_engine/products.h"

#include "experiments/prototypes/copy_engine/kernels.h"

namespace copy_engine {
namespace {

constexpr int64_t kN = 3072, kK = 768;
constexpr size_t kWorkspace = size_t{32} << 20;

cublasLtMatrixLayout_t layout(int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t out{};
  STEPSCOPE_CUDA_CHECK(cublasLtMatrixLayoutCreate(&out, CUDA_R_16BF, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), rows));
  return out;
}

}  // namespace

// cuBLASLt is column-major: it makes out^T = w x^T.
Product::Product(int64_t m) : m_(m), x_(m * kK), w_(kN * kK), out_(m * kN), workspace_(kWorkspace) {
  fill_random(x_.data(), x_.size(), 1, nullptr);
  fill_random(w_.data(), w_.size(), 2, nullptr);
  STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
  STEPSCOPE_CUDA_CHECK(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t transposed = CUBLAS_OP_T;
  STEPSCOPE_CUDA_CHECK(cublasLtMatmulDescSetAttribute(product_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)));
  w_layout_ = layout(kK, kN);
  x_layout_ = layout(kK, m);
  out_layout_ = layout(kN, m);
  cublasLtMatmulPreference_t wish{};
  STEPSCOPE_CUDA_CHECK(cublasLtMatmulPreferenceCreate(&wish));
  STEPSCOPE_CUDA_CHECK(
      cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace, sizeof(kWorkspace)));
  cublasLtMatmulHeuristicResult_t found{};
  int n = 0;
  STEPSCOPE_CUDA_CHECK(
      cublasLtMatmulAlgoGetHeuristic(lt_.get(), product_, w_layout_, x_layout_, out_layout_, out_layout_, wish, 1, &found, &n));
  cublasLtMatmulPreferenceDestroy(wish);
  if (n == 0) throw gpt2::cuda::CallError("cuBLASLt has no algorithm for this product");
  algorithm_ = found.algo;
}

Product::~Product() {
  cublasLtMatrixLayoutDestroy(w_layout_);
  cublasLtMatrixLayoutDestroy(x_layout_);
  cublasLtMatrixLayoutDestroy(out_layout_);
  cublasLtMatmulDescDestroy(product_);
}

void Product::run(cudaStream_t stream) const {
  const float one = 1, zero = 0;
  STEPSCOPE_CUDA_CHECK(cublasLtMatmul(lt_.get(), product_, &one, w_.data(), w_layout_, x_.data(), x_layout_, &zero, out_.data(),
                                      out_layout_, out_.data(), out_layout_, &algorithm_, workspace_.data(), kWorkspace, stream));
}

}  // namespace copy_engine

// The same product by cuBLASLt, with the epilogue that comes nearest: GELU that keeps its input, the gradient of GELU of an input, or none.
#pragma once
#include <cublasLt.h>

#include "mixed/hopper/multiply.h"

namespace hopper {

inline constexpr size_t kRivalWorkspaceBytes = size_t{64} << 20;

// Takes the fastest of the algorithms that the heuristics offer, timed. Throws gpt2::cuda::CallError.
class CublasLtRival {
 public:
  CublasLtRival(const Problem& p, Tail tail, void* workspace);
  ~CublasLtRival();
  CublasLtRival(const CublasLtRival&) = delete;
  CublasLtRival& operator=(const CublasLtRival&) = delete;

  void run(cudaStream_t stream) const;

 private:
  cublasStatus_t run(const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) const;
  void describe(Tail tail);
  void choose();
  template <class T>
  void set(cublasLtMatmulDescAttributes_t which, const T& value);

  Problem p_;
  void* workspace_;
  cublasLtHandle_t lt_{};
  cublasLtMatmulDesc_t product_{};
  cublasLtMatrixLayout_t a_{}, b_{}, out_{};
  cublasLtMatmulAlgo_t best_{};
};

}  // namespace hopper

#include "experiments/prototypes/hopper_product/cublaslt_rival.h"

#include <vector>

#include "gpt2/cuda/check.h"

namespace hopper {
namespace {

using bf16 = __nv_bfloat16;

cublasLtMatrixLayout_t layout(uint64_t rows, uint64_t columns) {
  cublasLtMatrixLayout_t out{};
  STEPSCOPE_CUDA_CHECK(cublasLtMatrixLayoutCreate(&out, CUDA_R_16BF, rows, columns, static_cast<int64_t>(rows)));
  return out;
}

// Milliseconds of eight runs.
template <class Run>
float timed(const Run& run) {
  cudaEvent_t begin{}, end{};
  STEPSCOPE_CUDA_CHECK(cudaEventCreate(&begin));
  STEPSCOPE_CUDA_CHECK(cudaEventCreate(&end));
  run();
  STEPSCOPE_CUDA_CHECK(cudaEventRecord(begin, nullptr));
  for (int i = 0; i < 8; ++i) run();
  STEPSCOPE_CUDA_CHECK(cudaEventRecord(end, nullptr));
  STEPSCOPE_CUDA_CHECK(cudaEventSynchronize(end));
  float ms = 0;
  STEPSCOPE_CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return ms;
}

}  // namespace

CublasLtRival::CublasLtRival(const Problem& p, Tail tail, void* workspace) : p_(p), workspace_(workspace) {
  STEPSCOPE_CUDA_CHECK(cublasLtCreate(&lt_));
  describe(tail);
  choose();
}

CublasLtRival::~CublasLtRival() {
  cublasLtMatrixLayoutDestroy(a_);
  cublasLtMatrixLayoutDestroy(b_);
  cublasLtMatrixLayoutDestroy(out_);
  cublasLtMatmulDescDestroy(product_);
  cublasLtDestroy(lt_);
}

template <class T>
void CublasLtRival::set(cublasLtMatmulDescAttributes_t which, const T& value) {
  STEPSCOPE_CUDA_CHECK(cublasLtMatmulDescSetAttribute(product_, which, &value, sizeof(value)));
}

// cuBLASLt is column-major: it makes the transposed result, b times a.
void CublasLtRival::describe(Tail tail) {
  STEPSCOPE_CUDA_CHECK(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set(CUBLASLT_MATMUL_DESC_TRANSA, p_.b_across ? CUBLAS_OP_N : CUBLAS_OP_T);
  set(CUBLASLT_MATMUL_DESC_TRANSB, p_.a_across ? CUBLAS_OP_T : CUBLAS_OP_N);
  const bool gelu = tail == Tail::gelu, backward = tail == Tail::gelu_backward;
  if (gelu || backward) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, gelu ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_DGELU);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, gelu ? p_.slope : const_cast<bf16*>(p_.given));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, static_cast<int64_t>(p_.n));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, CUDA_R_16BF);
  }
  if (gelu) {
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p_.bias);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_16BF);
  }
  const auto m = static_cast<uint64_t>(p_.m), n = static_cast<uint64_t>(p_.n), k = static_cast<uint64_t>(p_.k);
  b_ = p_.b_across ? layout(n, k) : layout(k, n);
  a_ = p_.a_across ? layout(m, k) : layout(k, m);
  out_ = layout(n, m);
}

cublasStatus_t CublasLtRival::run(const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) const {
  const float one = 1, zero = 0;
  return cublasLtMatmul(lt_, product_, &one, p_.b, b_, p_.a, a_, &zero, p_.out, out_, p_.out, out_, &algorithm, workspace_,
                        kRivalWorkspaceBytes, stream);
}

void CublasLtRival::run(cudaStream_t stream) const { STEPSCOPE_CUDA_CHECK(run(best_, stream)); }

void CublasLtRival::choose() {
  cublasLtMatmulPreference_t wish{};
  STEPSCOPE_CUDA_CHECK(cublasLtMatmulPreferenceCreate(&wish));
  STEPSCOPE_CUDA_CHECK(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kRivalWorkspaceBytes,
                                                            sizeof(kRivalWorkspaceBytes)));
  std::vector<cublasLtMatmulHeuristicResult_t> found(32);
  int n = 0;
  STEPSCOPE_CUDA_CHECK(
      cublasLtMatmulAlgoGetHeuristic(lt_, product_, b_, a_, out_, out_, wish, static_cast<int>(found.size()), found.data(), &n));
  cublasLtMatmulPreferenceDestroy(wish);
  float best_ms = 1e30f;
  for (int i = 0; i < n; ++i) {
    const auto& algorithm = found[static_cast<size_t>(i)].algo;
    if (run(algorithm, nullptr) != CUBLAS_STATUS_SUCCESS) continue;
    if (const float ms = timed([&] { run(algorithm, nullptr); }); ms < best_ms) {
      best_ms = ms;
      best_ = algorithm;
    }
  }
  if (best_ms == 1e30f) throw gpt2::cuda::CallError("cuBLASLt has no algorithm for this product");
}

}  // namespace hopper

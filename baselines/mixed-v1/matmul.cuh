// Matrix products of bf16 matrices with fp32 sums: cuBLASLt for the linear layers (it adds the bias, and it
// can write a bf16 product as fp32), cuBLAS for the many small products of attention.
//
// Both libraries think in columns: a row-major matrix is its transpose, and D^T = op(B)^T op(A)^T. So A and B
// change places in every call below.
#pragma once
#include <cublasLt.h>

#include <array>
#include <map>

#include "kernels.cuh"

namespace baseline {

enum class Op { plain, transposed };

inline cublasOperation_t cublas_op(Op op) { return op == Op::plain ? CUBLAS_OP_N : CUBLAS_OP_T; }

// ---- linear layers ------------------------------------------------------------------------------

class LinearEngine {
 public:
  LinearEngine() : workspace_(kWorkspaceBytes) { CHECK(cublasLtCreate(&handle_)); }
  LinearEngine(const LinearEngine&) = delete;
  LinearEngine& operator=(const LinearEngine&) = delete;
  ~LinearEngine() {
    for (auto& [key, plan] : plans_) {
      for (cublasLtMatrixLayout_t layout : {plan.a, plan.b, plan.d}) cublasLtMatrixLayoutDestroy(layout);
      cublasLtMatmulDescDestroy(plan.product);
    }
    cublasLtDestroy(handle_);
  }

  // Row-major D (M,N) = op(A) (M,K) x op(B) (K,N), plus bias (N) in every row if there is one. D is bf16, or
  // fp32 for the gradient of a weight.
  void multiply(Op op_a, Op op_b, int64_t M, int64_t N, int64_t K, const bf16* A, const bf16* B, bf16* D,
                const bf16* bias, cudaStream_t stream) {
    multiply(op_a, op_b, M, N, K, A, B, D, CUDA_R_16BF, bias, stream);
  }
  void multiply(Op op_a, Op op_b, int64_t M, int64_t N, int64_t K, const bf16* A, const bf16* B, float* D,
                cudaStream_t stream) {
    multiply(op_a, op_b, M, N, K, A, B, D, CUDA_R_32F, nullptr, stream);
  }

  static constexpr int64_t kWorkspaceBytes = int64_t{32} << 20;

 private:
  struct Plan {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
    cublasLtMatmulAlgo_t algorithm;
  };
  using Key = std::array<int64_t, 10>;

  // The largest power of two, up to 256, that divides the address.
  static int64_t alignment(const void* pointer) {
    const uint64_t address = reinterpret_cast<uint64_t>(pointer);
    int64_t bytes = 256;
    while (address % static_cast<uint64_t>(bytes) != 0) bytes /= 2;
    return bytes;
  }

  void multiply(Op op_a, Op op_b, int64_t M, int64_t N, int64_t K, const bf16* A, const bf16* B, void* D,
                cudaDataType type, const bf16* bias, cudaStream_t stream) {
    const Key key = {static_cast<int64_t>(op_a),
                     static_cast<int64_t>(op_b),
                     M,
                     N,
                     K,
                     type,
                     bias != nullptr,
                     alignment(A),
                     alignment(B),
                     alignment(D)};
    auto known = plans_.find(key);
    if (known == plans_.end()) known = plans_.emplace(key, make_plan(op_a, op_b, M, N, K, type, key)).first;
    const Plan& plan = known->second;
    if (bias) {
      CHECK(cublasLtMatmulDescSetAttribute(plan.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                           sizeof bias));
    }
    const float one = 1.0f, zero = 0.0f;
    CHECK(cublasLtMatmul(handle_, plan.product, &one, B, plan.b, A, plan.a, &zero, D, plan.d, D, plan.d,
                         &plan.algorithm, workspace_.get(), kWorkspaceBytes, stream));
  }

  // Asks cuBLASLt for its favourite algorithm, once for each shape.
  Plan make_plan(Op op_a, Op op_b, int64_t M, int64_t N, int64_t K, cudaDataType type, const Key& key) {
    Plan plan;
    CHECK(cublasLtMatmulDescCreate(&plan.product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const auto describe = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
      CHECK(cublasLtMatmulDescSetAttribute(plan.product, attribute, &value, sizeof value));
    };
    describe(CUBLASLT_MATMUL_DESC_TRANSA, cublas_op(op_b));
    describe(CUBLASLT_MATMUL_DESC_TRANSB, cublas_op(op_a));
    if (key[6]) {
      describe(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      describe(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_16BF);
    }
    const auto layout = [](cublasLtMatrixLayout_t& to, cudaDataType of, int64_t rows, int64_t columns) {
      CHECK(cublasLtMatrixLayoutCreate(&to, of, static_cast<uint64_t>(columns), static_cast<uint64_t>(rows),
                                       columns));
    };
    layout(plan.a, CUDA_R_16BF, op_a == Op::plain ? M : K, op_a == Op::plain ? K : M);
    layout(plan.b, CUDA_R_16BF, op_b == Op::plain ? K : N, op_b == Op::plain ? N : K);
    layout(plan.d, type, M, N);

    cublasLtMatmulPreference_t preference = nullptr;
    CHECK(cublasLtMatmulPreferenceCreate(&preference));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      CHECK(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kWorkspaceBytes));
    // A product whose K is split keeps its parts in fp32; as bf16 each of them would be rounded.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(key[8]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(key[7]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(key[9]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(key[9]));
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    CHECK(cublasLtMatmulAlgoGetHeuristic(handle_, plan.product, plan.b, plan.a, plan.d, plan.d, preference, 1,
                                         &result, &found));
    CHECK(cublasLtMatmulPreferenceDestroy(preference));
    if (found == 0) {
      throw MachineError("cuBLASLt has no bf16 product of " + std::to_string(M) + " x " + std::to_string(N) +
                         " x " + std::to_string(K));
    }
    plan.algorithm = result.algo;
    return plan;
  }

  cublasLtHandle_t handle_ = nullptr;
  DeviceArray<char> workspace_;
  std::map<Key, Plan> plans_;
};

// out (N,OC) = in (N,C) x weight (OC,C)^T, plus bias if there is one.
inline void linear_forward(LinearEngine& engine, bf16* out, const bf16* in, const bf16* weight,
                           const bf16* bias, int64_t N, int64_t C, int64_t OC, cudaStream_t stream) {
  engine.multiply(Op::plain, Op::transposed, N, OC, C, in, weight, out, bias, stream);
}

// din (N,C) = dout (N,OC) x weight; dweight (OC,C) = dout^T x in; dbias (OC) = column sums of dout. All
// overwritten.
inline void linear_backward(LinearEngine& engine, bf16* din, float* dweight, float* dbias, float* partial,
                            const bf16* dout, const bf16* in, const bf16* weight, int64_t N, int64_t C,
                            int64_t OC, cudaStream_t stream) {
  engine.multiply(Op::plain, Op::plain, N, C, OC, dout, weight, din, nullptr, stream);
  engine.multiply(Op::transposed, Op::plain, OC, C, N, dout, in, dweight, stream);
  if (dbias) column_sum(dbias, dout, partial, N, OC, stream);
}

// ---- attention ----------------------------------------------------------------------------------

// `count` matrices of `rows` rows one behind the other: heads (T,HS), or scores whose rows of T are `row` =
// Tp elements apart.
struct Stack {
  bf16* data;
  int64_t rows, row;
  long long stride() const { return rows * row; }
};

// Row-major D (M,N) = op(A) (M,K) x op(B) (K,N), `count` times.
inline void batched_matmul(cublasHandle_t cublas, Op op_a, Op op_b, int64_t M, int64_t N, int64_t K,
                           const Stack& A, const Stack& B, const Stack& D, int64_t count) {
  const float one = 1.0f, zero = 0.0f;
  CHECK(cublasGemmStridedBatchedEx(
      cublas, cublas_op(op_b), cublas_op(op_a), static_cast<int>(N), static_cast<int>(M), static_cast<int>(K),
      &one, B.data, CUDA_R_16BF, static_cast<int>(B.row), B.stride(), A.data, CUDA_R_16BF,
      static_cast<int>(A.row), A.stride(), &zero, D.data, CUDA_R_16BF, static_cast<int>(D.row), D.stride(),
      static_cast<int>(count), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

}  // namespace baseline

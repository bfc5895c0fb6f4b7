// Matrix products in row-major terms through cuBLASLt, on our own workspace.
//
// Row-major C = A B is column-major C^T = B^T A^T: the library sees the operands swapped, and nothing is transposed in memory.
// Deterministic: the algorithm is the library's first heuristic choice for the shape (never timed), and split-K schemes that add in
// arrival order are excluded. So the same device, library and shapes give the same bits.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "fp32/variants.h"
#include "gpt2/cuda/device_buffer.h"

namespace fp32 {

// c (m,n) = alpha * op(a) (m,k) * op(b) (k,n) + beta * c + bias (n). Leading dimensions and batch strides in elements.
struct Gemm {
  bool transpose_a = false;  // a is stored (k,m)
  bool transpose_b = false;  // b is stored (n,k)
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  int64_t lda = 0;
  const float* b = nullptr;
  int64_t ldb = 0;
  float* c = nullptr;
  int64_t ldc = 0;
  int64_t batch = 1;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  float alpha = 1.0f;
  float beta = 0.0f;            // 0: c is not read
  const float* bias = nullptr;  // added to every row of c
};

enum class MatmulRate { fp32, tf32 };
// "fp32" (no tensor cores) or "tf32" (10-bit mantissas into the tensor cores). Throws stepscope::InputError.
MatmulRate matmul_rate_from_name(std::string_view name);

inline constexpr int64_t kMatmulWorkspaceBytes = int64_t{64} << 20;

class MatmulEngine {
 public:
  // The workspace is borrowed: kMatmulWorkspaceBytes, 256-byte aligned, used by one stream at a time.
  MatmulEngine(MatmulRate rate, void* workspace);
  ~MatmulEngine();
  MatmulEngine(const MatmulEngine&) = delete;  // plans own library descriptors
  MatmulEngine& operator=(const MatmulEngine&) = delete;

  // Plans a shape at its first use (host work, some 50 us), then only launches. Throws stepscope::InputError with the words of why_not().
  void run(const Gemm& gemm, cudaStream_t stream);
  MatmulRate rate() const { return rate_; }
  // Why the library cannot compute this product; empty when it can. Of addresses only the alignment counts, so it can be asked before
  // anything is allocated.
  std::optional<std::string> why_not(const Gemm& gemm);

 private:
  struct Plan;
  Plan& plan(const Gemm& gemm);

  MatmulRate rate_;
  void* workspace_;
  gpt2::cuda::CublasLtHandle handle_;
  std::map<std::array<int64_t, 16>, std::unique_ptr<Plan>> plans_;
};

// The product of a linear layer's forward, with its bias where the variant leaves that to the product.
Gemm linear_forward_product(LinearForward variant, float* out, const float* inp, const float* weight, const float* bias, int64_t rows,
                            int64_t in, int64_t out_channels);
// out (rows,OUT) = inp (rows,IN) * weight (OUT,IN)^T + bias (OUT; nullptr = none)
void linear_forward(LinearForward variant, MatmulEngine& engine, float* out, const float* inp, const float* weight, const float* bias,
                    int64_t rows, int64_t in, int64_t out_channels, cudaStream_t stream);
// dinp (rows,IN) = dout (rows,OUT) * weight
void linear_backward_input(MatmulEngine& engine, float* dinp, const float* dout, const float* weight, int64_t rows, int64_t in,
                           int64_t out_channels, cudaStream_t stream);
// dweight (OUT,IN) = dout^T * inp and dbias (OUT; nullptr = none) = the column sums of dout; added to when `accumulate`.
void linear_backward_weight(LinearBackward variant, MatmulEngine& engine, float* dweight, float* dbias, const float* dout, const float* inp,
                            int64_t rows, int64_t in, int64_t out_channels, bool accumulate, float* scratch, cudaStream_t stream);
int64_t linear_backward_scratch_floats(LinearBackward variant, MatmulRate rate, int64_t rows, int64_t out_channels);

}  // namespace fp32

// cuBLASLt plans, one per shape, layout, alignment and epilogue; and the three products of a linear layer.
#include "fp32/matmul.h"

#include <fmt/format.h>

#include <string>

#include "base/errors.h"
#include "fp32/kernels/transpose.cuh"
#include "gpt2/cuda/cublaslt.h"
#include "gpt2/ops/column_sums.cuh"
#include "gpt2/ops/elementwise.cuh"

namespace fp32 {
namespace {

using namespace gpt2::cuda::lt;

}  // namespace

struct MatmulEngine::Plan {
  Description description;
  Layout a, b, c;
  cublasLtMatmulAlgo_t algorithm{};
  bool found = false;
};

// Out of line, both: the map's elements are complete only here.
MatmulEngine::MatmulEngine(MatmulRate rate, void* workspace) : rate_(rate), workspace_(workspace) {}
MatmulEngine::~MatmulEngine() = default;

MatmulRate matmul_rate_from_name(std::string_view name) {
  if (name == "fp32") return MatmulRate::fp32;
  if (name == "tf32") return MatmulRate::tf32;
  throw stepscope::InputError(fmt::format("--matmul {}: expected fp32 or tf32", name));
}

MatmulEngine::Plan& MatmulEngine::plan(const Gemm& g) {
  if (g.m < 1 || g.n < 1 || g.k < 1 || g.batch < 1 || g.batch > 2147483647)
    throw stepscope::InputError(fmt::format("a matrix product of {} x {} x {}, {} times, cannot be computed", g.m, g.n, g.k, g.batch));
  const uint32_t align_a = alignment_bytes(g.a);
  const uint32_t align_b = alignment_bytes(g.b);
  const uint32_t align_c = alignment_bytes(g.c);
  const std::array<int64_t, 16> key{g.transpose_a,
                                    g.transpose_b,
                                    g.m,
                                    g.n,
                                    g.k,
                                    g.lda,
                                    g.ldb,
                                    g.ldc,
                                    g.batch,
                                    g.stride_a,
                                    g.stride_b,
                                    g.stride_c,
                                    (g.bias != nullptr ? 2 : 0) + (g.beta != 0.0f ? 1 : 0),
                                    align_a,
                                    align_b,
                                    align_c};
  const auto known = plans_.find(key);
  if (known != plans_.end()) return *known->second;

  auto fresh = std::make_unique<Plan>();
  const cublasComputeType_t compute = rate_ == MatmulRate::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  STEPSCOPE_CUDA_CHECK(cublasLtMatmulDescCreate(&fresh->description.handle, compute, CUDA_R_32F));
  // The library's first operand is our b, its second our a; a row-major matrix stored untransposed needs no transposition there.
  const cublasOperation_t op_first = g.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t op_second = g.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(fresh->description, CUBLASLT_MATMUL_DESC_TRANSA, op_first);
  set(fresh->description, CUBLASLT_MATMUL_DESC_TRANSB, op_second);
  if (g.bias != nullptr) {
    set(fresh->description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(fresh->description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
  }
  create(fresh->b, CUDA_R_32F, g.transpose_b ? g.k : g.n, g.transpose_b ? g.n : g.k, g.ldb, g.batch, g.stride_b);
  create(fresh->a, CUDA_R_32F, g.transpose_a ? g.m : g.k, g.transpose_a ? g.k : g.m, g.lda, g.batch, g.stride_a);
  create(fresh->c, CUDA_R_32F, g.n, g.m, g.ldc, g.batch, g.stride_c);

  Preference preference;
  STEPSCOPE_CUDA_CHECK(cublasLtMatmulPreferenceCreate(&preference.handle));
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kMatmulWorkspaceBytes));
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, align_b);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, align_a);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, align_c);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, align_c);

  cublasLtMatmulHeuristicResult_t result{};
  int results = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle_.get(), fresh->description.handle, fresh->b.handle, fresh->a.handle,
                                                               fresh->c.handle, fresh->c.handle, preference.handle, 1, &result, &results);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) STEPSCOPE_CUDA_CHECK(status);
  fresh->found = status == CUBLAS_STATUS_SUCCESS && results == 1;
  fresh->algorithm = result.algo;
  return *plans_.emplace(key, std::move(fresh)).first->second;
}

std::optional<std::string> MatmulEngine::why_not(const Gemm& g) {
  const auto product = [&] {
    return fmt::format("a {} product of {} x {} x {} ({}{}, {} times{})", rate_ == MatmulRate::tf32 ? "tf32" : "fp32", g.m, g.n, g.k,
                       g.transpose_a ? "T" : "N", g.transpose_b ? "T" : "N", g.batch, g.bias != nullptr ? ", with bias" : "");
  };
  if (g.bias != nullptr && alignment_bytes(g.bias) < 16)
    return fmt::format("cuBLASLt's {} needs a bias at a multiple of 16 bytes", product());
  if (!plan(g).found) return fmt::format("cuBLASLt has no kernel for {}", product());
  return std::nullopt;
}

void MatmulEngine::run(const Gemm& g, cudaStream_t stream) {
  Plan& p = plan(g);
  if (!p.found || (g.bias != nullptr && alignment_bytes(g.bias) < 16)) throw stepscope::InputError(*why_not(g));
  if (g.bias != nullptr) set(p.description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, g.bias);
  STEPSCOPE_CUDA_CHECK(cublasLtMatmul(handle_.get(), p.description.handle, &g.alpha, g.b, p.b.handle, g.a, p.a.handle, &g.beta, g.c,
                                      p.c.handle, g.c, p.c.handle, &p.algorithm, workspace_, static_cast<size_t>(kMatmulWorkspaceBytes),
                                      stream));
}

Gemm linear_forward_product(LinearForward variant, float* out, const float* inp, const float* weight, const float* bias, int64_t rows,
                            int64_t in, int64_t out_channels) {
  Gemm gemm{.transpose_b = true, .m = rows, .n = out_channels, .k = in};
  gemm.a = inp, gemm.lda = in;
  gemm.b = weight, gemm.ldb = in;
  gemm.c = out, gemm.ldc = out_channels;
  switch (variant) {
    case LinearForward::bias_epilogue:
      gemm.bias = bias;
      break;
    case LinearForward::bias_kernel:
      break;
  }
  return gemm;
}

void linear_forward(LinearForward variant, MatmulEngine& engine, float* out, const float* inp, const float* weight, const float* bias,
                    int64_t rows, int64_t in, int64_t out_channels, cudaStream_t stream) {
  engine.run(linear_forward_product(variant, out, inp, weight, bias, rows, in, out_channels), stream);
  switch (variant) {
    case LinearForward::bias_epilogue:
      break;
    case LinearForward::bias_kernel:
      if (bias != nullptr) gpt2::ops::add_bias(out, bias, rows, out_channels, stream);
      break;
  }
}

void linear_backward_input(MatmulEngine& engine, float* dinp, const float* dout, const float* weight, int64_t rows, int64_t in,
                           int64_t out_channels, cudaStream_t stream) {
  Gemm gemm{.m = rows, .n = in, .k = out_channels};
  gemm.a = dout, gemm.lda = out_channels;
  gemm.b = weight, gemm.ldb = in;
  gemm.c = dinp, gemm.ldc = in;
  engine.run(gemm, stream);
}

// Hopper's tensor cores read TF32 operands along the sum alone (PTX ISA: wgmma transposes operands of 16 bits and no others). cuBLASLt's
// kernels are as fast with inp as it is stored, but half as fast with dout (docs/study/fp32-tensor-cores.md).
namespace {
bool transposes_dout(LinearBackward variant, MatmulRate rate) {
  switch (variant) {
    case LinearBackward::transposed_dout:
      return rate == MatmulRate::tf32;
    case LinearBackward::as_stored:
      break;
  }
  return false;
}
}  // namespace

int64_t linear_backward_scratch_floats(LinearBackward variant, MatmulRate rate, int64_t rows, int64_t out_channels) {
  if (transposes_dout(variant, rate)) return (rows + transpose_partials(rows)) * out_channels;
  return gpt2::ops::bias_gradient_scratch_floats<float>(rows, out_channels);
}

void linear_backward_weight(LinearBackward variant, MatmulEngine& engine, float* dweight, float* dbias, const float* dout, const float* inp,
                            int64_t rows, int64_t in, int64_t out_channels, bool accumulate, float* scratch, cudaStream_t stream) {
  Gemm gemm{.transpose_a = true, .m = out_channels, .n = in, .k = rows};
  gemm.a = dout, gemm.lda = out_channels;
  gemm.b = inp, gemm.ldb = in;
  gemm.c = dweight, gemm.ldc = in;
  gemm.beta = accumulate ? 1.0f : 0.0f;
  if (!transposes_dout(variant, engine.rate())) {
    engine.run(gemm, stream);
    if (dbias != nullptr) gpt2::ops::bias_gradient(dbias, dout, rows, out_channels, accumulate, scratch, stream);
    return;
  }
  float* partial = dbias != nullptr ? scratch + rows * out_channels : nullptr;
  transpose(scratch, partial, dout, rows, out_channels, stream);
  gemm.transpose_a = false;
  gemm.a = scratch, gemm.lda = rows;
  engine.run(gemm, stream);
  if (dbias != nullptr)
    gpt2::ops::reduce_partials(dbias, partial, transpose_partials(rows), out_channels, out_channels, accumulate, stream);
}

}  // namespace fp32

// Times the product against the best algorithm that cuBLASLt's heuristics offer for the same product, in bursts and for a second each, with
// joules. `hopper_product_measure [ROWS…]`, default 4096 65536.
#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/nvml.h"
#include "experiments/prototypes/hopper_product/multiply.h"
#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_buffer.h"

namespace {

using bf16 = __nv_bfloat16;
using gpt2::cuda::DeviceBuffer;
using hopper::Problem;
using hopper::Tail;
using Clock = std::chrono::steady_clock;

constexpr size_t kWorkspaceBytes = size_t{64} << 20;

void ok(cublasStatus_t s) {
  if (s != CUBLAS_STATUS_SUCCESS) throw gpt2::cuda::CallError(fmt::format("cuBLASLt: {}", cublasLtGetStatusName(s)));
}

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

// Small random values, so that the tensor cores draw what they draw in training.
void fill(bf16* to, int64_t n, float scale, uint32_t seed) {
  std::vector<bf16> host(static_cast<size_t>(n));
  uint32_t x = seed;
  for (bf16& v : host) {
    float sum = 0;
    for (int j = 0; j < 4; ++j) {
      x = x * 1664525u + 1013904223u;
      sum += static_cast<float>(x >> 8) / 16777216.0f - 0.5f;
    }
    v = __float2bfloat16(1.7f * scale * sum);
  }
  STEPSCOPE_CUDA_CHECK(cudaMemcpy(to, host.data(), host.size() * sizeof(bf16), cudaMemcpyHostToDevice));
}

void time_it(const std::string& what, double flop, const std::function<void()>& run) {
  for (int i = 0; i < 3; ++i) run();
  STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
  const int burst = std::clamp(static_cast<int>(2e13 / flop), 4, 200);
  double best_s = 1e9;
  for (int j = 0; j < 3; ++j) {
    const auto begin = Clock::now();
    for (int i = 0; i < burst; ++i) run();
    STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
    best_s = std::min(best_s, seconds_since(begin) / burst);
  }
  std::string absent;
  const auto device = stepscope::nvml::Device::open(absent);
  const auto energy = [&] { return device ? static_cast<double>(device->energy_mj().value_or(0)) * 1e-3 : 0.0; };
  int64_t runs = 0;
  const auto begin = Clock::now();
  const double before = energy();
  for (; seconds_since(begin) < 1; runs += burst) {
    for (int i = 0; i < burst; ++i) run();
    STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
  }
  const double s = seconds_since(begin) / static_cast<double>(runs), joules = (energy() - before) / static_cast<double>(runs);
  fmt::print("  {:<24} burst {:8.4f} ms {:5.0f} TFLOP/s   a second {:8.4f} ms {:5.0f} TFLOP/s  {:.3f} J\n", what, best_s * 1e3,
             flop / best_s * 1e-12, s * 1e3, flop / s * 1e-12, joules);
  std::fflush(stdout);
}

// The same product by cuBLASLt, with the epilogue that comes nearest: GELU that keeps its input, or the gradient of GELU.
class Rival {
 public:
  Rival(const Problem& p, Tail tail, void* workspace) : p_(p), workspace_(workspace) {
    ok(cublasLtCreate(&lt_));
    ok(cublasLtMatmulDescCreate(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    // Column-major: the transposed result is b times a.
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.across ? CUBLAS_OP_N : CUBLAS_OP_T);
    if (tail != Tail::plain) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, tail == Tail::gelu ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_DGELU);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, const_cast<bf16*>(tail == Tail::gelu ? p.slope : p.given));
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, static_cast<int64_t>(p.n));
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, CUDA_R_16BF);
    }
    if (tail == Tail::gelu) {
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_16BF);
    }
    const auto rows = static_cast<uint64_t>(p.across ? p.n : p.k), columns = static_cast<uint64_t>(p.across ? p.k : p.n);
    ok(cublasLtMatrixLayoutCreate(&b_, CUDA_R_16BF, rows, columns, static_cast<int64_t>(rows)));
    ok(cublasLtMatrixLayoutCreate(&a_, CUDA_R_16BF, static_cast<uint64_t>(p.k), static_cast<uint64_t>(p.m), p.k));
    ok(cublasLtMatrixLayoutCreate(&out_, CUDA_R_16BF, static_cast<uint64_t>(p.n), static_cast<uint64_t>(p.m), p.n));
    choose();
  }
  ~Rival() {
    cublasLtMatrixLayoutDestroy(a_);
    cublasLtMatrixLayoutDestroy(b_);
    cublasLtMatrixLayoutDestroy(out_);
    cublasLtMatmulDescDestroy(product_);
    cublasLtDestroy(lt_);
  }
  Rival(const Rival&) = delete;
  Rival& operator=(const Rival&) = delete;

  cublasStatus_t run(const cublasLtMatmulAlgo_t& algorithm) const {
    const float one = 1, zero = 0;
    return cublasLtMatmul(lt_, product_, &one, p_.b, b_, p_.a, a_, &zero, p_.out, out_, p_.out, out_, &algorithm, workspace_,
                          kWorkspaceBytes, nullptr);
  }
  void run() const { ok(run(best_)); }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t which, const T& value) {
    ok(cublasLtMatmulDescSetAttribute(product_, which, &value, sizeof(value)));
  }
  void choose() {
    cublasLtMatmulPreference_t wish{};
    ok(cublasLtMatmulPreferenceCreate(&wish));
    ok(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspaceBytes, sizeof(kWorkspaceBytes)));
    std::vector<cublasLtMatmulHeuristicResult_t> found(16);
    int n = 0;
    ok(cublasLtMatmulAlgoGetHeuristic(lt_, product_, b_, a_, out_, out_, wish, static_cast<int>(found.size()), found.data(), &n));
    cublasLtMatmulPreferenceDestroy(wish);
    double best_s = 1e9;
    for (int i = 0; i < n; ++i) {
      const auto& algorithm = found[static_cast<size_t>(i)].algo;
      if (run(algorithm) != CUBLAS_STATUS_SUCCESS) continue;
      STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
      const auto begin = Clock::now();
      for (int j = 0; j < 8; ++j) ok(run(algorithm));
      STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
      if (const double s = seconds_since(begin); s < best_s) {
        best_s = s;
        best_ = algorithm;
      }
    }
  }

  Problem p_;
  void* workspace_;
  cublasLtHandle_t lt_{};
  cublasLtMatmulDesc_t product_{};
  cublasLtMatrixLayout_t a_{}, b_{}, out_{};
  cublasLtMatmulAlgo_t best_{};
};

void compare(const char* what, int m, int n, int k, bool across, Tail tail) {
  const auto size = [](int64_t rows, int64_t columns) { return rows * columns; };
  DeviceBuffer<bf16> a(size(m, k)), b(size(n, k)), out(size(m, n)), given(size(m, n)), bias(n);
  DeviceBuffer<float> partial(size((m + 127) / 128, n));
  DeviceBuffer<unsigned char> workspace(int64_t{kWorkspaceBytes});
  fill(a.data(), size(m, k), 1, 1);
  fill(b.data(), size(n, k), 0.05f, 2);
  fill(given.data(), size(m, n), 1, 3);
  fill(bias.data(), n, 0.5f, 4);
  const Problem p{m, n, k, a.data(), b.data(), across, out.data(), bias.data(), given.data(), given.data(), partial.data()};
  const double flop = 2.0 * m * n * k;
  fmt::print("{}: {} x {} x {}\n", what, m, n, k);
  {
    const Rival rival(p, tail, workspace.data());
    time_it("cuBLASLt", flop, [&] { rival.run(); });
  }
  time_it("own", flop, [&] { hopper::multiply(p, tail, nullptr); });
}

}  // namespace

int main(int argc, char** argv) try {
  std::vector<int> rows;
  for (int i = 1; i < argc; ++i) rows.push_back(std::stoi(argv[i]));
  if (rows.empty()) rows = {4096, 65536};
  for (const int m : rows) {
    compare("mlp_up, plain", m, 3072, 768, false, Tail::plain);
    compare("mlp_up with GELU", m, 3072, 768, false, Tail::gelu);
    compare("mlp_down backward with GELU' stored, column sums", m, 3072, 768, true, Tail::gelu_backward_of_slope);
    compare("mlp_down backward with GELU' computed, column sums", m, 3072, 768, true, Tail::gelu_backward_of_x);
    compare("mlp_down, plain", m, 768, 3072, false, Tail::plain);
  }
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "hopper_product_measure: {}\n", e.what());
  return 3;
}

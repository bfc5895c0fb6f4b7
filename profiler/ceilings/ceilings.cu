// The measurement. No {fmt} here: nvcc cannot compile its consteval format strings.
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "base/errors.h"
#include "base/gpu_uuid.h"
#include "base/statistics.h"
#include "base/utc.h"
#include "profiler/ceilings/ceilings.h"

namespace profiler {
namespace {

// 2 GiB per buffer: 34 x the 60 MB L2 of an H200, so that the cache cannot help; at least 8 runs of each.
constexpr size_t kBytes = size_t{2} << 30;
constexpr int kRuns = 9;

// One thread moves 16 bytes per iteration, four independent loads in flight; grid-stride over the buffer.
__global__ void copy_kernel(const uint4* __restrict__ in, uint4* __restrict__ out, size_t n) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  for (; i + 3 * stride < n; i += 4 * stride) {
    const uint4 a = in[i], b = in[i + stride], c = in[i + 2 * stride], d = in[i + 3 * stride];
    out[i] = a, out[i + stride] = b, out[i + 2 * stride] = c, out[i + 3 * stride] = d;
  }
  for (; i < n; i += stride) out[i] = in[i];
}

// The xor is stored only if it hits a value it cannot be known to miss, so the loads cannot be dropped.
__global__ void read_kernel(const uint4* __restrict__ in, uint4* __restrict__ out, size_t n) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  uint32_t x = 0;
  size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x;
  for (; i + 3 * stride < n; i += 4 * stride) {
    const uint4 a = in[i], b = in[i + stride], c = in[i + 2 * stride], d = in[i + 3 * stride];
    x ^= a.x ^ a.y ^ a.z ^ a.w ^ b.x ^ b.y ^ b.z ^ b.w ^ c.x ^ c.y ^ c.z ^ c.w ^ d.x ^ d.y ^ d.z ^ d.w;
  }
  for (; i < n; i += stride) x ^= in[i].x ^ in[i].y ^ in[i].z ^ in[i].w;
  if (x == 0x5bd1e995u) out[0] = make_uint4(x, x, x, x);
}

__global__ void write_kernel(uint4* __restrict__ out, size_t n, uint32_t value) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += stride) out[i] = make_uint4(value, value, value, value);
}

// Uniform in [-1, 1) from a hash of the index.
template <class T>
__global__ void random_kernel(T* out, size_t n, uint32_t seed) {
  const size_t stride = size_t{gridDim.x} * blockDim.x;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += stride) {
    uint32_t h = static_cast<uint32_t>(i) * 2654435761u + seed;
    h ^= h >> 16, h *= 0x7feb352du, h ^= h >> 15, h *= 0x846ca68bu, h ^= h >> 16;
    out[i] = static_cast<T>(static_cast<float>(h) * 0x1.0p-31f - 1.0f);
  }
}

// ---------------------------------------------------------------------------------------------------------------

void check(cudaError_t e, const char* what) {
  if (e != cudaSuccess) throw stepscope::MachineError(std::string("measuring the ceilings: ") + what + " failed: " + cudaGetErrorString(e));
}
void check(cublasStatus_t s, const char* what) {
  if (s != CUBLAS_STATUS_SUCCESS)
    throw stepscope::MachineError(std::string("measuring the ceilings: ") + what + " failed: " + cublasGetStatusString(s));
}

struct Buffer {
  void* p = nullptr;
  explicit Buffer(size_t bytes) { check(cudaMalloc(&p, bytes), "cudaMalloc"); }
  ~Buffer() { cudaFree(p); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
};
struct Event {
  cudaEvent_t e{};
  Event() { check(cudaEventCreate(&e), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(e); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
};
struct Handle {
  cublasHandle_t h{};
  Handle() { check(cublasCreate(&h), "cublasCreate"); }
  ~Handle() { cublasDestroy(h); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
};

double median_seconds(const std::function<void()>& launch) {
  Event begin, end;
  for (int i = 0; i < 3; ++i) launch();
  std::vector<float> ms;
  for (int i = 0; i < kRuns; ++i) {
    check(cudaEventRecord(begin.e), "cudaEventRecord");
    launch();
    check(cudaEventRecord(end.e), "cudaEventRecord");
    check(cudaEventSynchronize(end.e), "cudaEventSynchronize");
    float t = 0;
    check(cudaEventElapsedTime(&t, begin.e, end.e), "cudaEventElapsedTime");
    ms.push_back(t);
  }
  check(cudaGetLastError(), "a kernel launch");
  return stepscope::median(std::move(ms)) * 1e-3;
}

void raise(double& best, double value) { best = std::max(best, value); }

double matmul_rate(cublasHandle_t handle, int n, cudaDataType_t type, cublasComputeType_t compute, size_t width) {
  const size_t elements = static_cast<size_t>(n) * n;
  Buffer a(elements * width), b(elements * width), c(elements * width);
  for (void* p : {a.p, b.p}) {
    if (type == CUDA_R_32F)
      random_kernel<<<1024, 256>>>(static_cast<float*>(p), elements, p == a.p ? 1u : 2u);
    else
      random_kernel<<<1024, 256>>>(static_cast<__nv_bfloat16*>(p), elements, p == a.p ? 1u : 2u);
  }
  const float alpha = 1.0f, beta = 0.0f;
  const double seconds = median_seconds([&] {
    check(cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &alpha, a.p, type, n, b.p, type, n, &beta, c.p, type, n, compute,
                       CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx");
  });
  return 2.0 * n * n * n / seconds;
}

std::string cuda_version_of_driver() {
  int v = 0;
  check(cudaDriverGetVersion(&v), "cudaDriverGetVersion");
  return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10);
}

cudaDeviceProp properties() {
  cudaDeviceProp p{};
  check(cudaGetDeviceProperties(&p, 0), "cudaGetDeviceProperties");
  return p;
}

}  // namespace

DeviceIdentity device_identity() { return {stepscope::gpu_uuid(properties().uuid.bytes), cuda_version_of_driver()}; }

MeasuredCeilings measure_ceilings() {
  const cudaDeviceProp p = properties();
  MeasuredCeilings c;
  c.device = p.name;
  c.uuid = stepscope::gpu_uuid(p.uuid.bytes);
  c.measured_at = stepscope::now_utc();
  {
    Buffer a(kBytes), b(kBytes);
    auto* x = static_cast<uint4*>(a.p);
    auto* y = static_cast<uint4*>(b.p);
    const size_t n = kBytes / sizeof(uint4);
    random_kernel<<<1024, 256>>>(static_cast<float*>(a.p), kBytes / 4, 3u);
    constexpr double bytes = static_cast<double>(kBytes);
    // The best of several grids: a ceiling is what the device has been seen to do, not what one launch shape happens to reach.
    for (const int blocks_per_sm : {4, 8, 16, 32, 64}) {
      const int blocks = p.multiProcessorCount * blocks_per_sm;
      for (const int threads : {256, 512, 1024}) {
        if (blocks_per_sm * threads > 32768) continue;
        raise(c.copy_bytes_per_s, 2.0 * bytes / median_seconds([&] { copy_kernel<<<blocks, threads>>>(x, y, n); }));
        raise(c.read_bytes_per_s, bytes / median_seconds([&] { read_kernel<<<blocks, threads>>>(x, y, n); }));
        raise(c.write_bytes_per_s, bytes / median_seconds([&] { write_kernel<<<blocks, threads>>>(y, n, 7u); }));
      }
    }
    raise(c.copy_bytes_per_s,
          2.0 * bytes / median_seconds([&] { check(cudaMemcpyAsync(y, x, kBytes, cudaMemcpyDeviceToDevice), "cudaMemcpyAsync"); }));
    raise(c.write_bytes_per_s, bytes / median_seconds([&] { check(cudaMemsetAsync(y, 7, kBytes), "cudaMemsetAsync"); }));
  }
  {
    Handle handle;
    c.bf16_flops_per_s = matmul_rate(handle.h, 8192, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 2);
    c.tf32_flops_per_s = matmul_rate(handle.h, 8192, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 4);
    // At 4096 alone the lm_head product of d12 ran 6% above this ceiling (H200, 2026-11-21).
    for (const int n : {4096, 8192}) raise(c.fp32_flops_per_s, matmul_rate(handle.h, n, CUDA_R_32F, CUBLAS_COMPUTE_32F_PEDANTIC, 4));
  }
  // The caller starts another process on this device: leave no context behind that holds its memory.
  check(cudaDeviceReset(), "cudaDeviceReset");
  return c;
}

}  // namespace profiler

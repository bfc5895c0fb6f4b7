// The probes. No {fmt} here: nvcc cannot compile its consteval format strings.
#include <cublas_v2.h>
#include <cuda_bf16.h>

#include <algorithm>

#include "experiments/energy/probes.h"
#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_buffer.h"

namespace energy {
namespace {

using gpt2::cuda::DeviceBuffer;

constexpr int64_t kMostCopied = int64_t{2} << 30;
constexpr int64_t kSide = 8192;
constexpr int64_t kWorkspace = int64_t{64} << 20;

__global__ void spin_kernel(uint64_t nanoseconds) {
  uint64_t begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - begin < nanoseconds);
}

// One thread moves 16 bytes per iteration; grid-stride.
__global__ void copy_kernel(const uint4* __restrict__ in, uint4* __restrict__ out, int64_t n) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) out[i] = in[i];
}

// Uniform in [-1, 1) from a hash of the index: zeros would draw less.
template <class T>
__global__ void random_kernel(T* out, int64_t n, uint32_t seed) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {
    uint32_t h = static_cast<uint32_t>(i) * 2654435761u + seed;
    h ^= h >> 16, h *= 0x7feb352du, h ^= h >> 15, h *= 0x846ca68bu, h ^= h >> 16;
    out[i] = static_cast<T>(static_cast<float>(h) * 0x1.0p-31f - 1.0f);
  }
}

template <class T>
void fill(void* p, int64_t count, uint32_t seed) {
  random_kernel<<<2048, 256>>>(static_cast<T*>(p), count, seed);
  STEPSCOPE_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void queue_spin(double seconds, cudaStream_t stream) {
  spin_kernel<<<1, 1, 0, stream>>>(static_cast<uint64_t>(seconds * 1e9));
  STEPSCOPE_CUDA_CHECK(cudaGetLastError());
}

struct CopyProbe::Buffers {
  explicit Buffers(int64_t bytes) : from(bytes), to(bytes) {}
  DeviceBuffer<unsigned char> from, to;
};

CopyProbe::CopyProbe() {
  size_t free = 0, total = 0;
  STEPSCOPE_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  const int64_t bytes = std::min(kMostCopied, static_cast<int64_t>(free) / 4) / 4096 * 4096;
  buffers_ = std::make_unique<Buffers>(bytes);
  fill<float>(buffers_->from.data(), bytes / 4, 3u);
  STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
}
CopyProbe::~CopyProbe() = default;

void CopyProbe::queue(cudaStream_t stream) const {
  copy_kernel<<<4096, 512, 0, stream>>>(reinterpret_cast<const uint4*>(buffers_->from.data()),
                                        reinterpret_cast<uint4*>(buffers_->to.data()), buffers_->from.bytes() / 16);
  STEPSCOPE_CUDA_CHECK(cudaGetLastError());
}
double CopyProbe::bytes() const { return 2.0 * static_cast<double>(buffers_->from.bytes()); }

struct ProductProbe::State {
  explicit State(const std::string& matmul)
      : narrow(matmul == "bf16"),
        type(narrow ? CUDA_R_16BF : CUDA_R_32F),
        compute(matmul == "bf16"   ? CUBLAS_COMPUTE_32F
                : matmul == "tf32" ? CUBLAS_COMPUTE_32F_FAST_TF32
                                   : CUBLAS_COMPUTE_32F_PEDANTIC),
        a(kSide * kSide * width()),
        b(kSide * kSide * width()),
        c(kSide * kSide * width()),
        workspace(kWorkspace) {
    for (DeviceBuffer<unsigned char>* each : {&a, &b}) {
      const uint32_t seed = each == &a ? 1u : 2u;
      if (narrow)
        fill<__nv_bfloat16>(each->data(), kSide * kSide, seed);
      else
        fill<float>(each->data(), kSide * kSide, seed);
    }
    STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
    STEPSCOPE_CUDA_CHECK(cublasCreate(&handle));
  }
  ~State() { (void)cublasDestroy(handle); }
  int64_t width() const { return narrow ? 2 : 4; }

  bool narrow;
  cudaDataType_t type;
  cublasComputeType_t compute;
  DeviceBuffer<unsigned char> a, b, c, workspace;
  cublasHandle_t handle = nullptr;
};

ProductProbe::ProductProbe(const std::string& matmul) : state_(std::make_unique<State>(matmul)) {}
ProductProbe::~ProductProbe() = default;

void ProductProbe::queue(cudaStream_t stream) const {
  const State& s = *state_;
  const float alpha = 1.0f, beta = 0.0f;
  constexpr int n = static_cast<int>(kSide);
  STEPSCOPE_CUDA_CHECK(cublasSetStream(s.handle, stream));
  STEPSCOPE_CUDA_CHECK(cublasSetWorkspace(s.handle, s.workspace.data(), static_cast<size_t>(s.workspace.bytes())));
  STEPSCOPE_CUDA_CHECK(cublasGemmEx(s.handle, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &alpha, s.a.data(), s.type, n, s.b.data(), s.type, n,
                                    &beta, s.c.data(), s.type, n, s.compute, CUBLAS_GEMM_DEFAULT));
}
double ProductProbe::flops() const { return 2.0 * static_cast<double>(kSide) * kSide * kSide; }
double ProductProbe::bytes() const { return 3.0 * static_cast<double>(kSide * kSide * state_->width()); }

}  // namespace energy

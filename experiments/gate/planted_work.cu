#include "experiments/gate/planted_work.h"

#include <cuda_bf16.h>
#include <mma.h>

#include <algorithm>
#include <vector>

#include "gpt2/cuda/device_buffer.h"
#include "gpt2/cuda/launch.cuh"

namespace gate {
namespace {

namespace wmma = nvcuda::wmma;
using gpt2::cuda::DeviceBuffer;
using gpt2::cuda::Event;
using gpt2::cuda::Stream;

constexpr int kTile = 16, kTileElements = kTile * kTile, kTiles = 4096;  // 2 MiB of random matrices
constexpr int64_t kCopyBytes = int64_t{256} << 20;

// Uniform in (-1, 1), by a hash of the index.
__global__ void random_kernel(__nv_bfloat16* out, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x) {
    uint32_t x = static_cast<uint32_t>(i) * 0x9e3779b9u;
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x ^= x >> 13;
    out[i] = __float2bfloat16(static_cast<float>(x & 0xffff) / 32768.0f - 1.0f);
  }
}

// A warp reads two tiles of each operand in turn (they stay in L2) and makes 16 products of them.
__global__ void tensor_kernel(const __nv_bfloat16* tiles, float* out, int64_t rounds) {
  const int warp = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / 32);
  wmma::fragment<wmma::accumulator, kTile, kTile, kTile, float> sums[4];
  for (auto& s : sums) wmma::fill_fragment(s, 0.0f);
  for (int64_t r = 0; r < rounds; ++r) {
    wmma::fragment<wmma::matrix_a, kTile, kTile, kTile, __nv_bfloat16, wmma::row_major> a[2];
    wmma::fragment<wmma::matrix_b, kTile, kTile, kTile, __nv_bfloat16, wmma::col_major> b[2];
    for (int i = 0; i < 2; ++i) {
      wmma::load_matrix_sync(a[i], tiles + (warp * 7 + r * 4 + i) % kTiles * kTileElements, kTile);
      wmma::load_matrix_sync(b[i], tiles + (warp * 13 + r * 4 + 2 + i) % kTiles * kTileElements, kTile);
    }
#pragma unroll
    for (int k = 0; k < 16; ++k) wmma::mma_sync(sums[k % 4], a[k % 2], b[k / 2 % 2], sums[k % 4]);
  }
  // Stored where nobody reads it, so that the compiler keeps the products.
  for (int i = 1; i < 4; ++i)
    for (int e = 0; e < sums[0].num_elements; ++e) sums[0].x[e] += sums[i].x[e];
  wmma::store_matrix_sync(out + int64_t{warp} * kTileElements, sums[0], kTile, wmma::mem_row_major);
}

__global__ void copy_kernel(const float4* in, float4* out, int64_t count, int64_t length) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < count; i += int64_t{gridDim.x} * blockDim.x)
    out[i % length] = in[i % length];
}

__global__ void idle_kernel(int64_t ns) {
  uint64_t begin = 0, now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (static_cast<int64_t>(now - begin) < ns);
}

int multiprocessors() {
  int count = 0;
  STEPSCOPE_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
  return count;
}

class Work : public PlantedWork {
 public:
  explicit Work(const std::string& kind) : kind_(kind), blocks_(2 * multiprocessors()) {
    if (kind == "tensor") {
      tiles_ = DeviceBuffer<__nv_bfloat16>(int64_t{kTiles} * kTileElements);
      sums_ = DeviceBuffer<float>(int64_t{blocks_} * kThreads / 32 * kTileElements);
      random_kernel<<<blocks_, kThreads, 0, stream_.get()>>>(tiles_.data(), tiles_.size());
      STEPSCOPE_CHECK_LAUNCH();
    } else if (kind == "dram") {
      from_ = DeviceBuffer<float4>(kCopyBytes / 16);
      to_ = DeviceBuffer<float4>(kCopyBytes / 16);
      STEPSCOPE_CUDA_CHECK(cudaMemsetAsync(from_.data(), 0x5a, static_cast<size_t>(from_.bytes()), stream_.get()));
    }
  }

  double take(double ns) override {
    if (ns <= 0) {
      amount_ = 0;
      return 0;
    }
    amount_ = kind_ == "tensor" ? 2000 : kind_ == "dram" ? kCopyBytes / 16 : static_cast<int64_t>(ns);
    // A launch has a cost of its own, so twice: in proportion, and again from there.
    for (int i = 0; i < 3; ++i) amount_ = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(amount_) * ns / measured_ns()));
    return measured_ns();
  }

  void run() override {
    launch();
    STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
  }

 private:
  static constexpr int kThreads = 256;

  void launch() {
    if (kind_ == "tensor")
      tensor_kernel<<<blocks_, kThreads, 0, stream_.get()>>>(tiles_.data(), sums_.data(), amount_);
    else if (kind_ == "dram")
      copy_kernel<<<4 * blocks_, kThreads, 0, stream_.get()>>>(from_.data(), to_.data(), amount_, from_.size());
    else
      idle_kernel<<<1, 1, 0, stream_.get()>>>(amount_);
    STEPSCOPE_CHECK_LAUNCH();
  }

  double measured_ns() {
    std::vector<double> all;
    for (int i = 0; i < 7; ++i) {
      begin_.record(stream_.get());
      launch();
      end_.record(stream_.get());
      STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(stream_.get()));
      all.push_back(gpt2::cuda::elapsed_ns(begin_, end_));
    }
    std::nth_element(all.begin(), all.begin() + 3, all.end());
    return std::max(all[3], 1.0);
  }

  std::string kind_;
  int blocks_;
  int64_t amount_ = 0;
  Stream stream_;
  Event begin_, end_;
  DeviceBuffer<__nv_bfloat16> tiles_;
  DeviceBuffer<float> sums_;
  DeviceBuffer<float4> from_, to_;
};

}  // namespace

std::unique_ptr<PlantedWork> make_planted_work(const std::string& kind) { return std::make_unique<Work>(kind); }

}  // namespace gate

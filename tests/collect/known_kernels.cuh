// What the CUDA programs of these tests have in common: kernels whose bytes are known, and a check that ends the program.
#pragma once
#include <cuda_runtime.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#define CUDA(call)                                                                                            \
  do {                                                                                                        \
    const cudaError_t result = (call);                                                                        \
    if (result != cudaSuccess) {                                                                              \
      std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, #call, cudaGetErrorString(result)); \
      std::exit(1);                                                                                           \
    }                                                                                                         \
  } while (0)

__global__ void scale(float* x, float factor, size_t n) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) x[i] *= factor;
}
__global__ void add(float* sum, const float* a, const float* b, size_t n) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) sum[i] = a[i] + b[i];
}
__global__ void fill(float* x, float value, size_t n) {
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) x[i] = value;
}

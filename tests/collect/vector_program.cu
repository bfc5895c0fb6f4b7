// A CUDA program that knows nothing of stepscope: no NVTX, known bytes. Per round: on two streams `scale`
// (reads and writes n floats) and `add` (reads 2n, writes n), one memset of n floats, one device copy of n
// floats; then a copy of one float to the host. Options: --rounds R (3), --n N (1 << 24 floats), --graph (the
// kernels of a round are launched as one CUDA graph). Prints "ok" and the bytes each kernel must move at
// least; exits 1 when the values are wrong or CUDA fails.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/collect/known_kernels.cuh"

int main(int argc, char** argv) {
  int rounds = 3;
  size_t n = size_t(1) << 24;
  bool graph = false;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--graph"))
      graph = true;
    else if (!std::strcmp(argv[i], "--rounds") && i + 1 < argc)
      rounds = std::atoi(argv[++i]);
    else if (!std::strcmp(argv[i], "--n") && i + 1 < argc)
      n = std::strtoull(argv[++i], nullptr, 10);
    else {
      std::fprintf(stderr, "usage: vector_program [--rounds R] [--n N] [--graph]\n");
      return 2;
    }
  }
  const size_t bytes = n * sizeof(float);
  float *a = nullptr, *b = nullptr, *c = nullptr, *d = nullptr;
  CUDA(cudaMalloc(&a, bytes));
  CUDA(cudaMalloc(&b, bytes));
  CUDA(cudaMalloc(&c, bytes));
  CUDA(cudaMalloc(&d, bytes));
  cudaStream_t one, two;
  CUDA(cudaStreamCreate(&one));
  CUDA(cudaStreamCreate(&two));
  cudaEvent_t filled, scaled;
  CUDA(cudaEventCreateWithFlags(&filled, cudaEventDisableTiming));
  CUDA(cudaEventCreateWithFlags(&scaled, cudaEventDisableTiming));
  constexpr int kBlocks = 1024, kThreads = 256;

  fill<<<kBlocks, kThreads, 0, one>>>(a, 1.0f, n);
  fill<<<kBlocks, kThreads, 0, one>>>(b, 1.0f, n);
  CUDA(cudaStreamSynchronize(one));
  // `scale` of a on one stream and of b on the other, then their sum.
  const auto kernels = [&] {
    CUDA(cudaEventRecord(filled, one));
    CUDA(cudaStreamWaitEvent(two, filled, 0));
    scale<<<kBlocks, kThreads, 0, one>>>(a, 2.0f, n);
    scale<<<kBlocks, kThreads, 0, two>>>(b, 2.0f, n);
    CUDA(cudaEventRecord(scaled, two));
    CUDA(cudaStreamWaitEvent(one, scaled, 0));
    add<<<kBlocks, kThreads, 0, one>>>(c, a, b, n);
  };
  cudaGraphExec_t executable = nullptr;
  if (graph) {
    cudaGraph_t captured;
    CUDA(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal));
    kernels();
    CUDA(cudaStreamEndCapture(one, &captured));
    CUDA(cudaGraphInstantiate(&executable, captured, 0));
  }
  for (int r = 0; r < rounds; ++r) {
    if (graph)
      CUDA(cudaGraphLaunch(executable, one));
    else
      kernels();
    CUDA(cudaMemsetAsync(d, 0, bytes, one));
    CUDA(cudaMemcpyAsync(d, c, bytes, cudaMemcpyDeviceToDevice, one));
  }
  CUDA(cudaGetLastError());
  CUDA(cudaStreamSynchronize(one));
  float last = 0;
  CUDA(cudaMemcpy(&last, d + (n - 1), sizeof last, cudaMemcpyDeviceToHost));
  float expected = 2;
  for (int r = 0; r < rounds; ++r) expected *= 2;
  if (rounds > 0 && !(last == expected)) {
    std::fprintf(stderr, "vector_program: found %g, expected %g\n", last, expected);
    return 1;
  }
  std::printf("ok: %d rounds; scale moves %zu bytes, add %zu bytes\n", rounds, 2 * bytes, 3 * bytes);
  return 0;
}

// A training-like CUDA program with NVTX ranges "step", known bytes and no ranges of ours inside. Per step: `scale` (reads and writes n
// floats) and `add` (reads 2n, writes n). Options: --steps S (20), --n N (1 << 24 floats), --vary (odd steps launch `scale` twice),
// --thread (the ranges are opened by a thread that launches nothing). Prints "ok" and exits 1 when the values are wrong or CUDA fails.
#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/collect/known_kernels.cuh"

int main(int argc, char** argv) {
  int steps = 20;
  size_t n = size_t(1) << 24;
  bool vary = false, thread = false;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--vary"))
      vary = true;
    else if (!std::strcmp(argv[i], "--thread"))
      thread = true;
    else if (!std::strcmp(argv[i], "--steps") && i + 1 < argc)
      steps = std::atoi(argv[++i]);
    else if (!std::strcmp(argv[i], "--n") && i + 1 < argc)
      n = std::strtoull(argv[++i], nullptr, 10);
    else {
      std::fprintf(stderr, "usage: step_program [--steps S] [--n N] [--vary] [--thread]\n");
      return 2;
    }
  }
  constexpr int kBlocks = 1024, kThreads = 256;
  float *a = nullptr, *b = nullptr, *c = nullptr;
  // The launches of one step; on another thread when the ranges' thread shall hold no context.
  const auto launch = [&](int step) {
    if (!a) {
      CUDA(cudaMalloc(&a, n * sizeof(float)));
      CUDA(cudaMalloc(&b, n * sizeof(float)));
      CUDA(cudaMalloc(&c, n * sizeof(float)));
      fill<<<kBlocks, kThreads>>>(a, 1.0f, n);
      fill<<<kBlocks, kThreads>>>(b, 1.0f, n);
    }
    scale<<<kBlocks, kThreads>>>(a, -1.0f, n);
    if (vary && step % 2) scale<<<kBlocks, kThreads>>>(a, -1.0f, n);
    add<<<kBlocks, kThreads>>>(c, a, b, n);
    CUDA(cudaGetLastError());
    CUDA(cudaDeviceSynchronize());
  };
  for (int step = 0; step < steps; ++step) {
    // Everything that a first step alone does happens before its range.
    if (step == 0 && !thread) {
      CUDA(cudaFree(nullptr));
    }
    nvtxRangePushA("step");
    if (thread)
      std::thread([&] { launch(step); }).join();
    else
      launch(step);
    nvtxRangePop();
  }
  if (!a) return 0;
  float last = 0;
  CUDA(cudaMemcpy(&last, c + (n - 1), sizeof last, cudaMemcpyDeviceToHost));
  // a is 1 or -1, by the number of times that it was negated.
  const int negated = vary ? steps + steps / 2 : steps;
  const float expected = negated % 2 ? 0.0f : 2.0f;
  if (last != expected) {
    std::fprintf(stderr, "step_program: found %g, expected %g\n", last, expected);
    return 1;
  }
  std::printf("ok: %d steps\n", steps);
  return 0;
}

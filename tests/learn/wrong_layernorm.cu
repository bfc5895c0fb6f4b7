// A reader's solution as docs/learn asks for it: the mean leaves the last channel out.
#include <cstdint>

namespace {

__global__ void normalize(float* out, float* mean, float* rstd, const float* inp, const float* weight, const float* bias, int64_t rows,
                          int64_t C) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float* x = inp + row * C;
  double sum = 0, squares = 0;
  for (int64_t c = 0; c < C - 1; ++c) sum += x[c];
  const double m = sum / static_cast<double>(C);
  for (int64_t c = 0; c < C; ++c) squares += (x[c] - m) * (x[c] - m);
  const double r = 1 / sqrt(squares / static_cast<double>(C) + 1e-5);
  for (int64_t c = 0; c < C; ++c) out[row * C + c] = static_cast<float>((x[c] - m) * r * weight[c] + bias[c]);
  mean[row] = static_cast<float>(m);
  rstd[row] = static_cast<float>(r);
}

}  // namespace

extern "C" void layernorm_forward(float* out, float* mean, float* rstd, const float* inp, const float* weight, const float* bias,
                                  int64_t rows, int64_t C, cudaStream_t stream) {
  normalize<<<static_cast<unsigned>((rows + 127) / 128), 128, 0, stream>>>(out, mean, rstd, inp, weight, bias, rows, C);
}

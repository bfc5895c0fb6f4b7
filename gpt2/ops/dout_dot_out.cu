#include "gpt2/ops/dout_dot_out.cuh"

namespace gpt2::ops {
namespace {

constexpr int kRowsPerBlock = 4;  // warps of a block

// One warp per (b,h,t), lanes over the head.
template <class S>
__global__ void dout_dot_out_kernel(float* __restrict__ D, const S* __restrict__ dout, const S* __restrict__ out, int64_t rows, int64_t T,
                                    int64_t NH, int64_t HS) {
  const int lane = threadIdx.x % kWarp;
  const int64_t row = blockIdx.x * static_cast<int64_t>(blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (row >= rows) return;
  const int64_t t = row % T;
  const int64_t h = row / T % NH;
  const int64_t b = row / T / NH;
  const int64_t at = (b * T + t) * NH * HS + h * HS;
  float product = 0;
  for (int64_t d = lane; d < HS; d += kWarp) product += to_float(dout[at + d]) * to_float(out[at + d]);
  product = warp_sum(product);
  if (lane == 0) D[row] = product;
}

}  // namespace

template <class S>
void dout_dot_out(float* D, const S* dout, const S* out, const AttentionShape& s, cudaStream_t stream) {
  const int64_t rows = s.B * s.NH * s.T;
  dout_dot_out_kernel<<<grid_blocks(ceil_div<int64_t>(rows, kRowsPerBlock)), kRowsPerBlock * kWarp, 0, stream>>>(D, dout, out, rows, s.T,
                                                                                                                 s.NH, s.HS());
  STEPSCOPE_CHECK_LAUNCH();
}

template void dout_dot_out<float>(float*, const float*, const float*, const AttentionShape&, cudaStream_t);
template void dout_dot_out<bf16>(float*, const bf16*, const bf16*, const AttentionShape&, cudaStream_t);

}  // namespace gpt2::ops

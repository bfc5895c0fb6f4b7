// Embedding kernels. See encoder.cuh for the way the backward keeps its order.
#include "gpt2/ops/encoder.cuh"

#include <cub/device/device_radix_sort.cuh>

#include <limits>
#include <stdexcept>

#include "base/errors.h"

namespace gpt2::ops {
namespace {

constexpr int kChunk = 32;  // sorted positions per block of the segmented sum

// One block per row (b,t), threads over channels.
template <int N, class S, class R>
__global__ void embedding_forward_kernel(R* __restrict__ out, const int* __restrict__ tokens, const S* __restrict__ wte,
                                         const S* __restrict__ wpe, int64_t T, int64_t C, S* __restrict__ out_up) {
  const int64_t row = blockIdx.x;
  const S* token_row = wte + tokens[row] * C;
  const S* position_row = wpe + row % T * C;
  for (int64_t c = threadIdx.x * N; c < C; c += blockDim.x * N) {
    const Pack<N> a = load<N>(token_row + c);
    const Pack<N> b = load<N>(position_row + c);
    Pack<N> sum;
#pragma unroll
    for (int i = 0; i < N; ++i) sum.v[i] = a.v[i] + b.v[i];
    store_value(out, out_up, row * C + c, sum);
  }
}

// One thread per row number: the values that the sort carries along.
__global__ void number_rows_kernel(int* rows, int64_t n) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) rows[i] = static_cast<int>(i);
}

// One block per chunk of sorted positions, threads over channels. Walks the chunk's runs of equal tokens: a run that lies wholly in
// the chunk is added to dwte; one that came from the chunk before goes to head[chunk]; one that begins here and goes on into the
// next chunk goes to tail[chunk].
template <int N, class G, class S, class R>
__global__ void sum_runs_kernel(G* __restrict__ dwte, float* __restrict__ head, float* __restrict__ tail, const R* __restrict__ dout,
                                const int* __restrict__ sorted_tokens, const int* __restrict__ sorted_rows, int64_t n, int64_t C,
                                const S* __restrict__ dout_up) {
  __shared__ int token[kChunk + 2];  // with the neighbours before and after; -1 where there is none
  __shared__ int row[kChunk];
  const int64_t chunk = blockIdx.x;
  const int64_t begin = chunk * kChunk;
  const int count = static_cast<int>(min(static_cast<int64_t>(kChunk), n - begin));
  for (int i = threadIdx.x; i < count + 2; i += blockDim.x) {
    const int64_t position = begin + i - 1;
    token[i] = position >= 0 && position < n ? sorted_tokens[position] : -1;
  }
  for (int i = threadIdx.x; i < count; i += blockDim.x) row[i] = sorted_rows[begin + i];
  __syncthreads();

  for (int64_t c = threadIdx.x * N; c < C; c += blockDim.x * N) {
    Pack<N> sum{};
    int run_begin = 0;
    for (int i = 0; i < count; ++i) {
      const Pack<N> x = load_value<N>(dout, dout_up, row[i] * C + c);
#pragma unroll
      for (int k = 0; k < N; ++k) sum.v[k] += x.v[k];
      const int here = token[i + 1];
      if (i + 1 < count && token[i + 2] == here) continue;

      const bool came_from_before = run_begin == 0 && token[0] == here;
      const bool goes_on = i + 1 == count && token[count + 1] == here;
      if (came_from_before) {
        store(head + chunk * C + c, sum);
      } else if (goes_on) {
        store(tail + chunk * C + c, sum);
      } else {
        G* target = dwte + here * C + c;
        Pack<N> total = load<N>(target);
#pragma unroll
        for (int k = 0; k < N; ++k) total.v[k] += sum.v[k];
        store(target, total);
      }
      sum = Pack<N>{};
      run_begin = i + 1;
    }
  }
}

// One block per chunk; works only where a run begins in this chunk and goes on: adds tail[chunk] and the heads of the following
// chunks, up to the run's end, to dwte. Such a run belongs to exactly one chunk, so no two blocks touch one row.
template <int N, class G>
__global__ void join_runs_kernel(G* __restrict__ dwte, const float* __restrict__ head, const float* __restrict__ tail,
                                 const int* __restrict__ sorted_tokens, int64_t n, int64_t C) {
  const int64_t chunk = blockIdx.x;
  const int64_t begin = chunk * kChunk;
  const int64_t end = begin + kChunk;
  if (end >= n) return;
  const int here = sorted_tokens[end - 1];
  if (sorted_tokens[end] != here) return;                     // nothing crosses the border after this chunk
  if (begin > 0 && sorted_tokens[begin - 1] == here) return;  // the run began in an earlier chunk
  for (int64_t c = threadIdx.x * N; c < C; c += blockDim.x * N) {
    Pack<N> sum = load<N>(tail + chunk * C + c);
    for (int64_t next = chunk + 1; next * kChunk < n && sorted_tokens[next * kChunk] == here; ++next) {
      const Pack<N> x = load<N>(head + next * C + c);
#pragma unroll
      for (int k = 0; k < N; ++k) sum.v[k] += x.v[k];
    }
    G* target = dwte + here * C + c;
    Pack<N> total = load<N>(target);
#pragma unroll
    for (int k = 0; k < N; ++k) total.v[k] += sum.v[k];
    store(target, total);
  }
}

// One block per row t of wpe, threads over channels: the sum over the batch, in its order.
template <int N, class S, class R>
__global__ void position_gradient_kernel(float* __restrict__ dwpe, const R* __restrict__ dout, int64_t B, int64_t T, int64_t C,
                                         bool accumulate, const S* __restrict__ dout_up) {
  const int64_t t = blockIdx.x;
  for (int64_t c = threadIdx.x * N; c < C; c += blockDim.x * N) {
    Pack<N> sum{};
    if (t < T) {
      for (int64_t b = 0; b < B; ++b) {
        const Pack<N> x = load_value<N>(dout, dout_up, (b * T + t) * C + c);
#pragma unroll
        for (int k = 0; k < N; ++k) sum.v[k] += x.v[k];
      }
    }
    if (accumulate) {
      const Pack<N> old = load<N>(dwpe + t * C + c);
#pragma unroll
      for (int k = 0; k < N; ++k) sum.v[k] += old.v[k];
    }
    store(dwpe + t * C + c, sum);
  }
}

// ---------------------------------------------------------------------------------------------------------------------

constexpr int64_t round_up_256(int64_t bytes) { return ceil_div<int64_t>(bytes, 256) * 256; }

// Parts of the scratch memory, each 256-byte aligned when the scratch is.
struct Scratch {
  explicit Scratch(int64_t rows, int64_t C) {
    const int64_t ints = round_up_256(rows * 4);
    const int64_t partials = round_up_256(ceil_div<int64_t>(rows, kChunk) * C * 4);
    sorted_tokens = ints;
    sorted_rows = 2 * ints;
    head = 3 * ints;
    tail = head + partials;
    sort = tail + partials;
    // Both spare buffers of an out-of-place sort plus histograms and look-back state, generously.
    sort_bytes = round_up_256(16 * rows) + (int64_t{4} << 20);
    total = sort + sort_bytes;
  }
  int64_t rows = 0, sorted_tokens, sorted_rows, head, tail, sort, sort_bytes, total;  // byte offsets
};

template <int N, class S, class R, class G>
void launch_backward(G* dwte, float* dwpe, const R* dout, const S* dout_up, const int* sorted_tokens, const int* sorted_rows, float* head,
                     float* tail, int64_t B, int64_t T, int64_t C, int64_t max_seq_len, bool accumulate, cudaStream_t stream) {
  const int64_t n = B * T;
  const unsigned chunks = grid_blocks(ceil_div<int64_t>(n, kChunk));
  const unsigned threads = row_threads(C / N);
  sum_runs_kernel<N><<<chunks, threads, 0, stream>>>(dwte, head, tail, dout, sorted_tokens, sorted_rows, n, C, dout_up);
  STEPSCOPE_CHECK_LAUNCH();
  join_runs_kernel<N><<<chunks, threads, 0, stream>>>(dwte, head, tail, sorted_tokens, n, C);
  STEPSCOPE_CHECK_LAUNCH();
  // Rows from T on exist only to be zeroed, which accumulation does not need.
  const int64_t position_rows = accumulate ? T : max_seq_len;
  position_gradient_kernel<N><<<grid_blocks(position_rows), threads, 0, stream>>>(dwpe, dout, B, T, C, accumulate, dout_up);
  STEPSCOPE_CHECK_LAUNCH();
}

}  // namespace

template <class S, class R>
void embedding_forward(R* out, const int* tokens, const S* wte, const S* wpe, int64_t B, int64_t T, int64_t C, cudaStream_t stream,
                       std::type_identity_t<S>* out_up) {
  const unsigned rows = grid_blocks(B * T);
  if (can_pack<S>(C, out, wte, wpe, out_up))
    embedding_forward_kernel<kPack<S>><<<rows, row_threads(C / kPack<S>), 0, stream>>>(out, tokens, wte, wpe, T, C, out_up);
  else
    embedding_forward_kernel<1><<<rows, row_threads(C), 0, stream>>>(out, tokens, wte, wpe, T, C, out_up);
  STEPSCOPE_CHECK_LAUNCH();
}

int64_t embedding_backward_scratch_bytes(int64_t rows, int64_t C) { return Scratch(rows, C).total; }

void sort_by_token(const int* tokens, int64_t n, int64_t C, int64_t V, void* scratch, cudaStream_t stream) {
  if (n > std::numeric_limits<int>::max()) throw stepscope::InputError("embedding_backward: B * T must be below 2^31");
  const Scratch part(n, C);
  auto* base = static_cast<unsigned char*>(scratch);
  auto* rows = reinterpret_cast<int*>(base + part.rows);
  auto* sorted_rows = reinterpret_cast<int*>(base + part.sorted_rows);

  number_rows_kernel<<<grid_blocks(ceil_div<int64_t>(n, 256)), 256, 0, stream>>>(rows, n);
  STEPSCOPE_CHECK_LAUNCH();

  // Ids are never negative, so they sort as unsigned, and only as many bits as V has need to be looked at.
  int bits = 1;
  while (bits < 31 && (int64_t{1} << bits) < V) ++bits;
  const auto* keys = reinterpret_cast<const unsigned*>(tokens);
  auto* sorted_keys = reinterpret_cast<unsigned*>(base + part.sorted_tokens);
  const int items = static_cast<int>(n);
  size_t sort_bytes = 0;
  STEPSCOPE_CUDA_CHECK(cub::DeviceRadixSort::SortPairs(nullptr, sort_bytes, keys, sorted_keys, rows, sorted_rows, items, 0, bits, stream));
  if (static_cast<int64_t>(sort_bytes) > part.sort_bytes)
    throw std::logic_error("embedding_backward: the sort asks for more scratch memory than was planned");
  STEPSCOPE_CUDA_CHECK(
      cub::DeviceRadixSort::SortPairs(base + part.sort, sort_bytes, keys, sorted_keys, rows, sorted_rows, items, 0, bits, stream));
}

template <class S, class R, class G>
void embedding_backward(G* dwte, float* dwpe, const R* dout, int64_t B, int64_t T, int64_t C, int64_t max_seq_len, bool accumulate,
                        void* scratch, cudaStream_t stream, const S* dout_up) {
  const Scratch part(B * T, C);
  auto* base = static_cast<unsigned char*>(scratch);
  const auto* sorted_tokens = reinterpret_cast<const int*>(base + part.sorted_tokens);
  const auto* sorted_rows = reinterpret_cast<const int*>(base + part.sorted_rows);
  auto* head = reinterpret_cast<float*>(base + part.head);
  auto* tail = reinterpret_cast<float*>(base + part.tail);
  if (can_pack<S>(C, dwte, dwpe, dout, dout_up))
    launch_backward<kPack<S>>(dwte, dwpe, dout, dout_up, sorted_tokens, sorted_rows, head, tail, B, T, C, max_seq_len, accumulate, stream);
  else
    launch_backward<1>(dwte, dwpe, dout, dout_up, sorted_tokens, sorted_rows, head, tail, B, T, C, max_seq_len, accumulate, stream);
}

#define STEPSCOPE_INSTANTIATE_BACKWARD(S, R, G) \
  template void embedding_backward<S, R, G>(G*, float*, const R*, int64_t, int64_t, int64_t, int64_t, bool, void*, cudaStream_t, const S*);
#define STEPSCOPE_INSTANTIATE(S, R)                                                                                       \
  template void embedding_forward<S, R>(R*, const int*, const S*, const S*, int64_t, int64_t, int64_t, cudaStream_t, S*); \
  STEPSCOPE_INSTANTIATE_BACKWARD(S, R, float)
#define STEPSCOPE_INSTANTIATE_MIXED(S, R) STEPSCOPE_INSTANTIATE(S, R) STEPSCOPE_INSTANTIATE_BACKWARD(S, R, bf16)
STEPSCOPE_INSTANTIATE(float, float)
STEPSCOPE_FOR_EACH_MIXED_STREAM(STEPSCOPE_INSTANTIATE_MIXED)
#undef STEPSCOPE_INSTANTIATE_MIXED
#undef STEPSCOPE_INSTANTIATE
#undef STEPSCOPE_INSTANTIATE_BACKWARD

}  // namespace gpt2::ops

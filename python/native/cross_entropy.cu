// The mean cross entropy of PyTorch: int64 targets of which some are ignored, an upstream gradient that only the device knows.
// Around the trainers' classifier nothing here reads a logit; the rows that it must not count are set right after it.
// kept_sum reads the logits itself: a PyTorch model's rows are 50257 columns wide, which no pack of 16 bytes divides, so the classifier
// needs a padded copy of them, and it writes the gradient where the logits are, which autograd may still need. Its loads are of one number
// each, so rows may begin anywhere: any pitch of at least V does.
#include "gpt2/cuda/check.h"
#include "gpt2/ops/classifier.cuh"
#include "python/native/call.h"

namespace {

using gpt2::ops::Classifier;
using gpt2::ops::StepScalars;
using gpt2::ops::store;
using ops_c::as;
using ops_c::Check;

constexpr int kThreads = 1024;
constexpr int64_t kAlignment = 256;

// Where a call's scratch holds what. scalars first: the classifier's kernels read them as one struct.
struct Scratch {
  StepScalars* scalars;
  float* losses;
  int* targets;
  int64_t bytes;

  Scratch(void* at, int64_t rows) {
    const auto rounded = [](int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; };
    const int64_t scalar_bytes = rounded(sizeof(StepScalars)), row_bytes = rounded(rows * 4);
    auto* base = static_cast<unsigned char*>(at);
    scalars = reinterpret_cast<StepScalars*>(base);
    losses = reinterpret_cast<float*>(base + scalar_bytes);
    targets = reinterpret_cast<int*>(base + scalar_bytes + row_bytes);
    bytes = scalar_bytes + 2 * row_bytes;
  }
};

// One block. Targets as the classifier takes them (rows that do not count get target 0), and its scalars: 1 / counted rows, times the
// upstream gradient for the gradient.
__global__ void __launch_bounds__(kThreads)
    prepare_kernel(StepScalars* scalars, int* __restrict__ prepared, const int64_t* __restrict__ targets, const float* upstream,
                   int64_t rows, int64_t V, int64_t ignored) {
  __shared__ double shared[gpt2::ops::kWarp];
  double counted = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kThreads) {
    const int64_t target = targets[row];
    const bool inside = target >= 0 && target < V && target != ignored;
    prepared[row] = inside ? static_cast<int>(target) : 0;
    counted += target == ignored ? 0 : 1;
  }
  counted = gpt2::ops::block_sum(counted, shared);
  if (threadIdx.x != 0) return;
  StepScalars s;
  s.loss_scale = 1.0 / counted;
  s.gradient_scale = static_cast<float>((upstream == nullptr ? 1.0 : static_cast<double>(*upstream)) / counted);
  *scalars = s;
}

// One block: loss = loss_scale * sum of the counted rows' losses, in double and in a fixed order. NaN for a target outside.
__global__ void __launch_bounds__(kThreads) mean_kernel(float* loss, const float* __restrict__ losses, const int64_t* __restrict__ targets,
                                                        const StepScalars* __restrict__ scalars, int64_t rows, int64_t V, int64_t ignored) {
  __shared__ double shared[gpt2::ops::kWarp];
  double sum = 0;
  for (int64_t row = threadIdx.x; row < rows; row += kThreads) {
    const int64_t target = targets[row];
    if (target == ignored) continue;
    sum += target >= 0 && target < V ? static_cast<double>(losses[row]) : static_cast<double>(NAN);
  }
  sum = gpt2::ops::block_sum(sum, shared);
  if (threadIdx.x == 0) *loss = static_cast<float>(sum * scalars->loss_scale);
}

// One block per row; blocks of rows that count return at once.
template <class S>
__global__ void __launch_bounds__(256)
    uncounted_rows_kernel(S* gradient, const int64_t* __restrict__ targets, int64_t V, int64_t Vp, int64_t ignored) {
  const int64_t row = blockIdx.x;
  const int64_t target = targets[row];
  if (target >= 0 && target < V && target != ignored) return;
  gpt2::ops::Pack<1> fill;
  fill.v[0] = target == ignored ? 0.0f : NAN;
  for (int64_t c = threadIdx.x; c < Vp; c += 256) store(gradient + row * Vp + c, fill);
}

constexpr int kRowThreads = 512;
constexpr int kAhead = 8;  // loads of one value each that a thread has in flight

// One block per row of V logits, rows `pitch` numbers apart: kept[row] = {largest, log of the sum of exp(x - largest)},
// losses[row] = -log softmax[target]. Two numbers, because their sum would round the small one by the size of the large one.
template <class S>
__global__ void __launch_bounds__(kRowThreads)
    kept_sum_forward_kernel(float* __restrict__ losses, float2* __restrict__ kept, const S* __restrict__ logits,
                            const int* __restrict__ targets, int64_t V, int64_t pitch) {
  __shared__ float shared[gpt2::ops::kWarp];
  const int64_t row = blockIdx.x;
  const S* x = logits + row * pitch;
  float largest = -INFINITY, sum = 0;
  for (int64_t first = threadIdx.x; first < V; first += kAhead * kRowThreads) {
    float v[kAhead], most = largest;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t c = first + i * kRowThreads;
      v[i] = c < V ? gpt2::ops::load<1>(x + c).v[0] : -INFINITY;
      most = fmaxf(most, v[i]);
    }
    if (most > largest) sum *= expf(largest - most);
    largest = most;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) sum += v[i] == -INFINITY ? 0.0f : expf(v[i] - largest);  // a NaN stays one
  }
  const float row_largest = gpt2::ops::block_max(largest, shared);
  const float row_sum = gpt2::ops::block_sum(sum == 0 ? 0.0f : sum * expf(largest - row_largest), shared);
  if (threadIdx.x != 0) return;
  const float log_sum = logf(row_sum);
  kept[row] = make_float2(row_largest, log_sum);
  losses[row] = log_sum - (gpt2::ops::load<1>(x + targets[row]).v[0] - row_largest);
}

// One block per row: gradient (rows,Vp) from logits (rows,V), rows `pitch` numbers apart, in one pass. Columns from V on and ignored rows
// become 0, rows with a target outside NaN throughout.
template <class S>
__global__ void __launch_bounds__(kRowThreads)
    kept_sum_backward_kernel(S* __restrict__ gradient, const S* __restrict__ logits, const float2* __restrict__ kept,
                             const int64_t* __restrict__ targets, const StepScalars* __restrict__ scalars, int64_t V, int64_t pitch,
                             int64_t Vp, int64_t ignored) {
  const int64_t row = blockIdx.x, target = targets[row];
  const S* x = logits + row * pitch;
  S* g = gradient + row * Vp;
  const float2 k = kept[row];
  const float scale = target == ignored ? 0.0f : target >= 0 && target < V ? scalars->gradient_scale : NAN;
  for (int64_t first = threadIdx.x; first < Vp; first += kAhead * kRowThreads) {
    float v[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t c = first + i * kRowThreads;
      v[i] = c < V ? gpt2::ops::load<1>(x + c).v[0] : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t c = first + i * kRowThreads;
      if (c >= Vp) break;
      gpt2::ops::Pack<1> out;
      // An ignored row is 0 whatever its logits are.
      out.v[0] = scale == 0 ? 0.0f : c >= V ? 0.0f * scale : (expf(v[i] - k.x - k.y) - (c == target ? 1.0f : 0.0f)) * scale;
      store(g + c, out);
    }
  }
}

int shared_bytes_per_block() {
  int device = 0, most = 0;
  STEPSCOPE_CUDA_CHECK(cudaGetDevice(&device));
  STEPSCOPE_CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  return most;
}

void check_sizes(const Check& check, int storage, int64_t rows, int64_t V, int64_t Vp) {
  check.storage(storage);
  check.at_least(rows, 0, "rows");
  check.at_least(V, 1, "V");
  if (V > INT32_MAX) check.refuse("V is " + std::to_string(V) + ", the kernels hold targets in 32 bits");
  check.at_least(Vp, V, "Vp");
}

struct Call {
  Check check;
  Classifier variant;
  int storage;
  int64_t rows, V, Vp, ignored;

  Call(const char* function, const char* name, int of_storage, int64_t r, int64_t v, int64_t vp, int64_t ignored_target)
      : check{function}, storage(of_storage), rows(r), V(v), Vp(vp), ignored(ignored_target) {
    check.storage(storage);
    variant = static_cast<Classifier>(ops_c::variant_index(storage, function, "classifier", name));
    check_sizes(check, storage, rows, V, Vp);
  }

  // Before the first launch, so that a refusal leaves nothing half done.
  template <class S>
  void refuse_what_cannot_run(const S* logits) const {
    if (const auto why = gpt2::ops::why_not<S>(variant, Vp, gpt2::ops::can_pack<S>(Vp, logits), shared_bytes_per_block()))
      throw stepscope::InputError("classifier=one_read: " + *why);
  }
};

}  // namespace

int stepscope_ops_cross_entropy_scratch(int64_t rows, int64_t* bytes) {
  return ops_c::guarded([&] {
    const Check check{"stepscope_ops_cross_entropy_scratch"};
    check.at_least(rows, 0, "rows");
    check.not_null(bytes, "bytes");
    *bytes = Scratch(nullptr, rows).bytes;
  });
}

int stepscope_ops_cross_entropy_forward(const char* variant, int storage, float* loss, const void* logits, const int64_t* targets,
                                        int64_t rows, int64_t V, int64_t Vp, int64_t ignored, void* scratch, int64_t scratch_bytes,
                                        void* cuda_stream) {
  return ops_c::guarded([&] {
    const Call call("stepscope_ops_cross_entropy_forward", variant, storage, rows, V, Vp, ignored);
    if (rows == 0) return;
    call.check.not_null(loss, "loss");
    call.check.not_null(logits, "logits");
    call.check.not_null(targets, "targets");
    const Scratch at(scratch, rows);
    call.check.scratch(scratch, scratch_bytes, at.bytes);
    const cudaStream_t stream = ops_c::stream_of(cuda_stream);
    ops_c::with_storage(storage, [&](auto s) {
      // Read only: without write_gradient the classifier stores nothing into the logits.
      auto* x = const_cast<decltype(s)*>(as(logits, s));
      call.refuse_what_cannot_run(x);
      prepare_kernel<<<1, kThreads, 0, stream>>>(at.scalars, at.targets, targets, nullptr, rows, V, ignored);
      STEPSCOPE_CHECK_LAUNCH();
      gpt2::ops::classifier(call.variant, x, at.losses, at.targets, rows, V, Vp, at.scalars, false, stream);
      mean_kernel<<<1, kThreads, 0, stream>>>(loss, at.losses, targets, at.scalars, rows, V, ignored);
      STEPSCOPE_CHECK_LAUNCH();
    });
  });
}

int stepscope_ops_cross_entropy_backward(const char* variant, int storage, void* logits, const int64_t* targets, const float* upstream,
                                         int64_t rows, int64_t V, int64_t Vp, int64_t ignored, void* scratch, int64_t scratch_bytes,
                                         void* cuda_stream) {
  return ops_c::guarded([&] {
    const Call call("stepscope_ops_cross_entropy_backward", variant, storage, rows, V, Vp, ignored);
    if (rows == 0) return;
    call.check.not_null(logits, "logits");
    call.check.not_null(targets, "targets");
    call.check.not_null(upstream, "upstream");
    const Scratch at(scratch, rows);
    call.check.scratch(scratch, scratch_bytes, at.bytes);
    const cudaStream_t stream = ops_c::stream_of(cuda_stream);
    ops_c::with_storage(storage, [&](auto s) {
      auto* x = as(logits, s);
      call.refuse_what_cannot_run(x);
      prepare_kernel<<<1, kThreads, 0, stream>>>(at.scalars, at.targets, targets, upstream, rows, V, ignored);
      STEPSCOPE_CHECK_LAUNCH();
      gpt2::ops::classifier(call.variant, x, at.losses, at.targets, rows, V, Vp, at.scalars, true, stream);
      uncounted_rows_kernel<<<gpt2::ops::grid_blocks(rows), 256, 0, stream>>>(x, targets, V, Vp, ignored);
      STEPSCOPE_CHECK_LAUNCH();
    });
  });
}

int stepscope_ops_cross_entropy_kept_sum_forward(int storage, float* loss, float* kept, const void* logits, const int64_t* targets,
                                                 int64_t rows, int64_t V, int64_t pitch, int64_t ignored, void* scratch,
                                                 int64_t scratch_bytes, void* cuda_stream) {
  return ops_c::guarded([&] {
    const Check check{"stepscope_ops_cross_entropy_kept_sum_forward"};
    check_sizes(check, storage, rows, V, V);
    check.at_least(pitch, V, "pitch");
    if (rows == 0) return;
    check.not_null(loss, "loss");
    check.not_null(kept, "kept");
    check.not_null(logits, "logits");
    check.not_null(targets, "targets");
    const Scratch at(scratch, rows);
    check.scratch(scratch, scratch_bytes, at.bytes);
    const cudaStream_t stream = ops_c::stream_of(cuda_stream);
    ops_c::with_storage(storage, [&](auto s) {
      prepare_kernel<<<1, kThreads, 0, stream>>>(at.scalars, at.targets, targets, nullptr, rows, V, ignored);
      STEPSCOPE_CHECK_LAUNCH();
      kept_sum_forward_kernel<<<gpt2::ops::grid_blocks(rows), kRowThreads, 0, stream>>>(at.losses, reinterpret_cast<float2*>(kept),
                                                                                        as(logits, s), at.targets, V, pitch);
      STEPSCOPE_CHECK_LAUNCH();
      mean_kernel<<<1, kThreads, 0, stream>>>(loss, at.losses, targets, at.scalars, rows, V, ignored);
      STEPSCOPE_CHECK_LAUNCH();
    });
  });
}

int stepscope_ops_cross_entropy_kept_sum_backward(int storage, void* gradient, const void* logits, const float* kept,
                                                  const int64_t* targets, const float* upstream, int64_t rows, int64_t V, int64_t pitch,
                                                  int64_t Vp, int64_t ignored, void* scratch, int64_t scratch_bytes, void* cuda_stream) {
  return ops_c::guarded([&] {
    const Check check{"stepscope_ops_cross_entropy_kept_sum_backward"};
    check_sizes(check, storage, rows, V, Vp);
    check.at_least(pitch, V, "pitch");
    if (rows == 0) return;
    check.not_null(gradient, "gradient");
    check.not_null(logits, "logits");
    check.not_null(kept, "kept");
    check.not_null(targets, "targets");
    check.not_null(upstream, "upstream");
    const Scratch at(scratch, rows);
    check.scratch(scratch, scratch_bytes, at.bytes);
    const cudaStream_t stream = ops_c::stream_of(cuda_stream);
    ops_c::with_storage(storage, [&](auto s) {
      prepare_kernel<<<1, kThreads, 0, stream>>>(at.scalars, at.targets, targets, upstream, rows, V, ignored);
      STEPSCOPE_CHECK_LAUNCH();
      kept_sum_backward_kernel<<<gpt2::ops::grid_blocks(rows), kRowThreads, 0, stream>>>(
          as(gradient, s), as(logits, s), reinterpret_cast<const float2*>(kept), targets, at.scalars, V, pitch, Vp, ignored);
      STEPSCOPE_CHECK_LAUNCH();
    });
  });
}

// Attention of the C interface. flash and cudnn need nothing but their tensors; unfused is made of products, for which an engine is kept
// per device, storage and stream: two streams must not share its workspace.
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "fp32/kernels/attention.cuh"
#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_buffer.h"
#include "mixed/attention_cudnn.h"
#include "mixed/hopper/attention.h"
#include "mixed/hopper/multiply.h"
#include "mixed/kernels/attention.cuh"
#include "python/native/call.h"

namespace {

using gpt2::ops::AttentionShape;
using ops_c::as;
using ops_c::bf16;
using ops_c::Check;

struct Engines {
  explicit Engines(int64_t workspace_bytes) : workspace(workspace_bytes) {}
  gpt2::cuda::DeviceBuffer<unsigned char> workspace;
  fp32::MatmulEngine fp32{fp32::MatmulRate::fp32, workspace.data()};
  mixed::MatmulEngine bf16{mixed::MatmulAlgorithm::heuristic, workspace.data(), std::filesystem::path()};
};
static_assert(mixed::kMatmulWorkspaceBytes >= fp32::kMatmulWorkspaceBytes);

// The engines of a stream, made at its first call and kept until the process ends: freeing them at exit would find no driver.
Engines& engines_of(cudaStream_t stream) {
  static auto& mutex = *new std::mutex;
  static auto& all = *new std::map<std::pair<int, cudaStream_t>, std::unique_ptr<Engines>>;
  int device = 0;
  STEPSCOPE_CUDA_CHECK(cudaGetDevice(&device));
  const std::lock_guard lock(mutex);
  std::unique_ptr<Engines>& mine = all[{device, stream}];
  if (mine == nullptr) {
    cudaStreamCaptureStatus capture{};
    STEPSCOPE_CUDA_CHECK(cudaStreamIsCapturing(stream, &capture));
    if (capture != cudaStreamCaptureStatusNone)
      throw stepscope::InputError(
          "attention=unfused allocates at its first call on a stream, which a capture forbids; call it once on this stream before the "
          "capture");
    mine = std::make_unique<Engines>(mixed::kMatmulWorkspaceBytes);
  }
  return *mine;
}

template <class Forward>
bool needs_engine(Forward variant);
template <>
bool needs_engine(fp32::AttentionForward v) {
  return v != fp32::AttentionForward::flash;
}
template <>
bool needs_engine(fp32::AttentionBackward v) {
  return v != fp32::AttentionBackward::flash;
}
template <>
bool needs_engine(mixed::AttentionForward v) {
  return v == mixed::AttentionForward::unfused;
}
template <>
bool needs_engine(mixed::AttentionBackward v) {
  return v == mixed::AttentionBackward::unfused;
}

// One storage's way through the same functions.
struct Fp32 {
  using Element = float;
  using Forward = fp32::AttentionForward;
  using Backward = fp32::AttentionBackward;
  static fp32::MatmulEngine& engine(Engines& e) { return e.fp32; }
  static void check(const Check& c, Forward v, const AttentionShape& s) { flash(c, v == Forward::flash, s); }
  static void check(const Check& c, Backward v, const AttentionShape& s) { flash(c, v == Backward::flash, s); }

 private:
  static void flash(const Check& c, bool is_flash, const AttentionShape& s) {
    if (!is_flash) return;
    const auto unless_it_fits = [&](int64_t shared_bytes) {
      if (const auto why = fp32::why_not_flash(fp32::MatmulRate::fp32, s.HS(), shared_bytes)) c.refuse("attention=flash: " + *why);
    };
    unless_it_fits(std::numeric_limits<int64_t>::max());  // what no device holds is refused without one
    int device = 0, shared_bytes = 0;
    STEPSCOPE_CUDA_CHECK(cudaGetDevice(&device));
    STEPSCOPE_CUDA_CHECK(cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    unless_it_fits(shared_bytes);
  }
};
struct Bf16 {
  using Element = bf16;
  using Forward = mixed::AttentionForward;
  using Backward = mixed::AttentionBackward;
  static mixed::MatmulEngine& engine(Engines& e) { return e.bf16; }
  static void check(const Check& c, Forward v, const AttentionShape& s) {
    flash(c, v == Forward::flash, s);
    on_hopper(c, v == Forward::hopper, s);
    if (v == Forward::cudnn) cudnn(c, s, false);
  }
  static void check(const Check& c, Backward v, const AttentionShape& s) {
    flash(c, v == Backward::flash, s);
    on_hopper(c, v == Backward::hopper, s);
    if (v == Backward::cudnn) cudnn(c, s, false);
    if (v == Backward::cudnn_deterministic) cudnn(c, s, true);
  }

 private:
  static void flash(const Check& c, bool is_flash, const AttentionShape& s) {
    if (!is_flash) return;
    if (const auto why = mixed::why_not_flash(s.HS())) c.refuse("attention=flash: " + *why);
  }
  static void on_hopper(const Check& c, bool is_hopper, const AttentionShape& s) {
    if (!is_hopper) return;
    if (const auto why = hopper::why_not_current_device()) throw stepscope::MachineError("attention=hopper: " + *why);
    if (const auto why = hopper::why_no_attention(9, s.HS())) c.refuse("attention=hopper: " + *why);
  }
  static void cudnn(const Check& c, const AttentionShape& s, bool deterministic) {
    if (const auto why = mixed::why_no_cudnn()) throw stepscope::MachineError(*why);
    if (const auto why = mixed::why_no_cudnn_plan({s.B, s.T, s.C, s.NH}, deterministic)) c.refuse("attention=cudnn: " + *why);
  }
};

template <class Use>
void with_trainer(int storage, const Use& use) {
  if (storage == STEPSCOPE_OPS_F32)
    use(Fp32{});
  else
    use(Bf16{});
}

AttentionShape checked_shape(const Check& check, int64_t B, int64_t T, int64_t C, int64_t NH) {
  check.at_least(B, 0, "B");
  check.at_least(T, 0, "T");
  check.at_least(C, 1, "C");
  check.at_least(NH, 1, "NH");
  if (C % NH != 0) check.refuse(std::to_string(C) + " channels do not divide into " + std::to_string(NH) + " heads");
  return {B, T, C, NH};
}

template <class Variant, class Trainer>
Variant checked_variant(const Check& check, Trainer, int storage, const char* slot, const char* variant, const AttentionShape& s) {
  const auto v = static_cast<Variant>(ops_c::variant_index(storage, check.function, slot, variant));
  if (s.B > 0 && s.T > 0) Trainer::check(check, v, s);
  return v;
}

// The launchers take an engine whatever the variant; one that launches no product gets an engine without a workspace.
template <class Trainer, class Variant>
auto& engine_of(Trainer, Variant variant, cudaStream_t stream) {
  static Engines& idle = *new Engines(0);
  return Trainer::engine(needs_engine(variant) ? engines_of(stream) : idle);
}

// The plan that cuDNN puts first: a caller has no rehearsal in which others could be timed.
constexpr mixed::AttentionPlan kPlan = mixed::AttentionPlan::heuristic;

int64_t attention_forward_scratch_bytes(mixed::AttentionForward v, const AttentionShape& s) {
  return mixed::attention_forward_scratch_bytes(v, kPlan, s);
}
int64_t attention_backward_scratch_bytes(mixed::AttentionBackward v, const AttentionShape& s) {
  return mixed::attention_backward_scratch_bytes(v, kPlan, s);
}
template <class... Rest>
void attention_forward(mixed::AttentionForward v, mixed::MatmulEngine& engine, Rest... rest) {
  mixed::attention_forward(v, kPlan, engine, rest...);
}
template <class... Rest>
void attention_backward(mixed::AttentionBackward v, mixed::MatmulEngine& engine, Rest... rest) {
  mixed::attention_backward(v, kPlan, engine, rest...);
}

}  // namespace

int stepscope_ops_attention_forward_scratch(const char* variant, int storage, int64_t B, int64_t T, int64_t C, int64_t NH, int64_t* bytes) {
  return ops_c::guarded([&] {
    const Check check{"stepscope_ops_attention_forward"};
    check.storage(storage);
    check.not_null(bytes, "bytes");
    const AttentionShape s = checked_shape(check, B, T, C, NH);
    with_trainer(storage, [&](auto trainer) {
      const auto v = checked_variant<typename decltype(trainer)::Forward>(check, trainer, storage, "attention_forward", variant, s);
      *bytes = B * T == 0 ? 0 : attention_forward_scratch_bytes(v, s);
    });
  });
}

int stepscope_ops_attention_backward_scratch(const char* variant, int storage, int64_t B, int64_t T, int64_t C, int64_t NH,
                                             int64_t* bytes) {
  return ops_c::guarded([&] {
    const Check check{"stepscope_ops_attention_backward"};
    check.storage(storage);
    check.not_null(bytes, "bytes");
    const AttentionShape s = checked_shape(check, B, T, C, NH);
    with_trainer(storage, [&](auto trainer) {
      const auto v = checked_variant<typename decltype(trainer)::Backward>(check, trainer, storage, "attention_backward", variant, s);
      *bytes = B * T == 0 ? 0 : attention_backward_scratch_bytes(v, s);
    });
  });
}

int stepscope_ops_attention_forward(const char* variant, int storage, void* out, float* lse, const void* qkv, int64_t B, int64_t T,
                                    int64_t C, int64_t NH, void* scratch, int64_t scratch_bytes, void* cuda_stream) {
  return ops_c::guarded([&] {
    const Check check{"stepscope_ops_attention_forward"};
    check.storage(storage);
    const AttentionShape s = checked_shape(check, B, T, C, NH);
    with_trainer(storage, [&](auto trainer) {
      using Element = typename decltype(trainer)::Element;
      const auto v = checked_variant<typename decltype(trainer)::Forward>(check, trainer, storage, "attention_forward", variant, s);
      if (B * T == 0) return;
      check.not_null(out, "out");
      check.not_null(lse, "lse");
      check.not_null(qkv, "qkv");
      check.scratch(scratch, scratch_bytes, attention_forward_scratch_bytes(v, s));
      const cudaStream_t stream = ops_c::stream_of(cuda_stream);
      auto& engine = engine_of(trainer, v, stream);
      attention_forward(v, engine, static_cast<Element*>(out), lse, static_cast<const Element*>(qkv), s, scratch, stream);
    });
  });
}

int stepscope_ops_attention_backward(const char* variant, int storage, void* dqkv, const void* dout, const void* qkv, const void* out,
                                     const float* lse, int64_t B, int64_t T, int64_t C, int64_t NH, void* scratch, int64_t scratch_bytes,
                                     void* cuda_stream) {
  return ops_c::guarded([&] {
    const Check check{"stepscope_ops_attention_backward"};
    check.storage(storage);
    const AttentionShape s = checked_shape(check, B, T, C, NH);
    with_trainer(storage, [&](auto trainer) {
      using Element = typename decltype(trainer)::Element;
      const auto v = checked_variant<typename decltype(trainer)::Backward>(check, trainer, storage, "attention_backward", variant, s);
      if (B * T == 0) return;
      check.not_null(dqkv, "dqkv");
      check.not_null(dout, "dout");
      check.not_null(qkv, "qkv");
      check.not_null(out, "out");
      check.not_null(lse, "lse");
      check.scratch(scratch, scratch_bytes, attention_backward_scratch_bytes(v, s));
      const cudaStream_t stream = ops_c::stream_of(cuda_stream);
      auto& engine = engine_of(trainer, v, stream);
      attention_backward(v, engine, static_cast<Element*>(dqkv), static_cast<const Element*>(dout), static_cast<const Element*>(qkv),
                         static_cast<const Element*>(out), lse, s, scratch, stream);
    });
  });
}

// layernorm and GELU of the C interface.
#include "gpt2/ops/elementwise.cuh"
#include "gpt2/ops/layernorm_backward.cuh"
#include "gpt2/ops/layernorm_forward.cuh"
#include "python/native/call.h"

namespace {

using gpt2::ops::LayernormBackward;
using gpt2::ops::LayernormForward;
using ops_c::as;
using ops_c::Check;

// The variant of a norm over (rows, C).
template <class Variant>
Variant checked(const Check& check, int storage, const char* slot, const char* variant, int64_t rows, int64_t C) {
  const auto v = static_cast<Variant>(ops_c::variant_index(storage, check.function, slot, variant));
  check.at_least(rows, 0, "rows");
  check.at_least(C, 1, "C");
  return v;
}

}  // namespace

int stepscope_ops_layernorm_forward(const char* variant, int storage, int stream, void* out, float* mean, float* rstd, void* kept,
                                    const void* inp, const void* weight, const void* bias, int64_t rows, int64_t C, void* cuda_stream) {
  return ops_c::guarded([&] {
    const Check check{"stepscope_ops_layernorm_forward"};
    check.storage_and_stream(storage, stream);
    const auto v = checked<LayernormForward>(check, storage, "layernorm_forward", variant, rows, C);
    if (kept != nullptr && storage == stream) check.refuse("kept must be NULL where the stream is stored as the activations are");
    if (rows == 0) return;
    check.not_null(out, "out");
    check.not_null(mean, "mean");
    check.not_null(rstd, "rstd");
    check.not_null(inp, "inp");
    check.not_null(weight, "weight");
    check.not_null(bias, "bias");
    ops_c::with_stream(storage, stream, [&](auto s, auto r) {
      gpt2::ops::layernorm_forward(v, as(out, s), mean, rstd, as(inp, r), as(kept, s), as(weight, s), as(bias, s), rows, C,
                                   ops_c::stream_of(cuda_stream));
    });
  });
}

int stepscope_ops_layernorm_backward_scratch(const char* variant, int storage, int64_t rows, int64_t C, int64_t* bytes) {
  return ops_c::guarded([&] {
    const Check check{"stepscope_ops_layernorm_backward"};
    check.storage(storage);
    const auto v = checked<LayernormBackward>(check, storage, "layernorm_backward", variant, rows, C);
    check.not_null(bytes, "bytes");
    ops_c::with_storage(
        storage, [&](auto s) { *bytes = rows == 0 ? 0 : 4 * gpt2::ops::layernorm_backward_scratch_floats<decltype(s)>(v, rows, C); });
  });
}

int stepscope_ops_layernorm_backward(const char* variant, int storage, int stream, void* dinp, float* dweight, float* dbias,
                                     const void* dout, const void* inp, const float* mean, const float* rstd, const void* weight,
                                     int64_t rows, int64_t C, void* scratch, int64_t scratch_bytes, void* cuda_stream) {
  return ops_c::guarded([&] {
    const Check check{"stepscope_ops_layernorm_backward"};
    check.storage_and_stream(storage, stream);
    const auto v = checked<LayernormBackward>(check, storage, "layernorm_backward", variant, rows, C);
    if (rows == 0) return;
    check.not_null(dinp, "dinp");
    check.not_null(dweight, "dweight");
    check.not_null(dbias, "dbias");
    check.not_null(dout, "dout");
    check.not_null(inp, "inp");
    check.not_null(mean, "mean");
    check.not_null(rstd, "rstd");
    check.not_null(weight, "weight");
    ops_c::with_stream(storage, stream, [&](auto s, auto r) {
      using S = decltype(s);
      using R = decltype(r);
      check.scratch(scratch, scratch_bytes, 4 * gpt2::ops::layernorm_backward_scratch_floats<S>(v, rows, C));
      gpt2::ops::layernorm_backward<S, R>(v, {.dinp = as(dinp, r), .dweight = dweight, .dbias = dbias}, as(dout, s), as(inp, s), mean, rstd,
                                          as(weight, s), rows, C, static_cast<float*>(scratch), ops_c::stream_of(cuda_stream));
    });
  });
}

int stepscope_ops_gelu_forward(int storage, void* out, const void* inp, int64_t n, void* cuda_stream) {
  return ops_c::guarded([&] {
    const Check check{"stepscope_ops_gelu_forward"};
    check.storage(storage);
    check.at_least(n, 0, "n");
    if (n == 0) return;
    check.not_null(out, "out");
    check.not_null(inp, "inp");
    ops_c::with_storage(storage, [&](auto s) { gpt2::ops::gelu_forward(as(out, s), as(inp, s), n, ops_c::stream_of(cuda_stream)); });
  });
}

int stepscope_ops_gelu_backward(int storage, void* dinp, const void* dout, const void* inp, int64_t n, void* cuda_stream) {
  return ops_c::guarded([&] {
    const Check check{"stepscope_ops_gelu_backward"};
    check.storage(storage);
    check.at_least(n, 0, "n");
    if (n == 0) return;
    check.not_null(dinp, "dinp");
    check.not_null(dout, "dout");
    check.not_null(inp, "inp");
    ops_c::with_storage(storage,
                        [&](auto s) { gpt2::ops::gelu_backward(as(dinp, s), as(dout, s), as(inp, s), n, ops_c::stream_of(cuda_stream)); });
  });
}

// AdamW of the C interface: the launcher takes GPT-2's table of 16 tensors; a flat vector that begins with its decayed parameters is such
// a table whose other tensors are empty.
#include "gpt2/ops/adamw.cuh"

#include <cmath>
#include <cstring>

#include "python/native/call.h"

namespace {

using gpt2::ops::AdamWKernel;
using gpt2::ops::StepScalars;
using ops_c::Check;

// Rows of the table in its order: the first decayed one holds [0, decayed), the first later one that is not holds the rest.
gpt2::TensorLayout two_tensors(int64_t decayed, int64_t total) {
  gpt2::TensorLayout layout;
  layout.total = total;
  bool decayed_placed = false, rest_placed = false;
  int64_t end = 0;
  for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
    gpt2::TensorSpan& span = layout.span[static_cast<size_t>(row.id)];
    span.offset = end;
    if (row.decayed && !decayed_placed) {
      span.size = decayed;
      decayed_placed = true;
    } else if (!row.decayed && decayed_placed && !rest_placed) {
      span.size = total - decayed;
      rest_placed = true;
    }
    span.per_layer = span.columns = span.size;
    span.rows = 1;
    end += span.size;
  }
  return layout;
}

}  // namespace

int64_t stepscope_ops_adamw_settings_bytes(void) { return sizeof(StepScalars); }

int stepscope_ops_adamw_settings(void* host, double learning_rate, double beta1, double beta2, double eps, double weight_decay,
                                 int64_t step) {
  return ops_c::guarded([&] {
    const Check check{"stepscope_ops_adamw_settings"};
    check.not_null(host, "host");
    check.at_least(step, 1, "step");
    const auto in_unit = [&](double beta, const char* name) {
      if (!(beta >= 0.0 && beta < 1.0)) check.refuse(std::string(name) + " is " + std::to_string(beta) + ", expected [0, 1)");
    };
    in_unit(beta1, "beta1");
    in_unit(beta2, "beta2");
    const double t = static_cast<double>(step);
    StepScalars s;
    s.learning_rate = static_cast<float>(learning_rate);
    s.beta1 = static_cast<float>(beta1);
    s.beta2 = static_cast<float>(beta2);
    s.one_minus_beta1 = static_cast<float>(1.0 - beta1);
    s.one_minus_beta2 = static_cast<float>(1.0 - beta2);
    s.correction1 = static_cast<float>(1.0 - std::pow(beta1, t));
    s.correction2 = static_cast<float>(1.0 - std::pow(beta2, t));
    s.eps = static_cast<float>(eps);
    s.weight_decay = static_cast<float>(weight_decay);
    std::memcpy(host, &s, sizeof s);
  });
}

int stepscope_ops_adamw(const char* variant, int storage, void* rounded, float* parameters, float* m, float* v, const float* gradients,
                        int64_t decayed, int64_t total, const void* settings, const float* clip_scale, void* cuda_stream) {
  return ops_c::guarded([&] {
    const Check check{"stepscope_ops_adamw"};
    check.storage(storage);
    const auto way = static_cast<AdamWKernel>(ops_c::variant_index(storage, check.function, "adamw", variant));
    if (way == AdamWKernel::per_tensor)
      check.refuse("adamw=per_tensor launches once for each of GPT-2's 16 tensors, and a flat vector has none; use all_tensors");
    check.at_least(total, 0, "total");
    if (decayed < 0 || decayed > total)
      check.refuse("decayed is " + std::to_string(decayed) + ", expected at most the total of " + std::to_string(total));
    if (total == 0) return;
    check.not_null(parameters, "parameters");
    check.not_null(m, "m");
    check.not_null(v, "v");
    check.not_null(gradients, "gradients");
    check.not_null(settings, "settings");
    check.not_null(clip_scale, "clip_scale");
    const gpt2::TensorLayout layout = two_tensors(decayed, total);
    const auto* scalars = static_cast<const StepScalars*>(settings);
    const cudaStream_t stream = ops_c::stream_of(cuda_stream);
    if (storage == STEPSCOPE_OPS_F32) {
      if (rounded != nullptr) check.refuse("rounded must be NULL with float32 storage, whose parameters are their own masters");
      gpt2::ops::adamw<float>(way, gpt2::ops::Rounding::nearest, nullptr, parameters, m, v, gradients, layout, scalars, clip_scale, stream);
    } else {
      check.not_null(rounded, "rounded");
      gpt2::ops::adamw<ops_c::bf16>(way, gpt2::ops::Rounding::nearest, static_cast<ops_c::bf16*>(rounded), parameters, m, v, gradients,
                                    layout, scalars, clip_scale, stream);
    }
  });
}

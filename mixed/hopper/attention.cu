// What of attention for Hopper happens on the host.
#include "mixed/hopper/attention_backward.cuh"

#include <cmath>
#include <string>

#include "base/errors.h"
#include "mixed/hopper/multiply.h"

namespace hopper {
namespace {

// Heads whose items are worked on at the same time. Their q, k and v take 26 MB at T = 1024; and with 132 CTAs of which each has its share of
// long and short items, CTAs end within 1 to 3% of each other at 768 and 192 heads of 1024 tokens, within 7% at 48 (two warpgroups).
constexpr int kTogether = 66;

}  // namespace

int multiprocessors() {
  int device = 0, count = 0;
  STEPSCOPE_CUDA_CHECK(cudaGetDevice(&device));
  STEPSCOPE_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device));
  return count;
}

AttentionWork attention_work(const gpt2::ops::AttentionShape& s, int warpgroups) {
  AttentionWork w{};
  w.T = static_cast<int>(s.T), w.NH = static_cast<int>(s.NH), w.C = static_cast<int>(s.C);
  w.heads = static_cast<int>(s.B * s.NH);
  w.tiles = (w.T + kTileRows - 1) / kTileRows;
  w.groups = (w.tiles + warpgroups - 1) / warpgroups;
  w.together = kTogether;
  w.items = w.heads * w.groups;
  w.scale = 1.0f / std::sqrt(static_cast<float>(kHeadChannels));
  w.scale_log2 = w.scale * 1.4426950408889634f;
  return w;
}

std::optional<std::string> why_no_attention(int compute_capability_major, int64_t head_size, int compute_capability_minor) {
  if (auto why = why_not_device(compute_capability_major, compute_capability_minor)) return why;
  if (head_size != kHeadChannels) return "its tiles hold heads of 64 channels, the model has " + std::to_string(head_size);
  return std::nullopt;
}

void require_attention(const gpt2::ops::AttentionShape& s, std::initializer_list<const void*> tensors) {
  if (const auto why = why_not_current_device()) throw stepscope::MachineError("attention for Hopper: " + *why);
  if (const auto why = why_no_attention(9, s.HS())) throw stepscope::InputError("attention for Hopper: " + *why);
  for (const void* tensor : tensors)
    if (reinterpret_cast<uintptr_t>(tensor) % 16 != 0)
      throw stepscope::InputError("attention for Hopper: TMA needs tensors that begin at multiples of 16 bytes");
}

int64_t attention_backward_scratch_bytes(const gpt2::ops::AttentionShape& s) { return s.NH * attention_sum_rows(s) * kBytesStatistics; }

int64_t attention_sum_rows(const gpt2::ops::AttentionShape& s) { return s.B * ((s.T + kTileRows - 1) / kTileRows); }

void attention_backward(bf16* dqkv, const bf16* dout, const bf16* qkv, const bf16* out, const float* lse,
                        const gpt2::ops::AttentionShape& shape, void* scratch, cudaStream_t stream, const ColumnSums& sums,
                        const AttentionCut& cut) {
  attention_backward_queries(dqkv, dout, qkv, out, lse, shape, scratch, stream, sums.rows, cut);
  attention_backward_keys(dqkv, dout, qkv, shape, scratch, stream, sums.of_keys());
}

}  // namespace hopper

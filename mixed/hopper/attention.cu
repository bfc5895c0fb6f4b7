// What of attention for Hopper happens on the host.
#include "mixed/hopper/attention.cuh"

#include <cmath>

namespace hopper {
namespace {

// Heads whose items are worked on at the same time. Their q, k and v take 26 MB at T = 1024; and with 132 CTAs of which each has its share of
// long and short items, CTAs end within 1 to 3% of each other at 768 and 192 heads of 1024 tokens, within 7% at 48 (two warpgroups).
constexpr int kTogether = 66;

}  // namespace

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

std::optional<std::string> why_not_attention(int64_t head_size) {
  if (head_size == kHeadChannels) return std::nullopt;
  return "its tiles are made for heads of 64 channels, the model has " + std::to_string(head_size);
}

int64_t attention_backward_scratch_bytes(const gpt2::ops::AttentionShape& s) {
  const int64_t tiles = (s.T + kTileRows - 1) / kTileRows;
  return s.B * s.NH * tiles * kTileRows * 2 * static_cast<int64_t>(sizeof(float));
}

void attention_backward(bf16* dqkv, const bf16* dout, const bf16* qkv, const bf16* out, const float* lse,
                        const gpt2::ops::AttentionShape& shape, void* scratch, cudaStream_t stream, const AttentionCut& cut) {
  attention_backward_queries(dqkv, dout, qkv, out, lse, shape, scratch, stream, cut);
  attention_backward_keys(dqkv, dout, qkv, shape, scratch, stream);
}

}  // namespace hopper

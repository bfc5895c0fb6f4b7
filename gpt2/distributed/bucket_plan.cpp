#include "gpt2/distributed/bucket_plan.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace gpt2::distributed {
namespace {

int64_t up_to(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// FNV-1a (Fowler, Noll, Vo) over 8-byte words.
void mix(uint64_t& hash, int64_t word) {
  for (int byte = 0; byte < 8; ++byte) {
    hash ^= static_cast<uint64_t>(word) >> (8 * byte) & 0xffu;
    hash *= 0x100000001b3ull;
  }
}

}  // namespace

BucketPlan::BucketPlan(const ModelConfig& config, int ranks, int64_t bucket_bytes, unsigned narrow) : ranks_(ranks), places_(kTensorCount) {
  if (ranks < 1) throw std::logic_error("a bucket plan is for at least one rank");
  const TensorLayout layout = tensor_layout(config);
  const auto row = [](Tensor t) -> const TensorRow& { return kTensorTable[static_cast<size_t>(t)]; };
  const auto is_narrow = [&](const TensorRow& r) { return (narrow >> static_cast<unsigned>(r.id) & 1u) != 0; };
  for (auto& places : places_) places.resize(static_cast<size_t>(config.layers));
  // Of the tensors of the layers, those that are `in_bf16`.
  const auto add_layers = [&](bool in_bf16, int64_t most_bytes) {
    const int64_t bytes_each = in_bf16 ? 2 : 4;
    for (int64_t layer = config.layers - 1; layer >= 0; --layer) {
      for (const TensorRow& r : kTensorTable)
        if (r.per_layer && is_narrow(r) == in_bf16) add_segment(layout, r, layer);
      if (layer == 0 || (in_bf16 && layer == 1) || open_elements() * bytes_each >= most_bytes)
        close_bucket(static_cast<int>(layer), in_bf16);
    }
  };
  if (narrow != 0) {
    add_layers(true, bucket_bytes);
    narrow_elements_ = elements_;
  }
  add_segment(layout, row(Tensor::lnfw), 0);
  add_segment(layout, row(Tensor::lnfb), 0);
  add_layers(false, narrow != 0 ? std::numeric_limits<int64_t>::max() : bucket_bytes);
  add_segment(layout, row(Tensor::wpe), 0);
  add_segment(layout, row(Tensor::wte), 0);
  close_bucket(kAfterEmbedding, false);
}

int64_t BucketPlan::open_elements() const { return elements_ - (buckets_.empty() ? 0 : buckets_.back().begin + buckets_.back().elements); }

void BucketPlan::add_segment(const TensorLayout& layout, const TensorRow& row, int64_t layer) {
  const TensorSpan& span = layout[row.id];
  segments_.push_back({row.id, layer, span.offset + layer * span.per_layer, elements_, span.per_layer, row.decayed});
  places_[static_cast<size_t>(row.id)][static_cast<size_t>(layer)] = elements_;
  elements_ = up_to(elements_ + span.per_layer, kBlock);
}

// Its end is padded, so that every rank's slice is whole blocks.
void BucketPlan::close_bucket(int ready_after, bool narrow) {
  const int64_t begin = elements_ - open_elements();
  const int64_t elements = up_to(open_elements(), ranks_ * kBlock);
  buckets_.push_back({begin, elements, ready_after, narrow});
  elements_ = begin + elements;
}

std::vector<ArenaBlock> BucketPlan::blocks(int64_t begin, int64_t count) const {
  std::vector<ArenaBlock> out;
  out.reserve(static_cast<size_t>(count / kBlock));
  // The segment that a block lies in is the last one that does not begin behind it.
  auto next = std::upper_bound(segments_.begin(), segments_.end(), begin, [](int64_t at, const Segment& s) { return at < s.arena; });
  for (int64_t at = begin; at < begin + count; at += kBlock) {
    while (next != segments_.end() && next->arena <= at) ++next;
    const Segment& s = *std::prev(next);
    const int64_t valid = std::clamp<int64_t>(s.arena + s.size - at, 0, kBlock);
    out.push_back({at, s.file + (at - s.arena), static_cast<int32_t>(valid), s.decayed ? 1 : 0});
  }
  return out;
}

std::vector<ArenaBlock> BucketPlan::owned_blocks(int rank) const {
  std::vector<ArenaBlock> out;
  for (const Bucket& bucket : buckets_) {
    const auto slice = blocks(slice_begin(bucket, rank), slice_elements(bucket));
    out.insert(out.end(), slice.begin(), slice.end());
  }
  return out;
}

void BucketPlan::pieces(int64_t begin, int64_t count, const std::function<void(int64_t, int64_t, int64_t)>& use) const {
  for (const Segment& s : segments_) {
    const int64_t from = std::max(begin, s.arena);
    const int64_t to = std::min(begin + count, s.arena + s.size);
    if (from < to) use(s.file + (from - s.arena), from, to - from);
  }
}

uint64_t BucketPlan::fingerprint() const {
  uint64_t hash = 0xcbf29ce484222325ull;
  mix(hash, ranks_);
  for (const Segment& s : segments_)
    for (const int64_t word : {static_cast<int64_t>(s.tensor), s.layer, s.file, s.arena, s.size}) mix(hash, word);
  for (const Bucket& b : buckets_)
    for (const int64_t word : {b.begin, b.elements, static_cast<int64_t>(b.ready_after), static_cast<int64_t>(b.narrow)}) mix(hash, word);
  return hash;
}

}  // namespace gpt2::distributed

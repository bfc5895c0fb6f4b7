// Where the parameters of a model lie when several ranks train it. One arena in the order in which the backward pass finishes gradients:
// lnf, the last layer … layer 0, then wpe and wte, whose gradient is always the last. It is cut into buckets of whole layers, each of
// which is one collective, and every bucket into equal slices, one per rank.
//
// Where the gradients of some tensors lie in bf16 (`narrow`), the arena begins with these, layer by layer, in buckets of their own. Layer 0
// has one for itself, because nothing of the backward pass is left to hide it. What else the layers and lnf have is little (d12: 0.1% of the
// parameters): it is one bucket, which layer 0 completes. wpe and wte follow as ever.
//
// Pure functions of (model, ranks, bucket size): every rank computes the same plan. What a user sees (states, checkpoints, the index that
// stochastic rounding draws from) stays in the order of the tensor table, the "file order".
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "gpt2/config.h"
#include "gpt2/tensor_table.h"

namespace gpt2::distributed {

// Elements. Every tensor of every layer begins at a multiple, so a block lies in one of them; norm and update work block by block.
inline constexpr int64_t kBlock = 2048;
inline constexpr int kAfterEmbedding = -1;  // as gpt2::kNoLayer

// One tensor of one layer.
struct Segment {
  Tensor tensor = Tensor::wte;
  int64_t layer = 0;
  int64_t file = 0;   // first element in the file order
  int64_t arena = 0;  // in the arena
  int64_t size = 0;   // padded up to whole blocks with zeros that nothing reads
  bool decayed = false;
};

struct Bucket {
  int64_t begin = 0;  // in the arena
  int64_t elements = 0;
  int ready_after = kAfterEmbedding;  // the layer whose backward pass completes it
  bool narrow = false;                // its gradients lie in bf16, else in fp32
};

// One block of the arena, as kernels read it.
struct ArenaBlock {
  int64_t arena = 0;
  int64_t file = 0;
  int32_t valid = 0;  // elements of a tensor; the rest of the block is padding
  int32_t decayed = 0;
};

class BucketPlan {
 public:
  // A bucket is closed by the layer that brings it to `bucket_bytes` of gradients as they lie. ranks >= 1. narrow: tensors of layers whose
  // gradients lie in bf16, as bits of their rows.
  BucketPlan(const ModelConfig& config, int ranks, int64_t bucket_bytes, unsigned narrow = 0);

  int ranks() const { return ranks_; }
  int64_t elements() const { return elements_; }  // of the arena
  // Those of narrow buckets, which come first. A gradient in bf16 has the place of its parameter; one in fp32 a place less by this.
  int64_t narrow_elements() const { return narrow_elements_; }
  const std::vector<Segment>& segments() const { return segments_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }  // in the order in which they become ready
  // Where a tensor of a layer begins in the arena; layer 0 for tensors that no layer owns.
  int64_t at(Tensor tensor, int64_t layer) const { return places_[static_cast<size_t>(tensor)][static_cast<size_t>(layer)]; }

  int64_t slice_elements(const Bucket& bucket) const { return bucket.elements / ranks_; }
  int64_t slice_begin(const Bucket& bucket, int rank) const { return bucket.begin + rank * slice_elements(bucket); }
  int64_t owned_elements() const { return elements_ / ranks_; }  // by one rank, slices of all buckets together

  // Blocks of [begin, begin + count) of the arena, both multiples of kBlock; those that no tensor reaches have valid = 0.
  std::vector<ArenaBlock> blocks(int64_t begin, int64_t count) const;
  // The slices of `rank`, bucket after bucket.
  std::vector<ArenaBlock> owned_blocks(int rank) const;
  // Calls `use(file, arena, count)` for what tensors have of [begin, begin + count) of the arena, piece by piece.
  void pieces(int64_t begin, int64_t count, const std::function<void(int64_t file, int64_t arena, int64_t count)>& use) const;
  // The same for every pair of ranks that made the same plan, and another for another plan.
  uint64_t fingerprint() const;

 private:
  void add_segment(const TensorLayout& layout, const TensorRow& row, int64_t layer);
  int64_t open_elements() const;  // behind the last bucket
  void close_bucket(int ready_after, bool narrow);

  int ranks_;
  int64_t elements_ = 0;
  int64_t narrow_elements_ = 0;
  std::vector<Segment> segments_;
  std::vector<Bucket> buckets_;
  std::vector<std::vector<int64_t>> places_;  // [tensor][layer]
};

}  // namespace gpt2::distributed

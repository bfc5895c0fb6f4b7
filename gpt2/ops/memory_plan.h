// What the memory plans of the GPU trainers share. A trainer's own plan says which tensors there are, and in which storage.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "gpt2/ops/gradient_arenas.h"
#include "gpt2/ops/rank_plan.h"
#include "gpt2/tensor_table.h"
#include "gpt2/trainer.h"

namespace gpt2::ops {

// One tensor in an arena, in the unit of the arena. Tensors that every layer has lie `layer_stride` apart; 0 where the layers share one.
struct Slot {
  int64_t offset = 0;
  int64_t layer_stride = 0;
  int64_t at(int64_t layer = 0) const { return offset + layer * layer_stride; }
};

// Deals out offsets, each a multiple of 256 bytes: what cuBLAS likes best.
class Arena {
 public:
  // `unit_bytes`: in what sizes and offsets are counted; divides 256.
  explicit Arena(int64_t unit_bytes) : alignment_(256 / unit_bytes) {}

  Slot take(int64_t units, int64_t layers = 1) {
    const int64_t each = (units + alignment_ - 1) / alignment_ * alignment_;
    const Slot slot{total_, layers > 1 ? each : 0};
    total_ += each * layers;
    return slot;
  }
  int64_t total() const { return total_; }

 private:
  int64_t alignment_;
  int64_t total_ = 0;
};

struct PlannedMemory {
  TensorLayout layout;
  int64_t parameter_count = 0;                    // of each state
  int64_t scratch_bytes = 0;                      // the most any one op needs
  int64_t token_count = 0;                        // inputs and targets of one micro-batch
  std::optional<RankPlan> ranks;                  // where there is a communicator; states then lie in the order of its buckets
  std::optional<GradientLayout> gradient_arenas;  // of one rank, where gradients lie in two arenas; else they lie as the parameters do
  std::vector<MemoryItem> items;

  // Elements on this rank of the weights and of the gradients, which are whole everywhere, and of what ZeRO-1 divides.
  int64_t whole_elements() const { return ranks ? ranks->buckets.elements() : parameter_count; }
  int64_t narrow_gradient_elements() const {
    return ranks ? ranks->buckets.narrow_elements() : gradient_arenas ? gradient_arenas->narrow_elements : 0;
  }
  int64_t wide_gradient_elements() const { return whole_elements() - narrow_gradient_elements(); }
  int64_t divided_elements() const { return ranks ? ranks->divided_elements() : parameter_count; }
  int64_t total_bytes() const;
};

// Throws stepscope::MachineError that says what is needed (by kind), what is free and the largest batch that fits, unless it fits.
// `largest_batch` is asked only then.
void require_memory(const PlannedMemory& plan, const TrainerOptions& options, const std::function<int64_t()>& largest_batch,
                    int64_t free_bytes, std::string_view device_name);

}  // namespace gpt2::ops

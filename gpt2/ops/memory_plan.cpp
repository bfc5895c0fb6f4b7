#include "gpt2/ops/memory_plan.h"

#include "gpt2/trainer_checks.h"

namespace gpt2::ops {

int64_t PlannedMemory::total_bytes() const {
  int64_t sum = 0;
  for (const MemoryItem& item : items) sum += item.bytes;
  return sum;
}

void require_memory(const PlannedMemory& plan, const TrainerOptions& options, const std::function<int64_t()>& largest_batch,
                    int64_t free_bytes, std::string_view device_name) {
  if (plan.total_bytes() > free_bytes) throw_out_of_memory(plan.items, options, largest_batch(), free_bytes, device_name);
}

}  // namespace gpt2::ops

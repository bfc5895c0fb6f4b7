#include "gpt2/reference/buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include "base/errors.h"

namespace gpt2::reference {

void* map_zero_pages(size_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw stepscope::MachineError(
        fmt::format("the CPU reference needs a block of {:.1f} MB, which the system refuses: take a smaller batch, "
                    "sequence or model",
                    static_cast<double>(bytes) * 1e-6));
  madvise(memory, bytes, MADV_HUGEPAGE);  // advice only: without huge pages it is slower, not wrong
  return memory;
}

void unmap_pages(void* memory, size_t bytes) noexcept {
  if (memory != nullptr) munmap(memory, bytes);
}

}  // namespace gpt2::reference

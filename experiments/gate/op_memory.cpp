#include "experiments/gate/op_memory.h"

#include <cuda_runtime.h>

#include <cstring>
#include <stdexcept>

#include "gpt2/cuda/check.h"

namespace gate {
namespace {

std::byte* allocate(Space space, int64_t bytes) {
  const auto size = static_cast<size_t>(bytes > 0 ? bytes : 1);
  if (space == Space::host) return new std::byte[size];
  void* data = nullptr;
  STEPSCOPE_CUDA_CHECK(cudaMalloc(&data, size));
  return static_cast<std::byte*>(data);
}

void release(Space space, std::byte* data) {
  if (space == Space::host)
    delete[] data;
  else
    STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaFree(data));
}

}  // namespace

Memory::Memory(Space space, int64_t bytes)
    : space_(space), bytes_(bytes), data_(allocate(space, bytes), [space](std::byte* p) { release(space, p); }) {}

void set_bytes(void* data, Space space, std::byte value, int64_t bytes) {
  if (space == Space::host)
    std::memset(data, std::to_integer<int>(value), static_cast<size_t>(bytes));
  else
    STEPSCOPE_CUDA_CHECK(cudaMemset(data, std::to_integer<int>(value), static_cast<size_t>(bytes)));
}

void copy_bytes(void* to, const void* from, Space space, int64_t bytes) {
  if (bytes == 0) return;
  if (space == Space::host)
    std::memcpy(to, from, static_cast<size_t>(bytes));
  else
    STEPSCOPE_CUDA_CHECK(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice));
}

void copy(const Memory& to, const Memory& from) {
  if (to.bytes() != from.bytes()) throw std::logic_error("copy: memory of another size");
  const auto size = static_cast<size_t>(from.bytes());
  if (size == 0) return;
  if (to.space() == Space::host && from.space() == Space::host)
    std::memcpy(to.data(), from.data(), size);
  else
    STEPSCOPE_CUDA_CHECK(cudaMemcpy(to.data(), from.data(), size, cudaMemcpyDefault));
}

Memory copy_of(const Memory& from) {
  Memory to(from.space(), from.bytes());
  copy(to, from);
  return to;
}

void copy_to_host(void* host, const void* data, Space space, int64_t bytes) {
  if (bytes == 0) return;
  if (space == Space::host)
    std::memcpy(host, data, static_cast<size_t>(bytes));
  else
    STEPSCOPE_CUDA_CHECK(cudaMemcpy(host, data, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost));
}

Memory memory_of(Space space, const void* host, int64_t bytes) {
  Memory to(space, bytes);
  if (bytes == 0) return to;
  if (space == Space::host)
    std::memcpy(to.data(), host, static_cast<size_t>(bytes));
  else
    STEPSCOPE_CUDA_CHECK(cudaMemcpy(to.data(), host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice));
  return to;
}

}  // namespace gate

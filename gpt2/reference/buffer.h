// Zero-filled memory of the CPU reference, allocated once. Backed by its own mapping with huge pages asked
// for: parameters and activations are streamed in hundreds of megabytes, where 4 KiB pages cost a third of
// the bandwidth. Pages that are never touched cost nothing, so that a model which only evaluates does not pay
// for its optimizer state.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace gpt2::reference {

// `bytes` zero bytes, 64-byte aligned at least; nullptr for 0. Throws stepscope::MachineError with the size
// when refused.
void* map_zero_pages(size_t bytes);
void unmap_pages(void* memory, size_t bytes) noexcept;

template <typename T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t count) : size_(static_cast<size_t>(count)), data_(static_cast<T*>(map_zero_pages(size_ * sizeof(T)))) {}
  ~Buffer() { unmap_pages(data_, size_ * sizeof(T)); }
  Buffer(Buffer&& other) noexcept : size_(std::exchange(other.size_, 0)), data_(std::exchange(other.data_, nullptr)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(size_, other.size_);
    std::swap(data_, other.data_);
    return *this;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t size() const { return static_cast<int64_t>(size_); }
  int64_t bytes() const { return static_cast<int64_t>(size_ * sizeof(T)); }
  std::span<T> span() { return {data_, size_}; }
  std::span<const T> span() const { return {data_, size_}; }

 private:
  size_t size_ = 0;
  T* data_ = nullptr;
};

}  // namespace gpt2::reference

// Owners of CUDA resources: device memory, pinned host memory, stream, event, cuBLASLt handle. Move-only; whoever holds one
// holds the resource. Fresh device memory holds whatever was there before: nothing here zeroes it.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "gpt2/cuda/check.h"

namespace gpt2::cuda {

// `count` elements of device memory. Throws stepscope::MachineError when the device has not so much.
template <class T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(int64_t count) : count_(count) {
    if (count > 0) STEPSCOPE_CUDA_CHECK(cudaMalloc(&data_, static_cast<size_t>(count) * sizeof(T)));
  }
  ~DeviceBuffer() { release(); }
  DeviceBuffer(DeviceBuffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    if (this != &other) {
      release();
      data_ = std::exchange(other.data_, nullptr);
      count_ = std::exchange(other.count_, 0);
    }
    return *this;
  }

  T* data() const { return data_; }
  int64_t size() const { return count_; }
  int64_t bytes() const { return count_ * static_cast<int64_t>(sizeof(T)); }

 private:
  void release() noexcept {
    if (data_ != nullptr) STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaFree(data_));
    data_ = nullptr;
  }
  T* data_ = nullptr;
  int64_t count_ = 0;
};

// Page-locked host memory: the only kind from which a copy is truly asynchronous.
template <class T>
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(int64_t count) : count_(count) {
    if (count > 0) STEPSCOPE_CUDA_CHECK(cudaMallocHost(&data_, static_cast<size_t>(count) * sizeof(T)));
  }
  ~PinnedBuffer() { release(); }
  PinnedBuffer(PinnedBuffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    if (this != &other) {
      release();
      data_ = std::exchange(other.data_, nullptr);
      count_ = std::exchange(other.count_, 0);
    }
    return *this;
  }

  T* data() const { return data_; }
  int64_t size() const { return count_; }

 private:
  void release() noexcept {
    if (data_ != nullptr) STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaFreeHost(data_));
    data_ = nullptr;
  }
  T* data_ = nullptr;
  int64_t count_ = 0;
};

class Stream {
 public:
  Stream() { STEPSCOPE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  // Its blocks go first wherever a multiprocessor becomes free.
  static Stream highest_priority() {
    int least = 0, greatest = 0;
    STEPSCOPE_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    return Stream(greatest);
  }
  ~Stream() {
    if (stream_ != nullptr) STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaStreamDestroy(stream_));
  }
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&&) = delete;

  cudaStream_t get() const { return stream_; }
  void synchronize() const { STEPSCOPE_CUDA_CHECK(cudaStreamSynchronize(stream_)); }

 private:
  explicit Stream(int priority) { STEPSCOPE_CUDA_CHECK(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority)); }
  cudaStream_t stream_ = nullptr;
};

// Records time.
class Event {
 public:
  Event() { STEPSCOPE_CUDA_CHECK(cudaEventCreate(&event_)); }
  ~Event() {
    if (event_ != nullptr) STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaEventDestroy(event_));
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;

  cudaEvent_t get() const { return event_; }
  void record(cudaStream_t stream) const { STEPSCOPE_CUDA_CHECK(cudaEventRecord(event_, stream)); }
  void wait() const { STEPSCOPE_CUDA_CHECK(cudaEventSynchronize(event_)); }
  // Whether everything before it has run. Clears the "not ready" state, which the next launch check would take for its own.
  bool reached() const {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) {
      (void)cudaGetLastError();
      return false;
    }
    STEPSCOPE_CUDA_CHECK(status);
    return true;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// An event that orders streams and keeps no time.
class Fence {
 public:
  Fence() { STEPSCOPE_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~Fence() { STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaEventDestroy(event_)); }
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;
  // `after` does nothing that is queued from now on before `before` has done what is queued by now.
  void order(cudaStream_t before, cudaStream_t after) const {
    record(before);
    wait(after);
  }
  void record(cudaStream_t stream) const { STEPSCOPE_CUDA_CHECK(cudaEventRecord(event_, stream)); }
  void wait(cudaStream_t stream) const { STEPSCOPE_CUDA_CHECK(cudaStreamWaitEvent(stream, event_, 0)); }

 private:
  cudaEvent_t event_ = nullptr;
};

// Device time between two reached events; resolution about 0.5 us (CUDA runtime documentation, cudaEventElapsedTime).
inline double elapsed_ns(const Event& begin, const Event& end) {
  float ms = 0;
  STEPSCOPE_CUDA_CHECK(cudaEventElapsedTime(&ms, begin.get(), end.get()));
  return static_cast<double>(ms) * 1e6;
}

class CublasLtHandle {
 public:
  CublasLtHandle() { STEPSCOPE_CUDA_CHECK(cublasLtCreate(&handle_)); }
  ~CublasLtHandle() {
    if (handle_ != nullptr) STEPSCOPE_CUDA_CHECK_NOEXCEPT(cublasLtDestroy(handle_));
  }
  CublasLtHandle(CublasLtHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  CublasLtHandle& operator=(CublasLtHandle&&) = delete;

  cublasLtHandle_t get() const { return handle_; }

 private:
  cublasLtHandle_t handle_ = nullptr;
};

}  // namespace gpt2::cuda

// Checked CUDA and cuBLAS calls, owned device memory, and the named ranges that a profiler sees.
#pragma once
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <utility>

#include "errors.h"
#include "nvtx3/nvtx3.hpp"

namespace baseline {

inline void check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  throw MachineError(std::string(call) + " failed: " + cudaGetErrorString(status) + " (" + file + ":" +
                     std::to_string(line) + ")");
}
inline void check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw MachineError(std::string(call) + " failed: " + cublasGetStatusString(status) + " (" + file + ":" +
                     std::to_string(line) + ")");
}

// A launch returns nothing; CHECK_LAUNCH() right after it reports a grid or a shared memory size that the
// device refused.
#define CHECK(call) ::baseline::check((call), #call, __FILE__, __LINE__)
#define CHECK_LAUNCH() ::baseline::check(cudaGetLastError(), "kernel launch", __FILE__, __LINE__)

// Device memory with one owner. The contents are undefined until written.
template <typename T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(int64_t count) : count_(count) {
    CHECK(cudaMalloc(&data_, static_cast<size_t>(count) * sizeof(T)));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(DeviceArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  T* get() const { return data_; }
  int64_t count() const { return count_; }
  int64_t bytes() const { return count_ * static_cast<int64_t>(sizeof(T)); }

 private:
  T* data_ = nullptr;
  int64_t count_ = 0;
};

// Ranges are "step" and, inside it, one leaf "PASS/LAYER/OP" around the launches of each op; a profiler adds
// time up by them.
struct RangeDomain {
  static constexpr char const* name = "stepscope";
};
using StepRange = nvtx3::scoped_range_in<RangeDomain>;

class OpRange {
 public:
  OpRange(const char* pass, int64_t layer, const char* op)
      : range_(std::string(pass) + "/" + (layer < 0 ? std::string("-") : std::to_string(layer)) + "/" + op) {}

 private:
  nvtx3::scoped_range_in<RangeDomain> range_;
};

}  // namespace baseline

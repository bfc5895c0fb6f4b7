// Text of failed calls: what was called, where, what the library says, and what to do about it.
#include "gpt2/cuda/check.h"

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "base/errors.h"

namespace gpt2::cuda {
namespace {

std::string_view file_name(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string_view hint(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "the device memory is full: lower --batch-size or --seq-len, or stop other programs on this GPU (nvidia-smi)";
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
      return "no CUDA device is visible: see `stepscope doctor`, and CUDA_VISIBLE_DEVICES";
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
      return "the driver is older than the CUDA toolkit of this build: update the driver";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return "built for other GPUs: configure with -DSTEPSCOPE_CUDA_ARCHITECTURES=native and rebuild";
    case cudaErrorDevicesUnavailable:
      return "the device is in exclusive use by another process";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
      return "a kernel launched before this call broke: run under `compute-sanitizer`, or with CUDA_LAUNCH_BLOCKING=1";
    case cudaErrorInvalidConfiguration:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorInvalidValue:
      return "the launch asks for more threads, shared memory or blocks than the device has, or an argument is out of range";
    default:
      return "see the CUDA runtime documentation of this error";
  }
}

bool is_limit_of_machine(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorDevicesUnavailable:
      return true;
    default:
      return false;
  }
}

std::string describe(cudaError_t error, const char* call, const char* file, int line) {
  return fmt::format("{} failed at {}:{}: {} ({}); {}", call, file_name(file), line, cudaGetErrorName(error), cudaGetErrorString(error),
                     hint(error));
}

std::string describe(cublasStatus_t status, const char* call, const char* file, int line) {
  return fmt::format("{} failed at {}:{}: {} ({})", call, file_name(file), line, cublasLtGetStatusName(status),
                     cublasLtGetStatusString(status));
}

}  // namespace

void throw_failed_call(cudaError_t error, const char* call, const char* file, int line) {
  (void)cudaGetLastError();  // a reported error must not be found again by the check of an innocent launch
  const std::string text = describe(error, call, file, line);
  if (is_limit_of_machine(error)) throw stepscope::MachineError(text);
  throw CallError(text);
}

void throw_failed_call(cublasStatus_t status, const char* call, const char* file, int line) {
  const std::string text = describe(status, call, file, line);
  if (status == CUBLAS_STATUS_ALLOC_FAILED || status == CUBLAS_STATUS_ARCH_MISMATCH) throw stepscope::MachineError(text);
  throw CallError(text);
}

void report_failed_call(cudaError_t error, const char* call, const char* file, int line) noexcept {
  if (error == cudaErrorCudartUnloading) return;
  std::fprintf(stderr, "stepscope: %s failed at %s:%d: %s\n", call, file, line, cudaGetErrorName(error));
}

void report_failed_call(cublasStatus_t status, const char* call, const char* file, int line) noexcept {
  std::fprintf(stderr, "stepscope: %s failed at %s:%d: %s\n", call, file, line, cublasLtGetStatusName(status));
}

}  // namespace gpt2::cuda

// Checks of CUDA and cuBLAS calls. A failed call throws with its text, its place and a hint; an error that means "this machine
// cannot" (no device, driver too old, no memory) is a stepscope::MachineError, every other one a cuda::CallError (a bug of ours).
// The trap: kernels fail asynchronously, so the call that throws may be later than the launch that broke. The hint says how to
// find the launch.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <stdexcept>

namespace gpt2::cuda {

struct CallError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void throw_failed_call(cudaError_t error, const char* call, const char* file, int line);
[[noreturn]] void throw_failed_call(cublasStatus_t status, const char* call, const char* file, int line);
// For destructors: one line on stderr. Silent while the driver shuts down, when every handle is already gone.
void report_failed_call(cudaError_t error, const char* call, const char* file, int line) noexcept;
void report_failed_call(cublasStatus_t status, const char* call, const char* file, int line) noexcept;

inline bool is_success(cudaError_t error) { return error == cudaSuccess; }
inline bool is_success(cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; }

}  // namespace gpt2::cuda

// Works for cudaError_t and cublasStatus_t.
#define STEPSCOPE_CUDA_CHECK(call)                                                                                                 \
  do {                                                                                                                             \
    const auto stepscope_status = (call);                                                                                          \
    if (!::gpt2::cuda::is_success(stepscope_status)) ::gpt2::cuda::throw_failed_call(stepscope_status, #call, __FILE__, __LINE__); \
  } while (false)

#define STEPSCOPE_CUDA_CHECK_NOEXCEPT(call)                                                                                         \
  do {                                                                                                                              \
    const auto stepscope_status = (call);                                                                                           \
    if (!::gpt2::cuda::is_success(stepscope_status)) ::gpt2::cuda::report_failed_call(stepscope_status, #call, __FILE__, __LINE__); \
  } while (false)

#include "profiler/collect/cupti_api.h"

#include "profiler/collect/missing_names.h"

namespace profiler::collect {
namespace {

std::string result_text(CUptiResult result) {
  const char* text = nullptr;
  if (cuptiGetResultString(result, &text) != CUPTI_SUCCESS || !text) text = "unknown error";
  return std::to_string(static_cast<int>(result)) + " " + text;
}

const char* cure(CUptiResult result) {
  switch (result) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
      return "; run as root or with CAP_SYS_ADMIN (docker: --cap-add=SYS_ADMIN), or load the driver with "
             "NVreg_RestrictProfilingToAdminUsers=0";
    case CUPTI_ERROR_HARDWARE_BUSY:
      return "; another program uses the counters, often DCGM: dcgmi profile --pause";
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return "; this vGPU has no profiling enabled: enable it in the hypervisor";
    case CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED:
      return "; counters do not exist in confidential computing mode";
    case CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED:
      return "; counters of a MIG slice are not supported: switch MIG off";
    case CUPTI_ERROR_CMP_DEVICE_NOT_SUPPORTED:
      return "; CMP devices have no counters";
    case CUPTI_ERROR_SLI_DEVICE_NOT_SUPPORTED:
      return "; switch SLI off";
    case CUPTI_ERROR_WSL_DEVICE_NOT_SUPPORTED:
      return "; counters are not supported under WSL";
#if CUPTI_API_VERSION >= 130000
    case CUPTI_ERROR_INVALID_CHIP_NAME:
      return "; this CUPTI does not know the chip: use a newer CUDA toolkit";
#endif
    default:
      return "";
  }
}

}  // namespace

CuptiError::CuptiError(const char* call, CUptiResult r) : std::runtime_error(std::string(call) + " fails: " + result_text(r)), result(r) {}

void check(CUptiResult result, const char* call) {
  if (result != CUPTI_SUCCESS) throw CuptiError(call, result);
}

Failure counter_failure(const CuptiError& error) {
  return {std::string(missing::kCountersUnavailable), std::string(error.what()) + cure(error.result)};
}

}  // namespace profiler::collect

// Functions of the driver that no library here links, so that a program starts where there is no driver.
#pragma once
#include <cuda_runtime.h>

#include "gpt2/cuda/check.h"

namespace gpt2::cuda {

// The driver's function `name` as it was in that version of CUDA (12000: 12.0); null where this driver has none, also because it is older.
// Throws CallError where the runtime has no driver at all.
template <class Function>
Function* driver_function(const char* name, unsigned int version = 12000) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  STEPSCOPE_CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result));
  return result == cudaDriverEntryPointSuccess ? reinterpret_cast<Function*>(found) : nullptr;
}

}  // namespace gpt2::cuda

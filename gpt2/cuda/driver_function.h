// Functions of the driver that no library here links, so that a program starts where there is no driver.
#pragma once
#include <cuda_runtime.h>

#include "gpt2/cuda/check.h"

namespace gpt2::cuda {

// The driver's function `name` as it was in CUDA 12.0; null where this driver has none. Throws CallError.
template <class Function>
Function* driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  STEPSCOPE_CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result));
  return reinterpret_cast<Function*>(found);
}

}  // namespace gpt2::cuda

// Why kernels of wgmma cannot run on this machine; empty where they can.
#pragma once
#include <optional>
#include <string>

#include "gpt2/cuda/device_info.h"
#include "mixed/hopper/multiply.h"

inline std::optional<std::string> why_no_hopper() {
  if (auto why = gpt2::cuda::why_no_device()) return why;
  return hopper::why_not_current_device();
}

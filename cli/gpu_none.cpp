#include "cli/gpu.h"

namespace cli {
GpuStatus gpu_status() {
  GpuStatus s;
  s.why_not = "this stepscope was built without CUDA; on a machine with the CUDA toolkit, build with STEPSCOPE_CUDA=ON";
  return s;
}
}  // namespace cli

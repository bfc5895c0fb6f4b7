#include "cli/gpu.h"

namespace cli {
GpuStatus gpu_status() {
  GpuStatus s;
  s.why_not = "this stepscope was built without CUDA, because there was no GPU or no nvcc; STEPSCOPE_CUDA=ON ./stepscope … builds with it";
  return s;
}
}  // namespace cli

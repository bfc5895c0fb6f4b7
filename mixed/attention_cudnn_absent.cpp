// What attention_cudnn.cpp answers where cudnn-frontend was not found at build time.
#include "base/errors.h"
#include "mixed/attention_cudnn.h"

namespace mixed {
namespace {

constexpr const char* kMissing =
    "cuDNN attention: not built in, the headers of cudnn-frontend or cuDNN were not found (the wheel nvidia-cudnn-frontend holds the "
    "former: unpack its include folder to .deps/cudnn_frontend/include, or give -DSTEPSCOPE_CUDNN_FRONTEND_DIR)";

[[noreturn]] void refuse() { throw stepscope::MachineError(kMissing); }

}  // namespace

std::optional<std::string> why_no_cudnn() { return kMissing; }
std::string cudnn_version() { return ""; }
std::optional<std::string> why_no_cudnn_plan(const CudnnAttentionShape&, bool) { return kMissing; }
int64_t cudnn_forward_workspace_bytes(const CudnnAttentionShape&, CudnnPlan) { refuse(); }
int64_t cudnn_backward_workspace_bytes(const CudnnAttentionShape&, bool, CudnnPlan) { refuse(); }
void cudnn_attention_forward(__nv_bfloat16*, float*, const __nv_bfloat16*, const CudnnAttentionShape&, CudnnPlan, void*, cudaStream_t) {
  refuse();
}
void cudnn_attention_backward(__nv_bfloat16*, const __nv_bfloat16*, const __nv_bfloat16*, const __nv_bfloat16*, const float*,
                              const CudnnAttentionShape&, bool, CudnnPlan, void*, cudaStream_t) {
  refuse();
}

}  // namespace mixed

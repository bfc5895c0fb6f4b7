// cuDNN's fused attention behind a small header: the cudnn-frontend library is compiled in one translation unit only, and libcudnn is
// opened at run time, so that one binary runs with and without it.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <optional>
#include <string>

namespace mixed {

// Why cuDNN attention cannot run here, in words for `doctor`: built without cudnn-frontend, libcudnn not found, too old. Empty when it
// can. Needs no device.
std::optional<std::string> why_no_cudnn();
// "9.14.0"; empty when why_no_cudnn() has an answer.
std::string cudnn_version();

struct CudnnAttentionShape {
  int64_t B, T, C, NH;
};

// Why cuDNN has no kernel for this shape (T = 1 is one it refuses); empty when it has. Builds the plans that it finds.
std::optional<std::string> why_no_cudnn_plan(const CudnnAttentionShape& shape, bool deterministic);

// Which of its plans runs. heuristic: the one that cuDNN puts first. measured: at the first launch of a shape that is not captured, every
// plan that takes no more workspace than the first (or than kMostSearchedWorkspaceBytes) is timed on the tensors of that launch, in turns;
// the fastest by more than noise is taken and remembered (attention_plans.h). Before it was measured, the first runs.
enum class CudnnPlan { heuristic, measured };
constexpr int64_t kMostSearchedWorkspaceBytes = int64_t{64} << 20;

// Same tensors as kernels/attention.cuh. Plans are built once per shape, by whichever function is called first (seconds of
// host work; the workspace functions build them too), and shared by the whole process. Launching a built plan may be
// captured. Throws stepscope::MachineError when cuDNN is missing or has no plan for the shape.
int64_t cudnn_forward_workspace_bytes(const CudnnAttentionShape& shape, CudnnPlan plan);
int64_t cudnn_backward_workspace_bytes(const CudnnAttentionShape& shape, bool deterministic, CudnnPlan plan);
void cudnn_attention_forward(__nv_bfloat16* out, float* lse, const __nv_bfloat16* qkv, const CudnnAttentionShape& shape, CudnnPlan plan,
                             void* workspace, cudaStream_t stream);
void cudnn_attention_backward(__nv_bfloat16* dqkv, const __nv_bfloat16* dout, const __nv_bfloat16* qkv, const __nv_bfloat16* out,
                              const float* lse, const CudnnAttentionShape& shape, bool deterministic, CudnnPlan plan, void* workspace,
                              cudaStream_t stream);

}  // namespace mixed

// A piece of a step as a CUDA graph: the first call captures it, every call launches it. What differs from step to step (tokens, step
// scalars) lies in device memory that is written before the launch, so a graph is captured once.
#pragma once
#include <cuda_runtime.h>

#include <utility>

#include "gpt2/cuda/check.h"
#include "mixed/graph_edges.h"
#include "mixed/variants.h"

namespace mixed {

class StepGraph {
 public:
  StepGraph() = default;
  ~StepGraph() {
    if (executable_ != nullptr) STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaGraphExecDestroy(executable_));
    if (graph_ != nullptr) STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaGraphDestroy(graph_));
  }
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  // `flags`: of cudaGraphInstantiate. `queue_work` queues the work on the stream; it runs at the first call only. If it throws, nothing is captured and the stream is
  // usable again.
  template <class Work>
  void launch(cudaStream_t stream, GraphEdges edges, unsigned flags, const Work& queue_work) {
    if (executable_ == nullptr) capture(stream, edges, flags, queue_work);
    STEPSCOPE_CUDA_CHECK(cudaGraphLaunch(executable_, stream));
  }

 private:
  template <class Work>
  void capture(cudaStream_t stream, GraphEdges edges, unsigned flags, const Work& queue_work) {
    // Thread-local: other threads of the process (a profiler's) may allocate meanwhile.
    STEPSCOPE_CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    try {
      queue_work();
    } catch (...) {
      cudaGraph_t broken = nullptr;
      if (cudaStreamEndCapture(stream, &broken) == cudaSuccess && broken != nullptr) (void)cudaGraphDestroy(broken);
      (void)cudaGetLastError();
      throw;
    }
    STEPSCOPE_CUDA_CHECK(cudaStreamEndCapture(stream, &graph_));
    switch (edges) {
      case GraphEdges::full:
        break;
      case GraphEdges::programmatic:
        make_edges_programmatic(graph_);
        break;
    }
    STEPSCOPE_CUDA_CHECK(cudaGraphInstantiate(&executable_, graph_, flags));
    STEPSCOPE_CUDA_CHECK(cudaGraphUpload(executable_, stream));
  }

  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

}  // namespace mixed

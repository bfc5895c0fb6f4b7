#include "mixed/graph_edges.h"

#include <cuda.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/errors.h"
#include "gpt2/cuda/check.h"
#include "gpt2/cuda/driver_function.h"

namespace mixed {
namespace {

// tests/mixed/graph_edges_test.cpp holds the sources to this list.
constexpr std::array<std::string_view, 14> kWaiting{
    "warp_per_row_forward_kernel", "warp_rows_backward_kernel", "reduce_sums_kernel", "slab_sums_kernel",
    "reduce_partials_kernel",      "one_read_kernel",           "mean_loss_kernel",   "squares_kernel",
    "two_arenas_squares_kernel",   "span_sums_kernel",          "finish_norm_kernel", "all_tensors_kernel",
    "split_masters_kernel",        "softmax_bias_kernel"};

// As they are since CUDA 12.3: before, no driver told the names.
constexpr unsigned int kToldSince = 12030;

class KernelNames {
 public:
  bool can_be_told() const { return params_ != nullptr && (function_name_ != nullptr || kernel_name_ != nullptr); }

  // Empty where the node is no kernel or the driver does not say.
  std::string_view operator()(cudaGraphNode_t node) const {
    cudaGraphNodeType type{};
    STEPSCOPE_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
    if (type != cudaGraphNodeTypeKernel || params_ == nullptr) return {};
    CUDA_KERNEL_NODE_PARAMS params{};
    if (params_(node, &params) != CUDA_SUCCESS) return {};
    const char* name = nullptr;
    if (params.func != nullptr && function_name_ != nullptr && function_name_(&name, params.func) == CUDA_SUCCESS && name != nullptr)
      return name;
    if (params.kern != nullptr && kernel_name_ != nullptr && kernel_name_(&name, params.kern) == CUDA_SUCCESS && name != nullptr)
      return name;
    return {};
  }

 private:
  decltype(&cuGraphKernelNodeGetParams) params_ =
      gpt2::cuda::driver_function<decltype(cuGraphKernelNodeGetParams)>("cuGraphKernelNodeGetParams", kToldSince);
  decltype(&cuFuncGetName) function_name_ = gpt2::cuda::driver_function<decltype(cuFuncGetName)>("cuFuncGetName", kToldSince);
  decltype(&cuKernelGetName) kernel_name_ = gpt2::cuda::driver_function<decltype(cuKernelGetName)>("cuKernelGetName", kToldSince);
};

#if CUDART_VERSION >= 13000
cudaError_t dependencies(cudaGraphNode_t node, cudaGraphNode_t* from, cudaGraphEdgeData* data, size_t* count) {
  return cudaGraphNodeGetDependencies(node, from, data, count);
}
cudaError_t remove_edge(cudaGraph_t graph, cudaGraphNode_t from, cudaGraphNode_t to, const cudaGraphEdgeData* data) {
  return cudaGraphRemoveDependencies(graph, &from, &to, data, 1);
}
cudaError_t add_edge(cudaGraph_t graph, cudaGraphNode_t from, cudaGraphNode_t to, const cudaGraphEdgeData* data) {
  return cudaGraphAddDependencies(graph, &from, &to, data, 1);
}
#else
cudaError_t dependencies(cudaGraphNode_t node, cudaGraphNode_t* from, cudaGraphEdgeData* data, size_t* count) {
  return cudaGraphNodeGetDependencies_v2(node, from, data, count);
}
cudaError_t remove_edge(cudaGraph_t graph, cudaGraphNode_t from, cudaGraphNode_t to, const cudaGraphEdgeData* data) {
  return cudaGraphRemoveDependencies_v2(graph, &from, &to, data, 1);
}
cudaError_t add_edge(cudaGraph_t graph, cudaGraphNode_t from, cudaGraphNode_t to, const cudaGraphEdgeData* data) {
  return cudaGraphAddDependencies_v2(graph, &from, &to, data, 1);
}
#endif

bool is_kernel(cudaGraphNode_t node) {
  cudaGraphNodeType type{};
  STEPSCOPE_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
  return type == cudaGraphNodeTypeKernel;
}

bool make_programmatic(cudaGraph_t graph, cudaGraphNode_t node) {
  size_t count = 0;
  STEPSCOPE_CUDA_CHECK(dependencies(node, nullptr, nullptr, &count));
  if (count != 1) return false;
  cudaGraphNode_t before = nullptr;
  cudaGraphEdgeData edge{};
  STEPSCOPE_CUDA_CHECK(dependencies(node, &before, &edge, &count));
  if (edge.type != cudaGraphDependencyTypeDefault || !is_kernel(before)) return false;
  STEPSCOPE_CUDA_CHECK(remove_edge(graph, before, node, &edge));
  edge = {};
  edge.from_port = cudaGraphKernelNodePortProgrammatic;
  edge.type = cudaGraphDependencyTypeProgrammatic;
  STEPSCOPE_CUDA_CHECK(add_edge(graph, before, node, &edge));
  return true;
}

}  // namespace

std::optional<std::string> why_no_kernel_names() {
  if (KernelNames().can_be_told()) return std::nullopt;
  return "this driver is older than CUDA 12.3 and does not tell the names of a graph's kernels";
}

// The namespaces as the mangled name has them. "mixed" is looked for in front alone, because a name may mention it.
bool is_own_kernel(std::string_view kernel) {
  return kernel.find("4gpt23ops") != std::string_view::npos || kernel.starts_with("_ZN5mixed");
}

bool waits_by_itself(std::string_view kernel) {
  // A library's kernel of the same name does not wait.
  return is_own_kernel(kernel) && std::any_of(kWaiting.begin(), kWaiting.end(), [&](std::string_view name) {
           // The length stands before the name, so that no other name ends in it.
           return kernel.find(std::to_string(name.size()) + std::string(name)) != std::string_view::npos;
         });
}

int64_t make_edges_programmatic(cudaGraph_t graph) {
  size_t count = 0;
  STEPSCOPE_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  if (count > 0) STEPSCOPE_CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
  const KernelNames names;
  int64_t changed = 0, own = 0;
  for (const cudaGraphNode_t node : nodes) {
    const std::string_view name = names(node);
    own += is_own_kernel(name) ? 1 : 0;
    if (waits_by_itself(name) && make_programmatic(graph, node)) ++changed;
  }
  if (own == 0)
    throw stepscope::MachineError("graph_edges=programmatic: the driver names no kernel of the captured step as its source does");
  return changed;
}

}  // namespace mixed

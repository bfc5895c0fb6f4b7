#include "experiments/prototypes/copy_engine/work.h"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/statistics.h"

namespace copy_engine {

Work::Work(const Streams& streams, Queue main, Queue beside, bool captured)
    : streams_(streams), main_(std::move(main)), beside_(std::move(beside)) {
  if (captured) capture();
}

Work::~Work() {
  if (executable_ != nullptr) (void)cudaGraphExecDestroy(executable_);
  if (graph_ != nullptr) (void)cudaGraphDestroy(graph_);
}

// What is beside goes first: queued eagerly, it would start behind hundreds of products.
void Work::queue(bool captured) {
  const cudaStream_t main = streams_.main.get(), beside = streams_.beside.get();
  const unsigned how = captured ? cudaEventRecordExternal : cudaEventRecordDefault;
  STEPSCOPE_CUDA_CHECK(cudaEventRecordWithFlags(begin_.get(), main, how));
  fork_.order(main, beside);
  if (beside_) beside_(beside);
  STEPSCOPE_CUDA_CHECK(cudaEventRecordWithFlags(beside_end_.get(), beside, how));
  if (main_) main_(main);
  STEPSCOPE_CUDA_CHECK(cudaEventRecordWithFlags(main_end_.get(), main, how));
  join_.order(beside, main);
}

// Thread-local, as the trainers capture: NCCL's own threads may allocate meanwhile.
void Work::capture() {
  STEPSCOPE_CUDA_CHECK(cudaStreamBeginCapture(streams_.main.get(), cudaStreamCaptureModeThreadLocal));
  try {
    queue(true);
  } catch (...) {
    (void)cudaStreamEndCapture(streams_.main.get(), &graph_);
    throw;
  }
  STEPSCOPE_CUDA_CHECK(cudaStreamEndCapture(streams_.main.get(), &graph_));
  STEPSCOPE_CUDA_CHECK(cudaGraphInstantiate(&executable_, graph_, 0));
}

void Work::run() {
  if (executable_ != nullptr)
    STEPSCOPE_CUDA_CHECK(cudaGraphLaunch(executable_, streams_.main.get()));
  else
    queue(false);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  for (;;) {
    const cudaError_t status = cudaStreamQuery(streams_.main.get());
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady) STEPSCOPE_CUDA_CHECK(status);
    (void)cudaGetLastError();
    if (std::chrono::steady_clock::now() > end) throw stepscope::MachineError("what was queued has not ended after 5 s");
  }
}

Work::Times Work::times() const {
  return {gpt2::cuda::elapsed_ns(begin_, main_end_) / 1e6, gpt2::cuda::elapsed_ns(begin_, beside_end_) / 1e6};
}

Work::Times Work::time(Pair& pair, int runs) {
  std::vector<double> main, beside;
  for (int i = 0; i < runs + 2; ++i) {
    pair.meet();
    run();
    if (i < 2) continue;  // the first uploads the graph, the second brings the clock up
    main.push_back(times().main_ms);
    beside.push_back(times().beside_ms);
  }
  return {stepscope::median(std::move(main)), stepscope::median(std::move(beside))};
}

std::string Work::nodes() const {
  if (graph_ == nullptr) return "";
  size_t count = 0;
  STEPSCOPE_CUDA_CHECK(cudaGraphGetNodes(graph_, nullptr, &count));
  std::vector<cudaGraphNode_t> all(count);
  STEPSCOPE_CUDA_CHECK(cudaGraphGetNodes(graph_, all.data(), &count));
  std::map<std::string, int> kinds;
  for (cudaGraphNode_t node : all) {
    cudaGraphNodeType type{};
    if (cudaGraphNodeGetType(node, &type) != cudaSuccess) {
      (void)cudaGetLastError();
      ++kinds["unknown"];
    } else if (type == cudaGraphNodeTypeKernel) {
      ++kinds["kernels"];
    } else if (type == cudaGraphNodeTypeMemcpy) {
      ++kinds["copies"];
    } else if (type == cudaGraphNodeTypeHost) {
      ++kinds["host"];
    } else if (type != cudaGraphNodeTypeEventRecord && type != cudaGraphNodeTypeWaitEvent && type != cudaGraphNodeTypeEmpty) {
      // The runtime has no name for the driver's CU_GRAPH_NODE_TYPE_BATCH_MEM_OP.
      ++kinds[static_cast<int>(type) == 12 ? "memory operations" : fmt::format("type {}", static_cast<int>(type))];
    }
  }
  std::string text;
  for (const auto& [kind, n] : kinds) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, kind);
  return text;
}

}  // namespace copy_engine

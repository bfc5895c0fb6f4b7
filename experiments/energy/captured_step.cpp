#include "experiments/energy/captured_step.h"

#include <cuda_bf16.h>

#include <algorithm>
#include <unordered_set>

#include "base/errors.h"
#include "experiments/energy/probes.h"
#include "gpt2/cuda/check.h"
#include "gpt2/op_range.h"
#include "gpt2/ops/gpu_trainer.h"

namespace energy {
namespace {

constexpr size_t kPausesInStep = 48;
constexpr int64_t kPausesBehind = 8;

// The stream on which a GPU trainer queues its steps, which it gives to nobody but who derives from it: work that is put there while a step
// is captured, or while the trainer runs none, is no part of any step. nullptr for another trainer.
template <class S>
cudaStream_t stream_of(const gpt2::Trainer& trainer) {
  struct Opened : gpt2::ops::GpuTrainer<S> {
    static cudaStream_t of(const gpt2::ops::GpuTrainer<S>& t) { return (t.*(&Opened::stream))(); }
  };
  const auto* gpu = dynamic_cast<const gpt2::ops::GpuTrainer<S>*>(&trainer);
  return gpu == nullptr ? nullptr : Opened::of(*gpu);
}

Node id(cudaGraphNode_t node) { return node; }
cudaGraphNode_t handle(Node node) { return static_cast<cudaGraphNode_t>(const_cast<void*>(node)); }

std::vector<Node> nodes_of(cudaGraph_t graph) {
  size_t count = 0;
  STEPSCOPE_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> found(count);
  if (count > 0) STEPSCOPE_CUDA_CHECK(cudaGraphGetNodes(graph, found.data(), &count));
  std::vector<Node> nodes(count);
  std::transform(found.begin(), found.end(), nodes.begin(), id);
  return nodes;
}

// With the data of the edges, though nobody reads it: without a place for it the call refuses a graph that has programmatic edges.
cudaError_t get_edges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* data, size_t* count) {
#if CUDART_VERSION >= 13000
  return cudaGraphGetEdges(graph, from, to, data, count);
#else
  return cudaGraphGetEdges_v2(graph, from, to, data, count);
#endif
}

std::vector<Edge> edges_of(cudaGraph_t graph) {
  size_t count = 0;
  STEPSCOPE_CUDA_CHECK(get_edges(graph, nullptr, nullptr, nullptr, &count));
  std::vector<cudaGraphNode_t> from(count), to(count);
  std::vector<cudaGraphEdgeData> data(count);
  if (count > 0) STEPSCOPE_CUDA_CHECK(get_edges(graph, from.data(), to.data(), data.data(), &count));
  std::vector<Edge> edges(count);
  for (size_t i = 0; i < count; ++i) edges[i] = {id(from[i]), id(to[i])};
  return edges;
}

void add_edge(cudaGraph_t graph, cudaGraphNode_t from, cudaGraphNode_t to) {
#if CUDART_VERSION >= 13000
  STEPSCOPE_CUDA_CHECK(cudaGraphAddDependencies(graph, &from, &to, nullptr, 1));
#else
  STEPSCOPE_CUDA_CHECK(cudaGraphAddDependencies(graph, &from, &to, 1));
#endif
}

cudaGraph_t graph_being_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
#if CUDART_VERSION >= 13000
  STEPSCOPE_CUDA_CHECK(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
#else
  STEPSCOPE_CUDA_CHECK(cudaStreamGetCaptureInfo_v2(stream, &status, nullptr, &graph, nullptr, nullptr));
#endif
  return status == cudaStreamCaptureStatusActive ? graph : nullptr;
}

class ListenerScope {
 public:
  explicit ListenerScope(gpt2::RangeListener* listener) : before_(gpt2::range_listener()) { gpt2::set_range_listener(listener); }
  ~ListenerScope() { gpt2::set_range_listener(before_); }
  ListenerScope(const ListenerScope&) = delete;
  ListenerScope& operator=(const ListenerScope&) = delete;

 private:
  gpt2::RangeListener* before_;
};

cudaGraphNode_t append(cudaGraph_t graph, const std::vector<cudaGraphNode_t>& after, cudaGraph_t child) {
  cudaGraphNode_t added = nullptr;
  STEPSCOPE_CUDA_CHECK(cudaGraphAddChildGraphNode(&added, graph, after.data(), after.size(), child));
  return added;
}

cudaGraphNode_t in_clone(Node node, cudaGraph_t clone) {
  cudaGraphNode_t found = nullptr;
  STEPSCOPE_CUDA_CHECK(cudaGraphNodeFindInClone(&found, handle(node), clone));
  return found;
}

}  // namespace

Executable::Executable(cudaGraph_t graph, cudaStream_t stream) : stream_(stream) {
  STEPSCOPE_CUDA_CHECK(cudaGraphInstantiate(&graph_, graph, 0));
  STEPSCOPE_CUDA_CHECK(cudaGraphUpload(graph_, stream));
}

Executable::~Executable() {
  if (graph_ != nullptr) STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaGraphExecDestroy(graph_));
}

void Executable::launch() const { STEPSCOPE_CUDA_CHECK(cudaGraphLaunch(graph_, stream_)); }

void CapturedStep::DestroyGraph::operator()(cudaGraph_t graph) const { STEPSCOPE_CUDA_CHECK_NOEXCEPT(cudaGraphDestroy(graph)); }

CapturedStep::CapturedStep(gpt2::Trainer& trainer, const gpt2::StepPlan& plan) : stream_(stream_of<float>(trainer)) {
  if (stream_ == nullptr) stream_ = stream_of<__nv_bfloat16>(trainer);
  if (stream_ == nullptr) throw stepscope::MachineError("the steps of this trainer run on no GPU, and only a GPU's energy is counted");
  gpt2::StepPlan direct = plan;
  direct.graph_allowed = false;  // a graph launched into a capture would be one node
  NodeRanges ranges([this] { return nodes_of(graph_being_captured(stream_)); });
  // Thread-local: the meter's thread may allocate meanwhile.
  STEPSCOPE_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  cudaGraph_t captured = nullptr;
  try {
    const ListenerScope listening(&ranges);
    trainer.enqueue_step(direct);
  } catch (...) {
    if (cudaStreamEndCapture(stream_, &captured) == cudaSuccess && captured != nullptr) (void)cudaGraphDestroy(captured);
    (void)cudaGetLastError();
    throw;
  }
  STEPSCOPE_CUDA_CHECK(cudaStreamEndCapture(stream_, &captured));
  graph_.reset(captured);
  nodes_ = nodes_of(captured);
  edges_ = edges_of(captured);
  instances_ = ranges.instances();
  nodes_outside_ = nodes();
  for (const OpInstance& i : instances_) nodes_outside_ -= static_cast<int64_t>(i.nodes.size());
}

CapturedStep::~CapturedStep() = default;

CapturedStep::Graph CapturedStep::clone() const {
  cudaGraph_t copy = nullptr;
  STEPSCOPE_CUDA_CHECK(cudaGraphClone(&copy, graph_.get()));
  return Graph(copy);
}

// The step without all other nodes. A clone keeps what copying parameters would have to list: cluster sizes, attributes, programmatic edges.
CapturedStep::Graph CapturedStep::only(const std::vector<Node>& kept) const {
  Graph graph = clone();
  const std::unordered_set<Node> keep(kept.begin(), kept.end());
  for (const Edge& e : contract(edges_, kept))
    if (std::find(edges_.begin(), edges_.end(), e) == edges_.end())
      add_edge(graph.get(), in_clone(e.from, graph.get()), in_clone(e.to, graph.get()));
  // All are found before the first is destroyed.
  std::vector<cudaGraphNode_t> others;
  for (const Node n : nodes_)
    if (!keep.contains(n)) others.push_back(in_clone(n, graph.get()));
  for (const cudaGraphNode_t n : others) STEPSCOPE_CUDA_CHECK(cudaGraphDestroyNode(n));
  return graph;
}

CapturedStep::Graph CapturedStep::pause(double seconds) const {
  cudaGraph_t graph = nullptr;
  STEPSCOPE_CUDA_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  queue_spin(seconds, stream_);
  STEPSCOPE_CUDA_CHECK(cudaStreamEndCapture(stream_, &graph));
  return Graph(graph);
}

// Behind every so-manieth node of the step that another follows, before all that follow it.
void CapturedStep::insert_pauses(cudaGraph_t graph, double seconds) const {
  std::unordered_set<Node> followed;
  for (const Edge& e : edges_) followed.insert(e.from);
  const size_t every = std::max<size_t>(1, followed.size() / kPausesInStep);
  std::vector<Node> chosen;
  size_t seen = 0;
  for (const Node n : nodes_)
    if (followed.contains(n) && ++seen % every == 0) chosen.push_back(n);
  const Graph wait = pause(seconds / static_cast<double>(chosen.size()));
  for (const Node n : chosen) {
    const cudaGraphNode_t added = append(graph, {in_clone(n, graph)}, wait.get());
    for (const Edge& e : edges_)
      if (e.from == n) add_edge(graph, added, in_clone(e.to, graph));
  }
}

Executable CapturedStep::with_copies(const std::vector<Node>& launches, int64_t copies, const Pace& pace) const {
  const Graph graph = clone();
  std::vector<cudaGraphNode_t> last;
  for (const Node n : last_nodes(nodes_, edges_)) last.push_back(in_clone(n, graph.get()));
  if (pace.in_step_s > 0) insert_pauses(graph.get(), pace.in_step_s);
  Graph child, wait;
  if (copies > 0) child = only(launches);
  const int64_t pauses = pace.behind_s > 0 ? kPausesBehind : 0;
  if (pauses > 0) wait = pause(pace.behind_s / static_cast<double>(pauses));
  // Copies and pauses in turn, as evenly as their numbers allow.
  int64_t copied = 0;
  for (int64_t part = 0; part <= pauses; ++part) {
    const int64_t until = part == pauses ? copies : copies * (part + 1) / (pauses + 1);
    for (; copied < until; ++copied) last = {append(graph.get(), last, child.get())};
    if (part < pauses) last = {append(graph.get(), last, wait.get())};
  }
  return {graph.get(), stream_};
}

Executable CapturedStep::alone(const std::vector<Node>& launches, int64_t copies) const {
  cudaGraph_t empty = nullptr;
  STEPSCOPE_CUDA_CHECK(cudaGraphCreate(&empty, 0));
  const Graph graph(empty);
  const Graph child = only(launches);
  std::vector<cudaGraphNode_t> last;
  for (int64_t i = 0; i < copies; ++i) last = {append(graph.get(), last, child.get())};
  return {graph.get(), stream_};
}

}  // namespace energy

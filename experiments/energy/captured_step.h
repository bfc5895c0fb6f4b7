// One training step as a CUDA graph, and graphs made of it: the step with copies of one op's launches behind it, and those launches alone.
//
// The copies come after the step, layer by layer in the step's order, once for each copy. So every launch of the step itself still computes
// what it did, and a copy finds the caches as the op over a whole pass of the model leaves them: what a layer reads was last touched a
// whole model of layers ago, unless all layers fit into L2. A copy directly behind its launch would find all its operands in L2.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "experiments/energy/op_nodes.h"
#include "gpt2/trainer.h"

namespace energy {

// An executable graph and its stream.
class Executable {
 public:
  Executable(cudaGraph_t graph, cudaStream_t stream);  // does not keep the graph
  ~Executable();
  Executable(Executable&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)), stream_(other.stream_) {}
  Executable& operator=(Executable&&) = delete;
  void launch() const;  // queues it once
  cudaStream_t stream() const { return stream_; }

 private:
  cudaGraphExec_t graph_ = nullptr;
  cudaStream_t stream_;
};

// Pauses in which one thread waits: spread over a step and behind it, among the copies. They hold the power below the limit, so that the
// clock stays at its highest. The same pauses with and without copies cancel.
struct Pace {
  double in_step_s = 0, behind_s = 0;  // in all
  double seconds() const { return in_step_s + behind_s; }
};

class CapturedStep {
 public:
  // Captures what `trainer` queues for `plan`, every launch by itself. The trainer must have run three steps of this shape before, so that
  // it allocates nothing; it runs no further step while this lives, and must outlive it. Throws stepscope::MachineError for a
  // trainer whose steps run on no device.
  CapturedStep(gpt2::Trainer& trainer, const gpt2::StepPlan& plan);
  ~CapturedStep();
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;

  std::vector<OpGroup> groups(bool by_launch) const { return group_by_op(instances_, by_launch); }
  int64_t nodes() const { return static_cast<int64_t>(nodes_.size()); }
  int64_t nodes_outside() const { return nodes_outside_; }  // of every op's range
  cudaStream_t stream() const { return stream_; }

  Executable step(const Pace& pace = {}) const { return with_copies({}, 0, pace); }
  // The step, then `copies` times these launches.
  Executable with_copies(const std::vector<Node>& launches, int64_t copies, const Pace& pace = {}) const;
  Executable alone(const std::vector<Node>& launches, int64_t copies) const;
  const std::vector<Node>& all() const { return nodes_; }

 private:
  struct DestroyGraph {
    void operator()(cudaGraph_t graph) const;
  };
  using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;
  Graph clone() const;
  Graph only(const std::vector<Node>& kept) const;
  Graph pause(double seconds) const;
  void insert_pauses(cudaGraph_t graph, double seconds) const;

  cudaStream_t stream_;
  Graph graph_;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::vector<OpInstance> instances_;
  int64_t nodes_outside_ = 0;
};

}  // namespace energy

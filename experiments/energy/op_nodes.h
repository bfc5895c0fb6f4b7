// Which nodes of a captured step belong to which op. While a step is captured, a range listener looks at the capturing graph whenever an
// op's range begins or ends: the nodes that are new at the end are the op's. This needs no order of the nodes, so branches that fork inside
// an op and join again are found too.
#pragma once
#include <exception>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "gpt2/op_range.h"

namespace energy {

using Node = const void*;  // cudaGraphNode_t; nothing here looks inside
struct Edge {
  Node from = nullptr, to = nullptr;
  bool operator==(const Edge&) const = default;
};

// One opened range of an op: "backward/3/qkv".
struct OpInstance {
  gpt2::Pass pass = gpt2::Pass::other;
  int layer = gpt2::kNoLayer;
  gpt2::Op op = gpt2::Op::copy;
  std::vector<Node> nodes;
};

class NodeRanges final : public gpt2::RangeListener {
 public:
  // `nodes_now` lists all nodes that the graph has at the time of the call, in any order.
  explicit NodeRanges(std::function<std::vector<Node>()> nodes_now) : nodes_now_(std::move(nodes_now)) {}

  void begin_step(int64_t) override {}
  void end_step(int64_t) override {}
  // Neither throws: a range ends in a destructor. What went wrong is thrown by instances() and outside().
  void begin_op(gpt2::Pass pass, int layer, gpt2::Op op) override;
  void end_op(gpt2::Pass pass, int layer, gpt2::Op op) override;

  // In the order in which the ranges began. A node belongs to the innermost range that was open when it came. Throws std::logic_error when
  // a range ended that was not the innermost open one, and what `nodes_now` threw.
  const std::vector<OpInstance>& instances() const;
  // Nodes that came outside every range, up to the last begin of a range. Throws as instances().
  const std::vector<Node>& outside() const;

 private:
  void look();
  template <class Work>
  void guarded(const Work& work);

  std::function<std::vector<Node>()> nodes_now_;
  std::vector<OpInstance> instances_;
  std::vector<size_t> open_;
  std::vector<Node> outside_;
  std::unordered_set<Node> seen_;
  std::exception_ptr failure_;
};

// What is measured as one: an op of a pass over all layers, or one of its launches over all layers.
struct OpGroup {
  gpt2::Pass pass = gpt2::Pass::other;
  gpt2::Op op = gpt2::Op::copy;
  int launch = -1;  // from 0, in the order of the op; -1: the whole op
  int instances = 0;
  std::vector<Node> nodes;
};
// "forward/qkv", "backward/attention launch 2".
std::string name(const OpGroup& group);
// Throws stepscope::InputError for a name that name() gives to no group of any step, with the words that there are; by launch, also for an op
// without a launch. A name that passes may still be missing from the step at hand.
void require_op_names(const std::vector<std::string>& names, bool by_launch);

// In the order in which the step first comes to them. Ranges without a node are left out. By launch, the embedding still comes as a whole.
std::vector<OpGroup> group_by_op(const std::vector<OpInstance>& instances, bool by_launch);

// The order of `kept` that the whole graph implies: an edge for every path between two kept nodes that meets no other kept node. What is
// taken out of a graph this way runs in the order of the step, and what ran side by side still does.
std::vector<Edge> contract(const std::vector<Edge>& edges, const std::vector<Node>& kept);

// Those of `nodes` from which no edge leads to another.
std::vector<Node> last_nodes(const std::vector<Node>& nodes, const std::vector<Edge>& edges);

}  // namespace energy

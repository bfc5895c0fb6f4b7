#include "experiments/energy/op_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "base/errors.h"

namespace {

using energy::Edge;
using energy::Node;
using energy::NodeRanges;
using gpt2::kNoLayer;
using gpt2::Op;
using gpt2::OpRange;
using gpt2::Pass;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

Node node(int i) { return reinterpret_cast<Node>(static_cast<intptr_t>(i)); }

// A graph that is being captured: nodes appear in it while ranges are open. CUDA promises no order of its list, so it is given backwards.
struct FakeCapture {
  std::vector<Node> nodes;
  NodeRanges ranges{[this] { return std::vector<Node>(nodes.rbegin(), nodes.rend()); }};
  FakeCapture() { gpt2::set_range_listener(&ranges); }
  ~FakeCapture() { gpt2::set_range_listener(nullptr); }
  void launch(int i) { nodes.push_back(node(i)); }
};

TEST(NodeRanges, ANodeBelongsToTheRangeInWhichItCame) {
  FakeCapture capture;
  capture.launch(1);
  {
    const OpRange range(Pass::forward, 0, Op::qkv);
    capture.launch(2);
    capture.launch(3);
  }
  capture.launch(4);
  {
    const OpRange range(Pass::forward, 0, Op::attention);
    capture.launch(5);
  }
  const auto& found = capture.ranges.instances();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].op, Op::qkv);
  EXPECT_EQ(found[0].layer, 0);
  EXPECT_THAT(found[0].nodes, UnorderedElementsAre(node(2), node(3)));
  EXPECT_THAT(found[1].nodes, ElementsAre(node(5)));
  EXPECT_THAT(capture.ranges.outside(), UnorderedElementsAre(node(1), node(4)));
}

TEST(NodeRanges, TheInnermostRangeOwnsWhatCameInIt) {
  FakeCapture capture;
  {
    const OpRange outer(Pass::backward, 1, Op::qkv);
    capture.launch(1);
    {
      const OpRange inner(Pass::communication, 1, Op::copy);
      capture.launch(2);
    }
    capture.launch(3);
  }
  const auto& found = capture.ranges.instances();
  ASSERT_EQ(found.size(), 2u);
  EXPECT_THAT(found[0].nodes, ElementsAre(node(1), node(3)));
  EXPECT_THAT(found[1].nodes, ElementsAre(node(2)));
  EXPECT_THAT(capture.ranges.outside(), IsEmpty());
}

// A range ends in a destructor, where a throw would end the program: what is wrong is told afterwards.
TEST(NodeRanges, ARangeThatIsNotTheInnermostIsToldAfterwards) {
  const auto nothing = [] { return std::vector<Node>(); };
  NodeRanges never_begun(nothing);
  never_begun.end_op(Pass::forward, 0, Op::qkv);
  EXPECT_THROW(never_begun.instances(), std::logic_error);
  NodeRanges crossed(nothing);
  crossed.begin_op(Pass::forward, 0, Op::qkv);
  EXPECT_EQ(crossed.instances().size(), 1u);
  crossed.end_op(Pass::forward, 1, Op::qkv);
  crossed.end_op(Pass::forward, 0, Op::qkv);
  EXPECT_THROW(crossed.instances(), std::logic_error);
  EXPECT_THROW(crossed.outside(), std::logic_error);
  NodeRanges blind([]() -> std::vector<Node> { throw std::runtime_error("no graph"); });
  blind.begin_op(Pass::forward, 0, Op::qkv);
  EXPECT_THROW(blind.instances(), std::runtime_error);
}

std::vector<energy::OpInstance> two_layers() {
  return {{Pass::forward, 0, Op::qkv, {node(1), node(2)}},
          {Pass::forward, 0, Op::gelu, {}},
          {Pass::forward, 1, Op::qkv, {node(3), node(4)}},
          {Pass::backward, 1, Op::qkv, {node(5)}},
          {Pass::other, kNoLayer, Op::copy, {node(6)}}};
}

TEST(GroupByOp, AnOpIsAllItsLayersAndPassesAreApart) {
  const auto groups = energy::group_by_op(two_layers(), false);
  ASSERT_EQ(groups.size(), 3u);  // gelu launched nothing
  EXPECT_EQ(energy::name(groups[0]), "forward/qkv");
  EXPECT_EQ(groups[0].instances, 2);
  EXPECT_THAT(groups[0].nodes, ElementsAre(node(1), node(2), node(3), node(4)));
  EXPECT_EQ(energy::name(groups[1]), "backward/qkv");
  EXPECT_EQ(energy::name(groups[2]), "other/copy");
}

TEST(GroupByOp, ByLaunchTheFirstLaunchOfEveryLayerIsOne) {
  const auto groups = energy::group_by_op(two_layers(), true);
  ASSERT_EQ(groups.size(), 4u);
  EXPECT_EQ(energy::name(groups[0]), "forward/qkv launch 1");
  EXPECT_THAT(groups[0].nodes, ElementsAre(node(1), node(3)));
  EXPECT_EQ(groups[0].instances, 2);
  EXPECT_EQ(energy::name(groups[1]), "forward/qkv launch 2");
  EXPECT_THAT(groups[1].nodes, ElementsAre(node(2), node(4)));
}

// What an earlier launch sorted says where the later ones write: one of them alone writes anywhere (an illegal address on an H200).
TEST(GroupByOp, ByLaunchTheEmbeddingIsStillOne) {
  const auto groups = energy::group_by_op({{Pass::backward, kNoLayer, Op::embedding, {node(1), node(2), node(3)}}}, true);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(energy::name(groups[0]), "backward/embedding");
  EXPECT_THAT(groups[0].nodes, ElementsAre(node(1), node(2), node(3)));
}

// 1 -> 2 -> 3 -> 4 -> 5: keeping 2 and 4 leaves 2 before 4, though the node between them is gone.
TEST(Contract, KeepsTheOrderThroughWhatWasTakenOut) {
  const std::vector<Edge> chain{{node(1), node(2)}, {node(2), node(3)}, {node(3), node(4)}, {node(4), node(5)}};
  EXPECT_THAT(energy::contract(chain, {node(2), node(4)}), ElementsAre(Edge{node(2), node(4)}));
  EXPECT_THAT(energy::contract(chain, {node(1), node(2), node(5)}), UnorderedElementsAre(Edge{node(1), node(2)}, Edge{node(2), node(5)}));
}

// 1 -> {2, 3} -> 4 with 5 behind: what ran side by side still does, and an order that follows from another is not repeated.
TEST(Contract, BranchesStayBranches) {
  const std::vector<Edge> fork{{node(1), node(2)}, {node(1), node(3)}, {node(2), node(4)}, {node(3), node(4)}, {node(4), node(5)}};
  EXPECT_THAT(energy::contract(fork, {node(2), node(3), node(5)}), UnorderedElementsAre(Edge{node(2), node(5)}, Edge{node(3), node(5)}));
}

TEST(LastNodes, AreThoseThatNothingFollows) {
  const std::vector<Edge> fork{{node(1), node(2)}, {node(1), node(3)}};
  EXPECT_THAT(energy::last_nodes({node(1), node(2), node(3)}, fork), ElementsAre(node(2), node(3)));
  // An edge to a node that is no part of it ends nothing.
  EXPECT_THAT(energy::last_nodes({node(1), node(2)}, {{node(1), node(2)}, {node(2), node(9)}}), ElementsAre(node(2)));
}

TEST(OpNames, ThoseOfGroupsAreTakenAndOthersAreNot) {
  energy::OpGroup group;
  group.pass = Pass::backward;
  group.op = Op::attention;
  EXPECT_NO_THROW(energy::require_op_names({energy::name(group), "optimizer/adamw"}, false));
  group.launch = 1;
  EXPECT_NO_THROW(energy::require_op_names({energy::name(group)}, true));
  EXPECT_THROW(energy::require_op_names({energy::name(group)}, false), stepscope::InputError);
  for (const char* wrong : {"", "attention", "backward", "backward/", "/attention", "backward/11/attention", "attention/backward"})
    EXPECT_THROW(energy::require_op_names({wrong}, true), stepscope::InputError) << wrong;
  // No step has these, and the training before would be for nothing.
  for (const char* wrong : {"backward/attention", "backward/attention launch 0", "backward/attention launch", "backward/attention launch x",
                            "backward/attention launch 1.5", "encoder/embedding launch 1"})
    EXPECT_THROW(energy::require_op_names({wrong}, true), stepscope::InputError) << wrong;
  EXPECT_NO_THROW(energy::require_op_names({"encoder/embedding", "backward/attention launch 12"}, true));
}

}  // namespace

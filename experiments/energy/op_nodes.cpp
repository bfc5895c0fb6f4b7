#include "experiments/energy/op_nodes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "base/errors.h"
#include "base/range_words.h"

namespace energy {
namespace {

constexpr std::string_view kLaunch = " launch ";

// The kernels of the embedding's backward pass find rows by tokens that a launch before them sorted into scratch memory, which the rest of
// the step uses again: behind the step, one of them alone would follow whatever stands there.
bool launches_stand_alone(gpt2::Op op) { return op != gpt2::Op::embedding; }

// "1" and up, as name() writes it.
bool is_launch_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos && text.front() != '0';
}

}  // namespace

void NodeRanges::look() {
  std::vector<Node>& owner = open_.empty() ? outside_ : instances_[open_.back()].nodes;
  for (const Node n : nodes_now_())
    if (seen_.insert(n).second) owner.push_back(n);
}

template <class Work>
void NodeRanges::guarded(const Work& work) {
  if (failure_) return;
  try {
    work();
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void NodeRanges::begin_op(gpt2::Pass pass, int layer, gpt2::Op op) {
  guarded([&] {
    look();  // what came until now is the surrounding range's
    instances_.push_back({pass, layer, op, {}});
    open_.push_back(instances_.size() - 1);
  });
}

void NodeRanges::end_op(gpt2::Pass pass, int layer, gpt2::Op op) {
  guarded([&] {
    if (open_.empty()) throw std::logic_error("the range " + gpt2::leaf_path(pass, layer, op) + " ends and was never begun");
    const OpInstance& i = instances_[open_.back()];
    if (i.pass != pass || i.layer != layer || i.op != op)
      throw std::logic_error(
          fmt::format("the range {} ends inside {}", gpt2::leaf_path(pass, layer, op), gpt2::leaf_path(i.pass, i.layer, i.op)));
    look();
    open_.pop_back();
  });
}

const std::vector<OpInstance>& NodeRanges::instances() const {
  if (failure_) std::rethrow_exception(failure_);
  return instances_;
}

const std::vector<Node>& NodeRanges::outside() const {
  if (failure_) std::rethrow_exception(failure_);
  return outside_;
}

std::string name(const OpGroup& group) {
  std::string text = fmt::format("{}/{}", gpt2::name(group.pass), gpt2::name(group.op));
  if (group.launch >= 0) text += fmt::format("{}{}", kLaunch, group.launch + 1);
  return text;
}

void require_op_names(const std::vector<std::string>& names, bool by_launch) {
  for (const std::string& wanted : names) {
    std::string_view op = wanted;
    std::optional<std::string_view> number;
    if (const size_t launch = op.find(kLaunch); by_launch && launch != std::string_view::npos) {
      number = op.substr(launch + kLaunch.size());
      op = op.substr(0, launch);
    }
    const size_t slash = op.find('/');
    const auto pass = gpt2::pass_from_name(op.substr(0, slash));
    if (slash == std::string_view::npos || !pass)
      throw stepscope::InputError(fmt::format("--only {}: expected PASS/OP, such as backward/attention; the passes are {}", wanted,
                                              fmt::join(stepscope::kPassWords, ", ")));
    const auto known = gpt2::op_from_name(op.substr(slash + 1));
    if (!known)
      throw stepscope::InputError(fmt::format("--only {}: expected PASS/OP, such as backward/attention; the ops are {}", wanted,
                                              fmt::join(stepscope::kOpWords, ", ")));
    if (!by_launch) continue;
    if (!launches_stand_alone(*known) && number)
      throw stepscope::InputError(fmt::format("--only {}: its launches need each other; expected {}", wanted, op));
    if (launches_stand_alone(*known) && !(number && is_launch_number(*number)))
      throw stepscope::InputError(fmt::format("--only {} with --by-launch: expected a launch, such as '{}{}1'", wanted, op, kLaunch));
  }
}

std::vector<OpGroup> group_by_op(const std::vector<OpInstance>& instances, bool by_launch) {
  std::vector<OpGroup> groups;
  std::map<std::tuple<gpt2::Pass, gpt2::Op, int>, size_t> known;
  for (const OpInstance& i : instances) {
    int last = -2;
    for (size_t n = 0; n < i.nodes.size(); ++n) {
      const int launch = by_launch && launches_stand_alone(i.op) ? static_cast<int>(n) : -1;
      const auto [at, is_new] = known.try_emplace({i.pass, i.op, launch}, groups.size());
      if (is_new) groups.push_back({i.pass, i.op, launch, 0, {}});
      OpGroup& group = groups[at->second];
      group.nodes.push_back(i.nodes[n]);
      if (launch != last) ++group.instances;
      last = launch;
    }
  }
  return groups;
}

std::vector<Edge> contract(const std::vector<Edge>& edges, const std::vector<Node>& kept) {
  std::unordered_map<Node, std::vector<Node>> next;
  for (const Edge& e : edges) next[e.from].push_back(e.to);
  const std::unordered_set<Node> keep(kept.begin(), kept.end());
  std::vector<Edge> found;
  for (const Node from : kept) {
    std::unordered_set<Node> seen;
    std::vector<Node> todo{from};
    while (!todo.empty()) {
      const Node at = todo.back();
      todo.pop_back();
      const auto follows = next.find(at);
      if (follows == next.end()) continue;
      for (const Node to : follows->second) {
        if (!seen.insert(to).second) continue;
        if (keep.contains(to))
          found.push_back({from, to});
        else
          todo.push_back(to);
      }
    }
  }
  return found;
}

std::vector<Node> last_nodes(const std::vector<Node>& nodes, const std::vector<Edge>& edges) {
  const std::unordered_set<Node> all(nodes.begin(), nodes.end());
  std::unordered_set<Node> followed;
  for (const Edge& e : edges)
    if (all.contains(e.from) && all.contains(e.to)) followed.insert(e.from);
  std::vector<Node> last;
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(last), [&](Node n) { return !followed.contains(n); });
  return last;
}

}  // namespace energy

#include "profiler/ranks/collectives.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/collective_words.h"
#include "profiler/attribute/communication.h"

namespace profiler {
namespace {

std::vector<std::string> components(const std::string& path) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= path.size() && !path.empty()) {
    const size_t slash = std::min(path.find('/', begin), path.size());
    parts.push_back(path.substr(begin, slash - begin));
    begin = slash + 1;
  }
  return parts;
}

// "step/PASS/LAYER/OP/…" from its components: where "step" stands, or none.
std::optional<size_t> step_in(const std::vector<std::string>& parts) {
  const auto at = std::find(parts.begin(), parts.end(), "step");
  if (at == parts.end()) return std::nullopt;
  return static_cast<size_t>(at - parts.begin());
}

std::string pass_of(const std::string& path) {
  const auto parts = components(path);
  const auto step = step_in(parts);
  return step && *step + 1 < parts.size() ? parts[*step + 1] : "";
}

// "…/step/PASS/LAYER/OP" without the ranges inside it; a path outside of our ranges as it is.
std::string leaf_of(const std::string& path) {
  const auto parts = components(path);
  const auto step = step_in(parts);
  if (!step) return path;
  std::string leaf;
  for (size_t i = 0; i < parts.size() && i <= *step + 3; ++i) leaf += (i ? "/" : "") + parts[i];
  return leaf;
}

// What NCCL's own kernel name tells: "ncclDevKernel_AllReduce_Sum_f32_RING_LL(…)".
void take_words_of_kernel(const std::string& name, CollectiveRun& c) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kKinds{
      {{"_AllReduce", "all_reduce"}, {"_ReduceScatter", "reduce_scatter"}, {"_AllGather", "all_gather"}}};
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kTypes{
      {{"_f32", "fp32"}, {"_bf16", "bf16"}, {"_f64", "fp64"}}};
  for (const auto& [part, word] : kKinds)
    if (c.kind.empty() && name.find(part) != std::string::npos) c.kind = word;
  for (const auto& [part, word] : kTypes)
    if (c.type.empty() && name.find(part) != std::string::npos) c.type = word;
}

void take_words_of_range(const std::string& path, CollectiveRun& c) {
  const auto parts = components(path);
  const auto step = step_in(parts);
  if (!step || *step + 3 >= parts.size()) return;
  c.op = parts[*step + 3];
  for (size_t i = *step + 4; i < parts.size(); ++i) {
    const auto words = stepscope::parse_collective_range(parts[i]);
    if (!words) continue;
    c.kind = words->kind;
    c.type = words->type;
    if (words->bucket >= 0) c.bucket = words->bucket;
    c.bytes = words->bytes();
    return;
  }
}

// By which operations were launched one behind the other: nodes of a graph share the time of its launch and are numbered as captured.
auto launch_order(const LaunchRecord& l) { return std::make_tuple(l.launch_ns, l.graph_node, l.correlation, l.index, l.start_ns); }

// Where no range tells the bucket: buckets of one op are exchanged in their order.
void number_buckets(std::vector<CollectiveRun>& runs) {
  std::map<std::string, int64_t> seen;
  for (CollectiveRun& c : runs) {
    const int64_t position = seen[c.op]++;
    if (!c.bucket && !c.bytes && !c.op.empty()) c.bucket = position;
  }
}

CollectiveRun begin_run(const LaunchRecord& l) {
  CollectiveRun c;
  c.kernel = l.name;
  c.time = {l.start_ns, l.end_ns, true};
  take_words_of_range(l.path, c);
  take_words_of_kernel(l.name, c);
  return c;
}

}  // namespace

std::vector<CollectiveRun> collectives_of(const TracedStep& step) {
  std::vector<const LaunchRecord*> launches;
  std::set<std::string> with_nccl;  // leaf ranges in which a NCCL kernel does the work
  for (const TracedOperation& o : step.operations) {
    if (!o.has_time) continue;
    launches.push_back(o.record);
    if (is_communication(*o.record) && is_nccl_kernel(o.record->name)) with_nccl.insert(leaf_of(o.record->path));
  }
  std::stable_sort(launches.begin(), launches.end(),
                   [](const LaunchRecord* a, const LaunchRecord* b) { return launch_order(*a) < launch_order(*b); });
  // Of a program that says what its collectives are, a copy that it makes beside them is none: on its own rank's GPU it waits for nobody.
  const bool announced = std::any_of(launches.begin(), launches.end(), [](const LaunchRecord* l) { return is_inside_collective(*l); });
  std::vector<CollectiveRun> runs;
  const LaunchRecord* work = nullptr;      // the newest launch that is none
  const std::string* open_path = nullptr;  // of the run that a copy may still join
  for (const LaunchRecord* l : launches) {
    if (!is_communication(*l)) {
      work = l;
      open_path = nullptr;
      continue;
    }
    const bool nccl = is_nccl_kernel(l->name);
    // A kernel that casts or adds carries nothing; nor does a copy beside NCCL's kernels. Ranks that copy to each other arrive where they meet.
    if (!nccl && ((l->activity == Activity::kernel && !is_meet_kernel(l->name)) || l->activity == Activity::memset ||
                  with_nccl.contains(leaf_of(l->path)) || (announced && !is_inside_collective(*l))))
      continue;
    if (nccl || !open_path || *open_path != l->path) {
      runs.push_back(begin_run(*l));
      if (work) {
        runs.back().ready_ns = work->end_ns;
        runs.back().during = pass_of(work->path);
      }
    }
    CollectiveRun& c = runs.back();
    c.parts.push_back({l->start_ns, l->end_ns, true});
    c.time.begin_ns = std::min(c.time.begin_ns, l->start_ns);
    c.time.end_ns = std::max(c.time.end_ns, l->end_ns);
    open_path = nccl ? nullptr : &l->path;
  }
  number_buckets(runs);
  return runs;
}

double bus_factor(const std::string& kind, int64_t ranks) {
  const auto n = static_cast<double>(ranks);
  if (kind == "all_reduce") return 2 * (n - 1) / n;
  if (kind == "reduce_scatter" || kind == "all_gather" || kind == "all_gather_in_place") return (n - 1) / n;
  return 0;
}

}  // namespace profiler

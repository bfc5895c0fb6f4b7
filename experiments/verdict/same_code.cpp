#include "experiments/verdict/same_code.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "profiler/records/names.h"

namespace experiments {

namespace {

bool holds_host_ranges(const profiler::ProfileDocument& d) {
  return std::any_of(d.launches.begin(), d.launches.end(),
                     [](const profiler::LaunchRow& l) { return l.activity == profiler::name(profiler::Activity::cpu_op); });
}

}  // namespace

SameCode same_code(const profiler::ProfileDocument& a, const profiler::ProfileDocument& b, const std::string& a_program,
                   const std::string& b_program) {
  if (a_program.empty() || a_program != b_program) return {false, "the arms are different program files"};
  if (a.launches.empty() || b.launches.empty()) return {false, "no launches were traced"};
  if (holds_host_ranges(a) || holds_host_ranges(b))
    return {false, "the launches are ranges of the host, which do not say what runs in them"};
  if (a.launches.size() != b.launches.size())
    return {false, fmt::format("{} launches a step in A, {} in B", a.launches.size(), b.launches.size())};
  for (size_t i = 0; i < a.launches.size(); ++i) {
    const profiler::LaunchRow &x = a.launches[i], &y = b.launches[i];
    if (x.name != y.name) return {false, fmt::format("launch {}: {} in A, {} in B", i, x.name, y.name)};
    if (x.grid != y.grid || x.block != y.block || x.registers != y.registers || x.shared_bytes != y.shared_bytes || x.stream != y.stream ||
        x.path != y.path || x.activity != y.activity || x.bytes != y.bytes ||
        x.graph_node.has_value() != y.graph_node.has_value())  // the same kernels from a graph are another way to launch
      return {false, fmt::format("launch {}, {}: another grid, block, resource, stream, range or way of launching", i, x.name)};
  }
  return {true, fmt::format("one program file, {} identical launches a step", a.launches.size())};
}

}  // namespace experiments

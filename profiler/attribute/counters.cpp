#include "profiler/attribute/counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace profiler {
namespace {

using K = KernelCounters;
const std::array<CounterQuantity, 12> kQuantities = {{
    {"dram_read_bytes", &K::dram_read_bytes, {"dram__bytes_read.sum", "dram__bytes_op_read.sum"}, true},
    {"dram_write_bytes", &K::dram_write_bytes, {"dram__bytes_write.sum", "dram__bytes_op_write.sum"}, true},
    {"l2_bytes", &K::l2_bytes, {"lts__t_bytes.sum"}, true},
    {"instructions", &K::instructions, {"sm__inst_executed.sum", "smsp__inst_executed.sum"}, true},
    {"fma_instructions", &K::fma_instructions, {"sm__inst_executed_pipe_fma.sum"}, true},
    {"tensor_active_pct",
     &K::tensor_active_pct,
     {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"},
     false},
    {"tensor_while_busy_pct",
     &K::tensor_while_busy_pct,
     {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"},
     false},
    {"occupancy_pct", &K::occupancy_pct, {"sm__warps_active.avg.pct_of_peak_sustained_active"}, false},
    {"sm_cycles",
     &K::sm_cycles,
     {"sm__cycles_elapsed.max", "sm__cycles_elapsed.avg", "gpc__cycles_elapsed.max"},
     true},
    {"sm_active_cycles", &K::sm_active_cycles, {"sm__cycles_active.avg"}, true},
    {"sm_clock_hz", &K::sm_clock_hz, {"gpc__cycles_elapsed.avg.per_second"}, false},
    {"counted_time_ns", &K::counted_time_ns, {"gpu__time_duration.sum"}, true},
}};

using Values = std::vector<double>;

// Column of each metric in a set.
KernelCounters by_meaning(const std::vector<std::string>& metrics, const Values& values) {
  KernelCounters c;
  for (const CounterQuantity& q : kQuantities)
    for (const std::string_view metric : q.metrics) {
      const auto at = std::find(metrics.begin(), metrics.end(), metric);
      if (at == metrics.end()) continue;
      c.*q.member = values[static_cast<size_t>(at - metrics.begin())];
      break;
    }
  return c;
}

// Sets do not overlap in meaning unless a metric was asked for twice; the first set that has a quantity keeps
// it.
void fill_absent(KernelCounters& into, const KernelCounters& from) {
  for (const CounterQuantity& q : kQuantities)
    if (!(into.*q.member)) into.*q.member = from.*q.member;
}

double median(Values v) {
  std::sort(v.begin(), v.end());
  const size_t n = v.size();
  return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

// The sets that may be used: name -> metrics.
std::map<std::string, std::vector<std::string>> usable_sets(const Recording& r,
                                                            std::vector<MissingRecord>& missing) {
  std::map<std::string, std::vector<std::string>> sets;
  std::set<std::string> failed;
  const auto fail = [&](const std::string& set, const std::string& why) {
    if (failed.insert(set).second)
      missing.push_back({"counter_set_failed", 1, fmt::format("set '{}': {}", set, why)});
  };
  for (const CounterSet& s : r.counter_sets) {
    const auto [at, is_new] = sets.emplace(s.name, s.metrics);
    if (s.launches != s.ranges) fail(s.name, fmt::format("{} ranges for {} launches", s.ranges, s.launches));
    if (!is_new && at->second != s.metrics) fail(s.name, "two sessions with different metrics");
  }
  for (const CounterRecord& c : r.counters) {
    const auto at = sets.find(c.set);
    if (at == sets.end())
      fail(c.set, "counters without a counter_set line");
    else if (at->second.size() != c.values.size())
      fail(c.set, fmt::format("{} values for {} metrics", c.values.size(), at->second.size()));
  }
  // A collector that threw a set away has said so itself, with its own reason.
  for (const std::string& name : failed) sets.erase(name);
  return sets;
}

// A grid may depend on the step's data (one block per distinct token, say). More than this share of the kernels with
// another grid is another workload.
constexpr double kDataDependentGrids = 0.05;

struct Difference {
  std::string why_not;           // the counted step is not the traced one; "" = it is
  std::set<int64_t> other_grid;  // kernels that are the same but for their grid
  std::string first_other_grid;
};

Difference difference(const std::map<int64_t, const CounterRecord*>& counted,
                      const std::vector<const LaunchRecord*>& kernels, bool prefix_is_enough) {
  if (counted.size() != kernels.size() && !(prefix_is_enough && counted.size() < kernels.size()))
    return {fmt::format("{} kernels counted, {} traced", counted.size(), kernels.size()), {}, ""};
  Difference d;
  for (const auto& [index, c] : counted) {
    if (index >= static_cast<int64_t>(kernels.size()))
      return {fmt::format("kernel {} was never traced", index), {}, ""};
    const LaunchRecord& k = *kernels[static_cast<size_t>(index)];
    if (c->kernel != k.name)
      return {fmt::format("kernel {}: counted '{}', traced '{}'", index, c->kernel, k.name), {}, ""};
    if (c->path != k.path)
      return {fmt::format("kernel {} '{}': counted in '{}', traced in '{}'", index, k.name, c->path, k.path), {}, ""};
    if (c->grid == k.grid) continue;
    if (d.other_grid.empty())
      d.first_other_grid = fmt::format("kernel {} '{}': counted with grid {}x{}x{}, traced with {}x{}x{}", index, k.name,
                                       c->grid[0], c->grid[1], c->grid[2], k.grid[0], k.grid[1], k.grid[2]);
    d.other_grid.insert(index);
  }
  if (static_cast<double>(d.other_grid.size()) > kDataDependentGrids * static_cast<double>(counted.size()))
    d.why_not = fmt::format("{} of {} kernels have another grid; {}", d.other_grid.size(), counted.size(), d.first_other_grid);
  return d;
}

}  // namespace

std::span<const CounterQuantity> counter_quantities() { return kQuantities; }

MergedCounters merge_counters(const Recording& r, const std::vector<const LaunchRecord*>& kernels) {
  MergedCounters merged;
  const auto sets = usable_sets(r, merged.missing);
  // A program that launched more kernels than are kept was cut at the same limit in both runs, up to launches
  // in flight; a foreign report may hold a metric for some of its kernels only.
  const bool cut = std::any_of(r.missing.begin(), r.missing.end(), [](const MissingRecord& m) {
    return m.name == "launches_not_kept" || m.name == "metrics_not_in_report";
  });

  std::map<std::pair<std::string, int64_t>, std::map<int64_t, const CounterRecord*>>
      sessions;  // (set, step) -> index
  std::map<std::pair<std::string, std::string>, std::vector<const CounterRecord*>> passes;  // (set, pass)
  for (const CounterRecord& c : r.counters) {
    if (!sets.contains(c.set)) continue;
    if (c.index >= 0)
      sessions[{c.set, c.step}][c.index] = &c;
    else if (!c.pass.empty())
      passes[{c.set, c.pass}].push_back(&c);
  }

  std::set<int64_t> steps;
  std::map<std::string, std::vector<std::vector<const CounterRecord*>>>
      good;  // set -> [kernel] -> one per step
  for (const auto& [key, counted] : sessions) {
    const Difference d = difference(counted, kernels, cut);
    if (!d.why_not.empty()) {
      merged.missing.push_back({"counter_sequence_mismatch", 1,
                                fmt::format("set '{}', step {}: {}", key.first, key.second, d.why_not)});
      continue;
    }
    if (!d.other_grid.empty())
      merged.missing.push_back({"counter_grid_differs", static_cast<int64_t>(d.other_grid.size()),
                                fmt::format("set '{}', step {}: {}", key.first, key.second, d.first_other_grid)});
    auto& rows = good[key.first];
    rows.resize(kernels.size());
    for (const auto& [index, c] : counted)
      if (!d.other_grid.contains(index)) rows[static_cast<size_t>(index)].push_back(c);
    steps.insert(key.second);
  }
  merged.counted_steps = static_cast<int64_t>(steps.size());

  const auto middle = [](const std::vector<const CounterRecord*>& records) {
    Values values(records.front()->values.size());
    for (size_t m = 0; m < values.size(); ++m) {
      Values over_steps;
      for (const CounterRecord* c : records) over_steps.push_back(c->values[m]);
      values[m] = median(std::move(over_steps));
    }
    return values;
  };
  for (const auto& [set, rows] : good) {
    merged.per_kernel.resize(kernels.size());
    for (size_t i = 0; i < rows.size(); ++i)
      if (!rows[i].empty()) fill_absent(merged.per_kernel[i], by_meaning(sets.at(set), middle(rows[i])));
  }
  for (const auto& [key, records] : passes) {
    const std::string& pass = key.second;  // clang 14 cannot capture a structured binding
    auto at = std::find_if(merged.per_pass.begin(), merged.per_pass.end(),
                           [&](const PassCounters& p) { return p.pass == pass; });
    if (at == merged.per_pass.end()) at = merged.per_pass.insert(at, {pass, {}});
    fill_absent(at->counters, by_meaning(sets.at(key.first), middle(records)));
  }
  return merged;
}

}  // namespace profiler

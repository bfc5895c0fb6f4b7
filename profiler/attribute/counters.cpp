#include "profiler/attribute/counters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/statistics.h"
#include "profiler/attribute/communication.h"

namespace profiler {
namespace {

using K = KernelCounters;
using Of = TensorMetric::Of;

constexpr std::string_view kMatrixOnly = "matrix products only";
constexpr std::string_view kHalfOnly = "fp16, bf16 and tf32 only";
constexpr std::array<TensorMetric, kTensorMetrics> kTensorMetricList = {{
    {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", Of::all_cycles, ""},
    {"sm__pipe_tensor_cycles_active.sum.pct_of_peak_sustained_elapsed", Of::all_cycles, ""},
    {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", Of::active_cycles, ""},
    {"sm__pipe_tensor_cycles_active.sum.pct_of_peak_sustained_active", Of::active_cycles, ""},
    // GH100's name for the tensor pipe without its packed half-precision FMAs.
    {"sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active.avg.pct_of_peak_sustained_"
     "elapsed",
     Of::all_cycles, kMatrixOnly},
    {"sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active.avg.pct_of_peak_sustained_"
     "active",
     Of::active_cycles, kMatrixOnly},
    {"sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_elapsed", Of::all_cycles, kHalfOnly},
    {"sm__pipe_tensor_op_hmma_cycles_active.sum.pct_of_peak_sustained_elapsed", Of::all_cycles, kHalfOnly},
    {"sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active", Of::active_cycles, kHalfOnly},
    {"sm__pipe_tensor_op_hmma_cycles_active.sum.pct_of_peak_sustained_active", Of::active_cycles, kHalfOnly},
    {"sm__pipe_tensor_subpipe_hmma_cycles_active.avg.pct_of_peak_sustained_elapsed", Of::all_cycles, kHalfOnly},
    {"sm__pipe_tensor_subpipe_hmma_cycles_active.avg.pct_of_peak_sustained_active", Of::active_cycles, kHalfOnly},
    {"sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed", Of::all_cycles, "instructions issued, not cycles", false},
    {"sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active", Of::active_cycles, "instructions issued, not cycles", false},
    {"sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_elapsed", Of::all_cycles,
     "fp16, bf16 and tf32 instructions issued, not cycles", false},
    {"sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active", Of::active_cycles,
     "fp16, bf16 and tf32 instructions issued, not cycles", false},
}};

const std::array<CounterQuantity, 13> kQuantities = {{
    {"dram_read_bytes", &K::dram_read_bytes, {"dram__bytes_read.sum", "dram__bytes_op_read.sum"}, true},
    {"dram_write_bytes", &K::dram_write_bytes, {"dram__bytes_write.sum", "dram__bytes_op_write.sum"}, true},
    {"l2_bytes", &K::l2_bytes, {"lts__t_bytes.sum"}, true},
    {"instructions", &K::instructions, {"sm__inst_executed.sum", "smsp__inst_executed.sum"}, true},
    {"fma_instructions", &K::fma_instructions, {"sm__inst_executed_pipe_fma.sum"}, true},
    {"tensor_active_pct", &K::tensor_active_pct, {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"}, false},
    {"tensor_instructions",
     &K::tensor_instructions,
     {"sm__inst_executed_pipe_tensor.sum", "smsp__inst_executed_pipe_tensor.sum", "sm__inst_executed_pipe_tensor_op_hmma.sum",
      "smsp__inst_executed_pipe_tensor_op_hmma.sum", "sm__inst_executed_pipe_tensor_op_gmma.sum"},
     true,
     false},
    {"tensor_while_busy_pct", &K::tensor_while_busy_pct, {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"}, false},
    {"occupancy_pct", &K::occupancy_pct, {"sm__warps_active.avg.pct_of_peak_sustained_active"}, false},
    {"sm_cycles", &K::sm_cycles, {"sm__cycles_elapsed.max", "sm__cycles_elapsed.avg", "gpc__cycles_elapsed.max"}, true},
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
  for (size_t i = 0; i < kTensorMetrics; ++i)
    if (const auto at = std::find(metrics.begin(), metrics.end(), kTensorMetricList[i].metric); at != metrics.end())
      c.tensor_by_metric[i] = values[static_cast<size_t>(at - metrics.begin())];
  for (size_t m = 0; m < metrics.size(); ++m) c.all.emplace(metrics[m], values[m]);
  return c;
}

// Sets do not overlap in meaning unless a metric was asked for twice; the first set that has a quantity keeps
// it.
void fill_absent(KernelCounters& into, const KernelCounters& from) {
  for (const CounterQuantity& q : kQuantities)
    if (!(into.*q.member)) into.*q.member = from.*q.member;
  for (size_t i = 0; i < kTensorMetrics; ++i)
    if (!into.tensor_by_metric[i]) into.tensor_by_metric[i] = from.tensor_by_metric[i];
  into.all.insert(from.all.begin(), from.all.end());
}

// ---- tensor-core use: which of its metrics

// A way to fill tensor_active_pct.
struct TensorWay {
  size_t metric;
  bool converted;  // of active cycles, brought to all cycles

  std::optional<double> of(const KernelCounters& k) const {
    const std::optional<double>& v = k.tensor_by_metric[metric];
    if (!v || !converted) return v;
    if (!k.sm_active_cycles || !k.sm_cycles || !(*k.sm_cycles > 0)) return std::nullopt;
    return *v * *k.sm_active_cycles / *k.sm_cycles;
  }
  K::TensorIs is() const {
    const TensorMetric& m = kTensorMetricList[metric];
    if (!m.cycles) return K::TensorIs::instructions;
    return m.of == Of::active_cycles && !converted ? K::TensorIs::active_cycles : K::TensorIs::all_cycles;
  }
};

// Cycles before instructions; of all cycles, or brought to them, before a share of active ones; then the
// order of the list.
std::vector<TensorWay> tensor_ways() {
  std::vector<TensorWay> ways;
  for (const bool cycles : {true, false})
    for (const bool as_active : {false, true})
      for (size_t i = 0; i < kTensorMetrics; ++i) {
        const TensorMetric& m = kTensorMetricList[i];
        if (m.cycles != cycles) continue;
        if (!as_active) ways.push_back({i, m.of == Of::active_cycles});
        if (as_active && m.of == Of::active_cycles) ways.push_back({i, false});
      }
  return ways;
}

// The best that at least half of the kernels with any have; a few kernels without it do not turn the whole
// column into another quantity.
std::optional<TensorWay> best_way(const std::vector<KernelCounters>& kernels) {
  const auto has_any = [](const KernelCounters& k) {
    return std::any_of(k.tensor_by_metric.begin(), k.tensor_by_metric.end(), [](const auto& v) { return v.has_value(); });
  };
  const auto all = std::count_if(kernels.begin(), kernels.end(), has_any);
  std::optional<TensorWay> any;
  for (const TensorWay& way : tensor_ways()) {
    const auto with = std::count_if(kernels.begin(), kernels.end(), [&](const KernelCounters& k) { return way.of(k).has_value(); });
    if (with > 0 && 2 * with >= all) return way;
    if (with > 0 && !any) any = way;
  }
  return any;
}

// The first metric of a quantity that the recording has.
std::string metric_used(const std::map<std::string, std::vector<std::string>>& sets, std::optional<double> K::*member) {
  for (const CounterQuantity& q : kQuantities) {
    if (q.member != member) continue;
    for (const std::string_view metric : q.metrics)
      for (const auto& [name, metrics] : sets)
        if (std::find(metrics.begin(), metrics.end(), metric) != metrics.end()) return std::string(metric);
  }
  return "";
}

void choose_tensor_metric(MergedCounters& merged, const std::map<std::string, std::vector<std::string>>& sets) {
  const auto way = best_way(merged.per_kernel);
  const auto fill = [&](KernelCounters& k) {
    k.tensor_active_pct = way ? way->of(k) : std::nullopt;
    if (way) k.tensor_is = way->is();
  };
  for (KernelCounters& k : merged.per_kernel) fill(k);
  for (PassCounters& p : merged.per_pass) fill(p.counters);
  double instructions = 0;
  bool counted = false;
  for (const KernelCounters& k : merged.per_kernel) {
    instructions += k.tensor_instructions.value_or(0);
    counted = counted || k.tensor_instructions;
  }
  if (counted) merged.tensor_instructions_metric = metric_used(sets, &K::tensor_instructions);
  if (!way) {
    if (counted)
      merged.missing.push_back({"tensor_use_other_metric", 1,
                                fmt::format("{}: {:.0f} instructions in all; no share of time follows from a count",
                                            *merged.tensor_instructions_metric, instructions)});
    return;
  }
  const TensorMetric& m = kTensorMetricList[way->metric];
  merged.tensor_metric = std::string(m.metric);
  if (way->converted)
    *merged.tensor_metric += fmt::format(" x {} / {}", metric_used(sets, &K::sm_active_cycles), metric_used(sets, &K::sm_cycles));
  std::string is(m.lacks);
  if (way->is() == K::TensorIs::active_cycles || (!m.cycles && m.of == Of::active_cycles && !way->converted))
    is += fmt::format("{}share of the cycles in which the SM had warps, not of all", is.empty() ? "" : "; ");
  if (!is.empty())
    merged.missing.push_back({"tensor_use_other_metric", 1, fmt::format("{}: {}", *merged.tensor_metric, is)});
  else if (way->converted)
    merged.missing.push_back({"tensor_use_converted", 1, *merged.tensor_metric});
}

// The sets that may be used: name -> metrics.
std::map<std::string, std::vector<std::string>> usable_sets(const Recording& r, std::vector<MissingRecord>& missing) {
  std::map<std::string, std::vector<std::string>> sets;
  std::set<std::string> failed;
  const auto fail = [&](const std::string& set, const std::string& why) {
    if (failed.insert(set).second) missing.push_back({"counter_set_failed", 1, fmt::format("set '{}': {}", set, why)});
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

// `of_step`: how many kernels of the step all sets together have.
Difference difference(const std::map<int64_t, const CounterRecord*>& counted, const std::vector<const LaunchRecord*>& kernels,
                      bool prefix_is_enough, size_t of_step) {
  if (counted.size() != kernels.size() && !(prefix_is_enough && counted.size() < kernels.size()))
    return {fmt::format("{} kernels counted, {} traced", counted.size(), kernels.size()), {}, ""};
  Difference d;
  for (const auto& [index, c] : counted) {
    if (index >= static_cast<int64_t>(kernels.size())) return {fmt::format("kernel {} was never traced", index), {}, ""};
    const LaunchRecord& k = *kernels[static_cast<size_t>(index)];
    if (c->kernel != k.name) return {fmt::format("kernel {}: counted '{}', traced '{}'", index, c->kernel, k.name), {}, ""};
    if (c->path != k.path) return {fmt::format("kernel {} '{}': counted in '{}', traced in '{}'", index, k.name, c->path, k.path), {}, ""};
    if (c->grid == k.grid) continue;
    if (d.other_grid.empty())
      d.first_other_grid = fmt::format("kernel {} '{}': counted with grid {}x{}x{}, traced with {}x{}x{}", index, k.name, c->grid[0],
                                       c->grid[1], c->grid[2], k.grid[0], k.grid[1], k.grid[2]);
    d.other_grid.insert(index);
  }
  if (static_cast<double>(d.other_grid.size()) > kDataDependentGrids * static_cast<double>(of_step))
    d.why_not = fmt::format("{} of {} kernels have another grid; {}", d.other_grid.size(), of_step, d.first_other_grid);
  return d;
}

}  // namespace

std::span<const CounterQuantity> counter_quantities() { return kQuantities; }
std::span<const TensorMetric> tensor_metrics() { return kTensorMetricList; }

MergedCounters merge_counters(const Recording& r, const std::vector<const LaunchRecord*>& kernels) {
  MergedCounters merged;
  const auto sets = usable_sets(r, merged.missing);
  const auto said = [&](std::string_view name) {
    return std::any_of(r.missing.begin(), r.missing.end(), [&](const MissingRecord& m) { return m.name == name; });
  };
  // A program that launched more kernels than are kept was cut at the same limit in both runs, up to launches in flight. Counters of an ncu
  // report come with the very launches that they are merged into, so that a metric of some kernels only is no other step.
  const bool cut = said("launches_not_kept") || r.session.producer == "ncu";
  // A program without steps is counted in sessions of some launches: those that failed, and kernels of graphs, which stand behind all others,
  // have no counters. A step is counted whole or not at all.
  const bool cut_without_steps = said("counter_set_failed") || said("graph_launch_in_counter_run");

  std::map<std::pair<std::string, int64_t>, std::map<int64_t, const CounterRecord*>> sessions;  // (set, step) -> index
  std::map<std::pair<std::string, std::string>, std::vector<const CounterRecord*>> passes;      // (set, pass)
  for (const CounterRecord& c : r.counters) {
    if (!sets.contains(c.set)) continue;
    if (c.index >= 0)
      sessions[{c.set, c.step}][c.index] = &c;
    else if (!c.pass.empty())
      passes[{c.set, c.pass}].push_back(&c);
  }

  // Ranks exchange nothing while they are counted, so the counted step has no kernel that does.
  std::vector<const LaunchRecord*> comparable;
  std::vector<size_t> position;  // of each among `kernels`
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (r.rank && is_inside_collective(*kernels[i])) continue;
    comparable.push_back(kernels[i]);
    position.push_back(i);
  }

  // Kernels for which a metric has no value are in sets of their own: a step is whole where its sets together have all kernels.
  std::map<int64_t, std::set<int64_t>> counted_in;
  for (const auto& [key, counted] : sessions)
    for (const auto& [index, c] : counted) counted_in[key.second].insert(index);

  std::set<int64_t> steps;
  std::map<std::string, std::vector<std::vector<const CounterRecord*>>> good;  // set -> [kernel] -> one per step
  for (const auto& [key, counted] : sessions) {
    const size_t of_step = counted_in.at(key.second).size();
    const bool whole = of_step == comparable.size();
    const Difference d = difference(counted, comparable, whole || cut || (key.second < 0 && cut_without_steps), of_step);
    if (!d.why_not.empty()) {
      merged.missing.push_back({"counter_sequence_mismatch", 1, fmt::format("set '{}', step {}: {}", key.first, key.second, d.why_not)});
      continue;
    }
    if (!d.other_grid.empty())
      merged.missing.push_back({"counter_grid_differs", static_cast<int64_t>(d.other_grid.size()),
                                fmt::format("set '{}', step {}: {}", key.first, key.second, d.first_other_grid)});
    auto& rows = good[key.first];
    rows.resize(kernels.size());
    for (const auto& [index, c] : counted)
      if (!d.other_grid.contains(index)) rows[position[static_cast<size_t>(index)]].push_back(c);
    steps.insert(key.second);
  }
  merged.counted_steps = static_cast<int64_t>(steps.size());

  const auto middle = [](const std::vector<const CounterRecord*>& records) {
    Values values(records.front()->values.size());
    for (size_t m = 0; m < values.size(); ++m) {
      Values over_steps;
      for (const CounterRecord* c : records) over_steps.push_back(c->values[m]);
      values[m] = stepscope::median(std::move(over_steps));
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
    auto at = std::find_if(merged.per_pass.begin(), merged.per_pass.end(), [&](const PassCounters& p) { return p.pass == pass; });
    if (at == merged.per_pass.end()) at = merged.per_pass.insert(at, {pass, {}});
    fill_absent(at->counters, by_meaning(sets.at(key.first), middle(records)));
  }
  choose_tensor_metric(merged, sets);
  return merged;
}

}  // namespace profiler

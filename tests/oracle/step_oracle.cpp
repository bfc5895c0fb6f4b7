#include "tests/oracle/step_oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "profiler/document/json.h"

namespace oracle {

using namespace profiler;

void expect_near(const std::string& what, const Maybe& expected, const Maybe& found) {
  ASSERT_EQ(expected.has_value(), found.has_value())
      << what << ": expected " << expected.value_or(NAN) << ", found " << found.value_or(NAN);
  if (!expected) return;
  EXPECT_NEAR(*expected, *found, 1e-6 + 1e-9 * std::fabs(*expected)) << what;
}

void expect_readable(const ProfileDocument& d) {
  const std::string text = to_json(d);
  try {
    EXPECT_EQ(to_json(profile_from_json(text, "document")), text);
  } catch (const std::exception& refused) {
    ADD_FAILURE() << refused.what();
  }
}

Maybe quantile(std::vector<double> v, double part) {
  if (v.empty()) return std::nullopt;
  std::sort(v.begin(), v.end());
  const double at = part * static_cast<double>(v.size() - 1);
  const auto below = static_cast<size_t>(std::floor(at)), above = static_cast<size_t>(std::ceil(at));
  return v[below] + (at - std::floor(at)) * (v[above] - v[below]);
}
Maybe median(const std::vector<double>& values) { return quantile(values, 0.5); }

Swept sweep(const std::vector<Stretch>& stretches, double begin_ns, double end_ns) {
  Swept s;
  s.window_ns = end_ns - begin_ns;
  s.share_ns.assign(stretches.size(), 0);
  s.hidden_ns.assign(stretches.size(), 0);
  std::set<double> times = {begin_ns, end_ns};
  for (const Stretch& x : stretches) times.insert({x.begin_ns, x.end_ns});
  double idle_since = NAN;
  for (auto from = times.begin(); std::next(from) != times.end(); ++from) {
    const double to = *std::next(from), length = to - *from;
    std::vector<size_t> work, communication;
    for (size_t i = 0; i < stretches.size(); ++i)
      if (stretches[i].begin_ns <= *from && stretches[i].end_ns >= to) (stretches[i].communication ? communication : work).push_back(i);
    for (const size_t i : work) s.share_ns[i] += length / static_cast<double>(work.size());
    for (const size_t i : communication) (work.empty() ? s.share_ns : s.hidden_ns)[i] += length / static_cast<double>(communication.size());
    if (!work.empty()) s.work_ns += length;
    if (work.empty() && !communication.empty()) s.exposed_ns += length;
    if (!work.empty() && !communication.empty()) s.hidden_all_ns += length;
    if (work.size() + communication.size() > 1) s.overlap_ns += length;
    if (!work.empty() || !communication.empty()) {
      s.busy_ns += length;
      continue;
    }
    s.idle_ns += length;
    if (std::isnan(idle_since)) idle_since = *from;
    const bool ends = std::any_of(stretches.begin(), stretches.end(), [&](const Stretch& x) { return x.begin_ns == to; }) || to == end_ns;
    if (!ends) continue;
    s.gaps_ns.push_back(to - idle_since);
    idle_since = NAN;
  }
  return s;
}

namespace {

const std::vector<std::string> kPasses = {"encoder", "forward", "classifier", "backward", "optimizer", "communication", "other"};

std::optional<Place> place_of(const std::string& path) {
  std::vector<std::string> words = {""};
  for (const char c : path)
    if (c == '/')
      words.emplace_back();
    else
      words.back() += c;
  const auto step = std::find(words.begin(), words.end(), "step");
  if (words.end() - step < 4) return std::nullopt;
  if (std::find(kPasses.begin(), kPasses.end(), step[1]) == kPasses.end()) return std::nullopt;
  return Place{step[1], step[2], step[3]};
}

// Time at the ceiling of this mix: linear between all read, half written and all written.
Maybe traffic_ns(const Ceilings& c, double read, double written) {
  const double share = read + written > 0 ? written / (read + written) : 0.5;
  const double copy = *c.copy_bytes_per_s;
  const double ceiling = share < 0.5 ? *c.read_bytes_per_s * (1 - 2 * share) + copy * 2 * share
                                     : copy * (2 - 2 * share) + *c.write_bytes_per_s * (2 * share - 1);
  return (read + written) * 1e9 / ceiling;
}

bool is_kernel(const Operation& o) { return o.record->activity == Activity::kernel; }

Maybe counter(const Operation& o, const std::string& metric) {
  const auto at = o.counters.find(metric);
  return at == o.counters.end() ? Maybe() : Maybe(at->second);
}

const char* const kRead = "dram__bytes_read.sum";
const char* const kWritten = "dram__bytes_write.sum";
const char* const kTensor = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed";
const char* const kTensorBusy = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active";
const char* const kCycles = "sm__cycles_elapsed.max";
const char* const kActive = "sm__cycles_active.avg";
const char* const kWarps = "sm__warps_active.avg.pct_of_peak_sustained_active";
const char* const kClock = "gpc__cycles_elapsed.avg.per_second";
const char* const kTime = "gpu__time_duration.sum";
const char* const kFma = "sm__inst_executed_pipe_fma.sum";

void add_floor(Operation& o, const Recording& r, const std::optional<RunInfo>& run, const Ceilings& c) {
  const LaunchRecord& l = *o.record;
  const auto bytes = static_cast<double>(l.bytes);
  if (l.activity == Activity::memset) o.dram_ns = traffic_ns(c, 0, bytes);
  if (l.activity == Activity::copy && l.name == "copy DtoD") o.dram_ns = traffic_ns(c, bytes, bytes);
  if (is_kernel(o) && counter(o, kRead)) o.dram_ns = traffic_ns(c, *counter(o, kRead), *counter(o, kWritten));
  bool tensor_unknown = false;
  if (is_kernel(o)) {
    const bool tf32 = run && run->matmul == "tf32";
    const double per_cycle = r.session.device.at("chip") == "GH100" ? (tf32 ? 2048 : 4096) : NAN;
    const Maybe pct = counter(o, kTensor);
    if (pct && *pct < 2)
      o.tensor_ns = 0;
    else if (pct && !std::isnan(per_cycle))
      o.tensor_ns = *pct / 100 * *counter(o, kCycles) * 100 * per_cycle / c.matmul_flops_per_s.at(tf32 ? "tf32" : "bf16") * 1e9;
    tensor_unknown = !o.tensor_ns;
    if (counter(o, kFma)) o.fma_ns = *counter(o, kFma) * 32 * 2 / c.matmul_flops_per_s.at("fp32") * 1e9;
  }
  if (o.dram_ns && !tensor_unknown) {
    o.floor_ns = std::max({*o.dram_ns, o.tensor_ns.value_or(0), o.fma_ns.value_or(0)});
    o.headroom_ns = std::max(0.0, o.duration_ns - *o.floor_ns) * o.time_ns / o.duration_ns;  // of the step's time, as time_ns is
  }
  if (!o.dram_ns) return;
  if (*o.dram_ns >= 0.6 * o.duration_ns && *o.dram_ns >= o.tensor_ns.value_or(0))
    o.bound = "memory";
  else if (o.tensor_ns.value_or(0) >= 0.6 * o.duration_ns)
    o.bound = "tensor";
  else if (!tensor_unknown)
    o.bound = o.duration_ns < 5000 || (is_kernel(o) && l.grid[0] * l.grid[1] * l.grid[2] < 100) ? "latency" : "neither";
}

void add_counters(Step& s, const Recording& r) {
  std::vector<Operation*> kernels;  // in launch order, without those that counted steps leave out
  for (Operation& o : s.operations)
    if (is_kernel(o) && !(r.rank && !collective_words(o.record->path).empty())) kernels.push_back(&o);
  std::sort(kernels.begin(), kernels.end(), [](const Operation* a, const Operation* b) { return a->record->index < b->record->index; });
  for (size_t k = 0; k < kernels.size(); ++k)
    for (const CounterSet& set : r.counter_sets)
      for (size_t m = 0; m < set.metrics.size(); ++m) {
        std::vector<double> values;
        for (const CounterRecord& c : r.counters)
          if (c.set == set.name && c.index == static_cast<int64_t>(k) && c.grid == kernels[k]->record->grid) values.push_back(c.values[m]);
        if (!values.empty()) kernels[k]->counters[set.metrics[m]] = *median(values);
      }
}

// Of all traced steps: nearest to the median in time on the device, the newer of two; one rank of several shows the newest.
int64_t number_shown(const Recording& r) {
  std::vector<double> times;
  for (const StepRecord& s : r.steps)
    if (s.gpu_end_ns) times.push_back(static_cast<double>(s.gpu_end_ns - s.gpu_begin_ns));
  const double middle = *median(times);
  const StepRecord* best = nullptr;
  for (const StepRecord& s : r.steps) {
    if (!s.gpu_end_ns || std::none_of(r.launches.begin(), r.launches.end(), [&](const LaunchRecord& l) { return l.step == s.step; }))
      continue;
    const auto distance = [&](const StepRecord& x) {
      return r.rank ? 0 : std::fabs(static_cast<double>(x.gpu_end_ns - x.gpu_begin_ns) - middle);
    };
    if (!best || distance(s) < distance(*best) || (distance(s) == distance(*best) && s.step > best->step)) best = &s;
  }
  return best->step;
}

// ---- rows
using Members = std::vector<const Operation*>;

Maybe sum_of(const Members& members, const std::function<Maybe(const Operation&)>& value) {
  double sum = 0;
  for (const Operation* o : members) {
    if (!value(*o)) return std::nullopt;
    sum += *value(*o);
  }
  return members.empty() ? Maybe() : Maybe(sum);
}
Maybe sum_of(const Members& members, const char* metric) {
  return sum_of(members, [&](const Operation& o) { return counter(o, metric); });
}
Maybe divided(Maybe above, Maybe below, double factor = 1) { return above && below ? Maybe(factor * *above / *below) : Maybe(); }
Maybe weighted(const Members& members, const char* metric, const char* weight) {
  const auto product = [&](const Operation& o) -> Maybe {
    return counter(o, metric) ? Maybe(*counter(o, metric) * *counter(o, weight)) : Maybe();
  };
  return divided(sum_of(members, product), sum_of(members, weight));
}

Members kernels_among(const Members& members) {
  Members kernels;
  for (const Operation* o : members)
    if (is_kernel(*o)) kernels.push_back(o);
  return kernels;
}
double total(const Members& members, double Operation::*member) {
  double sum = 0;
  for (const Operation* o : members) sum += o->*member;
  return sum;
}
// Copies to and from the host have no floor and are in no sum of floors.
Members with_floor_or_kernel(const Members& members) {
  Members list;
  for (const Operation* o : members)
    if (is_kernel(*o) || o->floor_ns) list.push_back(o);
  return list;
}
Maybe floor_of(const Members& members) {
  return sum_of(with_floor_or_kernel(members), [](const Operation& o) { return o.floor_ns; });
}
Maybe headroom_of(const Members& members) {
  return sum_of(with_floor_or_kernel(members), [](const Operation& o) { return o.headroom_ns; });
}

void expect_numbers(const std::string& what, const Members& members, const Numbers& n, unsigned beside) {
  const Members k = kernels_among(members);
  const double ns = total(k, &Operation::duration_ns);
  const auto expect = [&](const char* name, const Maybe& expected, const Maybe& found) { expect_near(what + " " + name, expected, found); };
  const Maybe read = sum_of(k, kRead), written = sum_of(k, kWritten);
  expect("dram_read_bytes", read, n.dram_read_bytes);
  expect("dram_write_bytes", written, n.dram_write_bytes);
  expect("dram_bytes_per_s", read ? Maybe((*read + *written) / (ns * 1e-9)) : Maybe(), n.dram_bytes_per_s);
  expect("dram_of_ceiling_pct", divided(sum_of(k, [](const Operation& o) { return o.dram_ns; }), ns, 100), n.dram_of_ceiling_pct);
  expect("tensor_active_pct", weighted(k, kTensor, kCycles), n.tensor_active_pct);
  if (beside == kTotals) return;
  expect("l2_bytes", sum_of(k, "lts__t_bytes.sum"), n.l2_bytes);
  expect("instructions", sum_of(k, "sm__inst_executed.sum"), n.instructions);
  expect("tensor_while_busy_pct", weighted(k, kTensorBusy, kActive), n.tensor_while_busy_pct);
  expect("occupancy_pct", weighted(k, kWarps, kActive), n.occupancy_pct);
  expect("sm_clock_hz", weighted(k, kClock, kTime), n.sm_clock_hz);
  if (beside == kLaunches) return;
  expect("tensor_of_ceiling_pct", divided(sum_of(k, [](const Operation& o) { return o.tensor_ns; }), ns, 100), n.tensor_of_ceiling_pct);
  expect("fma_of_ceiling_pct", divided(sum_of(k, [](const Operation& o) { return o.fma_ns; }), ns, 100), n.fma_of_ceiling_pct);
}

void expect_measured(const std::string& what, const Members& members, const Measured& row, double step_ns) {
  const auto kernels = static_cast<int64_t>(kernels_among(members).size());
  EXPECT_EQ(row.launches, kernels) << what;
  EXPECT_EQ(row.copies, static_cast<int64_t>(members.size()) - kernels) << what;
  const double time = total(members, &Operation::time_ns);
  expect_near(what + " time_ns", time, row.time_ns);
  expect_near(what + " share_pct", time / step_ns * 100, row.share_pct);
  expect_near(what + " duration_ns", total(members, &Operation::duration_ns), row.duration_ns);
  expect_numbers(what, members, row, kRowsOnly);
  std::map<std::string, double> of_bound;
  for (const Operation* o : with_floor_or_kernel(members)) of_bound[o->bound] += o->time_ns;
  std::string most;
  for (const auto& [bound, ns] : of_bound)
    if (ns > of_bound[most]) most = bound;
  if (!(of_bound[most] > 0)) return;
  EXPECT_EQ(row.bound.value_or(""), most) << what;
}

struct Key {
  std::string a, b, c, d;
  auto operator<=>(const Key&) const = default;
};
std::map<Key, Members> grouped(const Step& s, const std::function<std::optional<Key>(const Operation&)>& key) {
  std::map<Key, Members> groups;
  for (const Operation& o : s.operations)
    if (const auto k = key(o)) groups[*k].push_back(&o);
  return groups;
}

// Sums over the entries of the work model whose op is among the members.
struct Work {
  double flops = 0, min_bytes = 0, floor_ns = 0, headroom_ns = 0;
  bool any = false;
};
Work work_of(const Members& members, const RunInfo& run, const Ceilings& c) {
  std::map<std::string, double> time;
  for (const Operation* o : members) time[o->place->pass + "/" + o->place->layer + "/" + o->place->op] += o->time_ns;
  Work sum;
  for (const RunWork& w : run.work) {
    if (!time.contains(w.path)) continue;
    const double floor = std::max(w.min_bytes / *c.copy_bytes_per_s, w.flops / c.matmul_flops_per_s.at(*run.matmul)) * 1e9;
    sum.any = true;
    sum.flops += w.flops;
    sum.min_bytes += w.min_bytes;
    sum.floor_ns += floor;
    sum.headroom_ns += std::max(0.0, time[w.path] - floor);
  }
  return sum;
}

void expect_floored(const std::string& what, const Members& members, const Floored& row, const std::optional<RunInfo>& run,
                    const Ceilings& c, double step_ns) {
  expect_measured(what, members, row, step_ns);
  expect_near(what + " kernel_floor_ns", floor_of(members), row.kernel_floor_ns);
  expect_near(what + " kernel_headroom_ns", headroom_of(members), row.kernel_headroom_ns);
  const Work work = run ? work_of(members, *run, c) : Work();
  const auto known = [&](double value) { return work.any ? Maybe(value) : Maybe(); };
  expect_near(what + " flops", known(work.flops), row.flops);
  expect_near(what + " min_bytes", known(work.min_bytes), row.min_bytes);
  expect_near(what + " floor_ns", known(work.floor_ns), row.floor_ns);
  expect_near(what + " headroom_ns", known(work.headroom_ns), row.headroom_ns);
}

template <class Row>
const Row* only(const std::vector<Row>& rows, const std::function<bool(const Row&)>& is) {
  EXPECT_EQ(std::count_if(rows.begin(), rows.end(), is), 1);
  const auto at = std::find_if(rows.begin(), rows.end(), is);
  return at == rows.end() ? nullptr : &*at;
}

void expect_rows(const Step& s, const std::optional<RunInfo>& run, const Ceilings& c, const ProfileDocument& d) {
  const auto passes = grouped(s, [](const Operation& o) { return o.place ? std::optional(Key{o.place->pass, "", "", ""}) : std::nullopt; });
  ASSERT_EQ(d.passes.size(), passes.size());
  size_t order = 0;
  for (const std::string& pass : kPasses) {
    const auto at = passes.find({pass, "", "", ""});
    if (at == passes.end()) continue;
    ASSERT_EQ(d.passes[order].name, pass);
    expect_floored("pass " + pass, at->second, d.passes[order++], run, c, s.time_ns);
  }
  const auto ops = grouped(s, [](const Operation& o) {
    return o.place ? std::optional(Key{o.place->pass, o.place->op, "", ""}) : std::nullopt;
  });
  ASSERT_EQ(d.ops.size(), ops.size());
  for (const auto& [key, members] : ops) {
    const OpRow* row = only<OpRow>(d.ops, [k = key](const OpRow& o) { return o.pass == k.a && o.op == k.b; });
    ASSERT_TRUE(row);
    expect_floored("op " + key.a + "/" + key.b, members, *row, run, c, s.time_ns);
  }
  const auto layers = grouped(s, [](const Operation& o) {
    return o.place && o.place->layer != "-" ? std::optional(Key{o.place->pass, o.place->layer, "", ""}) : std::nullopt;
  });
  ASSERT_EQ(d.layers.size(), layers.size());
  for (const auto& [key, members] : layers) {
    const LayerRow* row =
        only<LayerRow>(d.layers, [k = key](const LayerRow& o) { return o.pass == k.a && std::to_string(o.layer) == k.b; });
    ASSERT_TRUE(row);
    expect_floored("layer " + key.a + "/" + key.b, members, *row, run, c, s.time_ns);
  }
  const auto kernels = grouped(s, [](const Operation& o) {
    const Place p = o.place.value_or(Place{});
    const Activity a = o.record->activity;
    return std::optional(Key{o.record->name, a == Activity::kernel ? "kernel" : a == Activity::copy ? "copy" : "memset", p.pass, p.op});
  });
  ASSERT_EQ(d.kernels.size(), kernels.size());
  std::map<std::string, double> top;
  for (const auto& [key, members] : kernels) {
    const KernelRow* row = only<KernelRow>(d.kernels, [k = key](const KernelRow& o) {
      return o.name == k.a && o.activity == k.b && o.pass.value_or("") == k.c && o.op.value_or("") == k.d;
    });
    ASSERT_TRUE(row);
    const std::string what = "kernel " + key.a + " of " + key.c + "/" + key.d;
    expect_measured(what, members, *row, s.time_ns);
    expect_near(what + " floor_ns", floor_of(members), row->floor_ns);
    expect_near(what + " headroom_ns", headroom_of(members), row->headroom_ns);
    top[key.c] = std::max(top[key.c], total(members, &Operation::time_ns));
  }
  for (size_t i = 1; i < d.kernels.size(); ++i) EXPECT_GE(d.kernels[i - 1].time_ns, d.kernels[i].time_ns) << "longest first";
  for (const PassRow& p : d.passes) expect_near("top_kernel_ns of " + p.name, top[p.name], p.top_kernel_ns);
}

void expect_launches(const Step& s, const ProfileDocument& d) {
  ASSERT_EQ(d.launches.size(), s.operations.size());
  double before = 0;
  for (const LaunchRow& row : d.launches) {
    const auto at = std::find_if(s.operations.begin(), s.operations.end(), [&](const Operation& x) {
      return x.record->index == row.index && x.record->name == row.name && x.record->stream == row.stream;
    });
    ASSERT_NE(at, s.operations.end()) << row.name;
    const Operation& o = *at;
    const std::string what = "launch " + std::to_string(row.index) + " of " + row.activity + " " + row.name;
    expect_near(what + " start_ns", static_cast<double>(o.record->start_ns) - s.begin_ns, row.start_ns);
    EXPECT_GE(*row.start_ns, before) << "by start time";
    before = *row.start_ns;
    EXPECT_EQ(row.pass.value_or(""), o.place ? o.place->pass : "") << what;
    EXPECT_EQ(row.op.value_or(""), o.place ? o.place->op : "") << what;
    EXPECT_EQ(row.layer ? std::to_string(*row.layer) : "-", o.place ? o.place->layer : "-") << what;
    expect_near(what + " shown_ns", o.own_ns, row.shown_ns);
    expect_near(what + " time_ns", o.duration_ns, row.time_ns);
    expect_near(what + " share_ns", o.time_ns, row.share_ns);
    expect_near(what + " floor_ns", o.floor_ns, row.floor_ns);
    expect_near(what + " headroom_ns", o.headroom_ns, row.headroom_ns);
    EXPECT_EQ(row.bound.value_or(""), o.bound) << what;
    if (!is_kernel(o)) continue;
    expect_numbers(what, {&o}, row, kLaunches);
    expect_near(what + " counted_time_ns", counter(o, kTime), row.counted_time_ns);
  }
}

void expect_totals(const Step& s, const ProfileDocument& d) {
  Members all, known;
  double passes = 0, outside = 0, without_floor = 0;
  int64_t unknown = 0;
  for (const Operation& o : s.operations) {
    all.push_back(&o);
    (o.place ? passes : outside) += o.time_ns;
    const bool work_unknown = is_kernel(o) && !o.tensor_ns;
    if (!work_unknown) known.push_back(&o);
    unknown += work_unknown;
    if (work_unknown) without_floor += o.time_ns;
  }
  const TotalsSection& t = d.totals;
  expect_near("totals.time_ns", s.time_ns, t.time_ns);
  expect_near("totals.passes_ns", passes, t.passes_ns);
  expect_near("totals.unattributed_ns", outside, t.unattributed_ns);
  expect_near("totals.idle_ns", s.swept.idle_ns, t.idle_ns);
  expect_near("totals.conservation_error_pct", (passes + outside + s.swept.idle_ns - s.time_ns) / s.time_ns * 100,
              t.conservation_error_pct);
  const auto kernels = static_cast<int64_t>(kernels_among(all).size());
  EXPECT_EQ(t.launches, kernels);
  EXPECT_EQ(t.copies, static_cast<int64_t>(all.size()) - kernels);
  expect_numbers("totals", all, t, kTotals);
  expect_near("totals.kernel_floor_ns", floor_of(known), t.kernel_floor_ns);
  expect_near("totals.kernel_headroom_ns", headroom_of(known), t.kernel_headroom_ns);
  if (t.kernel_floor_ns) {
    EXPECT_EQ(t.launches_without_floor.value_or(0), unknown);
    expect_near("totals.without_floor_ns", unknown ? Maybe(without_floor) : Maybe(), t.without_floor_ns);
  }
  Maybe floors, headroom;
  for (const PassRow& p : d.passes) {
    if (p.floor_ns) floors = floors.value_or(0) + *p.floor_ns;
    if (p.headroom_ns) headroom = headroom.value_or(0) + *p.headroom_ns;
  }
  expect_near("totals.floor_ns", floors, t.floor_ns);
  expect_near("totals.headroom_ns", headroom, t.headroom_ns);
}

void expect_timeline(const Step& s, const Recording& r, const ProfileDocument& d) {
  const TimelineSection& t = d.timeline;
  expect_near("timeline.window_ns", s.swept.window_ns, t.window_ns);
  expect_near("timeline.busy_ns", s.swept.busy_ns, t.busy_ns);
  expect_near("timeline.idle_ns", s.swept.idle_ns, t.idle_ns);
  expect_near("timeline.overlap_ns", s.swept.overlap_ns, t.overlap_ns);
  std::set<int64_t> streams;
  std::map<std::string, CopyRow> copies;
  for (const Operation& o : s.operations) {
    streams.insert(o.record->stream);
    if (is_kernel(o)) continue;
    CopyRow& c = copies[o.record->name];
    ++c.count;
    c.bytes += o.record->bytes;
    c.time_ns += o.duration_ns;
  }
  EXPECT_EQ(t.streams, static_cast<int64_t>(streams.size()));
  ASSERT_EQ(t.copies.size(), copies.size());
  for (const CopyRow& c : t.copies) {
    EXPECT_EQ(c.count, copies[c.name].count) << c.name;
    EXPECT_EQ(c.bytes, copies[c.name].bytes) << c.name;
    expect_near(c.name, copies[c.name].time_ns, c.time_ns);
  }
  double above = 0;
  for (const GapRow& g : t.gaps) {
    const double most = g.up_to_ns ? static_cast<double>(*g.up_to_ns) : INFINITY;
    int64_t count = 0;
    double time = 0;
    for (const double gap : s.swept.gaps_ns)
      if (gap > above && gap <= most) ++count, time += gap;
    EXPECT_EQ(g.count, count) << "gaps up to " << most;
    expect_near("gaps", time, g.time_ns);
    above = most;
  }
  std::vector<double> inside;
  Maybe before, behind;
  for (const EnvironmentSample& e : r.environment) {
    const double at = static_cast<double>(e.time_ns) - s.begin_ns;
    if (at >= 0 && at <= s.swept.window_ns) inside.push_back(at);
    if (at < 0 && at > before.value_or(-INFINITY)) before = at;
    if (at > s.swept.window_ns && at < behind.value_or(INFINITY)) behind = at;
  }
  std::sort(inside.begin(), inside.end());
  if (before) inside.insert(inside.begin(), *before);
  if (behind) inside.push_back(*behind);
  ASSERT_EQ(t.environment.size(), inside.size());
  for (size_t i = 0; i < inside.size(); ++i) expect_near("timeline.environment", inside[i], t.environment[i].at_ns);
}

}  // namespace

std::string collective_words(const std::string& path) {
  const std::string pass = "step/communication/-/";
  const size_t behind_op = path.starts_with(pass) ? path.find('/', pass.size()) : std::string::npos;
  return behind_op == std::string::npos ? "" : path.substr(behind_op + 1);
}

Step shown_step(const Recording& r, const std::optional<RunInfo>& run, const Ceilings& ceilings) {
  Step s;
  s.number = number_shown(r);
  for (const LaunchRecord& l : r.launches) {
    if (l.step != s.number) continue;
    Operation o;
    o.record = &l;
    o.place = place_of(l.path);
    o.communication = (o.place && o.place->pass == "communication") || (!o.place && l.name.starts_with("nccl"));
    o.own_ns = static_cast<double>(l.end_ns - l.start_ns);
    std::vector<double> samples;
    for (const LaunchRecord& other : r.launches)
      if (other.activity == l.activity && other.index == l.index) samples.push_back(static_cast<double>(other.end_ns - other.start_ns));
    o.median_ns = *median(samples);
    for (const LaunchStats& stats : r.stats)
      if (stats.activity == l.activity && stats.index == l.index) o.median_ns = stats.median_ns;
    s.operations.push_back(o);
  }
  std::sort(s.operations.begin(), s.operations.end(),
            [](const Operation& a, const Operation& b) { return a.record->start_ns < b.record->start_ns; });
  s.begin_ns = INFINITY;
  double end = 0;
  std::vector<Stretch> stretches;
  for (const Operation& o : s.operations) {
    stretches.push_back({static_cast<double>(o.record->start_ns), static_cast<double>(o.record->end_ns), o.communication});
    s.begin_ns = std::min(s.begin_ns, stretches.back().begin_ns);
    end = std::max(end, stretches.back().end_ns);
  }
  s.swept = sweep(stretches, s.begin_ns, end);

  // Medians, unless they miss the median step by more than 0.5%.
  std::vector<double> windows;
  for (const StepRecord& x : r.steps)
    if (x.gpu_end_ns) windows.push_back(static_cast<double>(x.gpu_end_ns - x.gpu_begin_ns));
  double sum = s.swept.idle_ns;
  for (size_t i = 0; i < s.operations.size(); ++i) sum += s.operations[i].median_ns * s.swept.share_ns[i] / s.operations[i].own_ns;
  s.from_medians = std::fabs(sum - *median(windows)) <= 0.005 * *median(windows);
  s.time_ns = s.from_medians ? *median(windows) : s.swept.window_ns;
  for (size_t i = 0; i < s.operations.size(); ++i) {
    Operation& o = s.operations[i];
    o.duration_ns = s.from_medians ? o.median_ns : o.own_ns;
    o.time_ns = o.duration_ns * s.swept.share_ns[i] / o.own_ns;
  }
  add_counters(s, r);
  for (Operation& o : s.operations) add_floor(o, r, run, ceilings);
  return s;
}

void expect_step(const Recording& r, const std::optional<RunInfo>& run, const Ceilings& ceilings, const ProfileDocument& d) {
  const Step s = shown_step(r, run, ceilings);
  EXPECT_EQ(d.collection.shown_step, s.number);
  EXPECT_EQ(d.collection.time_basis, s.from_medians ? "median_over_traced_steps" : "one_traced_step");
  std::set<int64_t> counted;
  for (const CounterRecord& c : r.counters)
    if (c.pass.empty()) counted.insert(c.step);
  EXPECT_EQ(d.collection.counted_steps, static_cast<int64_t>(counted.size()));
  const auto of_graph =
      std::count_if(s.operations.begin(), s.operations.end(), [](const Operation& o) { return o.record->graph_node != 0; });
  EXPECT_EQ(d.collection.graph_launches.value_or(0), of_graph);
  expect_rows(s, run, ceilings, d);
  expect_launches(s, d);
  expect_totals(s, d);
  expect_timeline(s, r, d);
  for (const PassRow& p : d.passes) {
    const auto whole = [&](const char* metric) {
      Maybe value;
      for (const CounterRecord& c : r.counters)
        for (const CounterSet& set : r.counter_sets)
          for (size_t m = 0; m < set.metrics.size(); ++m)
            if (c.pass == p.name && c.set == set.name && set.metrics[m] == metric) value = c.values[m];
      return value;
    };
    expect_near("whole_dram_read_bytes of " + p.name, whole(kRead), p.whole_dram_read_bytes);
    expect_near("whole_dram_write_bytes of " + p.name, whole(kWritten), p.whole_dram_write_bytes);
    expect_near("whole_tensor_active_pct of " + p.name, whole(kTensor), p.whole_tensor_active_pct);
  }
  double collecting = 0;
  for (const CounterSet& set : r.counter_sets) collecting += set.setup_ns + set.run_ns + set.decode_ns;
  expect_near("collecting_ns", collecting, d.collection.collecting_ns);
}

void expect_surroundings(const Recording& r, const std::optional<RunInfo>& run, const ProfileOptions& o, const ProfileDocument& d) {
  // environment: samples of the timed steps; power behind their first second
  std::vector<double> sm, memory, power, temperature;
  int64_t first = 0, throttled = 0;
  std::set<std::string> reasons;
  for (const EnvironmentSample& e : r.environment) {
    if (e.phase != Phase::timed) continue;
    if (sm.empty()) first = e.time_ns;
    sm.push_back(e.sm_clock_mhz);
    memory.push_back(e.memory_clock_mhz);
    temperature.push_back(e.temperature_c);
    if (e.time_ns >= first + 1'000'000'000) power.push_back(e.power_w);
    throttled += (e.throttle_reasons & ~uint64_t{1}) != 0;  // idle is no slowdown
    for (const auto& [bit, word] : std::map<uint64_t, std::string>{
             {4, "power_cap"}, {8, "hw_slowdown"}, {0x20, "sw_thermal"}, {0x40, "hw_thermal"}, {0x80, "power_brake"}})
      if (e.throttle_reasons & bit) reasons.insert(word);
  }
  const EnvironmentSection& env = d.environment;
  EXPECT_EQ(env.samples.value_or(0), static_cast<int64_t>(sm.size()));
  EXPECT_EQ(env.throttled_samples.value_or(0), throttled);
  EXPECT_EQ(std::set<std::string>(env.throttle_reasons.begin(), env.throttle_reasons.end()), reasons);
  expect_near("sm_clock_mhz_median", median(sm), env.sm_clock_mhz_median);
  expect_near("sm_clock_mhz_min", quantile(sm, 0), env.sm_clock_mhz_min);
  expect_near("sm_clock_mhz_max", quantile(sm, 1), env.sm_clock_mhz_max);
  expect_near("memory_clock_mhz_median", median(memory), env.memory_clock_mhz_median);
  expect_near("power_w_median", median(power), env.power_w_median);
  expect_near("power_w_max", quantile(power, 1), env.power_w_max);
  expect_near("temperature_c_max", quantile(temperature, 1), env.temperature_c_max);

  // timing: the trainer's own clock, or from begin to begin
  std::map<int64_t, const StepRecord*> by_number;
  for (const StepRecord& s : r.steps) by_number[s.step] = &s;
  const auto pitches = [&](Phase phase) {
    std::vector<double> list;
    for (const auto& [number, s] : by_number)
      if (s->phase == phase && by_number.contains(number + 1))
        list.push_back(static_cast<double>(by_number[number + 1]->host_begin_ns - s->host_begin_ns));
    return list;
  };
  std::vector<double> samples;
  for (int64_t i = 0; run && i < o.timed_steps; ++i) samples.push_back(run->steps[static_cast<size_t>(o.first_timed_step + i)].time_ns);
  if (!run) samples = pitches(Phase::timed);
  const StepTime& t = d.timing.step_time_ns;
  ASSERT_EQ(t.samples, samples);
  expect_near("median", median(samples), t.median);
  expect_near("p05", quantile(samples, 0.05), t.p05);
  expect_near("p95", quantile(samples, 0.95), t.p95);
  double sum = 0;
  for (const double s : samples) sum += s;
  expect_near("mean", sum / static_cast<double>(samples.size()), t.mean);
  // x(k) and x(n+1-k), the largest k with P(Bin(n, 1/2) < k) <= 2.5%
  const size_t n = samples.size();
  size_t k = 0;
  double below = 0, choose = std::pow(0.5, static_cast<double>(n));
  for (size_t i = 0; i < n; ++i) {
    below += choose;
    choose *= static_cast<double>(n - i) / static_cast<double>(i + 1);
    if (below <= 0.025) k = i + 1;
  }
  std::sort(samples.begin(), samples.end());
  expect_near("interval_low", k ? Maybe(samples[k - 1]) : Maybe(), t.interval_low);
  expect_near("interval_high", k ? Maybe(samples[n - k]) : Maybe(), t.interval_high);
  if (run) {
    expect_near("tokens_per_s", static_cast<double>(*run->tokens_per_step) / (*median(samples) * 1e-9), d.timing.tokens_per_s);
    expect_near("model_flops_per_s", *run->model_flops / (*median(samples) * 1e-9), d.timing.model_flops_per_s);
  }
  // A traced step counts at least its time on the device, and a single one no more.
  Maybe traced = median(pitches(Phase::activity));
  const Maybe timed = median(pitches(Phase::timed));
  if (traced || *d.totals.time_ns > *timed) traced = std::max(traced.value_or(0), *d.totals.time_ns);
  expect_near("traced_overhead_pct", traced ? Maybe((*traced / *timed - 1) * 100) : Maybe(), d.collection.traced_overhead_pct);
}

}  // namespace oracle

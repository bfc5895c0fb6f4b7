#include "profiler/document/fields.h"

#include <fmt/format.h>

#include <set>

namespace profiler {
namespace {

// ---- lists shared by several rows
// ----------------------------------------------------------------------------------
template <class Row>
void append(std::vector<Field<Row>>& to, std::vector<Field<Row>> more) {
  to.insert(to.end(), more.begin(), more.end());
}

// A member of a base, as a member of the row: std::variant does not convert it by itself.
template <class Row, class Base, class T>
constexpr T Row::*of(T Base::*member) {
  return member;
}

// The numbers that the document holds in this kind of row, as number_rows() declares them.
template <class Row>
void append_numbers(std::vector<Field<Row>>& to, unsigned beside = kRowsOnly) {
  for (const NumberRow& n : number_rows())
    if (beside == kRowsOnly || (n.beside & beside)) to.push_back({n.name, n.unit, n.source, n.help, of<Row>(n.member), n.shown});
}

template <class Row>
std::vector<Field<Row>> measured_fields() {
  using M = Measured;
  std::vector<Field<Row>> l = {
      {"launches",
       "",
       "activity",
       "kernel launches (on a CPU: ops run)",
       of<Row>(&M::launches),
       {"n", Format::launches, kGroupTable | kKernelTable, kPassTable, 3}},
      {"copies", "", "activity", "copies and memsets", of<Row>(&M::copies)},
      {"time_ns",
       "ns",
       "activity",
       "time on the device; where operations overlap each has an equal share, and communication none beside other work, so rows add up to "
       "the step",
       of<Row>(&M::time_ns),
       {"ms", Format::milliseconds, kRowTables}},
      {"share_pct",
       "%",
       "formula",
       "time_ns in percent of totals.time_ns",
       of<Row>(&M::share_pct),
       {"%", Format::percent, kPassTable | kGroupTable, kKernelTable}},
      {"duration_ns", "ns", "activity", "sum of start-to-end times; larger than time_ns where operations overlap",
       of<Row>(&M::duration_ns)},
  };
  append_numbers(l);
  l.push_back({"bound",
               "",
               "formula",
               "memory, tensor, latency or neither: what limits the row for most of its time (docs/metrics.md)",
               of<Row>(&M::bound),
               {"bound", Format::word, kGroupTable | kKernelTable, kNoTable, 4}});
  return l;
}

template <class Row>
std::vector<Field<Row>> floored_fields() {
  using F = Floored;
  const auto floor = [](Floors which) { return Shown{"floor", Format::milliseconds, kGroupTable, kNoTable, 6, which}; };
  const auto headroom = [](Floors which) { return Shown{"headroom", Format::milliseconds, kPassTable | kGroupTable, kNoTable, 1, which}; };
  return {
      {"flops", "FLOP", "model", "matrix products and attention, a multiply-add is 2", of<Row>(&F::flops)},
      {"min_bytes", "bytes", "model", "every input once, every output once", of<Row>(&F::min_bytes)},
      {"floor_ns", "ns", "formula", "sum over its ops of max(min_bytes / copy ceiling, flops / matmul ceiling)", of<Row>(&F::floor_ns),
       floor(Floors::of_ops)},
      {"headroom_ns", "ns", "formula", "sum over its ops of time above that floor, never below 0: what better kernels could win",
       of<Row>(&F::headroom_ns), headroom(Floors::of_ops)},
      {"kernel_floor_ns", "ns", "formula", "sum of its kernels' own floors (kernels[].floor_ns)", of<Row>(&F::kernel_floor_ns),
       floor(Floors::of_kernels)},
      {"kernel_headroom_ns", "ns", "formula", "sum of its kernels' own headroom (kernels[].headroom_ns)", of<Row>(&F::kernel_headroom_ns),
       headroom(Floors::of_kernels)},
  };
}

std::vector<Field<OpRow>> energy_fields() {
  using O = OpRow;
  const auto shown = [](std::string_view title, Format format, int drop) {
    return Shown{title, format, kGroupTable, kNoTable, drop, Floors::either, true};
  };
  return {
      {"energy_j", "J", "energy", "joules of the op in one step at the step's clock, which the command `energy` adds (docs/energy.md)",
       &O::energy_j, shown("mJ", Format::millijoules, 2), true},
      {"energy_error_j", "J", "energy", "its standard error", &O::energy_error_j},
      {"energy_floor_j", "J", "energy", "joules that its bytes, FLOPs and static power need at the coefficients measured on this device",
       &O::energy_floor_j},
      {"energy_above_floor_j", "J", "energy", "energy_j - energy_floor_j", &O::energy_above_floor_j,
       shown("mJ above", Format::millijoules, 5), true},
      {"sustained_ns", "ns", "energy", "what the op costs of a step at the power limit: joules that a copy of it adds / power limit",
       &O::sustained_ns, shown("sustained", Format::milliseconds, 7), true},
      {"energy_bound", "", "energy", "memory, tensor, power, latency or neither: the highest floor of its sustained time", &O::energy_bound,
       shown("sustained by", Format::word, 8)},
  };
}

}  // namespace

template <>
const std::vector<Field<RunSection>>& fields_of() {
  using R = RunSection;
  static const std::set<std::string_view> kBelowZero{"clip"};  // which is none
  static const std::vector<Field<R>> list = [] {
    std::vector<Field<R>> l;
    for (const stepscope::RunField& f : stepscope::run_fields())
      std::visit(
          [&](auto member) {
            l.push_back({f.name, f.unit, f.source, f.help, of<R>(member), {}, kBelowZero.contains(f.name)});
          },
          f.member);
    append(l, {{"steps", "", "run.json", "steps run, traced ones included", &R::steps},
               {"first_timed_step", "", "run.json", "0-based position of the first timed step among them", &R::first_timed_step},
               {"timed_steps", "", "run.json", "steps with no collector on", &R::timed_steps},
               {"first_loss", "", "run.json", "loss after the first step", &R::first_loss, {}, true},
               {"last_loss", "", "run.json", "loss after the last step", &R::last_loss, {}, true},
               {"memory_bytes", "bytes", "run.json", "planned device memory by kind", &R::memory_bytes},
               {"stopped", "", "run.json", "why the run ended before its last step", &R::stopped},
               {"git_revision", "", "build",
                "revision of the sources of stepscope's trainer; absent: another program's, or of recordings that `join` read",
                &R::git_revision},
               {"build_type", "", "build", "its CMake build type", &R::build_type},
               {"profiled_at", "", "timer", "UTC, ISO 8601", &R::profiled_at}});
    return l;
  }();
  return list;
}

template <>
const std::vector<Field<EnvironmentSection>>& fields_of() {
  using E = EnvironmentSection;
  static const std::vector<Field<E>> list = {
      {"gpu", "", "device", "name", &E::gpu},
      {"uuid", "", "device", "the GPU's own id", &E::uuid},
      {"chip", "", "device", "as CUPTI names it: GH100", &E::chip},
      {"compute_capability", "", "device", "9.0", &E::compute_capability},
      {"sm_count", "", "device", "multiprocessors", &E::sm_count},
      {"memory_bytes", "bytes", "device", "DRAM", &E::memory_bytes},
      {"l2_bytes", "bytes", "device", "L2 cache", &E::l2_bytes},
      {"versions", "", "device", "driver, CUDA, CUPTI, cuBLAS", &E::versions},
      {"samples", "", "NVML", "samples taken during the timed steps; the fields below are over those", &E::samples},
      {"sm_clock_mhz_median", "MHz", "NVML", "SM clock", &E::sm_clock_mhz_median},
      {"sm_clock_mhz_min", "MHz", "NVML", "SM clock", &E::sm_clock_mhz_min},
      {"sm_clock_mhz_max", "MHz", "NVML", "SM clock", &E::sm_clock_mhz_max},
      {"memory_clock_mhz_median", "MHz", "NVML", "memory clock", &E::memory_clock_mhz_median},
      {"power_w_median", "W", "NVML", "board power behind the first second, as NVML's power is a mean over one", &E::power_w_median},
      {"power_w_max", "W", "NVML", "board power", &E::power_w_max},
      {"temperature_c_max", "C", "NVML", "GPU temperature", &E::temperature_c_max, {}, true},
      {"throttled_samples", "", "NVML", "samples in which a throttle reason was set", &E::throttled_samples},
      {"throttle_reasons", "", "NVML", "power_cap, hw_slowdown, sync_boost, sw_thermal, hw_thermal, power_brake", &E::throttle_reasons},
  };
  return list;
}

template <>
const std::vector<Field<CeilingsSection>>& fields_of() {
  using C = CeilingsSection;
  static const std::vector<Field<C>> list = {
      {"copy_bytes_per_s", "bytes/s", "measured", "DRAM copy, bytes read plus bytes written", &C::copy_bytes_per_s},
      {"read_bytes_per_s", "bytes/s", "measured", "DRAM read", &C::read_bytes_per_s},
      {"write_bytes_per_s", "bytes/s", "measured", "DRAM write", &C::write_bytes_per_s},
      {"matmul_flops_per_s", "FLOP/s", "measured", "by precision: fp32, tf32, bf16; random data", &C::matmul_flops_per_s},
      {"device", "", "measured", "where they were measured", &C::device},
      {"uuid", "", "measured", "id of that device", &C::uuid},
      {"driver", "", "measured", "version of the driver in use then; in documents of before 2026-11-30 the CUDA version that it supports",
       &C::driver},
      {"measured_at", "", "measured", "UTC, ISO 8601", &C::measured_at},
  };
  return list;
}

template <>
const std::vector<Field<CounterSetRow>>& fields_of() {
  using C = CounterSetRow;
  static const std::vector<Field<C>> list = {
      {"name", "", "counter", "name of the set", &C::name},
      {"metrics", "", "counter", "CUPTI metric names, one pass", &C::metrics},
      {"launches", "", "counter", "kernels launched, or ranges pushed", &C::launches},
      {"ranges", "", "counter", "ranges decoded; a set with another number is not used", &C::ranges},
      {"setup_ns", "ns", "timer", "cost of configuring", &C::setup_ns},
      {"run_ns", "ns", "timer", "cost of running the counted step", &C::run_ns},
      {"decode_ns", "ns", "timer", "cost of decoding", &C::decode_ns},
  };
  return list;
}

template <>
const std::vector<Field<CollectionSection>>& fields_of() {
  using C = CollectionSection;
  static const std::vector<Field<C>> list = {
      {"producer", "", "recording", "cupti, cpu, ncu or nsys", &C::producer},
      {"program", "", "recording", "command line of the profiled process, or the name of the report that does not hold it", &C::program},
      {"traced_steps", "", "recording", "steps with activity records", &C::traced_steps},
      {"counted_steps", "", "recording", "steps whose kernels were counted one by one", &C::counted_steps},
      {"time_basis", "", "formula",
       "where kernel times come from: median_over_traced_steps, one_traced_step, or each_kernel_alone "
       "(Nsight Compute)",
       &C::time_basis},
      {"shown_step", "", "recording", "the traced step of launches[] and timeline; absent for a program without steps", &C::shown_step},
      {"measured_kernels", "", "recording",
       "kernels that Nsight Compute measured; totals.launches are more where a rule lets one stand for several layers",
       &C::measured_kernels},
      {"graph_launches", "", "activity",
       "launches of the traced step that came from a CUDA graph; absent: none, or of a report that does not tell. Counted steps never use "
       "the graph, inside which kernels cannot be counted one by one",
       &C::graph_launches},
      {"tensor_metric", "", "counter",
       "where tensor_active_pct comes from: a metric, or a formula of several. Absent: the document has "
       "none. Only numbers from the same "
       "one can be compared",
       &C::tensor_metric},
      {"tensor_instructions_metric", "", "counter", "where tensor_instructions comes from", &C::tensor_instructions_metric},
      {"traced_overhead_pct",
       "%",
       "timer",
       "traced against timed steps, host time from step begin to step begin, a traced one at least as long as on the device",
       &C::traced_overhead_pct,
       {},
       true},
      {"collecting_ns", "ns", "timer", "set-up, counted steps and decoding of all counter sets together", &C::collecting_ns},
  };
  return list;
}

template <>
const std::vector<Field<StepTime>>& fields_of() {
  using S = StepTime;
  static const std::vector<Field<S>> list = {
      {"median", "ns", "timer", "median over the timed steps", &S::median},
      {"mean", "ns", "timer", "mean over the timed steps", &S::mean},
      {"p05", "ns", "timer", "5% quantile", &S::p05},
      {"p95", "ns", "timer", "95% quantile", &S::p95},
      {"interval_low", "ns", "formula", "95% interval of the median by order statistics; needs 6 steps", &S::interval_low},
      {"interval_high", "ns", "formula", "its upper end", &S::interval_high},
      {"samples", "ns", "timer", "every timed step, in order", &S::samples},
  };
  return list;
}

template <>
const std::vector<Field<StateRow>>& fields_of() {
  using S = StateRow;
  const auto shown = [](std::string_view title, Format format, int drop = 0) { return Shown{title, format, kStateTable, kNoTable, drop}; };
  static const std::vector<Field<S>> list = {
      {"state", "", "formula", "cool: before the device settled; warm: behind that", &S::state, shown("device", Format::word)},
      {"run", "", "recording", "timed: the timed steps of this profile; sustained: a run of its own (profile --sustained)", &S::run,
       shown("run", Format::word, 4)},
      {"steps", "", "timer", "steps in a row", &S::steps, shown("steps", Format::count, 5)},
      {"step_time_ns", "ns", "timer", "time_ns / steps", &S::step_time_ns, shown("mean ms", Format::milliseconds)},
      {"time_ns", "ns", "timer", "all of them together", &S::time_ns, shown("s", Format::seconds, 6)},
      {"begin_ns", "ns", "timer", "begin of the first of them, from the begin of the first step of the process", &S::begin_ns,
       shown("after s", Format::seconds, 7)},
      {"tokens_per_s", "tokens/s", "formula", "tokens_per_step of all ranks / step_time_ns", &S::tokens_per_s,
       shown("tokens/s", Format::thousands, 3)},
      {"joules_per_step", "J", "NVML", "energy counter of the GPU, interpolated between its changes, / steps", &S::joules_per_step,
       shown("J a step", Format::joules)},
      {"power_w", "W", "NVML", "that energy / time_ns; without it the mean of the samples behind the first second", &S::power_w,
       shown("W", Format::watts, 1)},
      {"sm_clock_mhz", "MHz", "NVML", "mean SM clock", &S::sm_clock_mhz, shown("SM MHz", Format::count, 2)},
  };
  return list;
}

template <>
const std::vector<Field<TimingSection>>& fields_of() {
  using T = TimingSection;
  static const std::vector<Field<T>> list = {
      {"tokens_per_s", "tokens/s", "formula", "tokens_per_step / median step time", &T::tokens_per_s},
      {"model_flops_per_s", "FLOP/s", "formula", "model_flops / median step time", &T::model_flops_per_s},
      {"of_matmul_ceiling_pct", "%", "formula", "model_flops_per_s in percent of the measured matmul ceiling", &T::of_matmul_ceiling_pct},
      {"matmul_ceiling", "", "run.json", "which ceiling: fp32, tf32 or bf16", &T::matmul_ceiling},
      {"state", "", "formula", "cool or warm: what the device was in most of the timed steps; absent: a row of missing says why",
       &T::state},
  };
  return list;
}

template <>
const std::vector<Field<TotalsSection>>& fields_of() {
  using T = TotalsSection;
  static const std::vector<Field<T>> list = [] {
    std::vector<Field<T>> l = {
        {"time_ns", "ns", "activity", "one step on the device: first start to last end; a program without steps: the whole run",
         &T::time_ns},
        {"passes_ns", "ns", "activity", "all passes", &T::passes_ns},
        {"idle_ns", "ns", "activity", "nothing ran", &T::idle_ns},
        {"unattributed_ns", "ns", "activity", "ran outside every leaf range", &T::unattributed_ns},
        {"conservation_error_pct", "%", "formula", "(passes + unattributed + idle - time) / time", &T::conservation_error_pct, {}, true},
        {"launches", "", "activity", "kernel launches", &T::launches},
        {"copies", "", "activity", "copies and memsets", &T::copies},
    };
    append_numbers(l, kTotals);
    append(l, {
                  {"floor_ns", "ns", "formula", "sum of the passes' floors; ops without a work model are not in it", &T::floor_ns},
                  {"headroom_ns", "ns", "formula", "sum of the passes' headroom; idle time and ops without a work model are not in it",
                   &T::headroom_ns},
                  {"kernel_floor_ns", "ns", "formula", "sum of all kernels' own floors, without those of unknown tensor work",
                   &T::kernel_floor_ns},
                  {"kernel_headroom_ns", "ns", "formula", "sum of all kernels' own headroom, without those of unknown tensor work",
                   &T::kernel_headroom_ns},
                  {"launches_without_floor", "", "formula",
                   "launches of kernels whose tensor work does not follow from what was counted; absent: none", &T::launches_without_floor},
                  {"without_floor_ns", "ns", "formula", "their time", &T::without_floor_ns},
              });
    return l;
  }();
  return list;
}

template <>
const std::vector<Field<GapRow>>& fields_of() {
  using G = GapRow;
  static const std::vector<Field<G>> list = {
      {"up_to_ns", "ns", "formula", "idle stretches up to this long; absent: the longest ones", &G::up_to_ns},
      {"count", "", "activity", "how many", &G::count},
      {"time_ns", "ns", "activity", "together", &G::time_ns},
  };
  return list;
}

template <>
const std::vector<Field<CopyRow>>& fields_of() {
  using C = CopyRow;
  static const std::vector<Field<C>> list = {
      {"name", "", "activity", "copy HtoD, copy DtoH, copy DtoD, copy PtoP, memset", &C::name},
      {"count", "", "activity", "how many", &C::count},
      {"bytes", "bytes", "activity", "together", &C::bytes},
      {"time_ns", "ns", "activity", "sum of start-to-end times", &C::time_ns},
  };
  return list;
}

template <>
const std::vector<Field<EnvironmentRow>>& fields_of() {
  using E = EnvironmentRow;
  static const std::vector<Field<E>> list = {
      {"at_ns", "ns", "NVML", "from the begin of the step shown; negative: before it", &E::at_ns, {}, true},
      {"sm_clock_mhz", "MHz", "NVML", "SM clock", &E::sm_clock_mhz},
      {"memory_clock_mhz", "MHz", "NVML", "memory clock", &E::memory_clock_mhz},
      {"power_w", "W", "NVML", "board power", &E::power_w},
      {"temperature_c", "C", "NVML", "GPU temperature", &E::temperature_c, {}, true},
  };
  return list;
}

template <>
const std::vector<Field<TimelineSection>>& fields_of() {
  using T = TimelineSection;
  static const std::vector<Field<T>> list = {
      {"window_ns", "ns", "activity", "length of the step shown, first start to last end", &T::window_ns},
      {"busy_ns", "ns", "activity", "at least one operation ran", &T::busy_ns},
      {"idle_ns", "ns", "activity", "none ran", &T::idle_ns},
      {"overlap_ns", "ns", "activity", "at least two ran", &T::overlap_ns},
      {"streams", "", "activity", "streams used", &T::streams},
  };
  return list;
}

template <>
const std::vector<Field<PassRow>>& fields_of() {
  using P = PassRow;
  static const std::vector<Field<P>> list = [] {
    std::vector<Field<P>> l = {
        {"name", "", "range", "encoder, forward, classifier, backward, optimizer, communication or other", &P::name}};
    append(l, measured_fields<P>());
    append(l, floored_fields<P>());
    append(l, {{"top_kernel", "", "activity",
                "the kernel of one op with most time: one that several ops launch counts for each of them apart", &P::top_kernel},
               {"top_kernel_ns", "ns", "activity", "its time", &P::top_kernel_ns},
               {"whole_dram_read_bytes", "bytes", "counter dram__bytes_read.sum",
                "the pass counted as one range: kernels unserialized, copies and memsets included", &P::whole_dram_read_bytes},
               {"whole_dram_write_bytes", "bytes", "counter dram__bytes_write.sum", "bytes written, counted in the same way",
                &P::whole_dram_write_bytes},
               {"whole_tensor_active_pct", "%", "counter, see collection.tensor_metric",
                "tensor use, counted in the same way; launch gaps are in its cycles", &P::whole_tensor_active_pct}});
    return l;
  }();
  return list;
}

template <>
const std::vector<Field<OpRow>>& fields_of() {
  using O = OpRow;
  static const std::vector<Field<O>> list = [] {
    std::vector<Field<O>> l = {{"pass", "", "range", "as in passes[]", &O::pass}, {"op", "", "range", "semantic op", &O::op}};
    append(l, measured_fields<O>());
    append(l, floored_fields<O>());
    append(l, energy_fields());
    return l;
  }();
  return list;
}

template <>
const std::vector<Field<LayerRow>>& fields_of() {
  using L = LayerRow;
  static const std::vector<Field<L>> list = [] {
    std::vector<Field<L>> l = {{"pass", "", "range", "as in passes[]", &L::pass},
                               {"layer", "", "range", "0 is the first; ops outside the layers are in no row", &L::layer}};
    append(l, measured_fields<L>());
    append(l, floored_fields<L>());
    return l;
  }();
  return list;
}

template <>
const std::vector<Field<KernelRow>>& fields_of() {
  using K = KernelRow;
  static const std::vector<Field<K>> list = [] {
    std::vector<Field<K>> l = {{"name", "", "activity", "full demangled name; rows join equal names of one pass and op", &K::name},
                               {"activity", "", "activity", "kernel, copy, memset or cpu_op", &K::activity},
                               {"pass", "", "range", "absent: unattributed", &K::pass},
                               {"op", "", "range", "absent: unattributed", &K::op}};
    append(l, measured_fields<K>());
    append(l, {{"floor_ns", "ns", "formula", "time its measured DRAM bytes, tensor and FMA work need at the ceilings, the largest",
                &K::floor_ns},
               {"headroom_ns",
                "ns",
                "formula",
                "time above that floor, launch by launch, never below 0",
                &K::headroom_ns,
                {"headroom", Format::milliseconds, kKernelTable, kNoTable, 1}}});
    return l;
  }();
  return list;
}

template <>
const std::vector<Field<LaunchRow>>& fields_of() {
  using L = LaunchRow;
  static const std::vector<Field<L>> list = [] {
    std::vector<Field<L>> l = {
        {"name", "", "activity", "full demangled name", &L::name},
        {"activity", "", "activity", "kernel, copy, memset or cpu_op", &L::activity},
        {"index", "", "activity", "position among the step's operations of this kind", &L::index},
        {"pass", "", "range", "absent: unattributed", &L::pass},
        {"layer", "", "range", "absent: outside the layers", &L::layer, {"layer", Format::word, kNoTable, kLaunchTable}},
        {"op", "", "range", "absent: unattributed", &L::op},
        {"path", "", "range", "ranges open at the launch", &L::path},
        {"stream", "", "activity", "CUPTI stream id", &L::stream, {"stream", Format::word, kNoTable, kLaunchTable}},
        {"device", "", "activity", "device id", &L::device},
        {"grid", "", "activity", "blocks", &L::grid, {"grid", Format::word, kNoTable, kLaunchTable}},
        {"block", "", "activity", "threads", &L::block},
        {"registers", "", "activity", "per thread", &L::registers},
        {"shared_bytes", "bytes", "activity", "static and dynamic, per block", &L::shared_bytes},
        {"graph_node", "", "activity", "CUDA graph node; absent: not from a graph", &L::graph_node},
        {"start_ns",
         "ns",
         "activity",
         "from the begin of the step shown; absent: time lost",
         &L::start_ns,
         {"start ms", Format::milliseconds, kNoTable, kLaunchTable},
         true},
        {"shown_ns",
         "ns",
         "activity",
         "start to end in the step shown",
         &L::shown_ns,
         {"ms", Format::milliseconds, kNoTable, kLaunchTable}},
        {"time_ns", "ns", "activity", "start to end over the traced steps (collection.time_basis)", &L::time_ns},
        {"share_ns", "ns", "activity", "its share of the step's time", &L::share_ns},
        {"samples", "", "activity", "traced steps behind time_ns, whose median is over at most 64 of them", &L::samples},
        {"bytes", "bytes", "activity", "size of a copy or memset", &L::bytes},
    };
    append_numbers(l, kLaunches);
    append(l, {
                  {"counted_time_ns", "ns", "counter gpu__time_duration.sum", "while counted; never used as its time", &L::counted_time_ns},
                  {"other_counters",
                   "",
                   "counter",
                   "what `profile --metric` asked for: value by metric, in CUPTI's base unit; absent: nothing was asked for by name",
                   &L::other_counters,
                   {},
                   true},
                  {"bound", "", "formula", "memory, tensor, latency or neither", &L::bound},
                  {"floor_ns", "ns", "formula", "as in kernels[]", &L::floor_ns},
                  {"headroom_ns", "ns", "formula", "as in kernels[]", &L::headroom_ns},
              });
    return l;
  }();
  return list;
}

template <>
const std::vector<Field<MissingRow>>& fields_of() {
  using M = MissingRow;
  static const std::vector<Field<M>> list = {
      {"name", "", "catalogue", "kind, a row of profiler/records/missing.cpp", &M::name},
      {"severity", "", "catalogue", "info, notice or severe; a severe one makes the command fail", &M::severity},
      {"stage", "", "catalogue", "collect, recording, attribute or document", &M::stage},
      {"count", "", "recording", "how many", &M::count},
      {"detail", "", "recording", "the first one, or the reason", &M::detail},
      {"advice", "", "catalogue", "what it means for the numbers and what to do", &M::advice},
  };
  return list;
}

// ---- the lists as text
// ----------------------------------------------------------------------------------------

}  // namespace profiler

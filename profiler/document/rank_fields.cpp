// The sections of a document of several ranks.
#include "profiler/document/fields.h"

namespace profiler {
namespace {

constexpr Shown rank_column(std::string_view title, Format format = Format::milliseconds, int drop = 0) {
  return {title, format, kRankTable, kNoTable, drop};
}
constexpr Shown collective_column(std::string_view title, Format format = Format::milliseconds, int drop = 0) {
  return {title, format, kCollectiveTable, kNoTable, drop};
}

}  // namespace

template <>
const std::vector<Field<WorldSection>>& fields_of() {
  using W = WorldSection;
  static const std::vector<Field<W>> list = {
      {"size", "", "recording", "processes of the run, one GPU each", &W::size},
      {"ranks", "", "recording", "how many of them are in this document", &W::ranks},
      {"job", "", "recording", "id of the run", &W::job},
      {"main_rank", "", "formula", "rank whose step on the device is the median one; the lower of the two in the middle", &W::main_rank},
      {"collectives", "", "activity", "collectives in the step shown", &W::collectives},
      {"clock", "", "formula",
       "shared: all ranks record by one clock; causality: offsets from the collectives, which no rank ends before all began; none",
       &W::clock},
      {"clock_uncertainty_ns", "ns", "formula",
       "largest error of a difference between two ranks' times that the collectives allow; a skew below it is left out",
       &W::clock_uncertainty_ns},
      {"tokens_per_s", "tokens/s", "formula", "all ranks together: size x timing.tokens_per_s, which is that of one", &W::tokens_per_s},
      {"communication_ns", "ns", "activity", "on main_rank, at least one collective runs: exposed_ns + hidden_ns", &W::communication_ns},
      {"exposed_ns", "ns", "activity", "on main_rank, communication runs and nothing else does: what it adds to the step", &W::exposed_ns},
      {"hidden_ns", "ns", "activity", "on main_rank, communication runs beside other work", &W::hidden_ns},
      {"exposed_wait_ns", "ns", "activity", "part of exposed_ns: a collective had begun here but not on every rank", &W::exposed_wait_ns},
      {"exposed_transfer_ns", "ns", "activity", "part of exposed_ns: all ranks had begun, none had ended", &W::exposed_transfer_ns},
      {"exposed_drain_ns", "ns", "activity", "part of exposed_ns: another rank had ended already", &W::exposed_drain_ns},
      {"bytes", "bytes", "range", "sizes of all collectives together, whole arrays", &W::bytes},
      {"bus_bytes_per_s", "bytes/s", "formula", "bytes over the busiest link / time of transfer, all collectives together",
       &W::bus_bytes_per_s},
      {"paid_bytes_per_s", "bytes/s", "formula", "the same bytes / median time from begin to end", &W::paid_bytes_per_s},
      {"of_link_ceiling_pct", "%", "formula", "time that the collectives need alone, as measured, / their time of transfer",
       &W::of_link_ceiling_pct},
      {"slowest_rank", "", "formula", "the rank that others waited for longest; absent: no skew above the uncertainty of the clocks",
       &W::slowest_rank},
      {"slowest_why", "", "formula",
       "at the collective at which it was latest: clock, power, host, data, work, or the op that took longer there", &W::slowest_why},
      {"slowest_late_ns", "ns", "formula", "how late it came to the collective at which it was latest, in the step shown",
       &W::slowest_late_ns},
  };
  return list;
}

template <>
const std::vector<Field<RankRow>>& fields_of() {
  using R = RankRow;
  static const std::vector<Field<R>> list = {
      {"rank", "", "recording", "0 to size - 1", &R::rank, rank_column("rank", Format::word)},
      {"host", "", "recording", "name of the machine", &R::host, rank_column("host", Format::word, 9)},
      {"gpu", "", "device", "name", &R::gpu},
      {"uuid", "", "device", "the GPU's own id", &R::uuid},
      {"step_time_ns", "ns", "timer", "median from step begin to step begin, no collector on", &R::step_time_ns, rank_column("step")},
      {"step_p95_ns", "ns", "timer", "95% quantile of the same", &R::step_p95_ns},
      {"device_ns", "ns", "activity", "the step shown on the device: work + exposed + idle", &R::device_ns, rank_column("device")},
      {"work_ns", "ns", "activity", "something other than communication runs", &R::work_ns, rank_column("work")},
      {"exposed_ns", "ns", "activity", "only communication runs", &R::exposed_ns, rank_column("exposed")},
      {"hidden_ns", "ns", "activity", "communication runs beside other work", &R::hidden_ns,
       rank_column("hidden", Format::milliseconds, 2)},
      {"idle_ns", "ns", "activity", "nothing runs", &R::idle_ns, rank_column("idle")},
      {"exposed_wait_ns", "ns", "activity", "part of exposed_ns: other ranks had not begun yet", &R::exposed_wait_ns,
       rank_column("waits", Format::milliseconds, 3)},
      {"late_ns", "ns", "formula", "sum over the collectives at which this rank came last, behind the last but one", &R::late_ns,
       rank_column("late", Format::milliseconds, 1)},
      {"last_arrivals", "", "formula", "how many these are", &R::last_arrivals, rank_column("last at", Format::count, 5)},
      {"sm_clock_mhz", "MHz", "NVML", "median over the timed steps", &R::sm_clock_mhz, rank_column("MHz", Format::count, 4)},
      {"power_w", "W", "NVML", "median board power over the timed steps behind the first second", &R::power_w,
       rank_column("W", Format::watts, 6)},
      {"temperature_c", "C", "NVML", "highest", &R::temperature_c, {}, true},
      {"throttled_samples", "", "NVML", "samples in which a throttle reason was set", &R::throttled_samples},
      {"throttle_reasons", "", "NVML", "as in environment", &R::throttle_reasons},
      {"between_steps_ns", "ns", "timer", "median host time from the end of one step to the begin of the next: loading data",
       &R::between_steps_ns, rank_column("between", Format::milliseconds, 8), true},
      {"clock_offset_ns",
       "ns",
       "formula",
       "added to the rank's times to bring them to the clock of the first rank",
       &R::clock_offset_ns,
       {},
       true},
      {"clock_uncertainty_ns", "ns", "formula", "the true offset lies within this of it", &R::clock_uncertainty_ns, {}, true},
  };
  return list;
}

template <>
const std::vector<Field<RankPassRow>>& fields_of() {
  using P = RankPassRow;
  static const std::vector<Field<P>> list = {
      {"rank", "", "recording", "0 to size - 1", &P::rank},
      {"pass", "", "range", "as in passes[]", &P::pass},
      {"time_ns", "ns", "activity", "as in passes[]; of `communication` the exposed time", &P::time_ns},
      {"hidden_ns", "ns", "activity", "communication beside other work, in addition to time_ns", &P::hidden_ns},
  };
  return list;
}

template <>
const std::vector<Field<CollectiveRow>>& fields_of() {
  using C = CollectiveRow;
  static const std::vector<Field<C>> list = {
      {"sequence", "", "activity", "position among the collectives of a step, the same on all ranks", &C::sequence},
      {"kind", "", "range", "all_reduce, reduce_scatter or all_gather", &C::kind, collective_column("collective", Format::word)},
      {"type", "", "range", "fp32, bf16 or fp64", &C::type, collective_column("type", Format::word, 6)},
      {"op", "", "range", "reduce_gradients, gather_weights or norm_gather", &C::op},
      {"bucket", "", "range", "which piece of the gradients or weights", &C::bucket, collective_column("bucket", Format::count, 3)},
      {"bytes", "bytes", "range", "size of the whole array, the slices of all ranks together", &C::bytes,
       collective_column("MB", Format::megabytes)},
      {"during", "", "range", "pass of the work that was launched before it", &C::during, collective_column("during", Format::word, 5)},
      {"kernel", "", "activity", "full name of its first operation", &C::kernel},
      {"time_ns", "ns", "activity", "begin to end, median over the ranks", &C::time_ns, collective_column("ms")},
      {"transfer_ns", "ns", "activity", "from the last begin to the first end of any rank", &C::transfer_ns,
       collective_column("transfer", Format::milliseconds, 2)},
      {"exposed_ns", "ns", "activity", "median over the ranks: alone on the device", &C::exposed_ns, collective_column("exposed")},
      {"hidden_ns", "ns", "activity", "median over the ranks: beside other work", &C::hidden_ns,
       collective_column("hidden", Format::milliseconds, 4)},
      {"bus_bytes_per_s", "bytes/s", "formula", "bytes over the busiest link (nccl-tests) / transfer_ns: how good the link was",
       &C::bus_bytes_per_s, collective_column("GB/s", Format::gigabytes_per_s)},
      {"paid_bytes_per_s", "bytes/s", "formula", "the same / time_ns: what the step got", &C::paid_bytes_per_s,
       collective_column("paid", Format::gigabytes_per_s, 7)},
      {"of_link_ceiling_pct", "%", "formula", "time of this collective alone, as measured on these GPUs, / transfer_ns",
       &C::of_link_ceiling_pct, collective_column("(max)", Format::in_brackets, 1)},
      {"last_rank", "", "activity", "who began last; absent where the skew is below the uncertainty of the clocks", &C::last_rank,
       collective_column("last", Format::count)},
      {"late_ns", "ns", "activity", "how long after the last but one", &C::late_ns, collective_column("late")},
      {"late_because", "", "formula",
       "op in which that rank spent more time than the others since the collective before, work: that of no op, host: nothing ran on it",
       &C::late_because, collective_column("because", Format::word, 8)},
  };
  return list;
}

template <>
const std::vector<Field<CollectiveRankRow>>& fields_of() {
  using C = CollectiveRankRow;
  static const std::vector<Field<C>> list = {
      {"sequence", "", "activity", "as in collectives[]", &C::sequence},
      {"rank", "", "recording", "0 to size - 1", &C::rank},
      {"start_ns", "ns", "activity", "from the begin of main_rank's step, by the common clock", &C::start_ns, {}, true},
      {"end_ns", "ns", "activity", "likewise", &C::end_ns, {}, true},
      {"exposed_ns", "ns", "activity", "nothing else ran; shared where collectives overlap", &C::exposed_ns},
      {"hidden_ns", "ns", "activity", "beside other work", &C::hidden_ns},
      {"queue_ns", "ns", "activity", "from the end of the work launched before it to its begin", &C::queue_ns},
      {"queue_for", "", "activity", "collective: one before it still ran; work: the SMs were busy", &C::queue_for},
      {"wait_ns", "ns", "activity", "until the last rank had begun", &C::wait_ns},
      {"transfer_ns", "ns", "activity", "from there until the first rank had ended", &C::transfer_ns},
      {"drain_ns", "ns", "activity", "behind that", &C::drain_ns},
      {"exposed_wait_ns", "ns", "activity", "part of exposed_ns", &C::exposed_wait_ns},
      {"exposed_transfer_ns", "ns", "activity", "part of exposed_ns", &C::exposed_transfer_ns},
      {"exposed_drain_ns", "ns", "activity", "part of exposed_ns", &C::exposed_drain_ns},
  };
  return list;
}

template <>
const std::vector<Field<LaneRow>>& fields_of() {
  using L = LaneRow;
  static const std::vector<Field<L>> list = {
      {"rank", "", "recording", "0 to size - 1", &L::rank},
      {"name", "", "activity", "full demangled name", &L::name},
      {"activity", "", "activity", "kernel, copy, memset or cpu_op", &L::activity},
      {"pass", "", "range", "absent: unattributed", &L::pass},
      {"layer", "", "range", "absent: outside the layers", &L::layer},
      {"op", "", "range", "absent: unattributed", &L::op},
      {"stream", "", "activity", "CUPTI stream id", &L::stream},
      {"start_ns", "ns", "activity", "from the begin of main_rank's step, by the common clock", &L::start_ns, {}, true},
      {"shown_ns", "ns", "activity", "start to end", &L::shown_ns},
  };
  return list;
}

}  // namespace profiler

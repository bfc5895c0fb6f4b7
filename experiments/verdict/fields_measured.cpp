// The lists of what was measured: waterfall, device, processes and blocks. The rest is in fields.cpp.
#include "experiments/verdict/fields.h"

namespace experiments {
namespace {

template <class Row>
using List = std::vector<Field<Row>>;

}  // namespace

// ---- the waterfall
const List<WaterfallSection>& FieldsOf<WaterfallSection>::list() {
  using W = WaterfallSection;
  static const List<W> list{
      field<&W::a_ns>("a_ns", "ns", "device time of A's traced step"),
      field<&W::b_ns>("b_ns", "ns", "device time of B's"),
      field<&W::delta_ns>("delta_ns", "ns", "B - A: the sum of the deltas of kernels, other, idle and rest"),
      field<&W::kernels>("kernels", "", "what came, went or changed, largest first"),
      field<&W::other>("other", "", "changes too small for a row of their own"),
      field<&W::idle>("idle", "", "between kernels"),
      field<&W::rest>("rest", "", "unattributed, and what the profiles miss"),
      field<&W::ops>("ops", "", "the same by pass and op"),
  };
  return list;
}

const List<WaterfallKernel>& FieldsOf<WaterfallKernel>::list() {
  using K = WaterfallKernel;
  static const List<K> list{
      field<&K::change>("change", "", "gone, new or changed"),
      field<&K::pass>("pass", "", "its launches'"),
      field<&K::op>("op", "", "its launches'"),
      field<&K::kernel>("kernel", "", "name"),
      field<&K::a_launches>("a_launches", "", "a step"),
      field<&K::b_launches>("b_launches", "", "a step"),
      field<&K::a_ns>("a_ns", "ns", "a step"),
      field<&K::b_ns>("b_ns", "ns", "a step"),
      field<&K::delta_ns>("delta_ns", "ns", "B - A"),
      field<&K::a_dram_bytes>("a_dram_bytes", "bytes", "read and written; absent without counters"),
      field<&K::b_dram_bytes>("b_dram_bytes", "bytes", "read and written; absent without counters"),
  };
  return list;
}

const List<WaterfallOther>& FieldsOf<WaterfallOther>::list() {
  using O = WaterfallOther;
  static const List<O> list{
      field<&O::kernels>("kernels", "", "so many"),      field<&O::a_launches>("a_launches", "", "a step"),
      field<&O::b_launches>("b_launches", "", "a step"), field<&O::a_ns>("a_ns", "ns", "a step"),
      field<&O::b_ns>("b_ns", "ns", "a step"),           field<&O::delta_ns>("delta_ns", "ns", "B - A"),
  };
  return list;
}

const List<WaterfallSum>& FieldsOf<WaterfallSum>::list() {
  using S = WaterfallSum;
  static const List<S> list{
      field<&S::a_ns>("a_ns", "ns", "a step"),
      field<&S::b_ns>("b_ns", "ns", "a step"),
      field<&S::delta_ns>("delta_ns", "ns", "B - A"),
  };
  return list;
}

const List<WaterfallOpRow>& FieldsOf<WaterfallOpRow>::list() {
  using O = WaterfallOpRow;
  static const List<O> list{
      field<&O::pass>("pass", "", "forward, backward, update"),
      field<&O::op>("op", "", "name"),
      field<&O::a_ns>("a_ns", "ns", "a step"),
      field<&O::b_ns>("b_ns", "ns", "a step"),
      field<&O::delta_ns>("delta_ns", "ns", "B - A"),
  };
  return list;
}

// ---- what was measured
const List<EnvironmentSection>& FieldsOf<EnvironmentSection>::list() {
  using E = EnvironmentSection;
  static const List<E> list{
      optional_field<&E::absent>("absent", "", "why nothing was sampled"),
      field<&E::blocks>("blocks", "", "measured in turns"),
      field<&E::sampled_blocks>("sampled_blocks", "", "with a sample taken in them; the next two count only these"),
      field<&E::power_capped_blocks>("power_capped_blocks", "",
                                     "with the power-cap bit, which says that a limiter is active and not that the clock is low"),
      field<&E::throttled_blocks>("throttled_blocks", "", "slowed by heat, hardware or the power brake"),
      field<&E::temperature_c_first>("temperature_c_first", "°C", "first sample"),
      field<&E::temperature_c_max>("temperature_c_max", "°C", "highest"),
      field<&E::power_w_max>("power_w_max", "W", "highest mean over one second"),
      field<&E::heating_c_per_10_s_max>("heating_c_per_10_s_max", "°C", "between the means of two pairs"),
      optional_field<&E::heating_pairs>("heating_pairs", "", "after these pairs, from 1, the device still warmed up"),
      field<&E::a_sm_clock_mhz_median>("a_sm_clock_mhz_median", "MHz", "over the sampled blocks of A"),
      field<&E::b_sm_clock_mhz_median>("b_sm_clock_mhz_median", "MHz", "over the sampled blocks of B"),
  };
  return list;
}

const List<AloneRun>& FieldsOf<AloneRun>::list() {
  using R = AloneRun;
  using D = DeviceWindow;
  static const List<R> list{
      field<&R::arm>("arm", "", "which"),
      field<&R::pair>("pair", "", "the round, from 0; each arm runs once in it"),
      field<&R::position>("position", "", "in the round, from 0"),
      field<&R::at_s>("at_s", "s", "begin of its first step, since the measurement began"),
      field<&R::start_s>("start_s", "s", "from its start until it could step"),
      field<&R::rest_s>("rest_s", "s", "the device's idle time before it; absent: the first process, or a command"),
      field<&R::settle_s>("settle_s", "s", "first steps, not counted"),
      field<&R::settle_steps>("settle_steps", "", "these"),
      field<&R::steps>("steps", "", "counted"),
      field<&R::total_ns>("total_ns", "ns", "all counted steps; total_ns / steps is the value of the process"),
      field<&R::stalls>("stalls", "", "steps of more than 1.25 × the median: left out, counted here"),
      field<&R::stalled_ns>("stalled_ns", "ns", "their time"),
      field<&R::first_half_ns>("first_half_ns", "ns", "mean step, stalls included, in whole seconds at the begin of the counted time"),
      field<&R::second_half_ns>("second_half_ns", "ns", "the same at its end"),
      field<&R::full_clock_ns>("full_clock_ns", "ns", "mean of steps 2 to 5, if they end within 40 ms"),
      optional_field<&R::full_clock_absent>("full_clock_absent", "", "why there is none"),
      field<&R::device, &D::sm_clock_mhz>("sm_clock_mhz", "MHz", "mean over the counted steps, as all of the device here"),
      field<&R::device, &D::power_w>("power_w", "W", "joules / seconds; without the counter, as sampled_power_w"),
      field<&R::device, &D::sampled_power_w>("sampled_power_w", "W", "mean of NVML's means over one second"),
      field<&R::device, &D::temperature_c>("temperature_c", "°C", "highest"),
      field<&R::device, &D::joules>("joules", "J", "by the energy counter, interpolated between its changes"),
      field<&R::joules_per_step>("joules_per_step", "J", "joules / all steps of that time, stalls too"),
      field<&R::device, &D::samples>("samples", "", "so many of clock and temperature"),
      field<&R::device, &D::throttle_reasons>("throttle_reasons", "", "all bits seen, nvmlClocksEventReasons"),
      optional_field<&R::device, &D::absent>("environment_absent", "", "why there is no sample"),
      optional_field<&R::device, &D::energy_absent>("energy_absent", "", "why there are no joules"),
      field<&R::last_loss>("loss", "", "training loss of its last step"),
      field<&R::spread_quarter_s>("spread_quarter_s", "", "standard deviation of ln of moving means over 0.25 s: the clock's cycle"),
      field<&R::spread_second>("spread_second", "", "the same over 1 s: what whole seconds leave of it"),
      field<&R::burst>("burst", "", "settled or counted for less than a sustained process needs"),
      optional_field<&R::tenths_ns>("tenths_ns", "ns", "mean step of each 0.1 s from the first step on; 0: none ended in it"),
      optional_field<&R::tenths_mhz>("tenths_mhz", "MHz", "mean SM clock of each 0.1 s; 0: no sample fell into it"),
  };
  return list;
}

const List<PairRow>& FieldsOf<PairRow>::list() {
  using P = PairRow;
  static const List<P> list{
      field<&P::log_ratio>("log_ratio", "", "ln(B / A), median over its quads"),
      field<&P::error>("error", "", "standard error of log_ratio; absent for one quad"),
      field<&P::log_ratio_cycles>("log_ratio_cycles", "", "in SM cycles"),
      field<&P::started_first>("started_first", "", "which arm"),
      field<&P::stationary>("stationary", "", "the step time had settled before the blocks"),
      field<&P::seconds>("seconds", "s", "wall time, start-up included"),
      field<&P::blocks>("blocks", "", "in order"),
  };
  return list;
}

const List<BlockRow>& FieldsOf<BlockRow>::list() {
  using B = BlockRow;
  static const List<B> list{
      field<&B::arm>("arm", "", "which"),
      field<&B::quad>("quad", "", "from 0; four blocks, ABBA or BAAB"),
      field<&B::at_s>("at_s", "s", "its begin, since the run began"),
      field<&B::step_ns>("step_ns", "ns", "median of its steps"),
      field<&B::steps>("steps", "", "kept"),
      field<&B::loss>("loss", "", "training loss of its last step"),
      field<&B::sm_clock_mhz>("sm_clock_mhz", "MHz", "mean of the samples taken in this block; absent without one, as the next three"),
      field<&B::power_w>("power_w", "W", "only of blocks of a second or more: NVML's power is a mean over one second"),
      field<&B::temperature_c>("temperature_c", "°C", "in this block"),
      field<&B::samples>("samples", "", "taken in this block"),
      field<&B::throttle_reasons>("throttle_reasons", "", "all bits seen, nvmlClocksEventReasons"),
  };
  return list;
}

}  // namespace experiments

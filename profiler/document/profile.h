// The profile document, "stepscope.profile/1": the hub. Everything left of it writes it, everything right of
// it (table, CSV, trace, diff, experiments) reads only it.
//
// Every number is per training step unless its help text says otherwise; a program without steps is one big
// step. std::optional is "no answer": the field is absent in the file and a row of `missing` says why. What
// each member means, its unit and its source stand once, in fields.cpp.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/run_fields.h"
#include "profiler/attribute/sums.h"

namespace profiler {

using Text = std::optional<std::string>;
using Count = std::optional<int64_t>;
using Bits = std::optional<uint64_t>;  // a seed: no count, its highest bit may be set
using Number = std::optional<double>;
using Flag = std::optional<bool>;

struct RunSection : stepscope::RunFields {
  Text git_revision, build_type, profiled_at, stopped;
  Count steps, first_timed_step, timed_steps;
  Number first_loss, last_loss;
  std::map<std::string, double> memory_bytes;
};

struct EnvironmentSection {
  Text gpu, uuid, chip, compute_capability;
  Count sm_count, memory_bytes, l2_bytes;
  std::map<std::string, std::string> versions;
  Count samples, throttled_samples;
  Number sm_clock_mhz_median, sm_clock_mhz_min, sm_clock_mhz_max, memory_clock_mhz_median;
  Number power_w_median, power_w_max, temperature_c_max;
  std::vector<std::string> throttle_reasons;
};

struct CeilingsSection {
  Number copy_bytes_per_s, read_bytes_per_s, write_bytes_per_s;
  std::map<std::string, double> matmul_flops_per_s;
  Text device, uuid, driver, measured_at;
};

struct CounterSetRow {
  std::string name;
  std::vector<std::string> metrics;
  int64_t launches = 0, ranges = 0;
  double setup_ns = 0, run_ns = 0, decode_ns = 0;
};

struct CollectionSection {
  std::string producer, program;
  int64_t traced_steps = 0, counted_steps = 0;
  std::string time_basis;
  Count shown_step;
  Count measured_kernels, graph_launches;
  Text tensor_metric, tensor_instructions_metric;
  Number traced_overhead_pct, collecting_ns;
  std::vector<CounterSetRow> counter_sets;
};

struct StepTime {
  Number median, mean, p05, p95, interval_low, interval_high;
  std::vector<double> samples;
};

// Steps in a row while the device was cool, or warm (profiler/document/device_state.h).
struct StateRow {
  std::string state, run;
  int64_t steps = 0;
  double step_time_ns = 0, time_ns = 0, begin_ns = 0;
  Number tokens_per_s, joules_per_step, power_w, sm_clock_mhz;
};

struct TimingSection {
  StepTime step_time_ns;
  Number tokens_per_s, model_flops_per_s, of_matmul_ceiling_pct;
  Text matmul_ceiling;
  Text state;
  std::vector<StateRow> states;
};

struct TotalsSection : Numbers {  // of the numbers only those that number_rows() has beside the totals
  Number time_ns, passes_ns, idle_ns, unattributed_ns, conservation_error_pct;
  Count launches, copies;
  Number floor_ns, headroom_ns, kernel_floor_ns, kernel_headroom_ns;
  Count launches_without_floor;
  Number without_floor_ns;
};

struct GapRow {
  Count up_to_ns;
  int64_t count = 0;
  double time_ns = 0;
};
struct CopyRow {
  std::string name;
  int64_t count = 0, bytes = 0;
  double time_ns = 0;
};
struct EnvironmentRow {
  double at_ns = 0;
  double sm_clock_mhz = 0, memory_clock_mhz = 0, power_w = 0, temperature_c = 0;
};
struct TimelineSection {
  Number window_ns, busy_ns, idle_ns, overlap_ns;
  Count streams;
  std::vector<EnvironmentRow> environment;
  std::vector<GapRow> gaps;
  std::vector<CopyRow> copies;
};

// What rows of whole ops have besides: the floors of their mathematics.
struct Floored : Measured {
  Number flops, min_bytes, floor_ns, headroom_ns, kernel_floor_ns, kernel_headroom_ns;
};

struct PassRow : Floored {
  std::string name;
  Text top_kernel;
  Number top_kernel_ns;
  Number whole_dram_read_bytes, whole_dram_write_bytes, whole_tensor_active_pct;
};
struct OpRow : Floored {
  std::string pass, op;
  // Of `stepscope energy`; absent until it has added them.
  Number energy_j, energy_error_j, energy_floor_j, energy_above_floor_j, sustained_ns;
  Text energy_bound;
};
struct LayerRow : Floored {
  std::string pass;
  int64_t layer = 0;
};
struct KernelRow : MeasuredKernels {
  std::string name, activity;
  Text pass, op;
};

struct LaunchRow : Numbers {
  std::string name, activity;
  int64_t index = 0;
  Text pass, op;
  Count layer;
  std::string path;
  int64_t stream = 0, device = 0;
  std::array<int64_t, 3> grid{}, block{};
  Count registers, shared_bytes;
  Count graph_node;
  Number start_ns, shown_ns, time_ns, share_ns;
  int64_t samples = 0;
  Count bytes;
  Number counted_time_ns;
  std::optional<std::map<std::string, double>> other_counters;
  Text bound;
  Number floor_ns, headroom_ns;
};

// A run of several ranks (profiler/ranks). The sections above are those of one rank, `main_rank`; the ones here compare all. Absent in the
// document of one rank.
struct WorldSection {
  Count size, ranks, main_rank, collectives;
  Text job, clock;
  Number clock_uncertainty_ns;
  Number communication_ns, exposed_ns, hidden_ns, exposed_wait_ns, exposed_transfer_ns, exposed_drain_ns;
  Number tokens_per_s, bytes, bus_bytes_per_s, paid_bytes_per_s, of_link_ceiling_pct;
  Count slowest_rank;
  Text slowest_why;
  Number slowest_late_ns;
};
struct RankRow {
  int64_t rank = 0;
  Text host, gpu, uuid;
  Number step_time_ns, step_p95_ns, device_ns, work_ns, exposed_ns, hidden_ns, idle_ns;
  Number exposed_wait_ns, late_ns;
  Count last_arrivals;
  Number sm_clock_mhz, power_w, temperature_c;
  Count throttled_samples;
  std::vector<std::string> throttle_reasons;
  Number between_steps_ns, clock_offset_ns, clock_uncertainty_ns;
};
struct RankPassRow {
  int64_t rank = 0;
  std::string pass;
  double time_ns = 0, hidden_ns = 0;
};
struct CollectiveRow {  // over all ranks
  int64_t sequence = 0;
  Text kind, type, op;
  Count bucket, bytes;
  Text during;
  std::string kernel;
  double time_ns = 0, exposed_ns = 0, hidden_ns = 0;
  Number transfer_ns, bus_bytes_per_s, paid_bytes_per_s, of_link_ceiling_pct;
  Count last_rank;
  Number late_ns;
  Text late_because;
};
struct CollectiveRankRow {  // of one collective on one rank
  int64_t sequence = 0, rank = 0;
  double start_ns = 0, end_ns = 0, exposed_ns = 0, hidden_ns = 0;
  Number queue_ns;
  Text queue_for;
  Number wait_ns, transfer_ns, drain_ns, exposed_wait_ns, exposed_transfer_ns, exposed_drain_ns;
};
struct LaneRow {  // one operation of one rank, by the common clock
  int64_t rank = 0;
  std::string name, activity;
  Text pass, op;
  Count layer;
  int64_t stream = 0;
  double start_ns = 0, shown_ns = 0;
};

struct MissingRow {
  std::string name, severity, stage;
  int64_t count = 0;
  std::string detail, advice;
};

struct ProfileDocument {
  RunSection run;
  EnvironmentSection environment;
  CeilingsSection ceilings;
  CollectionSection collection;
  TimingSection timing;
  TotalsSection totals;
  std::vector<PassRow> passes;
  std::vector<OpRow> ops;
  std::vector<LayerRow> layers;
  std::vector<KernelRow> kernels;
  std::vector<LaunchRow> launches;
  TimelineSection timeline;
  std::vector<MissingRow> missing;
  WorldSection world;
  std::vector<RankRow> ranks;  // empty: a run of one rank
  std::vector<RankPassRow> rank_passes;
  std::vector<CollectiveRow> collectives;
  std::vector<CollectiveRankRow> collective_ranks;
  std::vector<LaneRow> lanes;
};

// Over the passes that have it, absent when none has: a pass of nothing but copies has no floor and must not hide the others.
Number sum_passes(const std::vector<PassRow>& passes, Number Floored::*member);

// A severe row makes the command that made the document fail.
bool has_severe_missing(const ProfileDocument& document);

}  // namespace profiler

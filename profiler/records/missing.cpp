#include "profiler/records/missing.h"

#include <array>
#include <cstddef>

namespace profiler {
namespace {

using enum Severity;

// Severe = a number in the tables would be wrong or the main question stays unanswered; the command fails.
// Notice = some numbers are absent or weaker, the rest stand. Info = worth knowing.
constexpr auto kCatalogue = std::to_array<MissingKind>({
    // collect
    {"dropped_activity_records", severe, "collect",
     "CUPTI ran out of buffers, so kernel times of the traced steps are incomplete; trace fewer steps."},
    {"torn_activity_buffer", severe, "collect",
     "An activity buffer could not be read to its end; the records behind the tear are lost. Run again."},
    {"kernels_without_time", severe, "collect",
     "Kernels came with a zero or reversed time stamp, or with none, and add nothing to any time; trace fewer steps."},
    {"unmatched_correlation", severe, "collect",
     "Kernels had no launch call with their correlation id, so their range is unknown; run again and report "
     "it."},
    {"launches_not_kept", notice, "collect",
     "The program launched more kernels than were kept; totals cover the kept ones only. Raise the limit."},
    {"counters_unavailable", notice, "collect",
     "Hardware counters could not be had, so bytes and tensor use are absent; `doctor` names the cure."},
    {"counters_not_asked", info, "collect", "--no-counters left the hardware counters out, so bytes and tensor use are absent."},
    {"built_in_metrics_not_asked", info, "collect",
     "--metric read other metrics than the built-in set, so bytes are absent, and tensor use where it is not among them; what was asked "
     "for is in launches[].other_counters of the document, and in `report --csv FILE --csv-rows launch`."},
    {"counter_set_failed", severe, "collect",
     "A counter set lost ranges or gave values that are not numbers; the whole set was thrown away. Run "
     "again."},
    {"metric_without_value", info, "collect",
     "A metric that --metric asked for is no number for these kernels or passes, as a ratio of things that they have none of; they have "
     "their other metrics."},
    {"graph_launch_in_counter_run", severe, "collect",
     "CUDA graphs cannot be counted kernel by kernel; run the counter phase with graphs off."},
    {"other_subscriber", severe, "collect", "Another tool holds CUPTI in this process, so nothing was recorded; run without it."},
    {"environment_not_sampled", notice, "collect",
     "Clocks, power and throttling during the run are unknown: the driver's NVML library is missing, or the "
     "program has no step ranges in which to sample."},
    {"collector_overhead_high", notice, "collect",
     "Traced steps took over 10% longer than steps without a collector. On a GPU the gaps between kernels are longer than they would be, "
     "kernels hardly; on a CPU every op may be."},
    {"timed_steps_disturbed", notice, "collect",
     "Traced steps took over 10% less than those without a collector: something else held the machine while steps were timed. Run "
     "again when it is idle."},
    {"plan_shortened", notice, "collect",
     "The program has fewer steps than were asked for, so the plan was cut to them in order of worth: traced, timed, counted. Give "
     "the program more steps for the rest."},
    {"no_gpu_counters", info, "collect", "This run was on the CPU: time per pass and op are real, hardware counters do not exist."},
    // recording
    {"truncated_recording", severe, "recording",
     "The recording has no end line: the profiled process died or was killed. What it wrote before is "
     "shown."},
    // attribute
    {"unattributed_kernels", notice, "attribute",
     "Operations ran outside every leaf range; their time is the row \"unattributed\". Open a range around "
     "the launch."},
    {"unknown_range_path", notice, "attribute",
     "A range is not spelled step/PASS/LAYER/OP in known words; its time is the row \"unattributed\"."},
    {"counter_sequence_mismatch", severe, "attribute",
     "The counted step launched other kernels than the timed one, so counters were not merged; make the "
     "program repeat itself."},
    {"counter_grid_differs", notice, "attribute",
     "A kernel's grid depends on the step's data, so it was counted with another one than it was timed with; "
     "its counters, "
     "and sums that would need them, are left out."},
    {"kernel_sequence_changed", severe, "attribute",
     "The traced steps did not launch the same kernels, so times are those of the one step shown."},
    {"steps_differ", notice, "attribute",
     "The program's steps do not launch the same kernels: times are those of the one step shown, and counters of a step that "
     "launched others are left out."},
    {"records_lost_in_step", severe, "attribute",
     "The traced step launched more operations than the recording holds; time of the lost ones shows as "
     "idle."},
    {"pass_sum_mismatch", severe, "attribute",
     "Passes, unattributed and idle do not add up to the step's GPU time within 0.5%: records were lost or "
     "contradict each other."},
    {"traced_steps_vary", notice, "attribute",
     "Traced steps differ so much that medians do not add up to a step; the tables show one traced step "
     "instead, the one nearest to their median."},
    {"steps_overlap", notice, "attribute",
     "The next step begins on the GPU before the one before has ended: the step's time on the GPU is more than the distance of two steps, "
     "and its idle time holds work of its neighbours."},
    {"pass_counters_mismatch", notice, "attribute",
     "Per-kernel DRAM bytes of a pass differ over 5% from the pass counted as a whole; copies and memsets "
     "are only in the latter."},
    {"kernel_time_differs_in_counter_run", notice, "attribute",
     "Kernels took over 20% more or less time while being counted than the clocks there and in the traced steps explain; their bytes may "
     "not be those of training."},
    {"above_ceiling", notice, "attribute",
     "A kernel moved more bytes per second than 102% of the measured ceiling: counter, time or ceiling is "
     "wrong."},
    {"tensor_use_above_100", notice, "attribute",
     "No kernel can use the tensor cores more than all the time: counter or time is wrong. Counters of very short kernels can read so; "
     "give such kernels more work per launch."},
    {"phases_not_traced", severe, "attribute",
     "The recording holds no traced step, so there is nothing to attribute; run more steps than the phases "
     "need."},
    // document
    {"ceilings_not_measured", notice, "document",
     "Bandwidth and matmul ceilings are unknown, so percentages of them, bounds and headroom are absent."},
    {"ceilings_of_other_gpu", notice, "document",
     "The ceilings were measured on another GPU than the step ran on: percentages of them, bounds and headroom are true as far as the two "
     "are equally fast. From a program that needs one GPU, hide the others by CUDA_VISIBLE_DEVICES."},
    {"clocks_throttled", notice, "document",
     "The GPU lowered its clocks for heat or power during timed steps; times are true for this run, not for "
     "a cool GPU."},
    // several ranks
    {"rank_missing", severe, "document",
     "Recordings of some ranks are not there, so who waited for whom cannot be told; skew and arrivals are absent."},
    {"rank_not_traced", severe, "document",
     "A rank recorded no traced step, so its times are absent and collectives were not joined; look at its other rows of `missing`."},
    {"collectives_not_joined", severe, "document",
     "The ranks did not launch the same collectives in the step shown, so waiting and transfer cannot be told apart."},
    {"collective_size_unknown", notice, "document",
     "No range tells how large these collectives are, so their bandwidth is absent; the trainer opens a range as "
     "base/collective_words.h spells it."},
    {"clocks_not_aligned", notice, "document",
     "Nothing bounds how far the clocks of these ranks are apart, or the bounds contradict each other; arrivals and skew are absent."},
    {"ranks_counted_in_silence", info, "document",
     "A kernel that is counted runs alone, and a collective waits for one of another rank. So in the counted step the ranks exchanged "
     "nothing: every rank's own kernels are counted, those that carry data between ranks are not."},
    {"ranks_not_counted", notice, "document",
     "The ranks did not survive a run with hardware counters, so they were profiled once more without; profile one GPU for counters."},
    {"kernel_counters_left_out", notice, "document",
     "A kernel that is counted runs alone, and a collective waits for a kernel of another rank, so steps of several ranks were not "
     "counted; profile one GPU for counters."},
    {"link_ceilings_not_measured", info, "document",
     "How fast these GPUs exchange data was not measured, so shares of that ceiling are absent; `doctor --gpus` measures it."},
    // ingest: reports of other tools
    {"report_damaged", severe, "ingest",
     "The file is cut or damaged; only the results before the damage are shown. Copy or collect it again."},
    {"report_version_unknown", notice, "ingest",
     "The report's file version was never checked here; compare a few values with the tool that wrote it."},
    {"results_without_time", severe, "ingest",
     "These kernels add nothing to any time, and where none has one there is nothing to show. Collect the report again with "
     "ncu --metrics gpu__time_duration.sum; `ingest --metrics-command` prints the command with all metrics that are read."},
    {"ceilings_of_unknown_gpu", notice, "ingest",
     "The ceilings may be those of another GPU; percentages of them, bounds and headroom are true only if they are not."},
    {"metrics_not_in_report", notice, "ingest",
     "The report does not hold every metric that the tables show; `ingest --metrics-command` prints the ncu "
     "command that collects them."},
    {"tensor_use_converted", info, "ingest",
     "Tensor use was a share of the cycles with warps and was brought to all cycles: the same quantity as "
     "elsewhere."},
    {"tensor_use_other_metric", notice, "ingest",
     "Tensor use is another quantity than stepscope's own; compare it only with documents of the same "
     "collection.tensor_metric. "
     "`ingest --metrics-command` prints the ncu command for the usual one."},
    {"columns_absent", notice, "ingest",
     "The table does not hold these columns, which describe a launch: they are shown as 0, and no bound says that a kernel has few blocks. "
     "Print the table with a newer ncu."},
    {"errors_printed", notice, "ingest",
     "ncu printed errors between its tables or around them; kernels may be missing. Read them, and collect the report again if they are "
     "about profiling."},
    {"several_tables", info, "ingest", "The file holds several tables of ncu, one behind the other; they are shown as one report."},
    {"kernels_measured_alone", info, "ingest",
     "Nsight Compute runs kernels one at a time: times are of each kernel alone, idle time and overlap are "
     "unknown. By default it also flushes caches and locks clocks."},
    {"several_processes", notice, "ingest", "The report holds kernels of several processes, shown as one; --process PID chooses one."},
    {"several_devices", notice, "document",
     "Kernels of several GPUs are shown as those of one. Record one GPU at a time (CUDA_VISIBLE_DEVICES hides the others), or one process "
     "for each GPU; of an ingested report --process PID chooses one."},
    {"passes_unknown", notice, "ingest",
     "Kernels without a pass are shown as unattributed; collect NVTX ranges too (ncu --nvtx, nsys profile --trace cuda,nvtx), or place "
     "them by --rules."},
    {"trace_without_counters", notice, "ingest",
     "A trace of Nsight Systems holds times only, so bytes and tensor use are absent; a report of Nsight Compute has them."},
    {"passes_from_rules", notice, "ingest",
     "Pass, layer and op come from a rules file, which goes by kernel names, not from ranges of the "
     "program."},
    {"rules_not_used", notice, "ingest",
     "Ranges of the program already say the pass of these kernels, and rules place only what has none; no rule was used."},
    {"kernels_without_rule", notice, "ingest", "No rule fits these kernels; they are shown as unattributed. Extend the rules file."},
    {"launches_multiplied", notice, "ingest",
     "The rules let one launch stand for several equal layers: sums hold times that were not measured."},
    {"graphs_traced_whole", severe, "ingest",
     "nsys traced these launches of CUDA graphs as a whole: the export does not hold their kernels, and their time shows as idle or not at "
     "all. Record again with nsys profile --cuda-graph-trace=node."},
    {"last_step_incomplete", notice, "ingest", "The capture ended inside its last step, which is left out."},
    {"outside_steps", info, "ingest", "Operations outside every step range are not part of a step and are left out."},
    {"device_state_unknown", info, "document",
     "Whether the timed steps ran on a cool or a warm device cannot be told, so the headline says neither."},
    {"energy_not_measured", info, "document",
     "Energy per step needs a second or more of steps and the driver's energy counter; take more --steps, or --sustained."},
    {"energy_of_other_code", notice, "document",
     "The joules of the ops were measured with another build than the times beside them; where its kernels differ, they belong to others."},
    {"energy_of_other_gpu", notice, "document",
     "The joules of the ops were measured on another GPU of the same name than the times beside them; two of them differ by some percent."},
    {"energy_of_other_times", notice, "document",
     "The step of the joules and that of the times beside them differ by more than a quarter: they are of two machines or two loads."},
    {"sustained_not_measured", notice, "document",
     "There is no warm step time of this program; where a GPU ran too few timed steps, run more."},
    {"timed_steps_missing", severe, "document",
     "run.json holds no step in the timed range, so ms/step and tokens/s are absent; run more steps."},
    {"too_few_timed_steps", notice, "document", "Fewer than 6 timed steps give no 95% interval of the median; run more steps."},
    {"run_info_missing", notice, "document", "The program wrote no run.json, so model, tokens/s and floors of ops are unknown."},
});

}  // namespace

std::span<const MissingKind> missing_catalogue() { return kCatalogue; }

std::optional<MissingKind> find_missing(std::string_view name) {
  for (const MissingKind& kind : kCatalogue)
    if (kind.name == name) return kind;
  return std::nullopt;
}

std::string_view name(Severity severity) {
  constexpr std::array<std::string_view, 3> words = {"info", "notice", "severe"};
  return words.at(static_cast<size_t>(severity));
}

}  // namespace profiler

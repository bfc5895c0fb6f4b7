#include "cli/range_recorder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "base/read_file.h"
#include "base/statistics.h"
#include "profiler/collect/events.h"
#include "profiler/collect/rank.h"
#include "profiler/records/shown_step.h"

namespace cli {

using profiler::collect::now_ns;

RangeRecorder::RangeRecorder(const std::string& plan_file, const std::string& program)
    : RangeRecorder(profiler::collect_plan_from_json(stepscope::read_file(plan_file)), program) {}

RangeRecorder::RangeRecorder(const profiler::CollectPlan& plan, const std::string& program)
    : RangeRecorder(plan, profiler::collect::rank_of_process(plan.job), program) {}

RangeRecorder::RangeRecorder(const profiler::CollectPlan& plan, const std::optional<profiler::RankRecord>& rank, const std::string& program)
    : plan_(plan), writer_(rank ? profiler::file_of_rank(plan.output, rank->rank) : plan.output), one_of_several_(rank.has_value()) {
  if (rank) writer_.write(*rank);
  last_ = profiler::planned_steps(plan_.phases);
  profiler::SessionRecord s;
  s.producer = "cpu";
  s.program = program;
  s.pid = getpid();
  s.device["name"] = "CPU";
  writer_.write(s);
}

profiler::Phase RangeRecorder::phase_of_step(int64_t seen) const {
  int64_t end = 0;
  for (const profiler::PhasePlan& p : plan_.phases)
    if (seen < (end += p.steps)) return p.phase;
  return profiler::Phase::timed;
}

void RangeRecorder::begin_step(int64_t) {
  step_ = {};
  step_.step = seen_;
  step_.phase = phase_of_step(seen_);
  recording_ = !finished_ && step_.phase == profiler::Phase::activity;
  current_.clear();
  step_.host_begin_ns = now_ns();
}

void RangeRecorder::end_step(int64_t) {
  step_.host_end_ns = now_ns();
  ++seen_;
  if (finished_) return;
  if (recording_) {
    step_.gpu_begin_ns = step_.host_begin_ns;  // the device is the CPU: its step is the host's
    step_.gpu_end_ns = step_.host_end_ns;
    step_.kernels = static_cast<int64_t>(current_.size());
    traced_.push_back(step_);
    operations_[step_.step] = std::move(current_);
  }
  writer_.write(step_);
  if (seen_ == last_) finish();
}

void RangeRecorder::begin_op(gpt2::Pass, int, gpt2::Op) {
  collective_.clear();
  if (recording_) op_begin_ns_ = now_ns();
}

void RangeRecorder::begin_collective(const std::string& range) { collective_ = range; }

void RangeRecorder::end_op(gpt2::Pass pass, int layer, gpt2::Op op) {
  if (!recording_) return;
  profiler::LaunchRecord r;
  r.end_ns = now_ns();
  r.start_ns = op_begin_ns_;
  r.launch_ns = op_begin_ns_;
  r.activity = profiler::Activity::cpu_op;
  r.step = step_.step;
  r.index = static_cast<int64_t>(current_.size());
  r.path = plan_.step_range + "/" + gpt2::leaf_path(pass, layer, op) + (collective_.empty() ? "" : "/" + collective_);
  r.name = fmt::format("{}_{}", gpt2::name(op), gpt2::name(pass));
  current_.push_back(std::move(r));
}

void RangeRecorder::finish() {
  if (const auto shown = profiler::shown_step(
          traced_, [](int64_t) { return true; }, one_of_several_))
    for (const profiler::LaunchRecord& r : operations_.at(*shown)) writer_.write(r);
  std::vector<std::vector<int64_t>> durations_ns;  // per index
  for (const auto& [step, operations] : operations_) {
    durations_ns.resize(std::max(durations_ns.size(), operations.size()));
    for (size_t i = 0; i < operations.size(); ++i) durations_ns[i].push_back(operations[i].end_ns - operations[i].start_ns);
  }
  for (size_t i = 0; i < durations_ns.size(); ++i) {
    const std::vector<int64_t>& d = durations_ns[i];
    profiler::LaunchStats s;
    s.activity = profiler::Activity::cpu_op;
    s.index = static_cast<int64_t>(i);
    s.samples = static_cast<int64_t>(d.size());
    const auto [least, most] = std::minmax_element(d.begin(), d.end());
    s.median_ns = stepscope::median(d);
    s.mean_ns = static_cast<double>(std::accumulate(d.begin(), d.end(), int64_t{0})) / static_cast<double>(d.size());
    s.min_ns = static_cast<double>(*least);
    s.max_ns = static_cast<double>(*most);
    writer_.write(s);
  }
  writer_.write(profiler::MissingRecord{"no_gpu_counters", 1, "the CPU reference has no hardware counters"});
  writer_.finish();
  finished_ = true;
}

}  // namespace cli

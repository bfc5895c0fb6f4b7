// `--continue`: what an earlier command left of an experiment counts where it is of the same step, device, thresholds and seconds.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "base/sha256.h"
#include "experiments/session/session_job.h"
#include "experiments/verdict/campaign.h"
#include "experiments/verdict/stale.h"

namespace experiments {

using stepscope::InputError;

namespace {

std::string other(const char* what, const std::string& before, const std::string& now) {
  if (before == now) return "";
  return fmt::format("another {}: {}, now {}", what, before.empty() ? "(none)" : before, now.empty() ? "(none)" : now);
}

[[noreturn]] void refuse_to_go_on(const std::string& name, const std::string& differs) {
  throw InputError(fmt::format("--continue: {}: what was measured is of {}; without --continue it is measured anew", name, differs));
}

void same_or_refuse(const std::string& name, const char* what, const std::string& before, const std::string& now) {
  if (const std::string differs = other(what, before, now); !differs.empty()) refuse_to_go_on(name, differs);
}

std::string seconds_text(double s) { return fmt::format("{} s", s); }

// A document's percentage was a ratio in between: 0.9 came back as 0.9000000000000001.
std::string looks_text(const std::vector<int64_t>& pairs, double minimum_pct) {
  return fmt::format("looks after {} pairs for {:.6g}%", fmt::join(pairs, ", "), minimum_pct);
}

}  // namespace

// The oldest stays, also where it is `now` again and there was another between.
std::vector<std::string> revisions_before(const CodeSection& code, const std::string& now) {
  std::vector<std::string> out = code.earlier_revisions;
  if (std::find(out.begin(), out.end(), code.git_revision) == out.end()) out.push_back(code.git_revision);
  return out == std::vector{now} ? std::vector<std::string>() : out;
}

// Sources of arms that are built elsewhere are known only when they are built. nvcc writes names of temporary files into what it compiles, so
// no two builds of one tree are equal.
std::optional<bool> ExperimentSession::has_sources_of(const VerdictDocument& before, const Experiment& e) {
  if (!sources_of(e, 'A').here() || !sources_of(e, 'B').here()) return std::nullopt;
  const std::string &a = before.code.a_sources_sha256, &b = before.code.b_sources_sha256;
  if (b.empty() || sources_.of(trainer_of(e, 'B')).empty()) return std::nullopt;
  return (e.frozen_baseline() ? a.empty() : sources_.match(a, trainer_of(e, 'A'))) && sources_.match(b, trainer_of(e, 'B'));
}

std::string ExperimentSession::differs_from(const VerdictDocument& before, const Experiment& e) {
  const auto same = has_sources_of(before, e);
  std::vector<int64_t> looks, looks_now;
  for (const auto& look : before.thresholds.looks) looks.push_back(look.pairs);
  for (const Look& look : options_.plan.thresholds.looks) looks_now.push_back(look.pairs);
  std::vector<std::string> all{other("experiment file", before.experiment ? before.experiment->file_sha256 : "", e.file_sha256),
                               other("patch", before.code.patch_sha256, e.patch.empty() ? "" : gpt2::sha256_file(e.patch))};
  if (!same)
    all.push_back(other("revision", before.code.git_revision, options_.git_revision));
  else if (!*same)
    all.push_back(fmt::format("another step: sources {:.12} of {}, which differ from those here", before.code.b_sources_sha256,
                              before.code.git_revision));
  const std::string device = device_of(e);
  if (!device.empty() && !before.environment.device.empty()) all.push_back(other("device", before.environment.device, device));
  all.push_back(other("plan", looks_text(looks, before.thresholds.minimum_effect_pct), looks_text(looks_now, e.minimum_effect_pct)));
  for (const WorkloadSection& w : before.workloads) {
    if (w.runs.empty() && w.pairs.empty()) continue;
    if (w.procedure != options_.procedure)
      all.emplace_back(options_.procedure == Procedure::alone ? "another quantity: the ratio at equal clocks, now sustained step times"
                                                              : "another quantity: sustained step times, now the ratio at equal clocks");
    const bool was_serial = std::find(w.a.command.begin(), w.a.command.end(), "--serial") != w.a.command.end();
    if (!w.whole_programs) all.push_back(other("flag of both arms", was_serial ? "--serial" : "", options_.serial ? "--serial" : ""));
    if (w.sustained) {
      const AlonePlan& alone = options_.plan.alone;
      all.push_back(other("--measure-s", seconds_text(w.sustained->measure_s), seconds_text(alone.measure_s)));
      if (alone.settle_s) all.push_back(other("--settle-s", seconds_text(w.sustained->settle_s), seconds_text(*alone.settle_s)));
    }
    // Where the sources are not known, a revision with uncommitted changes says too little.
    if (!same && !e.frozen_baseline() && sources_of(e, 'A').here())
      all.push_back(other("program in arm A", w.a.program_sha256, sha256_of(options_.program)));
  }
  const auto found = std::find_if(all.begin(), all.end(), [](const std::string& d) { return !d.empty(); });
  return found == all.end() ? "" : *found;
}

bool stands_in(const Experiment& e, const WorkloadSection& left) { return !was_cut_short(left) && other_buckets(left, e).empty(); }

// Before anything is prepared: what was decided needs neither gate nor processes.
void ExperimentSession::go_on(std::span<Job> jobs, const VerdictDocument& before) {
  const Experiment& e = *jobs.front().experiment;
  if (const std::string differs = differs_from(before, e); !differs.empty()) refuse_to_go_on(e.name, differs);
  const bool same_sources = has_sources_of(before, e).value_or(false), same_driver = before.environment.driver == driver_of(options_.gpu);
  if (device_.empty()) device_ = before.environment.device;
  if (driver_.empty()) driver_ = before.environment.driver;
  for (Job& job : jobs)
    for (const WorkloadSection& w : before.workloads) {
      if (w.workload != job.result.workload.text() || !other_buckets(w, e).empty()) continue;
      if (stands_in(e, w)) {
        job.result.decided_before = w;
        job.measured = true;
      } else if (w.sustained) {  // a whole round at least
        job.left_off = &w;
        job.same_sources = same_sources;
        if (same_sources && w.a.gate.passed && w.b.gate.passed && same_driver)
          job.gated_by = fmt::format("{} on {}", before.code.git_revision, before.at);
      }
    }
}

// After make_arms.
void ExperimentSession::count_rounds_before(Job& job) {
  const WorkloadSection& before = *job.left_off;
  const std::string& name = job.experiment->name;
  AlonePlan& alone = job.plan.alone;
  if (!job.same_sources) {
    same_or_refuse(name, "program in arm A", before.a.program_sha256, job.result.a.program_sha256);
    same_or_refuse(name, "program in arm B", before.b.program_sha256, job.result.b.program_sha256);
  }
  // A program may have another name.
  const auto flags = [](const std::vector<std::string>& command) {
    return command.empty() ? "" : fmt::format("{}", fmt::join(command.begin() + 1, command.end(), " "));
  };
  same_or_refuse(name, "command of arm A", flags(before.a.command), flags(job.result.a.command));
  same_or_refuse(name, "command of arm B", flags(before.b.command), flags(job.result.b.command));
  alone.earlier = whole_rounds(before.runs);
  alone.earlier_settle_s = before.sustained->settle_s;
  alone.earlier_seconds = before.sustained->seconds_alone;
  alone.earlier_commands = static_cast<int>(before.sustained->commands.value_or(1));
}

}  // namespace experiments

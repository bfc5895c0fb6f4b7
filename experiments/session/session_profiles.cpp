// What the times alone do not say: both arms under the collector, once to compare launches and once for the waterfall.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/errors.h"
#include "base/say.h"
#include "base/stderr_text.h"
#include "base/temporary_folder.h"
#include "experiments/gate/timed_steps.h"
#include "experiments/session/child_output.h"
#include "experiments/session/session.h"
#include "experiments/verdict/physical_floor.h"
#include "profiler/document/json.h"
#include "profiler/recording/collector.h"
#include "profiler/recording/recording.h"

namespace experiments {

namespace fs = std::filesystem;
using stepscope::TemporaryFolder;
using Arguments = std::vector<std::string>;

std::optional<std::string> ExperimentSession::profile(const Profiled& what, const std::string& out) {
  Arguments argv{what.by, "profile"};
  argv.insert(argv.end(), what.trainer_arguments.begin(), what.trainer_arguments.end());
  argv.insert(argv.end(), {"--steps", std::to_string(kProfiledSteps), "--warmup", std::to_string(kProfileWarmup), "--out", out});
  if (!what.program.empty()) {
    argv.insert(argv.end(), {"--step-range", "step", "--"});
    argv.insert(argv.end(), what.program.begin(), what.program.end());
  }
  const ChildOutput o = run_to_end(argv, options_.profile_timeout_s, options_.stop, true);
  if (o.end == ChildOutput::End::interrupted) return "interrupted";
  if (o.end == ChildOutput::End::timeout) return fmt::format("the profile did not end within {:.0f} s", options_.profile_timeout_s);
  if (!o.ending.exited || (o.ending.code != 0 && !fs::exists(out)))
    return fmt::format("the profile {}: {}", o.ending.text(), o.last_words.substr(o.last_words.rfind('\n') + 1));
  return std::nullopt;
}

void ExperimentSession::compare_launches(WorkloadResult& r, const PairPlan& pairs) {
  const auto library = profiler::collector_library();
  std::string absent;
  if (!options_.profile)
    absent = "--no-profile";
  else if (!pairs.a.steps_on_command)
    absent = "the arms are whole programs";
  else if (!options_.gpu.present)
    absent = "no GPU: " + options_.gpu.why_not;
  else if (!library)
    absent = "the collector is not built";
  else if (interrupted())
    absent = "interrupted";
  for (const auto& [report, spec] : {std::pair(&r.a, &pairs.a), std::pair(&r.b, &pairs.b)}) {
    report->launches_absent = absent;
    if (!absent.empty()) continue;
    // Short blocks whose steps overlap, as in a pair; then the same trainer takes the steps that a fresh trainer takes again.
    constexpr int64_t kUntraced = 4;
    constexpr int kBlocks = 4, kBlockSteps = 2;
    const int64_t timed = kBlocks * (kBlockSteps + 1), checked = gate::AgainOptions().steps;
    const TemporaryFolder folder;
    profiler::CollectPlan plan;
    plan.output = folder.file("recording.jsonl");
    plan.raw_trace = folder.file("raw.jsonl");
    plan.phases = {{profiler::Phase::warmup, kUntraced}, {profiler::Phase::activity, timed - kUntraced + checked}};
    ArmSpec traced = *spec;
    traced.environment.merge(profiler::collector_environment(plan, folder.file("plan.json"), *library));
    try {
      const auto arm = make_arm(traced, options_.stop);
      arm->start();
      arm->wait_ready(pairs.start_timeout_s);
      for (int i = 0; i < kBlocks; ++i) arm->block(kBlockSteps, pairs.start_timeout_s);
      arm->steps_again(pairs.seed + 1, pairs.start_timeout_s + pairs.block_timeout_s);
      report->launches = same_launches(profiler::load_raw_trace(plan.raw_trace), timed);
    } catch (const ArmFailure& e) {
      report->launches_absent = e.what();
    } catch (const stepscope::InputError& e) {
      report->launches_absent = e.what();
    } catch (const Interrupted&) {
      report->launches_absent = "interrupted";
    }
    if (report->launches && !report->launches->same)
      r.make_invalid(reason::kArmFailed, fmt::format("arm {}: {}", spec->label, report->launches->sentence));
  }
}

void ExperimentSession::profile_both(WorkloadResult& r, const std::string& name, const Profiled& a, const Profiled& b) {
  if (!options_.profile) {
    r.waterfall_absent = "--no-profile";
    return;
  }
  if (interrupted()) {
    r.waterfall_absent = "interrupted";
    return;
  }
  if (options_.progress) stepscope::put_on_stderr("profile of both arms\n");
  const TemporaryFolder folder;
  const std::string a_file = folder.file("a.json"), b_file = folder.file("b.json");
  for (const auto& [arm, what, file] : {std::tuple("A", &a, &a_file), std::tuple("B", &b, &b_file)})
    if (const auto why = profile(*what, *file)) {
      r.waterfall_absent = fmt::format("arm {}: {}", arm, *why);
      return;
    }
  if (!options_.keep_profiles.empty()) {
    std::string stem = name + " " + r.workload.text();
    std::replace(stem.begin(), stem.end(), ' ', '-');
    for (const auto& [file, arm] : {std::pair(&a_file, 'a'), std::pair(&b_file, 'b')}) {
      const fs::path kept = options_.keep_profiles / fmt::format("{}.{}.json", stem, arm);
      std::error_code error;  // what was measured is worth more than a copy
      fs::copy_file(*file, kept, fs::copy_options::overwrite_existing, error);
      if (error) stepscope::say(fmt::format("--keep-profiles: {} cannot be written: {}", kept.string(), error.message()));
    }
  }
  try {
    const auto da = profiler::load_profile(a_file), db = profiler::load_profile(b_file);
    r.waterfall = profiler::make_waterfall(da, db);
    if (!r.waterfall) r.waterfall_absent = "the profiles hold no device time of a step";
    r.same_code = same_code(da, db, r.a.program_sha256, r.b.program_sha256);
    for (const auto& [arm, document] : {std::pair('A', &da), std::pair('B', &db)})
      if (const auto step_ns = step_ns_of(r.log, arm))
        if (const auto why = below_physical_floor(*step_ns, *document)) {
          r.make_invalid(reason::kArmFailed, fmt::format("arm {}: {}", arm, *why));
          r.same_code.reset();
        }
  } catch (const stepscope::InputError& e) {
    r.waterfall_absent = e.what();
  }
}

}  // namespace experiments

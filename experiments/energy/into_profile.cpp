#include "experiments/energy/into_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/errors.h"
#include "base/revision.h"
#include "profiler/document/json.h"
#include "profiler/document/missing_rows.h"

namespace energy {
namespace {

template <class T>
std::string in_words(const T& value) {
  if constexpr (std::is_same_v<T, std::map<std::string, std::string>>) {
    std::vector<std::string> all;
    for (const auto& [slot, variant] : value) all.push_back(slot + "=" + variant);
    return all.empty() ? "default variants" : fmt::format("{}", fmt::join(all, " "));
  } else {
    return fmt::format("{}", value);
  }
}

// "batch size 4 here, 64 in the profile" for each that differs. What the profile does not say cannot differ.
std::vector<std::string> differences(const RunSettings& here, const profiler::ProfileDocument& profile) {
  const profiler::RunSection& there = profile.run;
  std::vector<std::string> found;
  const auto compare = [&](const char* what, const auto& mine, const auto& other) {
    if (!other || mine == *other) return;
    found.push_back(fmt::format("{} {} here, {} in the profile", what, in_words(mine), in_words(*other)));
  };
  compare("trainer", here.trainer, there.trainer);
  compare("device", here.device, there.device ? there.device : profile.environment.gpu);
  // Before a measurement it is not known yet; behind it this is asked again.
  const auto driver = profile.environment.versions.find("driver");
  if (driver != profile.environment.versions.end() && !here.driver.empty()) compare("driver", here.driver, std::optional(driver->second));
  compare("ranks", int64_t{1}, profile.world.size);  // joules are of one GPU alone, and a rank may do a part of an op
  compare("model", here.model, there.model);
  compare("batch size", here.batch_size, there.batch_size);
  compare("sequence length", here.seq_len, there.seq_len);
  compare("micro-batches", here.accumulation, there.accumulation);
  compare("matmul", here.matmul, there.matmul);
  compare("recompute", here.recompute, there.recompute);
  compare("weight rounding", here.weight_rounding, there.weight_rounding);
  compare("variants", here.variants, std::optional(there.variants));
  return found;
}

constexpr double kAlike = 1.25;

std::string other_code(const RunSettings& run, const profiler::ProfileDocument& profile) {
  const profiler::Text& there = profile.run.git_revision;
  if (run.git_revision.empty() || !there) return "";
  if (run.git_revision != *there) return fmt::format("joules of {}, times of {}", run.git_revision, *there);
  return stepscope::has_uncommitted_changes(*there) ? fmt::format("both of {}, whose uncommitted changes may differ", *there) : "";
}

std::string other_gpu(const RunSettings& run, const profiler::ProfileDocument& profile) {
  const profiler::Text& there = profile.environment.uuid;
  return run.uuid && there && *run.uuid != *there ? fmt::format("joules of {}, times of {}", *run.uuid, *there) : "";
}

std::string other_times(const Document& document, const profiler::ProfileDocument& profile) {
  const profiler::Number there = profile.timing.step_time_ns.median;
  const double here_ms = document.step.seconds * 1e3;
  if (!there || !(*there > 0) || !(here_ms > 0)) return "";
  const double there_ms = *there * 1e-6;
  if (std::max(here_ms, there_ms) <= kAlike * std::min(here_ms, there_ms)) return "";
  return fmt::format("a step of {:.3g} ms with the joules, of {:.3g} ms with the times", here_ms, there_ms);
}

}  // namespace

std::vector<profiler::MissingRecord> notices(const Document& document, const profiler::ProfileDocument& profile) {
  return {{"energy_of_other_code", 1, other_code(document.run, profile)},
          {"energy_of_other_gpu", 1, other_gpu(document.run, profile)},
          {"energy_of_other_times", 1, other_times(document, profile)}};
}

void require_same_run(const RunSettings& run, const profiler::ProfileDocument& profile) {
  if (const auto found = differences(run, profile); !found.empty())
    throw stepscope::InputError(fmt::format("energy and profile are of two runs: {}", fmt::join(found, "; ")));
}

void add_to_profile(const Document& document, profiler::ProfileDocument& profile) {
  if (document.method.by_launch)
    throw stepscope::InputError("the energy document has launches of ops, the profile has ops: measure without --by-launch");
  require_same_run(document.run, profile);
  for (const profiler::MissingRecord& notice : notices(document, profile)) {
    std::erase_if(profile.missing,
                  [&](const profiler::MissingRow& m) { return m.name == notice.name; });  // of joules that were there before
    if (!notice.detail.empty()) profiler::add_missing(profile, notice);
  }
  profiler::sort_missing(profile);
  for (profiler::OpRow& row : profile.ops) {
    // Also of ops that this document has not: beside its joules those of another measurement would read as its own.
    row.energy_j = row.energy_error_j = row.sustained_ns = row.energy_floor_j = row.energy_above_floor_j = std::nullopt;
    row.energy_bound = std::nullopt;
    for (const OpEnergy& op : document.ops) {
      if (op.pass != row.pass || op.op != row.op) continue;
      row.energy_j = op.joules();
      row.energy_error_j = op.slope.joules_error;
      row.sustained_ns = op.sustained_s ? std::optional(*op.sustained_s * 1e9) : std::nullopt;
      row.energy_floor_j = op.floor ? std::optional(op.floor->joules) : std::nullopt;
      row.energy_above_floor_j = op.above_floor_joules();
      row.energy_bound = op.bound ? std::optional(std::string(name(*op.bound))) : std::nullopt;
    }
  }
}

std::string profile_with_joules(const Document& document, profiler::ProfileDocument profile, const std::string& file) {
  add_to_profile(document, profile);
  std::string text = profiler::to_json(profile);
  profiler::profile_from_json(text, file + " with these joules, which is not written");
  return text;
}

}  // namespace energy

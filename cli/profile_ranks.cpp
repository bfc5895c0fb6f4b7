#include "cli/profile_ranks.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/cache_folder.h"
#include "base/errors.h"
#include "base/read_file.h"
#include "base/sha256.h"
#include "base/text.h"

namespace cli {

std::string new_job() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("profile-{}-{}", getpid(), std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

void remove_recordings(const profiler::CollectPlan& plan, int64_t ranks) {
  if (ranks == 1) std::filesystem::remove(plan.output);
  for (int64_t r = 0; ranks > 1 && r < ranks; ++r) {
    std::filesystem::remove(profiler::file_of_rank(plan.output, r));
    if (!plan.raw_trace.empty()) std::filesystem::remove(profiler::file_of_rank(plan.raw_trace, r));
  }
}

std::vector<profiler::RankRecording> load_ranks(const profiler::CollectPlan& plan, int64_t ranks) {
  std::vector<profiler::RankRecording> recordings;
  std::vector<int> absent;
  for (int64_t r = 0; r < ranks; ++r) {
    const std::string file = profiler::file_of_rank(plan.output, r);
    if (std::filesystem::exists(file))
      recordings.push_back({profiler::load_recording(file), file});
    else
      absent.push_back(static_cast<int>(r));
  }
  if (!absent.empty()) fail_without_recording(absent, ranks);
  return recordings;
}

void fail_without_recording(const std::vector<int>& absent, int64_t ranks) {
  throw std::runtime_error(
      fmt::format("{} of {} recorded nothing: the collector was not loaded there", stepscope::named_ranks(absent), ranks));
}

std::string run_json_beside(const std::string& recording) {
  return std::filesystem::path(recording).replace_extension(".run.json").string();
}

std::string links_file(std::vector<std::string> uuids) {
  const auto folder = stepscope::cache_folder();
  if (folder.empty() || uuids.empty()) return "";
  std::sort(uuids.begin(), uuids.end());
  return (folder / fmt::format("links-{}.json", gpt2::sha256_text(fmt::format("{}", fmt::join(uuids, " "))).substr(0, 16))).string();
}

namespace {
std::vector<std::string> uuids_of(const std::vector<profiler::RankRecording>& recordings) {
  std::vector<std::string> uuids;
  for (const profiler::RankRecording& r : recordings)
    if (const auto at = r.recording.session.device.find("uuid"); at != r.recording.session.device.end()) uuids.push_back(at->second);
  return uuids;
}
}  // namespace

std::optional<profiler::LinkCeilings> links_for(const char* flag, const std::string& file,
                                                const std::vector<profiler::RankRecording>& recordings) {
  if (!file.empty()) {
    auto links = profiler::links_from_json(stepscope::read_file(file), file);
    for (const profiler::RankRecording& r : recordings)
      if (const auto at = r.recording.session.device.find("name");
          at != r.recording.session.device.end() && !links.device.empty() && at->second != links.device)
        throw stepscope::InputError(fmt::format("{} {}: measured on {}, {} is of {}", flag, file, links.device, r.source, at->second));
    return links;
  }
  const std::string cached = links_file(uuids_of(recordings));
  if (cached.empty()) return std::nullopt;
  const auto text = stepscope::read_file_if_there(cached);
  if (!text) return std::nullopt;
  try {
    return profiler::links_from_json(*text, cached);
  } catch (const stepscope::InputError&) {
    return std::nullopt;  // of another version: measured again when asked for
  }
}

}  // namespace cli

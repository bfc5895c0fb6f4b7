// `profile --gpus N` and `join`: recordings of all ranks of a run, found beside each other and made one document.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "profiler/ranks/join_ranks.h"
#include "profiler/records/collect_plan.h"

namespace cli {

// A word that no other run has, for CollectPlan::job.
std::string new_job();

// What the collectors of `ranks` processes wrote for this plan. Throws std::runtime_error naming the ranks that recorded nothing.
std::vector<profiler::RankRecording> load_ranks(const profiler::CollectPlan& plan, int64_t ranks);
// Throws what load_ranks does where these of `ranks` ranks recorded nothing.
[[noreturn]] void fail_without_recording(const std::vector<int>& absent, int64_t ranks);
// Files of an earlier run, which a collector would take for another process's. Several ranks write none of the plan's own name.
void remove_recordings(const profiler::CollectPlan& plan, int64_t ranks);

// Where the run.json of the ranks whose recordings are kept is kept for `join --run-json`: "a/run.jsonl" -> "a/run.run.json".
std::string run_json_beside(const std::string& recording);

// The sweep of `doctor --gpus` for the GPUs of these ranks; nullopt: there is none. `file` "" = the cache; `flag` named it. Throws
// stepscope::InputError for a file that is no sweep, or one of GPUs of another name.
std::optional<profiler::LinkCeilings> links_for(const char* flag, const std::string& file,
                                                const std::vector<profiler::RankRecording>& recordings);
// Where the sweep of these GPUs is kept; "" without a cache folder.
std::string links_file(std::vector<std::string> uuids);

}  // namespace cli

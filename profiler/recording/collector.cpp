#include "profiler/recording/collector.h"

#include <filesystem>

#include "base/atomic_file.h"

namespace profiler {

std::optional<std::string> collector_library() {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  const auto library = self.parent_path().parent_path() / "lib" / "libstepscope_collect.so";
  if (!std::filesystem::exists(library)) return std::nullopt;
  return library.string();
}

// The collector opens its files where the program then is, which may have gone to another folder.
void write_plan(const CollectPlan& plan, const std::string& plan_file) {
  CollectPlan there = plan;
  for (std::string* path : {&there.output, &there.raw_trace})
    if (!path->empty()) *path = std::filesystem::absolute(*path).string();
  gpt2::write_file_atomically(plan_file, to_json(there));
}

std::map<std::string, std::string> collector_environment(const CollectPlan& plan, const std::string& plan_file,
                                                         const std::string& library) {
  write_plan(plan, plan_file);
  return {{"CUDA_INJECTION64_PATH", library}, {"NVTX_INJECTION64_PATH", library}, {"STEPSCOPE_COLLECT", plan_file}};
}

}  // namespace profiler

#include "profiler/attribute/communication.h"

#include <algorithm>
#include <array>

#include "base/collective_words.h"
#include "profiler/attribute/words.h"

namespace profiler {

bool is_nccl_kernel(std::string_view name) {
  static constexpr std::array<std::string_view, 4> kBeginnings{"ncclDevKernel", "ncclSymkDevKernel", "ncclSymDevKernel", "ncclKernel"};
  return std::any_of(kBeginnings.begin(), kBeginnings.end(), [&](std::string_view b) { return name.starts_with(b); });
}

bool is_meet_kernel(std::string_view name) { return name.find("wait_for_ranks_kernel") != std::string_view::npos; }

bool is_inside_collective(const LaunchRecord& o) {
  for (size_t begin = 0; begin < o.path.size();) {
    const size_t slash = std::min(o.path.find('/', begin), o.path.size());
    if (stepscope::parse_collective_range(std::string_view(o.path).substr(begin, slash - begin))) return true;
    begin = slash + 1;
  }
  return false;
}

bool is_communication(const LaunchRecord& o) {
  constexpr std::string_view kPass = "step/communication/";
  const size_t at = o.path.find(kPass);
  if (at != std::string::npos && (at == 0 || o.path[at - 1] == '/')) return true;
  return o.activity == Activity::kernel && is_nccl_kernel(o.name) && !parse_range_path(o.path).place;
}

}  // namespace profiler

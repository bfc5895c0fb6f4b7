#include "profiler/records/step_name.h"

namespace profiler {

bool is_step_name(std::string_view name, std::string_view step_range) {
  if (name == step_range || name.starts_with("ProfilerStep#")) return true;
  return name.size() > step_range.size() && name.starts_with(step_range) && name[step_range.size()] == ' ';
}

}  // namespace profiler

#include "base/cache_folder.h"

#include <cstdlib>

namespace stepscope {
namespace {

std::filesystem::path variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

std::filesystem::path cache_folder() {
  if (const auto own = variable("STEPSCOPE_CACHE"); !own.empty()) return own;
  if (const auto xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return xdg / "stepscope";
  if (const auto home = variable("HOME"); !home.empty()) return home / ".cache" / "stepscope";
  return {};
}

}  // namespace stepscope

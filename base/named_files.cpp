#include "base/named_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <optional>
#include <system_error>

#include "base/errors.h"
#include "base/output_file.h"

namespace stepscope {
namespace {

std::optional<std::filesystem::path> place_of(const std::string& path) {
  if (path.empty()) return std::nullopt;
  std::error_code unresolved;
  // weakly_canonical leaves a relative path of what is not there yet relative.
  std::filesystem::path where = std::filesystem::absolute(stepscope::output_place(path), unresolved);
  if (!unresolved) where = std::filesystem::weakly_canonical(where, unresolved);
  if (unresolved) where = path;
  return where.string().starts_with("/dev/") ? std::nullopt : std::optional(where);
}

}  // namespace

void check_files_differ(const NamedFiles& inputs, const NamedFiles& outputs) {
  std::map<std::filesystem::path, const char*> taken;
  for (const auto& [what, path] : inputs) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) continue;  // nothing to lose; may be the name of a preset
    if (const auto place = place_of(path)) taken.emplace(*place, what);
  }
  for (const auto& [what, path] : outputs) {
    const auto place = place_of(path);
    if (!place) continue;
    const auto [first, is_new] = taken.emplace(*place, what);
    if (!is_new) throw stepscope::InputError(fmt::format("{} and {} both name {}: expected a file for each", first->second, what, path));
  }
}

}  // namespace stepscope

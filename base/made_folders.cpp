#include "base/made_folders.h"

#include <unistd.h>

#include <system_error>
#include <vector>

#include "base/atomic_file.h"
#include "base/errors.h"

namespace stepscope {
namespace {
namespace fs = std::filesystem;

std::vector<fs::path>& made() {
  static std::vector<fs::path> folders;  // each behind the one that holds it
  return folders;
}

// Else a power cut could take the folder away with all the files that were made durable in it.
void sync_name(const fs::path& folder) {
  try {
    gpt2::sync_folder(folder.parent_path());
  } catch (const InputError&) {  // it may be written into and not read, which is no reason to refuse the folder
  }
}

}  // namespace

void make_folders(const fs::path& folder) {
  std::error_code ec;
  std::vector<fs::path> missing;
  for (fs::path at = fs::absolute(folder, ec).lexically_normal(); at.has_relative_path() && !fs::exists(at, ec); at = at.parent_path())
    if (at.has_filename()) missing.push_back(at);
  fs::create_directories(folder, ec);
  if (ec) return;
  made().insert(made().end(), missing.rbegin(), missing.rend());
  for (const fs::path& each : missing) sync_name(each);
}

void remove_made_folders_left_empty() {
  for (auto at = made().rbegin(); at != made().rend(); ++at) ::rmdir(at->c_str());  // fails where something is in it
  made().clear();
}

void check_folder_usable(const fs::path& folder, std::string_view what) {
  make_folders(folder);
  gpt2::check_folder_writable(folder, what);
}

}  // namespace stepscope

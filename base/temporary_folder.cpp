#include "base/temporary_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>
#include <system_error>

#include "base/errors.h"

namespace stepscope {
namespace {

namespace fs = std::filesystem;

// Earlier versions named theirs stepscope-XXXXXX and held no lock on them, or wrote no mark into them: those stay.
constexpr std::string_view kPrefix = "stepscope.", kUnique = "XXXXXX";
// Users name folders like that, too: `mktemp -d -t stepscope.XXXXXX`, or stepscope.backup.
constexpr const char* kMark = ".made-by-stepscope";
constexpr time_t kMakingTakesLess_s = 10;  // from a folder's name to its lock

void remove_leftovers(const fs::path& parent) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, fs::directory_options::skip_permission_denied, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix) || name.size() != kPrefix.size() + kUnique.size()) continue;
    const int fd = open(entry.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd == -1) continue;
    struct stat st {};
    const bool left = fstat(fd, &st) == 0 && st.st_uid == geteuid() && st.st_mtime + kMakingTakesLess_s < std::time(nullptr) &&
                      faccessat(fd, kMark, F_OK, AT_SYMLINK_NOFOLLOW) == 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (left) fs::remove_all(entry.path(), ignored);
    close(fd);
  }
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
  std::error_code ec;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(ec);
  if (ec) {
    const char* named = nullptr;
    for (const char* variable : {"TMPDIR", "TMP", "TEMP", "TEMPDIR"})  // in the order in which the library asks for them
      if (named = std::getenv(variable); named) {
        throw MachineError(std::string("cannot make a temporary folder: the variable ") + variable + " names '" + named +
                           "', expected a folder (" + ec.message() + ")");
      }
    throw MachineError("cannot make a temporary folder: there is no /tmp; let the variable TMPDIR name a folder");
  }
  remove_leftovers(parent);
  std::string name = (parent / kPrefix).string() + std::string(kUnique);
  if (!mkdtemp(name.data())) throw MachineError("cannot make a temporary folder '" + name + "': " + std::strerror(errno));
  path_ = std::filesystem::path(name) / "files";  // empty: who has it may count what comes into it
  lock_ = open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // Where lock or mark cannot be had, the folder stays after a kill as any other would.
  if (lock_ != -1) flock(lock_, LOCK_EX | LOCK_NB);
  if (const int mark = open((name + "/" + kMark).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600); mark != -1) close(mark);
  if (mkdir(path_.c_str(), 0700) == 0) return;
  const int error = errno;
  remove();
  throw MachineError("cannot make a temporary folder '" + path_.string() + "': " + std::strerror(error));
}

TemporaryFolder::~TemporaryFolder() { remove(); }

void TemporaryFolder::remove() const {
  std::error_code ignored;
  std::filesystem::remove_all(path_.parent_path(), ignored);
  if (lock_ != -1) close(lock_);
}

}  // namespace stepscope

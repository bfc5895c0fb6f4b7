#include "base/output_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/atomic_file.h"
#include "base/errors.h"

namespace stepscope {
namespace fs = std::filesystem;
namespace {

// As with `--csv /dev/stdout >FILE`. A rename puts another file in FILE's place, and what is printed goes into the one that has no name any
// more; a log that is appended to and what is printed overwrite each other.
bool is_the_file_behind_stdout(const fs::path& place) {
  struct stat out {
  }, there{};
  return ::fstat(STDOUT_FILENO, &out) == 0 && S_ISREG(out.st_mode) && ::stat(place.c_str(), &there) == 0 && out.st_dev == there.st_dev &&
         out.st_ino == there.st_ino;
}

}  // namespace

fs::path output_place(const fs::path& target) {
  constexpr int kMostLinks = 40;  // the kernel's own limit
  fs::path at = target;
  for (int links = 0; links <= kMostLinks; ++links) {
    std::error_code none;
    if (!fs::is_symlink(fs::symlink_status(at, none)) || fs::exists(at, none)) return links == 0 ? target : at;
    const fs::path to = fs::read_symlink(at, none);
    at = to.is_absolute() ? to : at.parent_path() / to;
  }
  throw InputError(target.string() + ": cannot write: " + std::strerror(ELOOP));
}

void write_output(const fs::path& target, std::string_view content) { gpt2::write_file_atomically(output_place(target), content); }

void check_output(const fs::path& target, std::string_view what) {
  if (target == "-")
    throw InputError(std::string(what) + " -: expected a file; /dev/stdout is this program's own output, ./- a file of that name");
  const fs::path place = output_place(target);
  if (is_the_file_behind_stdout(place))
    throw InputError(std::string(what) + " " + target.string() +
                     ": what this program prints goes into the same file, expected another one, or a pipe between them: | cat >FILE");
  gpt2::check_file_writable(place, what);
  std::error_code none;
  if (fs::exists(place, none) && !fs::is_regular_file(place, none)) return;
  try {
    gpt2::AtomicFile of_this_name(place);  // the temporary file beside it has a longer one
  } catch (const InputError& e) {
    throw InputError(std::string(what) + ": " + e.what());
  }
}

}  // namespace stepscope

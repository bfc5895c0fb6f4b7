#include "base/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/errors.h"

namespace stepscope {
namespace {

struct Open {
  explicit Open(const std::filesystem::path& path) : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~Open() {
    if (fd >= 0) ::close(fd);
  }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
  int fd;
};

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  throw InputError(path.string() + ": cannot be read: " + std::strerror(error));
}

}  // namespace

// By the system's own calls, because a stream has no reason when it fails and takes a folder for an empty file.
std::optional<std::string> read_file_if_there(const std::filesystem::path& path) {
  const Open file(path);
  if (file.fd < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    fail(path, errno);
  }
  struct stat status {};
  if (::fstat(file.fd, &status) == 0 && status.st_size > static_cast<off_t>(kMostReadBytes)) fail(path, EFBIG);
  std::string text;
  char block[65536];
  while (true) {
    if (text.size() > kMostReadBytes) fail(path, EFBIG);  // a pipe or a device, which do not say their size
    const ssize_t n = ::read(file.fd, block, sizeof block);
    if (n == 0) return text;
    if (n > 0)
      text.append(block, static_cast<size_t>(n));
    else if (errno != EINTR)
      fail(path, errno);
  }
}

std::string read_file(const std::filesystem::path& path) {
  std::optional<std::string> text = read_file_if_there(path);
  if (!text) fail(path, ENOENT);
  return *std::move(text);
}

}  // namespace stepscope

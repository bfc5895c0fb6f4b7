#include "base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/errors.h"

namespace gpt2 {
namespace fs = std::filesystem;
namespace {

[[noreturn]] void fail(const fs::path& path, std::string_view doing, int error) {
  throw stepscope::InputError(fmt::format("{}: cannot {}: {}", path.string(), doing, std::strerror(error)));
}

fs::path folder_of(const fs::path& file) {
  const fs::path parent = file.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

std::string temporary_prefix(const fs::path& target) { return "." + target.filename().string() + ".tmp-"; }

void remove_stale_temporaries(const fs::path& target) {
  const std::string prefix = temporary_prefix(target);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_of(target), ignored)) {
    if (!entry.path().filename().string().starts_with(prefix)) continue;
    Descriptor fd(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!fd || !lock_as_writer(fd.get(), true)) continue;
    announce({"remove"});
    ::unlink(entry.path().c_str());
  }
}

// A cleaner may lock and remove the new name between open() and flock(); then the descriptor's link count is
// 0 and we try again.
Descriptor create_locked(const fs::path& path) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    announce({"create"});
    Descriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (!fd) return fd;
    if (::flock(fd.get(), LOCK_EX) != 0 && errno == EINTR) continue;
    struct stat st {};
    if (::fstat(fd.get(), &st) == 0 && st.st_nlink > 0) return fd;
  }
  errno = EBUSY;
  return Descriptor();
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = other.release();
  }
  return *this;
}
int Descriptor::release() { return std::exchange(fd_, -1); }
void Descriptor::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

bool lock_as_writer(int fd, bool must_know) {
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return true;
  return errno != EWOULDBLOCK && !must_know;
}

void sync_folder(const fs::path& folder) {
  Descriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) fail(folder, "open the folder", errno);
  announce({"fsync folder"});
  if (::fsync(fd.get()) != 0 && errno != EINVAL && errno != ENOTSUP && errno != EROFS) fail(folder, "fsync the folder", errno);
}

AtomicFile::AtomicFile(const fs::path& target) : target_(target) {
  if (target_.filename().empty()) fail(target_, "write a file of this name", EISDIR);
  std::error_code ec;
  const fs::file_status link = fs::symlink_status(target_, ec);
  if (fs::is_symlink(link)) {
    const fs::path resolved = fs::weakly_canonical(target_, ec);
    if (!ec) target_ = resolved;
  }
  const fs::file_status status = fs::status(target_, ec);
  if (fs::is_directory(status)) fail(target_, "write", EISDIR);
  if (fs::exists(status) && !fs::is_regular_file(status)) {
    file_ = Descriptor(::open(target_.c_str(), O_WRONLY | O_CLOEXEC));
    if (!file_) fail(target_, "write", errno);
    return;
  }
  remove_stale_temporaries(target_);
  static std::atomic<uint64_t> serial{0};
  temporary_ =
      folder_of(target_) / fmt::format("{}{}-{}", temporary_prefix(target_), ::getpid(), serial.fetch_add(1, std::memory_order_relaxed));
  file_ = create_locked(temporary_);
  if (!file_) fail(target_, "write", errno);
}

AtomicFile::~AtomicFile() {
  if (!file_ || temporary_.empty()) return;
  announce({"remove"});
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    announce({"write", file_.get(), at, bytes});
    const ssize_t n = ::write(file_.get(), at, std::min<size_t>(bytes, size_t{1} << 30));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(target_, "write", errno);
    at += n;
    bytes -= static_cast<size_t>(n);
  }
}

void AtomicFile::overwrite(uint64_t offset, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    announce({"overwrite"});
    const ssize_t n = ::pwrite(file_.get(), at, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(target_, "write the header of", errno);
    at += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<size_t>(n);
  }
}

void AtomicFile::commit() {
  if (temporary_.empty()) {
    file_.close();
    return;
  }
  announce({"fsync"});
  if (::fsync(file_.get()) != 0) fail(target_, "fsync", errno);
  announce({"rename"});
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail(target_, "rename the finished file to", errno);
  file_.close();
  sync_folder(folder_of(target_));
}

void write_file_atomically(const fs::path& target, std::string_view content) {
  AtomicFile file(target);
  file.write(content);
  file.commit();
}

void check_folder_writable(const fs::path& folder, std::string_view what) {
  auto refuse = [&](const std::string& reason) {
    throw stepscope::InputError(fmt::format("{}: cannot write into {}: {}", what, folder.string(), reason));
  };
  std::error_code ec;
  fs::create_directories(folder, ec);
  if (ec) refuse(ec.message());
  if (!fs::is_directory(folder, ec)) refuse("it is not a folder");
  // access() would say yes to root on a read-only mount and no under some ACLs: only writing proves it. The
  // probe is a file never committed, so that the next probe removes it should this process die here.
  try {
    AtomicFile(folder / "write-probe").write("x");
  } catch (const stepscope::InputError& e) {
    refuse(e.what());
  }
}

void check_file_writable(const fs::path& file, std::string_view what) {
  std::error_code ec;
  const fs::file_status status = fs::status(file, ec);
  auto refuse = [&](const std::string& reason) {
    throw stepscope::InputError(fmt::format("{}: cannot write {}: {}", what, file.string(), reason));
  };
  if (fs::is_directory(status)) refuse("it is a folder, expected a file name");
  if (fs::exists(status) && !fs::is_regular_file(status)) return;
  if (!fs::is_directory(folder_of(file), ec)) refuse("its folder does not exist");
  check_folder_writable(folder_of(file), what);
}

}  // namespace gpt2

// Every file that this project writes goes through here: a crash at any moment leaves the old file or the new
// one, never a part.
//
// The temporary lies in the target's own folder (a rename across file systems is a copy) and its writer holds
// an flock on it as long as it lives. So a temporary that can be locked has lost its writer and is removed by
// whoever next writes the same target; a process id would not tell, as ids are used again.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace gpt2 {

// Each operation that changes files announces itself right before it happens, so that a test can end the writer exactly there, or
// in the middle of a write. Null in the program.
struct FileOperation {
  std::string_view name;  // "create", "write", "overwrite", "fsync", "rename", "fsync folder", "mkdir", "remove"
  int fd = -1;            // of "write": what is about to be written, and where
  const void* data = nullptr;
  size_t bytes = 0;
};
inline void (*on_file_operation)(const FileOperation&) = nullptr;
inline void announce(const FileOperation& operation) {
  if (on_file_operation != nullptr) on_file_operation(operation);
}

// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release();
  void close();

 private:
  int fd_;
};

// All members throw stepscope::InputError naming the target and the system's reason (no such folder,
// permission denied, disk full). Without commit() the destructor removes the temporary. A target that is not
// a regular file (/dev/stdout, a pipe) is written directly: it cannot be replaced by a rename. A symbolic
// link stays and the file that it leads to is replaced; a link to nothing is replaced itself.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  // Over what is written already, for a header known only at the end. A pipe refuses.
  void overwrite(uint64_t offset, const void* data, size_t bytes);
  // fsync, rename, fsync of the folder. Once it returns the new content survives a power cut.
  void commit();

 private:
  std::filesystem::path target_, temporary_;  // temporary_ empty: written directly
  Descriptor file_;
};

void write_file_atomically(const std::filesystem::path& target, std::string_view content);

// Makes the folder if it is missing and proves that a file can be written into it. Throws
// stepscope::InputError; `what` names the flag or purpose ("--checkpoints"). Called before training starts,
// not when the first hour is over.
void check_folder_writable(const std::filesystem::path& folder, std::string_view what);
// The same for the folder that `file` will be written into (which is not made).
void check_file_writable(const std::filesystem::path& file, std::string_view what);

// Makes renames and new names in `folder` durable. File systems that cannot fsync a folder are left in peace.
void sync_folder(const std::filesystem::path& folder);

// Takes the lock that says "the writer of this lives" (see above). False: someone else holds it. True also
// where the file system has no locks, unless `must_know`.
bool lock_as_writer(int fd, bool must_know);

}  // namespace gpt2

#include "base/atomic_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/made_folders.h"
#include "base/mapped_file.h"
#include "base/read_file.h"
#include "tests/base/files.h"

// The program's own fsync and pwrite stand before the C library's: whether a file was brought to the disk cannot be seen in its content,
// and a disk writes less than it was asked to only when it is nearly full.
namespace {
struct Calls {
  int fsyncs = 0;
  size_t most_bytes_of_a_pwrite = SIZE_MAX;
};
Calls& calls() {
  static Calls all;
  return all;
}
}  // namespace
extern "C" int fsync(int fd) {
  ++calls().fsyncs;
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
extern "C" ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
  return ::syscall(SYS_pwrite64, fd, data, std::min(bytes, calls().most_bytes_of_a_pwrite), offset);
}

namespace gpt2 {
namespace {
using ::testing::ElementsAre;
using testing::names_in;
using testing::read_bytes;
using testing::TemporaryFolder;

std::string text_of(const std::filesystem::path& path) {
  const auto bytes = read_bytes(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(AtomicFile, OldContentStaysUntilCommit) {
  TemporaryFolder folder;
  write_file_atomically(folder / "a", "old");
  AtomicFile file(folder / "a");
  file.write("new, longer");
  EXPECT_EQ(text_of(folder / "a"), "old");
  file.commit();
  EXPECT_EQ(text_of(folder / "a"), "new, longer");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("a"));
}

TEST(AtomicFile, WithoutCommitNothingIsLeft) {
  TemporaryFolder folder;
  { AtomicFile(folder / "a").write("half"); }
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
}

TEST(AtomicFile, TemporariesOfDeadWritersAreRemovedAndThoseOfLivingOnesKept) {
  TemporaryFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    AtomicFile file(folder / "a");
    file.write("from the dead");
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(names_in(folder.path()).size(), 1u) << "the killed writer left its temporary";
  AtomicFile living(folder / "a");
  living.write("alive");
  EXPECT_EQ(names_in(folder.path()).size(), 1u) << "only the living writer's temporary";
  write_file_atomically(folder / "a", "second");
  living.commit();
  EXPECT_EQ(text_of(folder / "a"), "alive");
}

int operations_left = 0;
// The first half of a write goes out before the end.
void die_when_due(const FileOperation& o) {
  if (--operations_left > 0) return;
  if (o.data != nullptr && ::write(o.fd, o.data, o.bytes / 2) < 0) ::_exit(1);
  ::kill(::getpid(), SIGKILL);
}

TEST(AtomicFile, KilledAtEveryOperationLeavesTheOldFileOrTheNewOne) {
  std::vector<std::string> seen;
  for (int at = 1; at < 100; ++at) {
    TemporaryFolder folder;
    write_file_atomically(folder / "a", "old");
    const pid_t child = fork();
    if (child == 0) {
      operations_left = at;
      on_file_operation = die_when_due;
      write_file_atomically(folder / "a", "new, longer");
      ::_exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    seen.push_back(text_of(folder / "a"));
    if (!WIFSIGNALED(status)) break;
    write_file_atomically(folder / "a", "next");
    EXPECT_THAT(names_in(folder.path()), ElementsAre("a")) << "operation " << at;
  }
  // create, write, fsync, rename, fsync of the folder, and one that came to its end
  EXPECT_THAT(seen, ElementsAre("old", "old", "old", "old", "new, longer", "new, longer"));
}

int folders_synced = 0;
TEST(AtomicFile, FoldersThatAreMadeForFilesAreDurableToo) {
  TemporaryFolder folder;
  on_file_operation = [](const FileOperation& o) { folders_synced += o.name == "fsync folder"; };
  stepscope::make_folders(folder / "a" / "b");
  EXPECT_EQ(folders_synced, 2) << "the folder that was there, and a";
  stepscope::make_folders(folder / "a" / "b");
  on_file_operation = nullptr;
  EXPECT_EQ(folders_synced, 2);
}

TEST(AtomicFile, ErrorsNameThePathAndTheReason) {
  TemporaryFolder folder;
  EXPECT_INPUT_ERROR(AtomicFile(folder / "missing" / "file"), "missing/file", "No such file or directory");
  EXPECT_INPUT_ERROR(AtomicFile{folder.path()}, folder.path().c_str(), "Is a directory");
  write_file_atomically(folder / "plain", "x");
  EXPECT_INPUT_ERROR(AtomicFile(folder / "plain" / "file"), "plain/file", "Not a directory");
}

TEST(AtomicFile, AFullDiskIsAnErrorAndKeepsTheOldFile) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  AtomicFile file("/dev/full");
  EXPECT_INPUT_ERROR(file.write("x"), "/dev/full", "No space left");
}

TEST(AtomicFile, APipeIsWrittenAndNotReplaced) {
  TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const int reader = ::open((folder / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  write_file_atomically(folder / "pipe", "through");
  char buffer[16] = {};
  EXPECT_EQ(::read(reader, buffer, sizeof(buffer)), 7);
  ::close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(folder / "pipe"));
}

TEST(AtomicFile, WhatIsWrittenCanBeOverwrittenBeforeCommit) {
  TemporaryFolder folder;
  AtomicFile file(folder / "a");
  file.write("count ?, rest");
  file.overwrite(6, "3", 1);
  file.write(" and more");
  file.commit();
  EXPECT_EQ(text_of(folder / "a"), "count 3, rest and more");
}

TEST(AtomicFile, TheFileAndItsFolderAreOnTheDiskWhenCommitReturns) {
  TemporaryFolder folder;
  AtomicFile file(folder / "a");
  file.write("x");
  const int before = calls().fsyncs;
  file.commit();
  EXPECT_EQ(calls().fsyncs - before, 2);
}

TEST(AtomicFile, AnOverwriteThatTheDiskTakesInPiecesIsWhole) {
  TemporaryFolder folder;
  AtomicFile file(folder / "a");
  file.write("count ?????, rest");
  calls().most_bytes_of_a_pwrite = 2;
  file.overwrite(6, "12345", 5);
  calls().most_bytes_of_a_pwrite = SIZE_MAX;
  file.commit();
  EXPECT_EQ(text_of(folder / "a"), "count 12345, rest");
}

TEST(AtomicFile, APipeCannotBeOverwritten) {
  TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const int reader = ::open((folder / "pipe").c_str(), O_RDONLY | O_NONBLOCK);
  AtomicFile file(folder / "pipe");
  file.write("through");
  EXPECT_INPUT_ERROR(file.overwrite(0, "T", 1), "pipe: cannot write the header", "Illegal seek");
  ::close(reader);
}

TEST(AtomicFile, ALinkStaysALink) {
  TemporaryFolder folder;
  write_file_atomically(folder / "real", "old");
  std::filesystem::create_symlink(folder / "real", folder / "link");
  write_file_atomically(folder / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(text_of(folder / "real"), "new");
}

TEST(FolderWritable, RefusesAFileInItsPlace) {
  TemporaryFolder folder;
  write_file_atomically(folder / "file", "x");
  EXPECT_INPUT_ERROR(check_folder_writable(folder / "file" / "sub", "--checkpoints"), "--checkpoints", "file/sub");
  EXPECT_INPUT_ERROR(check_folder_writable(folder / "file", "--checkpoints"), "--checkpoints");
  check_folder_writable(folder / "made" / "deep", "--checkpoints");
  EXPECT_TRUE(names_in(folder / "made/deep").empty());
}

TEST(MappedFile, IsMappedNoLongerThanItLives) {
  TemporaryFolder folder;
  write_file_atomically(folder / "mapped", "text");
  const auto mapped = [&] { return stepscope::read_file("/proc/self/maps").find((folder / "mapped").string()) != std::string::npos; };
  {
    const MappedFile file(folder / "mapped");
    EXPECT_TRUE(mapped());
  }
  EXPECT_FALSE(mapped());
}

TEST(MappedFile, MissingFilesFoldersAndPipesAreInputErrors) {
  TemporaryFolder folder;
  EXPECT_INPUT_ERROR(MappedFile(folder / "none"), "none", "No such file");
  EXPECT_INPUT_ERROR(MappedFile{folder.path()}, "folder");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_INPUT_ERROR(MappedFile(folder / "pipe"), "not a regular file");
  write_file_atomically(folder / "empty", "");
  EXPECT_TRUE(MappedFile(folder / "empty").bytes().empty());
}

}  // namespace
}  // namespace gpt2

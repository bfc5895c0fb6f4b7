// A folder that a killed process left is removed by the next one; those that somebody uses, or made otherwise, stay.
#include "base/temporary_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/temporary_folder.h"

namespace {

namespace fs = std::filesystem;

class KilledFolders : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* before = std::getenv("TMPDIR")) before_ = before;
    setenv("TMPDIR", all_.c_str(), 1);
  }
  void TearDown() override {
    before_.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", before_.c_str(), 1);
    fs::remove_all(all_);
  }
  fs::path make(const char* name, bool old, bool marked = true) const {
    const fs::path folder = all_ / name;
    fs::create_directory(folder);
    std::ofstream(folder / "recording.jsonl") << "much";
    if (marked) std::ofstream(folder / ".made-by-stepscope") << "";
    set_age(folder, old ? std::chrono::hours(1) : std::chrono::seconds(4));
    return folder;
  }
  static void set_age(const fs::path& folder, std::chrono::seconds age) {
    fs::last_write_time(folder, fs::file_time_type::clock::now() - age);
  }

  fs::path all_ = fresh_test_folder();
  std::string before_;
};

TEST_F(KilledFolders, AreRemovedByTheNextProcess) {
  const fs::path left = make("stepscope.abcdef", true), used = make("stepscope.ghijkl", true),
                 in_the_making = make("stepscope.mnopqr", false), of_an_earlier_version = make("stepscope-stuvwx", true),
                 of_another_name = make("stepscope.build-x", true), of_a_user = make("stepscope.backup", true, false);
  const int lock = open(used.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(flock(lock, LOCK_EX | LOCK_NB), 0);
  { const stepscope::TemporaryFolder next; }
  EXPECT_FALSE(fs::exists(left));
  for (const fs::path& other : {used, in_the_making, of_an_earlier_version, of_another_name, of_a_user})
    EXPECT_TRUE(fs::exists(other)) << other;
  close(lock);
}

TEST_F(KilledFolders, AreKnownByWhatTheirMakerLeftInThem) {
  const pid_t maker = fork();
  if (maker == 0) {
    new stepscope::TemporaryFolder;
    _exit(0);
  }
  ASSERT_EQ(waitpid(maker, nullptr, 0), maker);
  ASSERT_EQ(std::distance(fs::directory_iterator(all_), {}), 1);
  set_age(fs::directory_iterator(all_)->path(), std::chrono::hours(1));
  { const stepscope::TemporaryFolder next; }
  EXPECT_TRUE(fs::is_empty(all_));
}

TEST_F(KilledFolders, OneInUseIsNoneAndGoesWithItsObject) {
  fs::path first_path;
  {
    const stepscope::TemporaryFolder first;
    first_path = first.path();
    EXPECT_TRUE(fs::is_empty(first_path));
    set_age(first_path.parent_path(), std::chrono::hours(1));
    const stepscope::TemporaryFolder second;
    EXPECT_NE(first_path, second.path());
    EXPECT_TRUE(fs::exists(first_path));
  }
  EXPECT_FALSE(fs::exists(first_path));
  EXPECT_TRUE(fs::is_empty(all_));
}

}  // namespace

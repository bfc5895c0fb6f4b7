// Whole files, folders that go, where the cache is, the time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <thread>

#include "base/cache_folder.h"
#include "base/errors.h"
#include "base/read_file.h"
#include "base/temporary_folder.h"
#include "base/utc.h"

namespace stepscope {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;

TEST(ReadFile, GivesEveryByteAlsoOfMoreThanOneBlock) {
  const TemporaryFolder folder;
  std::string bytes(200'001, 'x');
  bytes[65'536] = '\0';
  bytes.back() = '\n';
  std::ofstream(folder.file("a"), std::ios::binary) << bytes;
  EXPECT_EQ(read_file(folder.file("a")), bytes);
  std::ofstream(folder.file("empty"));
  EXPECT_EQ(read_file(folder.file("empty")), "");
  EXPECT_EQ(read_file_if_there("/proc/self/cmdline").value_or("").find("test_base"), read_file("/proc/self/cmdline").find("test_base"));
  EXPECT_NE(read_file("/proc/self/cmdline"), "");  // its size is said to be 0
}

// It was read until the memory was full.
TEST(ReadFile, OneLargerThanAnyDocumentIsRefusedWithItsName) {
  const TemporaryFolder folder;
  std::ofstream(folder.file("large")) << "x";
  fs::resize_file(folder.file("large"), kMostReadBytes + 1);
  try {
    read_file(folder.file("large"));
    ADD_FAILURE() << "read";
  } catch (const InputError& e) {
    EXPECT_EQ(std::string(e.what()), folder.file("large") + ": cannot be read: File too large");
  }
}

TEST(ReadFile, LeavesNoFileOpen) {
  const auto open_files = [] { return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()); };
  const auto before = open_files();
  read_file("/proc/self/cmdline");
  read_file_if_there("/proc/self/none");
  EXPECT_THROW(read_file("/proc"), InputError);
  EXPECT_EQ(open_files(), before);
}

TEST(ReadFile, APipeIsReadToItsEnd) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo(folder.file("pipe").c_str(), 0600), 0);
  std::jthread writer([&] { std::ofstream(folder.file("pipe")) << "one" << std::flush << "two"; });
  EXPECT_EQ(read_file(folder.file("pipe")), "onetwo");
}

TEST(ReadFile, NamesTheFileAndTheReasonAndTakesNoFolderForAnEmptyFile) {
  const TemporaryFolder folder;
  const auto error_of = [](const fs::path& path) -> std::string {
    try {
      return "read: " + read_file(path);
    } catch (const InputError& e) {
      return e.what();
    }
  };
  EXPECT_EQ(error_of(folder.path() / "none"), folder.file("none") + ": cannot be read: No such file or directory");
  EXPECT_EQ(error_of(folder.path()), folder.path().string() + ": cannot be read: Is a directory");
  EXPECT_EQ(read_file_if_there(folder.path() / "none"), std::nullopt);
  EXPECT_EQ(read_file_if_there(folder.path() / "none" / "below"), std::nullopt);
  EXPECT_THROW(read_file_if_there(folder.path()), InputError);
}

TEST(TemporaryFolder, IsAnotherEachTimeAndGoesWithWhatIsInIt) {
  fs::path first;
  {
    const TemporaryFolder a, b;
    EXPECT_NE(a.path(), b.path());
    first = a.path();
    fs::create_directories(a.path() / "deep" / "er");
    std::ofstream(a.path() / "deep" / "er" / "file") << "x";
    EXPECT_EQ(a.file("deep"), (a.path() / "deep").string());
  }
  EXPECT_FALSE(fs::exists(first));
}

// Sets variables (null: unset) and puts them back.
class Environment {
 public:
  using Values = std::map<std::string, const char*>;
  explicit Environment(const Values& values) {
    for (const auto& [name, value] : values) {
      const char* before = std::getenv(name.c_str());
      before_[name] = before ? std::optional<std::string>(before) : std::nullopt;
      set(name, value);
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const auto& [name, value] : before_) set(name, value ? value->c_str() : nullptr);
  }

 private:
  static void set(const std::string& name, const char* value) { value ? setenv(name.c_str(), value, 1) : unsetenv(name.c_str()); }
  std::map<std::string, std::optional<std::string>> before_;
};

TEST(CacheFolder, TheOwnVariableThenXdgThenHome) {
  const auto with = [](const char* own, const char* xdg, const char* home) {
    const Environment e(Environment::Values{{"STEPSCOPE_CACHE", own}, {"XDG_CACHE_HOME", xdg}, {"HOME", home}});
    return cache_folder().string();
  };
  EXPECT_EQ(with("/own", "/xdg", "/home/a"), "/own");
  EXPECT_EQ(with(nullptr, "/xdg", "/home/a"), "/xdg/stepscope");
  EXPECT_EQ(with("", "", "/home/a"), "/home/a/.cache/stepscope");
  EXPECT_EQ(with(nullptr, nullptr, nullptr), "");
}

TEST(Utc, IsTheTimeOfTheClockInWhateverZone) {
  const Environment zone(Environment::Values{{"TZ", "Asia/Tokyo"}});
  tzset();
  EXPECT_THAT(now_utc(), MatchesRegex("20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]Z"));
  std::tm read{};
  const std::time_t before = std::time(nullptr);
  const std::string text = now_utc();
  strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &read);
  EXPECT_GE(timegm(&read), before);
  EXPECT_LE(timegm(&read), std::time(nullptr));
  EXPECT_EQ(today_utc().size(), 10u);
}

}  // namespace
}  // namespace stepscope

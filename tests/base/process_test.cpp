#include "base/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>

#include "base/errors.h"
#include "base/read_file.h"
#include "base/temporary_folder.h"
#include "base/text.h"

namespace stepscope {
namespace {

TEST(Process, SaysHowTheChildEnded) {
  const ChildResult code = run_child({"sh", "-c", "exit 7"}, {}, false);
  EXPECT_TRUE(code.exited);
  EXPECT_EQ(code.exit_code, 7);
  const ChildResult killed = run_child({"sh", "-c", "kill -TERM $$"}, {}, false);
  EXPECT_FALSE(killed.exited);
  EXPECT_EQ(killed.signal, SIGTERM);
}

TEST(Process, AddsToTheEnvironmentAndPreparesBeforeTheProgramRuns) {
  const TemporaryFolder folder;
  const std::string out = folder.file("out");
  const pid_t pid = start_process({"sh", "-c", "echo $STEPSCOPE_A $HOME $PWD > " + out}, {{"STEPSCOPE_A", "a b"}, {"HOME", "/h"}},
                                  [] { (void)!chdir("/usr"); });
  int status = -1;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_file(out), "a b /h /usr\n");
  EXPECT_EQ(std::getenv("STEPSCOPE_A"), nullptr);
}

TEST(Process, AProgramThatCannotBeStartedIsAnErrorAndLeavesNoChild) {
  try {
    start_process({"no-such-program-of-stepscope"}, {});
    FAIL() << "it was started";
  } catch (const InputError& e) {
    EXPECT_STREQ(e.what(), "cannot start 'no-such-program-of-stepscope': No such file or directory");
  }
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

// It was no fault of whoever named the program, nor of this one.
TEST(Process, AMachineThatGivesNoPipeIsSaidToBeTheReason) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  std::string said = "it was started";
  try {
    start_process({"true"}, {});
  } catch (const MachineError& e) {
    said = e.what();
  } catch (const std::exception& e) {
    said = std::string("no MachineError: ") + e.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(said, "cannot start 'true': pipe: Too many open files; `ulimit -n` says how many files a process may have open");
}

TEST(Process, TheChildHoldsNothingThatWouldKeepTheParentWaiting) {
  // A program that closes its streams and lives on: start_process must come back while it runs.
  const pid_t pid = start_process({"sleep", "600"}, {});
  EXPECT_EQ(waitpid(pid, nullptr, WNOHANG), 0);
  kill(pid, SIGKILL);
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
}

// Ctrl-C in a terminal has reached the child too. One that ends needs no signal more, and one that does not gets the polite one first.
TEST(Process, AChildThatNobodyWantsAnyMoreEndsByItselfOrIsEnded) {
  std::atomic<bool> stop = false;
  const auto run = [&](const std::string& command) {
    return std::async(std::launch::async, [&stop, command] { return run_child({"sh", "-c", command}, {}, false, &stop); });
  };
  auto ends = run("sleep 1; exit 5"), stays = run("exec sleep 600"), refuses = run("trap '' TERM; exec sleep 600");
  EXPECT_EQ(stays.wait_for(std::chrono::milliseconds(500)), std::future_status::timeout);
  stop = true;
  const ChildResult ended = ends.get(), told = stays.get(), killed = refuses.get();
  EXPECT_TRUE(ended.exited);
  EXPECT_EQ(ended.exit_code, 5);
  EXPECT_EQ(told.signal, SIGTERM);
  EXPECT_GE(told.wall_s, 0.5 + kSecondsToEnd) << "before stop nobody is ended";
  EXPECT_EQ(killed.signal, SIGKILL);
  EXPECT_GE(killed.wall_s, 0.5 + 2 * kSecondsToEnd);
}

TEST(Process, AProgramIsFoundInTheFirstFolderThatHasItAndMayBeExecuted) {
  const TemporaryFolder one, two;
  const auto make = [](const std::string& file, int mode) {
    std::ofstream(file) << "#!/bin/sh\n";
    chmod(file.c_str(), static_cast<mode_t>(mode));
  };
  make(one.file("tool"), 0600);
  make(two.file("tool"), 0700);
  const char* before = std::getenv("PATH");
  const std::string path = before ? before : "";
  setenv("PATH", one.path().c_str(), 1);
  EXPECT_EQ(program_in_path("tool"), "");
  EXPECT_EQ(program_in_path("tool", two.path().string()), two.file("tool"));
  setenv("PATH", (one.path().string() + ":" + two.path().string()).c_str(), 1);
  EXPECT_EQ(program_in_path("tool"), two.file("tool"));
  setenv("PATH", path.c_str(), 1);
}

TEST(Text, MillisecondsHaveThreePlaces) {
  EXPECT_EQ(ms_text(25'700'000), "25.700");
  EXPECT_EQ(ms_text(499), "0.000");
  EXPECT_EQ(signed_ms_text(12'000), "+0.012");
  EXPECT_EQ(signed_ms_text(-12'000), "-0.012");
}

TEST(Text, MarkdownNeitherEndsTheCellNorIsReadAsMarkup) {
  EXPECT_EQ(markdown_escaped("a|b\\c`d*e_f<g\nh\ri"), "a\\|b\\\\c\\`d\\*e\\_f&lt;g h i");
  EXPECT_EQ(markdown_escaped("a&lt;b & c"), "a&amp;lt;b &amp; c");
  EXPECT_EQ(markdown_escaped("plain (1, 2) [x] > y"), "plain (1, 2) [x] > y");
  EXPECT_EQ(markdown_escaped("f[abi:cxx11](int)"), "f[abi:cxx11\\](int)") << "no link";
  EXPECT_EQ(markdown_escaped("a\x1b[31mred\tb"), "a?[31mred?b") << "a page is shown in terminals too";
}

}  // namespace
}  // namespace stepscope

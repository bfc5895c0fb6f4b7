// `train` on several ranks as a user starts it: real processes that meet, train, fail and end. When a rank is killed, the test has read
// from its output that it trains; nothing waits for a time to pass.
#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>
#include <vector>

#include "tests/cli/run_stepscope.h"

namespace {
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

// Threads that wait for each other by spinning take seconds where the machine is busy.
constexpr const char* kOneThread = "CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1";
constexpr const char* kTrain = "train --trainer reference --model tiny -t 16 -b 2 ";

// A command that runs while the test looks at it.
class Running {
 public:
  explicit Running(const std::string& arguments, const std::string& environment = "") : folder_(fresh_folder()) {
    std::array<int, 2> out{};
    if (::pipe2(out.data(), O_CLOEXEC) != 0) std::abort();
    ::fcntl(out[1], F_SETPIPE_SZ, 4096);
    const std::string command =
        "exec env CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 " + environment + " " + stepscope_program() + " " + arguments;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::signal(SIGINT, SIG_DFL);  // a shell's background ignores it
      ::dup2(out[1], 1);
      const int err = ::open((folder_ / "err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
      ::dup2(err, 2);
      ::execl("/bin/bash", "bash", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(out[1]);
    out_ = ::fdopen(out[0], "r");
  }
  ~Running() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    ::fclose(out_);
    fs::remove_all(folder_);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  pid_t pid() const { return pid_; }
  // Reads lines until one begins so; false at the end of the output.
  bool read_until(const std::string& begin) {
    std::array<char, 4096> line{};
    while (std::fgets(line.data(), line.size(), out_) != nullptr) {
      text_ += line.data();
      if (std::string(line.data()).starts_with(begin)) return true;
    }
    return false;
  }
  // The ranks that the launcher started, in order.
  std::vector<pid_t> ranks() const {
    std::istringstream in(slurp("/proc/" + std::to_string(pid_) + "/task/" + std::to_string(pid_) + "/children"));
    std::vector<pid_t> all;
    for (pid_t p; in >> p;) all.push_back(p);
    return all;
  }
  void signal(int number) const { ::kill(pid_, number); }
  // Waits for the end; -signal where it was killed.
  int end() {
    read_until("no line begins like this");
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::string out() const { return text_; }
  std::string err() const { return slurp(folder_ / "err"); }
  std::string last_line() const {
    std::string all = err();
    while (all.ends_with('\n')) all.pop_back();
    return all.substr(all.rfind('\n') + 1);
  }

 private:
  fs::path folder_;
  pid_t pid_ = -1;
  FILE* out_ = nullptr;
  std::string text_;
};

// For `environment`: the program starts in a shell that has done this first.
std::string in_shell(const std::string& first) { return "bash -c '" + first + "; exec \"$0\" \"$@\"'"; }

bool lives(pid_t pid) {
  // A killed process whose parent has not waited for it is no process any more.
  const std::string status = slurp("/proc/" + std::to_string(pid) + "/stat");
  const size_t at = status.rfind(')');
  return at != std::string::npos && at + 2 < status.size() && status[at + 2] != 'Z' && status[at + 2] != 'X';
}
void expect_gone(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) EXPECT_FALSE(lives(pid)) << pid;
}

std::vector<std::string> losses(const std::string& output) {
  std::vector<std::string> all;
  std::istringstream in(output);
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("{")) all.push_back(nlohmann::json::parse(line).at("loss").dump());
  return all;
}
double number(const std::string& text) { return std::stod(text); }

TEST(Ranks, TwoAndFourTrainAsOneDoes) {
  const Outcome one = stepscope(std::string(kTrain) + "--steps 4 --json --grad-accumulation 4", kOneThread);
  ASSERT_EQ(one.exit_code, 0) << one.err;
  const auto expected = losses(one.out);
  for (const char* ranks : {"--gpus 2 --total-batch 128", "--gpus 4"}) {
    const Outcome several = stepscope(std::string(kTrain) + "--steps 4 --json " + ranks, kOneThread);
    ASSERT_EQ(several.exit_code, 0) << several.err;
    const auto found = losses(several.out);
    ASSERT_EQ(found.size(), expected.size());
    EXPECT_EQ(found[0], expected[0]);  // the same weights and rows, added in the same order: the same bits
    for (size_t i = 1; i < found.size(); ++i) EXPECT_NEAR(number(found[i]), number(expected[i]), 1e-5 * number(expected[i]));
  }
}

TEST(Ranks, RunJsonSaysWhichRankWroteIt) {
  const fs::path folder = fresh_folder();
  const Outcome o = stepscope(std::string(kTrain) + "--gpus 2 --steps 2 --run-json " + (folder / "run.json").string());
  ASSERT_EQ(o.exit_code, 0) << o.err;
  std::string job;
  for (const auto& [file, rank] : {std::pair{"run.json", 0}, std::pair{"run.rank1.json", 1}}) {
    const auto run = nlohmann::json::parse(slurp(folder / file));
    const auto& world = run.at("world");
    EXPECT_EQ(world.at("rank"), rank);
    EXPECT_EQ(world.at("local_rank"), rank);
    EXPECT_EQ(world.at("size"), 2);
    EXPECT_EQ(world.at("nodes"), 1);
    EXPECT_EQ(world.at("found_by"), "stepscope");
    EXPECT_EQ(world.at("communicator"), "staged");
    EXPECT_EQ(run.at("communicator"), "staged") << "so that diff names it";
    EXPECT_EQ(run.at("bucket_mib"), 25);
    EXPECT_FALSE(run.contains("nccl_blocks")) << "nobody chose them";
    if (job.empty()) job = world.at("job");
    EXPECT_EQ(world.at("job"), job);
  }
  fs::remove_all(folder);
}

TEST(Ranks, RunJsonIntoAPipeIsThatOfRankZeroAndMakesNoFileBesideIt) {
  const fs::path folder = fresh_folder();
  const std::string pipe = (folder / "run.json").string(), read = (folder / "read").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const Outcome o =
      stepscope(std::string(kTrain) + "--gpus 2 --steps 1 --run-json " + pipe,
                "run() { timeout 20 cat " + pipe + " >" + read + " & " + kOneThread + " \"$@\"; code=$?; wait; return $code; }; run");
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_FALSE(fs::exists(folder / "run.rank1.json"));
  EXPECT_EQ(nlohmann::json::parse(slurp(read)).at("world").at("rank"), 0);
  fs::remove_all(folder);
}

TEST(Ranks, AnErrorOfAllIsSaidOnce) {
  // The launcher reads no --val-data, so the ranks find it.
  const Outcome o = stepscope(std::string(kTrain) + "--gpus 3 --val-every 1 --val-data no_such_file.bin");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_EQ(o.err, "stepscope: no_such_file.bin: no such file, and no file matches it as a pattern\n");
  const Outcome nccl = stepscope(std::string(kTrain) + "--gpus 2 --steps 1 --communicator nccl");
  EXPECT_EQ(nccl.exit_code, 2);
  EXPECT_EQ(nccl.err, "stepscope: --communicator nccl: the reference trainer's gradients are in host memory; expected staged\n");
}

// Rank 1 said it too, as where rank 0 is gone and nobody else would.
TEST(Ranks, AnErrorOfRankZeroIsSaidByRankZeroAlone) {
  const fs::path folder = fresh_folder();
  fs::create_directories(folder / "step-00000009");
  const Outcome o = stepscope(std::string(kTrain) + "--gpus 2 --resume --checkpoints " + folder.string());
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("\nstepscope: rank 0: --resume: no checkpoint in "), HasSubstr("\nstepscope: rank 0 (pid "),
                           Not(HasSubstr("[rank 1]"))));
  fs::remove_all(folder);
}

TEST(Ranks, SeveralAreRefusedWhereTheyAreStartedAlready) {
  const Outcome o = stepscope(std::string(kTrain) + "--gpus 2",
                              "PMI_RANK=0 PMI_SIZE=2 STEPSCOPE_RANK=1 STEPSCOPE_WORLD=3 STEPSCOPE_LOCAL_RANK=1 "
                              "STEPSCOPE_TOKEN=t STEPSCOPE_RENDEZVOUS=unix:@nowhere CUDA_VISIBLE_DEVICES=");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("this process is rank 1 of 3 (started by stepscope)"));
}

TEST(Ranks, SeveralAreRefusedInEachProcessOfMpiexecThoughItSaysNoAddress) {
  const Outcome o = stepscope(std::string(kTrain) + "--gpus 2 --steps 1", "PMI_RANK=1 PMI_SIZE=3 CUDA_VISIBLE_DEVICES=");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("this process is rank 1 of 3 (started by mpich)"));
}

// Each of them started as many ranks again, which measured the same links at the same time and replaced each other's file.
TEST(Ranks, ASweepOfLinksIsRefusedWhereTheyAreStartedAlready) {
  const fs::path folder = fresh_folder();
  const Outcome o = stepscope("doctor --gpus 2 --communicator staged --most-mib 1 --links " + (folder / "links.json").string(),
                              "PMI_RANK=1 PMI_SIZE=3 CUDA_VISIBLE_DEVICES=");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_EQ(o.err,
            "stepscope: --gpus 2: this process is rank 1 of 3 (started by mpich), and would start as many again; expected one process\n");
  EXPECT_FALSE(fs::exists(folder / "links.json"));
  fs::remove_all(folder);
}

// The links were measured first, for a minute on GPUs, and then there was no place to keep what they had shown.
TEST(Ranks, ASweepOfLinksIsRefusedWithoutAPlaceBeforeTheLinksAreMeasured) {
  const fs::path folder = fresh_folder();
  std::ofstream(folder / "file") << "no folder\n";
  const auto sweep = [&](const std::string& cache) {
    return stepscope("doctor --gpus 2 --communicator staged --most-mib 1", std::string(kOneThread) + " env " + cache);
  };
  const Outcome none = sweep("-u STEPSCOPE_CACHE -u XDG_CACHE_HOME -u HOME");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_EQ(none.err, "stepscope: there is no cache folder; expected --links FILE\n");
  const Outcome file = sweep("STEPSCOPE_CACHE=" + (folder / "file").string());
  EXPECT_EQ(file.exit_code, 2);
  EXPECT_THAT(file.err,
              AllOf(HasSubstr("the cache folder (--links FILE keeps the sweep elsewhere): cannot write into "), Not(HasSubstr("rank 0"))));
  fs::remove_all(folder);
}

// What a run of before kept is removed in front of a run, not of one that is refused.
TEST(Ranks, AProfileOfSeveralIsRefusedWhereTheyAreStartedAlready) {
  const fs::path folder = fresh_folder();
  std::ofstream(folder / "r.rank0.jsonl") << "kept\n";
  const Outcome o =
      stepscope("profile --trainer reference --model tiny --steps 1 --gpus 2 --keep-recording " + (folder / "r.jsonl").string(),
                "PMI_RANK=1 PMI_SIZE=3 CUDA_VISIBLE_DEVICES=");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("--gpus 2: this process is rank 1 of 3 (started by mpich)"));
  EXPECT_TRUE(fs::exists(folder / "r.rank0.jsonl"));
  fs::remove_all(folder);
}

TEST(Ranks, MoreThanAHostTakesAreNotStarted) {
  const Outcome o = stepscope(std::string(kTrain) + "--gpus 257 --steps 1");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("--gpus 257: expected at most 256 with the CPU reference"));
}

TEST(Ranks, ATotalBatchThatDoesNotDivideSaysWhichDo) {
  const Outcome o = stepscope(std::string(kTrain) + "--gpus 2 --total-batch 100");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("--total-batch 100: not a whole number of micro-batches of 2 x 16 tokens on 2 ranks; expected 64 or 128"));
}

// ---- started by hand or by others ---------------------------------------------------------------------------------------------------
std::string fresh_address() {
  static std::atomic<int> serial{0};
  return "unix:@stepscope-program-test-" + std::to_string(::getpid()) + "-" + std::to_string(serial++);
}
std::string by_hand(int rank, int world, const std::string& address, const std::string& shape = "-t 16 -b 2") {
  return "train --trainer reference --model tiny " + shape + " --steps 3 --rank " + std::to_string(rank) + " --world " +
         std::to_string(world) + " --rendezvous " + address + " ";
}

TEST(Ranks, TorchrunsEnvironmentIsUnderstood) {
  // A port that was free a moment ago, and so was the one before it.
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
  socklen_t size = sizeof a;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &size);
  ::close(fd);
  const std::string shared = "WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(ntohs(a.sin_port) - 1);
  Running one(std::string(kTrain) + "--steps 3 --json", shared + " RANK=1 LOCAL_RANK=1");
  Running zero(std::string(kTrain) + "--steps 3 --json", shared + " RANK=0 LOCAL_RANK=0");
  EXPECT_EQ(zero.end(), 0) << zero.err();
  EXPECT_EQ(one.end(), 0) << one.err();
  EXPECT_EQ(losses(zero.out()).size(), 3u);
  EXPECT_EQ(one.out(), "");  // rank 0 prints
}

TEST(Ranks, ADifferentFlagIsRefusedOnBothWithBothValues) {
  const std::string address = fresh_address();
  Running one(by_hand(1, 2, address) + "--lr 0.01");
  Running zero(by_hand(0, 2, address) + "--lr 0.001");
  EXPECT_EQ(zero.end(), 2);
  EXPECT_EQ(one.end(), 2);
  EXPECT_THAT(zero.err(), HasSubstr("the ranks differ in --lr: '0.001' on rank 0; '0.01' on rank 1"));
}

// All ranks empty their pipelines before rank 0 answers questions.
TEST(Ranks, AnotherPaceOfTheQuestionsIsRefused) {
  const std::string address = fresh_address(), questions = std::string("--eval ") + TEST_DATA "/no_such_set.bin ";
  Running one(by_hand(1, 2, address));
  Running zero(by_hand(0, 2, address) + questions);
  EXPECT_EQ(zero.end(), 2);
  EXPECT_EQ(one.end(), 2);
  EXPECT_THAT(zero.err(), HasSubstr("the ranks differ in --eval: 'given' on rank 0; nothing on rank 1"));
}

TEST(Ranks, AnotherDriverIsRefused) {
  const std::string address = fresh_address();
  const std::string driver = "LD_LIBRARY_PATH=" FAKE_DRIVER " FAKE_NVML_DRIVER=";
  Running one(by_hand(1, 2, address), driver + "575.57.08");
  Running zero(by_hand(0, 2, address), driver + "580.65.06");
  EXPECT_EQ(zero.end(), 2);
  EXPECT_EQ(one.end(), 2);
  EXPECT_THAT(zero.err(), HasSubstr("the ranks differ in the driver: '580.65.06' on rank 0; '575.57.08' on rank 1"));
}

TEST(Ranks, DifferentDataIsRefused) {
  const fs::path folder = fresh_folder();
  for (const char* name : {"a", "b"}) {  // 256 x int32 header, then the tokens
    std::vector<int32_t> header(256);
    header[0] = 20240520;
    header[1] = 1;
    header[2] = 500;
    std::vector<uint16_t> tokens(500, static_cast<uint16_t>(name[0]));
    std::ofstream out(folder / name, std::ios::binary);
    out.write(reinterpret_cast<const char*>(header.data()), 1024);
    out.write(reinterpret_cast<const char*>(tokens.data()), 1000);
  }
  fs::create_directories(folder / "0");
  fs::create_directories(folder / "1");
  fs::copy(folder / "a", folder / "0" / "data.bin");
  fs::copy(folder / "b", folder / "1" / "data.bin");
  const std::string address = fresh_address();
  const auto rank = [&](int r) { return by_hand(r, 2, address) + "--data data.bin"; };
  Running one(rank(1), in_shell("cd " + (folder / "1").string()));
  Running zero(rank(0), in_shell("cd " + (folder / "0").string()));
  EXPECT_EQ(zero.end(), 2);
  EXPECT_EQ(one.end(), 2);
  EXPECT_THAT(zero.err(), HasSubstr("the ranks differ in the training data"));
  fs::remove_all(folder);
}

TEST(Ranks, AMissingRankIsNamed) {
  Running zero(by_hand(0, 4, fresh_address()) + "--rendezvous-timeout 0.2");
  EXPECT_EQ(zero.end(), 3);
  EXPECT_THAT(zero.err(), HasSubstr("ranks 1-3 did not come within 0.2 s (have 1 of 4)"));
}

// ---- failures -----------------------------------------------------------------------------------------------------------------------
constexpr const char* kLong = "train --trainer reference --model tiny -t 16 -b 2 --steps 100000 ";

TEST(Failures, AKilledRankEndsAllAndIsNamed) {
  for (const int victim : {0, 1, 2}) {
    Running run(std::string(kLong) + "--gpus 3");
    ASSERT_TRUE(run.read_until("step     3"));
    const auto ranks = run.ranks();
    ASSERT_EQ(ranks.size(), 3u);
    ::kill(ranks[static_cast<size_t>(victim)], SIGKILL);
    EXPECT_EQ(run.end(), 3);
    EXPECT_THAT(run.last_line(), AllOf(HasSubstr("rank " + std::to_string(victim) + " (pid " +
                                                 std::to_string(ranks[static_cast<size_t>(victim)]) + ") was killed by signal 9 in step "),
                                       EndsWith("were stopped")));
    EXPECT_THAT(run.err(), Not(HasSubstr("ended without a word")));  // the others heard less of it
    expect_gone(ranks);
  }
}

TEST(Failures, AStoppedRankEndsAllAndIsNamed) {
  for (const int victim : {0, 1}) {
    Running run(std::string(kLong) + "--gpus 2 --silence-timeout 1");
    ASSERT_TRUE(run.read_until("step     3"));
    const auto ranks = run.ranks();
    ASSERT_EQ(ranks.size(), 2u);
    ::kill(ranks[static_cast<size_t>(victim)], SIGSTOP);
    EXPECT_EQ(run.end(), 3);
    EXPECT_THAT(run.last_line(),
                AllOf(HasSubstr("rank " + std::to_string(victim)), HasSubstr("has not been heard for"), HasSubstr("it was killed")));
    expect_gone(ranks);
  }
}

// Holds the main thread of a process, and no other: its watchdog lives. False where this system allows no ptrace.
bool hold_main_thread(pid_t pid) {
  return ::ptrace(PTRACE_SEIZE, pid, nullptr, nullptr) == 0 && ::ptrace(PTRACE_INTERRUPT, pid, nullptr, nullptr) == 0;
}

TEST(Failures, ARankThatHangsIsNamedAndEndsWithinTenSeconds) {
  Running run(std::string(kLong) + "--gpus 2");
  ASSERT_TRUE(run.read_until("step   100"));  // the first ones have more time
  const auto ranks = run.ranks();
  ASSERT_EQ(ranks.size(), 2u);
  const auto begin = std::chrono::steady_clock::now();
  if (!hold_main_thread(ranks[1])) GTEST_SKIP() << "a thread is held by ptrace, which this system refuses: " << std::strerror(errno);
  std::thread reader([&] { run.read_until("no line begins like this"); });
  // Who holds a process hears of its end first, and only then its parent does.
  while (::waitpid(ranks[1], nullptr, WNOHANG | __WALL) >= 0) ::usleep(10000);
  reader.join();
  EXPECT_EQ(run.end(), 3);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 10);
  // Held where it waits for the others, it looks like them, but alone does not end when told to; held while it told its watchdog
  // something, it takes the watchdog with it.
  EXPECT_THAT(run.err(), AnyOf(ContainsRegex("rank 1 .* does not come to the others, who wait"), HasSubstr("rank 1 did not end by itself"),
                               ContainsRegex("rank 1 .* has not been heard for 5 s")));
  expect_gone(ranks);
}

TEST(Failures, OutputThatNobodyReadsIsNoHang) {
  Running run(std::string(kTrain) + "--steps 400 --gpus 2 --json --stall-timeout 0.5");
  for (int step = 1; step <= 5; ++step) ASSERT_TRUE(run.read_until("{"));
  const auto ranks = run.ranks();
  ASSERT_EQ(ranks.size(), 2u);
  // Its pipe takes less than these steps write. Ranks that are given up end after 0.5 s and the 4 s in which they may say why.
  for (int i = 0; i < 60 && lives(ranks[0]); ++i) ::usleep(100000);
  EXPECT_TRUE(lives(ranks[0]) && lives(ranks[1])) << run.err();
  EXPECT_EQ(run.end(), 0) << run.err();
  EXPECT_EQ(losses(run.out()).size(), 400u);
}

TEST(Failures, RanksEndWithTheirLauncher) {
  Running run(std::string(kLong) + "--gpus 2");
  ASSERT_TRUE(run.read_until("step     2"));
  const auto ranks = run.ranks();
  ASSERT_EQ(ranks.size(), 2u);
  run.signal(SIGKILL);
  EXPECT_EQ(run.end(), -SIGKILL);
  while (lives(ranks[0]) || lives(ranks[1])) ::usleep(1000);  // ctest gives up on ranks that stay
}

TEST(Failures, OutOfMemoryOnOneRankEndsAllWithItsReason) {
  const std::string address = fresh_address();
  const std::string shape = "-b 64 -t 256";  // some 250 MB of logits and activations
  Running one(by_hand(1, 2, address, shape), in_shell("ulimit -d 250000"));
  Running zero(by_hand(0, 2, address, shape));
  EXPECT_EQ(zero.end(), 3) << zero.err();
  EXPECT_EQ(one.end(), 3) << one.err();
  EXPECT_THAT(zero.err(), AllOf(HasSubstr("rank 1: "), HasSubstr("which the system refuses")));
}

TEST(Failures, AFullDiskEndsAllAndTheOlderCheckpointLoads) {
  const fs::path folder = fresh_folder();
  const std::string run = std::string(kTrain) + "--gpus 2 --lr-total-steps 9 --resume --checkpoints " + (folder / "run").string();
  ASSERT_EQ(stepscope(run + " --steps 2").exit_code, 0);
  // No file may become larger than 1 MB; model.bin has 2.
  Running full(run + " --steps 4", in_shell("trap \"\" XFSZ; ulimit -f 1000"));
  EXPECT_EQ(full.end(), 2) << full.err();
  EXPECT_THAT(full.last_line(), AllOf(HasSubstr("rank 0"), HasSubstr("model.bin"), HasSubstr("File too large")));
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder / "run")) left.push_back(entry.path().filename().string());
  EXPECT_THAT(left, ::testing::ElementsAre("step-00000002"));
  const Outcome after = stepscope(run + " --steps 3");
  EXPECT_EQ(after.exit_code, 0);
  EXPECT_THAT(after.err, HasSubstr("resumed after step 2"));
  fs::remove_all(folder);
}

TEST(Failures, InterruptedAllStopAfterTheSameStepAndItIsSaved) {
  const fs::path folder = fresh_folder();
  const std::string flags = "--gpus 3 --checkpoints " + (folder / "run").string();
  Running run(kLong + flags);
  ASSERT_TRUE(run.read_until("step     3"));
  const auto ranks = run.ranks();
  run.signal(SIGINT);
  EXPECT_EQ(run.end(), 130) << run.err();
  EXPECT_THAT(run.err(), HasSubstr("interrupted after step"));
  EXPECT_THAT(run.err(), Not(HasSubstr("killed")));
  expect_gone(ranks);
  const Outcome again = stepscope(kTrain + flags + " --resume --steps 1");
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.err, HasSubstr("this run is finished"));
  fs::remove_all(folder);
}

// 130 says that the last step is saved.
TEST(Failures, AnInterruptedRunThatCannotBeSavedSaysSo) {
  const fs::path folder = fresh_folder();
  Running run(kLong + std::string("--gpus 2 --checkpoints ") + (folder / "run").string(), in_shell("trap \"\" XFSZ; ulimit -f 1000"));
  ASSERT_TRUE(run.read_until("step     3"));
  run.signal(SIGINT);
  EXPECT_EQ(run.end(), 2) << run.err();
  EXPECT_THAT(run.last_line(), AllOf(HasSubstr("model.bin"), HasSubstr("File too large")));
  fs::remove_all(folder);
}

// `timeout` signals a program and then its group, a terminal that closes signals its group and so does its shell: the second was taken for the
// user's second ctrl-C, which kills, and nothing was saved.
TEST(Failures, ASecondSignalAtOnceIsTheSameOne) {
  const fs::path folder = fresh_folder();
  Running run(kLong + std::string("--gpus 2 --checkpoints ") + (folder / "run").string());
  ASSERT_TRUE(run.read_until("step     3"));
  run.signal(SIGTERM);
  usleep(20'000);
  run.signal(SIGHUP);
  EXPECT_EQ(run.end(), 130) << run.err();
  EXPECT_THAT(run.err(), HasSubstr("interrupted after step"));
  EXPECT_TRUE(fs::exists(folder / "run"));
  fs::remove_all(folder);
}

// The starter's page has 491 bytes for it.
TEST(Failures, ALongReasonOfAnotherRankIsSaidToItsEnd) {
  const fs::path folder = fresh_folder(), deep = folder / std::string(200, 'x') / std::string(200, 'y') / std::string(150, 'z');
  fs::create_directories(deep / "run.rank1.json");
  const Outcome o = stepscope(std::string(kTrain) + "--gpus 2 --steps 3 --run-json " + (deep / "run.json").string());
  EXPECT_NE(o.exit_code, 0);
  EXPECT_THAT(o.err, HasSubstr("/run.rank1.json"));
  fs::remove_all(folder);
}

// "saved with --accumulation 2" was said of a run that had --gpus 2 and one micro-batch.
TEST(Resuming, OnOneRankWhatTwoSavedNamesTheProductThatMustStay) {
  const fs::path folder = fresh_folder();
  const std::string run = std::string(kTrain) + "--checkpoints " + folder.string();
  ASSERT_EQ(stepscope(run + " --gpus 2 --steps 2").exit_code, 0);
  const Outcome o = stepscope(run + " --resume --steps 3");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("was saved with ranks x --accumulation 2, expected the 1 of this run"));
  EXPECT_EQ(stepscope(run + " --resume --steps 3 --accumulation 2").exit_code, 0);
  fs::remove_all(folder);
}

// The page of a log counted the tokens of one rank.
TEST(Logs, OfSeveralRanksHaveTheTokensOfAll) {
  const fs::path folder = fresh_folder();
  const std::string log = (folder / "run.jsonl").string();
  ASSERT_EQ(stepscope(std::string(kTrain) + "--gpus 2 --steps 4 --log " + log).exit_code, 0);
  const Outcome text = stepscope("report " + log), json = stepscope("report " + log + " --json");
  EXPECT_THAT(text.out, HasSubstr(", 2 ranks, ")) << text.err;
  const auto l = nlohmann::json::parse(json.out).at("logs").at(0);
  EXPECT_EQ(l.at("ranks"), 2);
  std::ifstream in(log);
  std::string first;
  std::getline(in, first);
  const auto settings = nlohmann::json::parse(first).at("settings");
  EXPECT_NEAR(l.at("tokens_per_s").get<double>() * l.at("median_ms").get<double>() * 1e-3, 2 * settings.at("tokens_per_step").get<double>(),
              1e-6);
  fs::remove_all(folder);
}

// A script's background ignores SIGINT: the run of one process went on, that of several ended.
TEST(Failures, ASignalThatIsIgnoredStaysIgnored) {
  Running run(kLong + std::string("--gpus 2"), "env --ignore-signal=INT");
  ASSERT_TRUE(run.read_until("step     3"));
  for (const pid_t rank : run.ranks()) ::kill(rank, SIGINT);
  run.signal(SIGINT);
  EXPECT_TRUE(run.read_until("step   100"));
  run.signal(SIGTERM);
  EXPECT_EQ(run.end(), 130) << run.err();
}

// A caller that ignores SIGCHLD hands that on, and the kernel then keeps no ends of ranks to wait for: the launcher never returned.
TEST(Failures, TheEndsOfRanksAreHeardWhereTheCallerIgnoresThoseOfItsOwn) {
  Running good(std::string(kTrain) + "--gpus 2 --steps 2", "env --ignore-signal=CHLD");
  EXPECT_EQ(good.end(), 0) << good.err();
  Running bad(std::string(kTrain) + "--gpus 2 --data no_such_file.bin", "env --ignore-signal=CHLD");
  EXPECT_EQ(bad.end(), 2) << bad.err();
}

// On GPUs the driver has threads in the launcher before that waits for signals: it died of ctrl-C at once, and nothing was saved.
TEST(Failures, AThreadOfTheDriverDoesNotTakeCtrlCFromTheLauncher) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    Running run(kLong + std::string("--gpus 2"), std::string("LD_PRELOAD=") + EARLY_THREAD);
    ASSERT_TRUE(run.read_until("step     3"));
    const auto ranks = run.ranks();
    run.signal(signal);
    EXPECT_EQ(run.end(), 130) << run.err();
    EXPECT_THAT(run.err(), HasSubstr("interrupted after step"));
    expect_gone(ranks);
  }
}

}  // namespace

#include "experiments/prototypes/copy_engine/pair.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <new>
#include <thread>

#include "base/errors.h"

namespace copy_engine {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kMostRows = 64;
constexpr size_t kMostBytes = 4096;

}  // namespace

struct Page {
  std::atomic<int> arrived{0};
  std::atomic<int> failed{0};  // the rank that failed first, and 1
  std::array<std::array<unsigned char, kMostBytes>, kRanks> bytes{};
  std::atomic<int> rows{0};
  std::array<int, kMostRows> table{};
  std::array<std::array<char, 160>, kMostRows> text{};
  std::array<std::array<char, 400>, kRanks> error{};
};

void Pair::meet() {
  const int goal = (page_->arrived.fetch_add(1) / kRanks + 1) * kRanks;
  const auto end = Clock::now() + std::chrono::seconds(12);
  while (page_->arrived.load() < goal) {
    if (page_->failed.load() != 0) throw stepscope::MachineError("the other rank failed");
    if (Clock::now() > end) throw stepscope::MachineError("the other rank did not come within 12 s");
  }
}

void Pair::swap_bytes(const void* mine, void* theirs, size_t bytes) {
  if (bytes > kMostBytes) throw std::logic_error("too much to swap");
  std::memcpy(page_->bytes[static_cast<size_t>(rank_)].data(), mine, bytes);
  meet();
  std::memcpy(theirs, page_->bytes[static_cast<size_t>(other())].data(), bytes);
  meet();
}

void Pair::row(int table, const std::string& text) {
  if (rank_ != 0) return;
  const int at = page_->rows.load();
  if (at >= kMostRows) return;
  page_->table[static_cast<size_t>(at)] = table;
  (void)std::snprintf(page_->text[static_cast<size_t>(at)].data(), page_->text[0].size(), "%s", text.c_str());
  page_->rows.store(at + 1);
  fmt::print(stderr, "{}\n", text);
}

namespace {

[[noreturn]] void be_rank(Page& page, int rank, const std::function<void(Pair&)>& work) {
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  int code = 0;
  try {
    Pair pair(page, rank);
    work(pair);
  } catch (const std::exception& e) {
    (void)std::snprintf(page.error[static_cast<size_t>(rank)].data(), page.error[0].size(), "%s", e.what());
    fmt::print(stderr, "rank {}: {}\n", rank, e.what());
    int none = 0;
    (void)page.failed.compare_exchange_strong(none, rank + 1);
    code = 3;
  }
  (void)std::fflush(nullptr);
  // Without destructors of CUDA and NCCL, which may wait for the other rank.
  _exit(code);
}

std::string ending(int status) {
  if (WIFSIGNALED(status)) return fmt::format("killed by signal {}", WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : fmt::format("exit {}", WEXITSTATUS(status));
}

// Waits for both; a rank that outlives the limit, or another's failure by 3 s, is killed.
std::string wait_for(const std::array<pid_t, kRanks>& ranks, int seconds, const Page& page) {
  auto end = Clock::now() + std::chrono::seconds(seconds);
  std::array<bool, kRanks> ended{};
  std::string why;
  bool killed = false;
  while (!ended[0] || !ended[1]) {
    for (size_t r = 0; r < kRanks; ++r) {
      int status = 0;
      if (ended[r] || waitpid(ranks[r], &status, WNOHANG) != ranks[r]) continue;
      ended[r] = true;
      const std::string how = ending(status);
      if (how.empty() || killed) continue;
      const auto first = static_cast<size_t>(page.failed.load() == 0 ? static_cast<int>(r) : page.failed.load() - 1);
      if (why.empty()) why = fmt::format("rank {}: {}", first, first == r && page.failed.load() == 0 ? how : page.error[first].data());
      end = std::min(end, Clock::now() + std::chrono::seconds(3));
    }
    if (!killed && Clock::now() > end) {
      if (why.empty()) why = fmt::format("not ended after {} s", seconds);
      for (size_t r = 0; r < kRanks; ++r)
        if (!ended[r]) (void)kill(ranks[r], SIGKILL);
      killed = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return why;
}

}  // namespace

std::string run_pair(int seconds, int tables, Rows& rows, const std::function<void(Pair&)>& work) {
  void* memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw stepscope::MachineError("no page of shared memory");
  Page& page = *new (memory) Page;
  (void)std::fflush(nullptr);
  std::array<pid_t, kRanks> ranks{};
  for (int r = 0; r < kRanks; ++r) {
    const pid_t pid = fork();
    if (pid < 0) throw stepscope::MachineError("no process could be forked");
    if (pid == 0) be_rank(page, r, work);
    ranks[static_cast<size_t>(r)] = pid;
  }
  std::string why = wait_for(ranks, seconds, page);
  rows.resize(static_cast<size_t>(tables));
  for (int i = 0; i < page.rows.load(); ++i)
    rows[static_cast<size_t>(page.table[static_cast<size_t>(i)])].emplace_back(page.text[static_cast<size_t>(i)].data());
  (void)munmap(memory, sizeof(Page));
  return why;
}

}  // namespace copy_engine

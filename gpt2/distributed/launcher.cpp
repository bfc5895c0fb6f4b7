#include "gpt2/distributed/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

#include "base/handed_on_signals.h"
#include "base/process.h"
#include "base/stderr_text.h"
#include "base/text.h"
#include "gpt2/distributed/rank_page.h"
#include "gpt2/distributed/rendezvous.h"
#include "gpt2/distributed/sockets.h"

namespace gpt2::distributed {
namespace {

constexpr int kReapEvery_ms = 100;

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw stepscope::MachineError("the kernel gives no random bytes for the token of this run");
  std::string text;
  for (const unsigned char b : bytes) text += fmt::format("{:02x}", b);
  return text;
}

// Lines of a rank that come through a pipe, each whole and behind the rank's name.
struct Lines {
  Descriptor fd;
  std::string prefix, rest;
  // False: nothing comes any more.
  bool pass_on() {
    std::array<char, 4096> bytes;
    ssize_t n = 0;
    while ((n = ::read(fd.get(), bytes.data(), bytes.size())) > 0) {
      rest.append(bytes.data(), static_cast<size_t>(n));
      for (size_t end; (end = rest.find('\n')) != std::string::npos; rest.erase(0, end + 1)) write(rest.substr(0, end));
    }
    return n < 0 && (errno == EAGAIN || errno == EINTR);
  }
  void flush() {
    pass_on();
    if (!rest.empty()) write(rest);
    rest.clear();
  }
  void write(const std::string& line) const {
    const std::string text = prefix + line + "\n";
    (void)!::write(STDERR_FILENO, text.data(), text.size());
  }
};

class Launch {
 public:
  Launch(int ranks, double patience_s)
      : ranks_(ranks), patience_s_(patience_s), page_(RankPage::make(ranks)), ends_(static_cast<size_t>(ranks)) {
    signals_ = Descriptor(::signalfd(-1, &heard_.set(), SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~Launch() {
    kill_all(SIGKILL);
    while (running() > 0) reap(0);
  }

  void start(const std::vector<std::string>& argv) {
    const std::string token = random_token(), address = "unix:@stepscope-" + random_token();
    const Descriptor listener = listen_at(address);
    for (int r = 0; r < ranks_; ++r) start_rank(argv, r, token, address, listener.get());
  }

  int wait() {
    while (running() > 0) {
      std::vector<pollfd> fds{{signals_.get(), POLLIN, 0}};
      for (const Lines& l : lines_) fds.push_back({l.fd.get(), POLLIN, 0});
      // Never for ever: a thread that a driver's library started in this process takes SIGCHLD away from the descriptor now and then.
      ::poll(fds.data(), fds.size(), kReapEvery_ms);
      std::erase_if(lines_, [](Lines& l) {
        if (l.pass_on()) return false;
        l.flush();
        return true;
      });
      hear_signals();
      reap(WNOHANG);
      if (kill_at_s_ > 0 && seconds_now() >= kill_at_s_) kill_all(SIGKILL);
    }
    for (Lines& l : lines_) l.flush();
    for (size_t r = 0; r < ends_.size(); ++r) {
      ends_[r].step = page_.slot(static_cast<int>(r)).step;
      ends_[r].told = page_.told(static_cast<int>(r));
    }
    Ending end = judge_endings(ends_);
    // Ranks that were told to stop may end in any way that follows from it: 3 may say that others are gone. 1 and 2 say that one failed itself, as
    // where what it was to save does not fit.
    const bool failed = end.exit_code == 1 || end.exit_code == 2;
    if (interrupted_at_s_ && end.exit_code != 0 && !failed) end.exit_code = 130;
    // A rank that is told to stop before it listens is killed by that, and the others lose it. What a rank had of its own is not told either:
    // nothing had begun that could be lost.
    const bool began = std::any_of(ends_.begin(), ends_.end(), [](const RankEnd& e) { return e.step > 0; });
    if (end.exit_code == 130 && !end.last_line.empty() && !began) end.last_line = "interrupted before the first step";
    if (!end.last_line.empty()) stepscope::put_on_stderr(fmt::format("stepscope: {}\n", end.last_line));
    return end.exit_code;
  }

 private:
  void start_rank(const std::vector<std::string>& argv, int rank, const std::string& token, const std::string& address, int listener) {
    std::array<int, 2> out{-1, -1}, err{-1, -1};
    if (rank != 0 && (::pipe2(out.data(), O_CLOEXEC) != 0 || ::pipe2(err.data(), O_CLOEXEC) != 0))
      throw stepscope::MachineError(fmt::format("pipe: {}", std::strerror(errno)));
    const Descriptor out_end(out[1]), err_end(err[1]);
    for (const int fd : {out[0], err[0]})
      if (fd >= 0) {
        set_nonblocking(fd, true);
        lines_.push_back({Descriptor(fd), fmt::format("[rank {}] ", rank), ""});
      }
    std::map<std::string, std::string> environment{{"STEPSCOPE_RANK", std::to_string(rank)},
                                                   {"STEPSCOPE_WORLD", std::to_string(ranks_)},
                                                   {"STEPSCOPE_LOCAL_RANK", std::to_string(rank)},
                                                   {"STEPSCOPE_RENDEZVOUS", rank == 0 ? fmt::format("fd:{}", listener) : address},
                                                   {"STEPSCOPE_TOKEN", token},
                                                   {RankPage::kVariable, std::to_string(page_.fd())}};
    // Ranks that each take all processors wait for each other's threads.
    const unsigned threads = std::max(1u, std::thread::hardware_concurrency() / static_cast<unsigned>(ranks_));
    if (std::getenv("OMP_NUM_THREADS") == nullptr) environment.emplace("OMP_NUM_THREADS", std::to_string(threads));
    if (std::getenv("OMP_WAIT_POLICY") == nullptr) environment.emplace("OMP_WAIT_POLICY", "passive");
    RankEnd& end = ends_[static_cast<size_t>(rank)];
    end.pid = stepscope::start_process(argv, environment, [&] {
      // A group of its own: ctrl-C reaches this launcher alone, which asks the ranks to stop together.
      ::setpgid(0, 0);
      sigset_t none;
      sigemptyset(&none);
      ::sigprocmask(SIG_SETMASK, &none, nullptr);
      ::fcntl(page_.fd(), F_SETFD, 0);
      if (rank == 0) ::fcntl(listener, F_SETFD, 0);
      if (rank != 0) {
        ::dup2(out_end.get(), STDOUT_FILENO);
        ::dup2(err_end.get(), STDERR_FILENO);
      }
      const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      ::dup2(nothing, STDIN_FILENO);
    });
    end.order = -1;
  }

  int running() const {
    return static_cast<int>(std::count_if(ends_.begin(), ends_.end(), [](const RankEnd& e) { return e.pid > 0 && e.order < 0; }));
  }
  void kill_all(int signal) {
    for (RankEnd& e : ends_) {
      if (e.pid <= 0 || e.order >= 0) continue;
      e.by_launcher = true;
      ::kill(static_cast<pid_t>(e.pid), signal);
    }
  }
  void hear_signals() {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      if (info.ssi_signo == SIGCHLD) continue;
      const double now = seconds_now();
      if (interrupted_at_s_) {
        if (now - *interrupted_at_s_ > stepscope::kSameSignal_s) kill_all(SIGKILL);
      } else {
        interrupted_at_s_ = now;
        const auto first = std::find_if(ends_.begin(), ends_.end(), [](const RankEnd& e) { return e.order < 0; });
        if (first != ends_.end()) ::kill(static_cast<pid_t>(first->pid), SIGTERM);  // it asks the others
      }
    }
  }
  void reap(int flags) {
    for (RankEnd& e : ends_) {
      if (e.pid <= 0 || e.order >= 0) continue;
      int status = 0;
      if (::waitpid(static_cast<pid_t>(e.pid), &status, flags) <= 0) continue;
      e.order = ended_++;
      if (WIFSIGNALED(status)) e.signal = WTERMSIG(status);
      if (WIFEXITED(status)) e.exit_code = WEXITSTATUS(status);
      if ((e.signal != 0 || e.exit_code != 0) && kill_at_s_ == 0) kill_at_s_ = seconds_now() + patience_s_;
      // It did not listen yet, so none has begun and nothing is to be saved: nobody is left to tell the others.
      const auto rank = static_cast<int>(&e - ends_.data());
      if (interrupted_at_s_ && e.signal == SIGTERM && page_.slot(rank).step == 0) kill_at_s_ = seconds_now();
    }
  }

  const int ranks_;
  const double patience_s_;  // with ranks that end because another one failed
  RankPage page_;
  std::vector<RankEnd> ends_;
  std::vector<Lines> lines_;
  // Whoever looked for a GPU before has threads of the driver in this process.
  const stepscope::HandedOnSignals heard_{stepscope::ending_signals({SIGCHLD})};
  Descriptor signals_;
  int ended_ = 0;
  std::optional<double> interrupted_at_s_;
  double kill_at_s_ = 0;  // 0: no rank has failed
};

std::string where(const RankEnd& e) { return e.step > 0 ? fmt::format("in step {}", e.step) : "before its first step"; }

}  // namespace

Ending judge_endings(const std::vector<RankEnd>& ranks) {
  std::vector<int> order(ranks.size());
  for (size_t r = 0; r < ranks.size(); ++r) order[r] = static_cast<int>(r);
  std::sort(order.begin(), order.end(),
            [&](int a, int b) { return ranks[static_cast<size_t>(a)].order < ranks[static_cast<size_t>(b)].order; });
  const auto failed = [](const RankEnd& e) { return e.exit_code != 0 || (e.signal != 0 && !e.by_launcher); };
  const auto itself = [&](int r) {
    const RankEnd& e = ranks[static_cast<size_t>(r)];
    return failed(e) && (!e.told || e.told->rank == r || (e.signal != 0 && !e.by_launcher));
  };
  int root = -1;
  for (const int r : order)
    if (root < 0 && itself(r)) root = r;
  std::optional<Failure> told;
  for (const int r : order)
    if (!told) told = ranks[static_cast<size_t>(r)].told;
  if (root < 0 && !told) {  // nothing failed, but the user may have asked a second time
    const bool killed = std::any_of(ranks.begin(), ranks.end(), [](const RankEnd& e) { return e.signal != 0; });
    return killed ? Ending{130, "the ranks were killed before they had stopped; what came after the last checkpoint is lost"} : Ending{};
  }
  // The same reason on all ranks: rank 0 has printed it.
  if (root < 0 && told->rank < 0) return {told->exit_code, ""};
  if (root < 0) root = told->rank;
  const RankEnd& e = ranks[static_cast<size_t>(root)];
  std::vector<int> others;
  for (size_t r = 0; r < ranks.size(); ++r)
    if (static_cast<int>(r) != root && (failed(ranks[r]) || ranks[r].by_launcher)) others.push_back(static_cast<int>(r));
  const std::string stopped =
      others.empty() ? "" : fmt::format("; {} {} stopped", stepscope::named_ranks(others), others.size() == 1 ? "was" : "were");
  Ending end;
  if (e.signal == SIGPIPE && root == 0 && !e.by_launcher) {
    end.exit_code = 128 + SIGPIPE;  // whoever read the output has seen enough, as of a program of one process
  } else if (e.signal != 0 && !e.by_launcher) {
    end.exit_code = 3;
    end.last_line = fmt::format("rank {} (pid {}) was killed by signal {} {}{}", root, e.pid, e.signal, where(e), stopped);
  } else if (failed(e)) {
    end.exit_code = e.exit_code;
    const std::string why = e.told ? ": " + e.told->what : "";
    end.last_line = fmt::format("rank {} (pid {}) ended with exit code {} {}{}{}", root, e.pid, e.exit_code, where(e), why, stopped);
    if (e.exit_code == 130) end.last_line.clear();  // the user asked for it
  } else {
    end.exit_code = told->exit_code;
    end.last_line = fmt::format("{}; it was killed{}", told->what, stopped);
  }
  return end;
}

int launch(const std::vector<std::string>& argv, int ranks, double patience_s) {
  Launch run(ranks, patience_s);
  run.start(argv);
  return run.wait();
}

}  // namespace gpt2::distributed

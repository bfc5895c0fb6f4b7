#include "experiments/runner/child_process_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/process.h"

namespace experiments {
namespace {

constexpr size_t kLongestLine = size_t{64} << 20, kTail = 2000;

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left + 1, 0, 3'600'000));
}

[[noreturn]] void system_failure(const char* call) { throw std::runtime_error(fmt::format("{}: {}", call, std::strerror(errno))); }

ChildProcessGroup::Ending ending_of(int status) {
  ChildProcessGroup::Ending e;
  e.exited = WIFEXITED(status);
  if (e.exited)
    e.code = WEXITSTATUS(status);
  else
    e.signal = WTERMSIG(status);
  return e;
}

}  // namespace

std::string ChildProcessGroup::Ending::text() const {
  if (!exited) return fmt::format("was killed by signal {} ({})", signal, strsignal(signal));
  // A shell says so of its last command; no signal has a number above 64.
  if (code > 128 && code <= 128 + 64)
    return fmt::format("exited with code {} (a shell's way to say signal {}, {})", code, code - 128, strsignal(code - 128));
  return fmt::format("exited with code {}", code);
}

ChildProcessGroup::ChildProcessGroup(const Options& o) : keeps_returns_(o.keeps_returns) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  int out[2], err[2], in[2];
  if (pipe2(out, O_CLOEXEC) != 0) system_failure("pipe");
  output_ = gpt2::Descriptor(out[0]);
  gpt2::Descriptor out_write(out[1]), err_write, in_read;
  if (!o.merge_streams) {
    if (pipe2(err, O_CLOEXEC) != 0) system_failure("pipe");
    errors_ = gpt2::Descriptor(err[0]);
    err_write = gpt2::Descriptor(err[1]);
  }
  if (o.takes_input) {
    // A socket, not a pipe: writing to a dead child must be an error value and not a SIGPIPE.
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) != 0) system_failure("socketpair");
    input_ = gpt2::Descriptor(in[0]);
    in_read = gpt2::Descriptor(in[1]);
  } else {
    in_read = gpt2::Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
  }

  // It returns once the program runs, so from here on the group exists.
  pid_ = stepscope::start_process(o.argv, o.environment, [&] {
    setpgid(0, 0);
    for (const int reset : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) signal(reset, SIG_DFL);
    dup2(in_read.get(), STDIN_FILENO);
    dup2(out_write.get(), STDOUT_FILENO);
    dup2(o.merge_streams ? out_write.get() : err_write.get(), STDERR_FILENO);
  });
  for (const gpt2::Descriptor* d : {&output_, &errors_})
    if (*d) fcntl(d->get(), F_SETFL, O_NONBLOCK);
}

ChildProcessGroup::~ChildProcessGroup() { kill_all(); }

void ChildProcessGroup::remember(const char* text, size_t size) {
  tail_.append(text, size);
  if (tail_.size() > 2 * kTail) tail_.erase(0, tail_.size() - kTail);
}

// Moves what can be read into the buffers, waiting at most until the deadline. False when stdout has ended.
bool ChildProcessGroup::pump(Clock::time_point deadline, const std::atomic<bool>* stop, bool& interrupted) {
  interrupted = false;
  pollfd fds[2] = {{output_ ? output_.get() : -1, POLLIN, 0}, {errors_ ? errors_.get() : -1, POLLIN, 0}};
  const int ready = poll(fds, 2, std::min(milliseconds_until(deadline), 200));
  if (stop && stop->load()) {
    interrupted = true;
    return true;
  }
  if (ready <= 0) return true;
  char bytes[65536];
  if (fds[1].revents) {
    const ssize_t n = read(errors_.get(), bytes, sizeof bytes);
    if (n > 0)
      remember(bytes, static_cast<size_t>(n));
    else if (n == 0)
      errors_.close();
  }
  if (fds[0].revents) {
    const ssize_t n = read(output_.get(), bytes, sizeof bytes);
    if (n > 0) {
      buffer_.append(bytes, static_cast<size_t>(n));
      if (!errors_) remember(bytes, static_cast<size_t>(n));
    } else if (n == 0) {
      return false;
    }
  }
  return true;
}

ChildProcessGroup::Read ChildProcessGroup::read_line(std::string& line, Clock::time_point deadline, const std::atomic<bool>* stop) {
  bool open = static_cast<bool>(output_), interrupted = false;
  while (true) {
    const size_t newline = buffer_.find('\n', scanned_);
    if (newline != std::string::npos) {
      line = buffer_.substr(0, newline);
      if (!keeps_returns_ && !line.empty() && line.back() == '\r') line.pop_back();
      buffer_.erase(0, newline + 1);
      scanned_ = 0;
      return Read::line;
    }
    scanned_ = buffer_.size();
    if (!open || buffer_.size() > kLongestLine) {
      output_.close();
      if (buffer_.empty() || buffer_.size() > kLongestLine) return Read::end_of_output;
      line = std::move(buffer_);  // a last line without its newline
      buffer_.clear();
      scanned_ = 0;
      return Read::line;
    }
    if (interrupted) return Read::interrupted;
    if (Clock::now() >= deadline) return Read::timeout;
    open = pump(deadline, stop, interrupted);
  }
}

bool ChildProcessGroup::write_line(const std::string& line) {
  const std::string text = line + "\n";
  size_t sent = 0;
  while (input_ && sent < text.size()) {
    const ssize_t n = send(input_.get(), text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (n > 0)
      sent += static_cast<size_t>(n);
    else if (errno != EINTR)
      return false;
  }
  return sent == text.size();
}

void ChildProcessGroup::close_input() { input_.close(); }

std::optional<ChildProcessGroup::Ending> ChildProcessGroup::wait(Clock::time_point deadline) {
  while (!ending_) {
    int status = 0;
    const pid_t got = waitpid(pid_, &status, WNOHANG);
    if (got == pid_) {
      ending_ = ending_of(status);
    } else if (got < 0 && errno == ECHILD) {
      ending_ = Ending{};  // somebody else reaped it
    } else if (Clock::now() >= deadline) {
      return std::nullopt;
    } else {
      bool interrupted = false;  // keeps its pipes empty, so that it can end
      if (!pump(std::min(deadline, Clock::now() + std::chrono::milliseconds(5)), nullptr, interrupted))
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  return ending_;
}

void ChildProcessGroup::kill_all() {
  if (pid_ <= 0) return;
  close_input();
  // Twice: a member may fork between the signal to it and the signal to its newest child.
  for (int round = 0; round < 2; ++round) {
    if (kill(-pid_, SIGKILL) != 0 && errno == ESRCH) break;
    if (!ending_) {
      int status = 0;
      pid_t got;
      while ((got = waitpid(pid_, &status, 0)) < 0 && errno == EINTR) {
      }
      ending_ = got == pid_ ? ending_of(status) : Ending{};
    }
    // The rest of the group is ours once its parent is dead.
    for (int i = 0; i < 200; ++i) {
      const pid_t got = waitpid(-pid_, nullptr, WNOHANG);
      if (got < 0) break;
      if (got == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  pid_ = -1;
}

std::string ChildProcessGroup::last_words() const {
  std::string text = tail_.size() > kTail ? tail_.substr(tail_.size() - kTail) : tail_;
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  return text;
}

std::vector<pid_t> children_of_this_process() {
  std::vector<pid_t> out;
  std::error_code ignored;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    std::ifstream in(task.path() / "children");
    for (pid_t pid; in >> pid;) out.push_back(pid);
  }
  return out;
}

int kill_orphans(const std::vector<pid_t>& keep) {
  int killed = 0;
  // Killing one hands us its own children: until none is left.
  for (int round = 0; round < 50; ++round) {
    bool any = false;
    for (const pid_t pid : children_of_this_process()) {
      if (std::find(keep.begin(), keep.end(), pid) != keep.end()) continue;
      any = true;
      ++killed;
      kill(pid, SIGKILL);
      while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    if (!any) break;
  }
  return killed;
}

}  // namespace experiments

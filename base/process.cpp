#include "base/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <utility>

#include "base/atomic_file.h"
#include "base/errors.h"

namespace stepscope {

namespace {

// A process that ignores SIGCHLD never learns how its children ended. That is no success.
[[noreturn]] void fail_to_wait(pid_t pid) {
  throw std::runtime_error(fmt::format("how process {} ended cannot be told: {}", pid, std::strerror(errno)));
}

// The status of the child at its end.
int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) fail_to_wait(pid);
  return status;
}

// As above, until `stop` says that nobody wants what the child does.
int wait_for(pid_t pid, const std::atomic<bool>& stop) {
  using Clock = std::chrono::steady_clock;
  constexpr int kLook_ms = 200;  // the signal that sets `stop` may come right before the wait that it should have ended
  const gpt2::Descriptor of_child(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  std::optional<Clock::time_point> told;
  int signal = SIGTERM;
  for (;;) {
    int status = 0;
    const pid_t ended_pid = waitpid(pid, &status, WNOHANG);
    if (ended_pid > 0) return status;
    if (ended_pid < 0 && errno != EINTR) fail_to_wait(pid);
    if (stop && !told) told = Clock::now();
    if (told && std::chrono::duration<double>(Clock::now() - *told).count() > kSecondsToEnd) {
      kill(pid, std::exchange(signal, SIGKILL));
      told = Clock::now();
    }
    // Where the system has no such descriptor this is a pause.
    pollfd ended{of_child.get(), POLLIN, 0};
    poll(&ended, of_child.get() < 0 ? 0 : 1, kLook_ms);
  }
}

}  // namespace

pid_t start_process(const std::vector<std::string>& argv, const std::map<std::string, std::string>& environment,
                    const std::function<void()>& prepare) {
  std::vector<char*> arguments;
  for (const std::string& a : argv) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);

  // A pipe that closes on exec: if exec fails, the child sends errno through it.
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0)
    throw MachineError(
        fmt::format("cannot start '{}': pipe: {}; `ulimit -n` says how many files a process may have open", argv[0], std::strerror(errno)));
  const gpt2::Descriptor from_child(failure[0]);
  gpt2::Descriptor to_parent(failure[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0)
    throw MachineError(
        fmt::format("cannot start '{}': fork: {}; `ulimit -u` says how many processes a user may have", argv[0], std::strerror(errno)));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);  // the parent died before prctl took effect
    if (prepare) prepare();
    for (const auto& [key, value] : environment) setenv(key.c_str(), value.c_str(), 1);
    execvp(arguments[0], arguments.data());
    const int e = errno;
    (void)!write(to_parent.get(), &e, sizeof e);
    _exit(127);
  }
  to_parent.close();
  int exec_errno = 0;
  ssize_t n;
  while ((n = read(from_child.get(), &exec_errno, sizeof exec_errno)) < 0 && errno == EINTR) {
  }
  if (n != sizeof exec_errno) return pid;
  wait_for(pid);
  throw InputError(fmt::format("cannot start '{}': {}", argv[0], std::strerror(exec_errno)));
}

std::string program_in_path(const std::string& name, const std::string& more_folders) {
  const char* path = std::getenv("PATH");
  const std::string folders = std::string(path ? path : "") + ":" + more_folders;
  for (size_t begin = 0; begin <= folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string file = folders.substr(begin, end - begin) + "/" + name;
    if (access(file.c_str(), X_OK) == 0) return file;
    begin = end + 1;
  }
  return "";
}

ChildResult run_child(const std::vector<std::string>& argv, const std::map<std::string, std::string>& environment, bool stdout_to_stderr,
                      const std::atomic<bool>* stop) {
  const auto begin = std::chrono::steady_clock::now();
  const pid_t pid = start_process(argv, environment, [&] {
    if (stdout_to_stderr) dup2(STDERR_FILENO, STDOUT_FILENO);
  });
  const int status = stop ? wait_for(pid, *stop) : wait_for(pid);
  ChildResult r;
  r.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  r.exited = WIFEXITED(status);
  if (r.exited)
    r.exit_code = WEXITSTATUS(status);
  else
    r.signal = WTERMSIG(status);
  return r;
}

}  // namespace stepscope

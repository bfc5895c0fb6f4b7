#include "cli/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/errors.h"

namespace cli {

ChildResult run_child(const std::vector<std::string>& argv, const std::map<std::string, std::string>& extra_environment,
                      bool stdout_to_stderr) {
  std::vector<char*> arguments;
  for (const std::string& a : argv) arguments.push_back(const_cast<char*>(a.c_str()));
  arguments.push_back(nullptr);

  // A pipe that closes on exec: if exec fails, the child sends errno through it.
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0) throw std::runtime_error(fmt::format("pipe: {}", std::strerror(errno)));
  const auto begin = std::chrono::steady_clock::now();
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);  // the parent died before prctl took effect
    for (const auto& [key, value] : extra_environment) setenv(key.c_str(), value.c_str(), 1);
    if (stdout_to_stderr) dup2(STDERR_FILENO, STDOUT_FILENO);
    execvp(arguments[0], arguments.data());
    const int e = errno;
    (void)!write(failure[1], &e, sizeof e);
    _exit(127);
  }
  close(failure[1]);
  int exec_errno = 0;
  const bool exec_failed = read(failure[0], &exec_errno, sizeof exec_errno) == sizeof exec_errno;
  close(failure[0]);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (exec_failed) throw stepscope::InputError(fmt::format("cannot start '{}': {}", argv[0], std::strerror(exec_errno)));
  ChildResult r;
  r.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  r.exited = WIFEXITED(status);
  if (r.exited)
    r.exit_code = WEXITSTATUS(status);
  else
    r.signal = WTERMSIG(status);
  return r;
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "stepscope-XXXXXX").string();
  if (!mkdtemp(name.data())) throw std::runtime_error(fmt::format("cannot make a temporary folder '{}': {}", name, std::strerror(errno)));
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace cli

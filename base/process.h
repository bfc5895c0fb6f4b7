// How this program starts others.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace stepscope {

// Starts argv[0] (looked up in PATH) with `environment` added to ours and returns once the program runs. `prepare` runs in the child
// before the program does (signals, descriptors); it may only call what is allowed between fork and exec of a threaded program.
// The child is killed when the thread that started it dies. Throws stepscope::InputError when there is no such program or it cannot be
// started, MachineError when the system gives no process or pipe, and leaves no child behind then. The caller waits for the child.
pid_t start_process(const std::vector<std::string>& argv, const std::map<std::string, std::string>& environment,
                    const std::function<void()>& prepare = {});

// The file of a program in the folders of $PATH, then in those of `more_folders` (as in $PATH, separated by ':'); empty: in none.
std::string program_in_path(const std::string& name, const std::string& more_folders = "");

struct ChildResult {
  bool exited = false;  // else killed by `signal`
  int exit_code = 0;
  int signal = 0;
  double wall_s = 0;
};

// Starts it as above and waits for its end. `stdout_to_stderr` keeps our own stdout for results. Once `stop` is true the child has
// kSecondsToEnd to end by itself, because ctrl-C in a terminal reaches it too; then it gets SIGTERM, and as long after that SIGKILL.
inline constexpr double kSecondsToEnd = 3;
ChildResult run_child(const std::vector<std::string>& argv, const std::map<std::string, std::string>& environment, bool stdout_to_stderr,
                      const std::atomic<bool>* stop = nullptr);

}  // namespace stepscope

// One child process in a process group of its own, with its lines read under a deadline, and nothing of it
// left afterwards: destroying the object kills the whole group and reaps it, and also what left the group (a
// daemon), which this process inherits as its subreaper.
//
// A group of its own also means that ctrl-C on the terminal does not reach the child: the runner ends it,
// after it has kept what was measured.
#pragma once
#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/atomic_file.h"

namespace experiments {

using Clock = std::chrono::steady_clock;

class ChildProcessGroup {
 public:
  struct Options {
    std::vector<std::string> argv;                   // argv[0] is looked up in PATH
    std::map<std::string, std::string> environment;  // added to ours
    bool takes_input = false;                        // else its stdin is /dev/null
    bool merge_streams = false;                      // stderr lines are read like stdout's; else kept as last_words() only
    bool keeps_returns = false;                      // a '\r' before the newline is a part of the line
  };
  // Throws stepscope::InputError when it cannot be started.
  explicit ChildProcessGroup(const Options& options);
  ~ChildProcessGroup();
  ChildProcessGroup(const ChildProcessGroup&) = delete;
  ChildProcessGroup& operator=(const ChildProcessGroup&) = delete;

  enum class Read { line, end_of_output, timeout, interrupted };
  // The next line without its newline, and without a '\r' before it unless the options keep it. `stop` may be null. A line beyond 64 MiB
  // ends the output.
  Read read_line(std::string& line, Clock::time_point deadline, const std::atomic<bool>* stop);
  // False when the child no longer reads.
  bool write_line(const std::string& line);
  void close_input();

  struct Ending {
    bool exited = false;
    int code = 0, signal = 0;
    std::string text() const;  // "exited with code 1", "was killed by signal 9 (Killed)"
  };
  // Waits until it has ended; nullopt when it still runs at the deadline.
  std::optional<Ending> wait(Clock::time_point deadline);
  // Ends the whole group and reaps it. Safe to call twice.
  void kill_all();
  // The end of what it wrote to stderr (of everything with merge_streams), for messages.
  std::string last_words() const;
  pid_t pid() const { return pid_; }

 private:
  bool pump(Clock::time_point deadline, const std::atomic<bool>* stop, bool& interrupted);
  void remember(const char* text, size_t size);

  pid_t pid_ = -1;
  std::optional<Ending> ending_;
  gpt2::Descriptor input_, output_, errors_;
  std::string buffer_, tail_;
  size_t scanned_ = 0;  // of buffer_, known to hold no newline
  bool keeps_returns_ = false;
};

// Processes that this one inherited because their parent died, killed and reaped. `keep` are children that
// stay. Returns how many there were. Only works after the first ChildProcessGroup made this process a
// subreaper.
int kill_orphans(const std::vector<pid_t>& keep);
// The children this process has now.
std::vector<pid_t> children_of_this_process();

}  // namespace experiments

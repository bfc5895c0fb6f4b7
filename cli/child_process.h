// Starting the profiled program: its own process, with the collector's variables added to the environment, and never left behind.
#pragma once
#include <map>
#include <string>
#include <vector>

namespace cli {

struct ChildResult {
  bool exited = false;  // else killed by `signal`
  int exit_code = 0;
  int signal = 0;
  double wall_s = 0;
};

// Runs argv[0] (looked up in PATH) with `extra_environment` added and waits. `stdout_to_stderr` keeps our own stdout for results.
// Throws stepscope::InputError when the program cannot be started. The child is killed when this process dies.
ChildResult run_child(const std::vector<std::string>& argv, const std::map<std::string, std::string>& extra_environment,
                      bool stdout_to_stderr);

// A fresh folder under the system's temporary folder, removed with everything in it when the object goes.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace cli

#include "experiments/session/child_output.h"

namespace experiments {

ChildOutput run_to_end(const std::vector<std::string>& argv, double timeout_s, const std::atomic<bool>* stop, bool merge_streams) {
  // Processes that it leaves behind must not run beside the next measurement.
  struct Sweep {
    std::vector<pid_t> others = children_of_this_process();
    ~Sweep() { kill_orphans(others); }
  } const sweep;
  ChildProcessGroup child({argv, {}, false, merge_streams});
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  ChildOutput out;
  std::string line;
  while (true) {
    const auto read = child.read_line(line, deadline, stop);
    if (read == ChildProcessGroup::Read::line) {
      out.text += line + "\n";
      continue;
    }
    if (read == ChildProcessGroup::Read::timeout) out.end = ChildOutput::End::timeout;
    if (read == ChildProcessGroup::Read::interrupted) out.end = ChildOutput::End::interrupted;
    break;
  }
  if (out.end == ChildOutput::End::ended) {
    if (const auto ending = child.wait(deadline))
      out.ending = *ending;
    else
      out.end = ChildOutput::End::timeout;
  }
  out.last_words = child.last_words();
  return out;
}

}  // namespace experiments

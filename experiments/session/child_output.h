// A child process run to its end, with what it printed.
#pragma once
#include <atomic>
#include <string>
#include <vector>

#include "experiments/runner/child_process_group.h"

namespace experiments {

struct ChildOutput {
  enum class End { ended, timeout, interrupted } end = End::ended;
  ChildProcessGroup::Ending ending;
  std::string text, last_words;  // stdout; the end of what it said
};

// Kills it, and what it left behind, at the end. Throws stepscope::InputError when it cannot be started.
ChildOutput run_to_end(const std::vector<std::string>& argv, double timeout_s, const std::atomic<bool>* stop, bool merge_streams);

}  // namespace experiments

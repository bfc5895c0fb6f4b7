// `doctor --gpus N`: N ranks run every collective at every size and keep what they saw (profiler/ranks/link_model.h).
#pragma once
#include <cstdint>
#include <string>

#include "cli/commands.h"

namespace cli {

struct LinkSweepFlags {
  int64_t gpus = 0;  // 0: not asked for
  std::string links;
  std::string communicator = "auto";
  int64_t most_mib = 512;
  bool as_rank = false;
};
void add_link_sweep_flags(Command& command, LinkSweepFlags& flags);
bool asked_for(const LinkSweepFlags& flags);

// Starts the ranks, or is one of them: the exit code. Throws InputError and MachineError.
int sweep_links(const LinkSweepFlags& flags, const CommandLine& line);

}  // namespace cli

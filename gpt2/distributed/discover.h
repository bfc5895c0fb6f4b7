// Which rank this process is, and where it meets the others: from flags, from our own launcher, or from the environment that torchrun,
// mpirun, srun or mpiexec set. The innermost starter wins, because mpirun and torchrun themselves run inside Slurm steps.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "gpt2/distributed/world.h"

namespace gpt2::distributed {

// The value of a variable, nullopt where it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

// --rank, --world, --rendezvous as typed.
struct StartFlags {
  std::optional<int64_t> rank, world;
  std::string rendezvous;  // also beside another starter, whose address it replaces
};

struct Start {
  World world;          // local_rank, local_size and node are -1 where the starter does not say; the ranks find them out when they have met
  std::string meeting;  // an address of rendezvous.h; "" for one rank
  std::string token;    // what a process must show to belong to this run; "" for one rank
  std::map<std::string, std::string> recorded;  // variables of every starter that was seen, used or not
};

// One rank, "alone", where nobody started several. Throws stepscope::InputError for a set of variables that is incomplete or impossible
// and for a Slurm batch script that runs the program without srun; nothing is guessed.
Start discover(const StartFlags& flags, const Environment& environment);

// The ranks that a starter has already made of this program, wherever they would meet; nullopt where there is one process, or where Slurm
// runs it as a batch script or as the only task of a step: our own launcher may start ranks there. Throws stepscope::InputError as above.
std::optional<World> started_already(const Environment& environment);

// The first host of Slurm's compressed list: "n[07-09,12],login" -> "n07".
std::string first_host(const std::string& node_list);

}  // namespace gpt2::distributed

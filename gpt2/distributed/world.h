// Which of how many processes this is. Every process of a run ("rank") has one GPU and trains the same model on other rows.
#pragma once
#include <string>

namespace gpt2::distributed {

struct World {
  int rank = 0;        // 0 <= rank < size
  int size = 1;        // processes of the run
  int local_rank = 0;  // among those of this host; chooses the GPU
  int local_size = 1;
  int node = 0;  // 0 <= node < nodes
  int nodes = 1;
  std::string job;       // the same on all ranks of one run, another for another run
  std::string found_by;  // "alone" | "flags" | "stepscope" | "torchrun" | "openmpi" | "slurm" | "mpich" | "threads"
};

}  // namespace gpt2::distributed

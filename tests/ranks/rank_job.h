// A few training steps of one, two or more ranks as processes of this program, and the state that each of them ends with.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gpt2/config.h"

namespace ranks_test {

// Of every job without long_slices.
gpt2::ModelConfig test_model();

struct RankJob {
  std::string trainer = "fp32";
  // "nccl", "peer", "peer_window" (peer, with weights gathered through windows too): a GPU for each rank. "files": all on the first GPU.
  // "none": one rank without a communicator.
  std::string carrier = "files";
  int ranks = 2;
  int64_t batch_size = 3, seq_len = 65;
  int64_t micro_batches = 2;  // of all ranks together
  int64_t steps = 3;
  int64_t first_step = 100;  // t of AdamW
  float clip = 0.5f;         // below the norm of the first step, so that it acts
  double skip_above_loss = 1e300;
  int64_t bucket_mib = 1;
  bool graph = true;
  bool forward_backward = false;  // instead of steps
  std::map<std::string, std::string> variants{};
  std::string weight_rounding = "nearest";
  bool long_slices = false;  // a model of which a rank's slice of wte is gathered in two pieces
};

struct RankState {
  std::vector<float> gradients, parameters, adam_m, adam_v, weights, losses, norms;  // gradients: of the last step
  int64_t moment_bytes = 0;                                                          // "optimizer state" of the memory plan
};

// [job][rank]: the jobs one after the other in the same processes; all have the ranks and the carrier of the first, but for those of one
// rank without a communicator, which the process of rank 0 runs. Throws std::runtime_error with the output of a rank that failed.
std::vector<std::vector<RankState>> run_ranks(const std::vector<RankJob>& jobs);

// Entry of a process that run_ranks started: argv of `--rank-worker FOLDER RANK`.
int rank_worker(const std::filesystem::path& folder, int rank);

int visible_devices();

}  // namespace ranks_test

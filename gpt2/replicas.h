// What the training loop asks of the other ranks, which hold replicas of the same weights.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpt2/distributed/communicator.h"

namespace gpt2 {

// Loss and norm of a step are sums over all ranks and have the same bits even where one rank's weights are damaged; only the weights
// tell. All ranks call. Where they differ, throws distributed::RankFailure on all: it names the ranks that differ from most, and `when`.
void compare_replicas(distributed::ControlChannel& channel, std::span<const float> parameters, const std::string& when);

// Of `count` batches that were dealt to the ranks in turn; `mine`: the losses of this rank's. In the order of the batches, so that their
// sum has the same bits for any number of ranks. All ranks call.
std::vector<double> losses_of_all_ranks(distributed::ControlChannel& channel, const std::vector<double>& mine, int64_t count);

// Where rank r writes what rank 0 writes to `file`: run.json, run.rank1.json, …; "" = nowhere: what is no regular file (/dev/null, a pipe) has
// no neighbour for another rank.
std::string rank_file(const std::string& file, int rank);

}  // namespace gpt2

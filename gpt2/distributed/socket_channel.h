// The control channel between processes: a star around rank 0, with a watchdog thread on every rank.
//
// Two connections per rank. The main threads use one (all_gather, exchange); their calls have no time limit of their own, because the
// watchdog shuts the connection down when a rank is given up, and every waiting call ends with its verdict. The watchdogs use the other:
// each rank sends beats, rank 0 judges them (watch.h) and tells all what it found; the others judge rank 0 alone. A rank whose main
// thread does not come back within `grace_s` after a verdict is ended by its own watchdog.
#pragma once
#include <memory>
#include <vector>

#include "gpt2/distributed/communicator.h"
#include "gpt2/distributed/rendezvous.h"
#include "gpt2/distributed/watch.h"

namespace gpt2::distributed {

struct ChannelOptions {
  WatchLimits limits;
  double beat_every_s = 0.1;
  double grace_s = 3;
  bool take_signals = true;  // stepscope::kEndingSignals ask for the end of the run instead of ending this process
};

class SocketChannel : public ControlChannel {
 public:
  // Tells the ranks of one host from those of others by `host_id`, and completes world().
  virtual void settle_places(const std::string& host_id) = 0;
  // What a failure of this rank means to all. Called on a rank that cannot go on; returns what all ranks say, once rank 0 has decided.
  virtual Failure fail(const Failure& mine) = 0;
  // Whether rank 0 told this rank why the run ends. Where this rank found it out by itself, rank 0 is gone or silent.
  virtual bool told_by_rank_0() = 0;
  // The regular end: waits for all. Without it (or fail) the other ranks see a rank that ended without a word.
  virtual void close() = 0;
};

// Fills in what the starter of world did not say: local_rank and local_size (ranks of the same host, in order), node and nodes (hosts in
// the order of their first rank). `host_ids`: [rank].
World with_places(World world, const std::vector<std::string>& host_ids);

// `peers` as meet() returned them. Blocks the signals that ask for the end in this thread and those started after it, so make it early.
std::unique_ptr<SocketChannel> make_socket_channel(World world, std::vector<Peer> peers, const ChannelOptions& options);

}  // namespace gpt2::distributed

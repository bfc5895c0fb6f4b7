// How the ranks of a run find each other: rank 0 listens at an address, the others connect, everybody shows protocol, token, rank and
// size. The result is two connections between rank 0 and each other rank: one that the watchdogs talk over, one for the main threads.
//
// Addresses: "unix:@NAME" (a name in the kernel, no file), "unix:PATH", "tcp:HOST:PORT" ("tcp:[V6]:PORT"), and "fd:N" for rank 0 alone,
// a socket that already listens (our own launcher makes it, so that no port can be taken in between).
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "gpt2/distributed/world.h"

namespace gpt2::distributed {

constexpr uint32_t kProtocol = 1;  // of everything that ranks say to each other

// A socket that listens at `address` (not "fd:N"). Throws stepscope::InputError for an address that is none or that is taken.
Descriptor listen_at(const std::string& address);

struct Peer {
  Descriptor control, data;
  int64_t pid = 0;
  std::string host;
};

struct MeetOptions {
  double deadline_s = 120;
  double say_every_s = 10;
  double unknown_host_s = 10;                   // a name of rank 0's host that nobody knows may become known for so long
  uint32_t protocol = kProtocol;                // another one in tests
  std::function<void(const std::string&)> say;  // who is missing; rank 0 alone
};

// Rank 0 gets [rank] (its own place is empty), every other rank gets [0] alone. Returns on all ranks once all have come. Throws
// stepscope::MachineError naming the ranks that did not come in time, stepscope::InputError for what does not fit together: another
// size, a rank that came twice, another protocol or token. Whoever is refused hears why, and so does rank 0.
std::vector<Peer> meet(const World& world, const std::string& address, const std::string& token, const MeetOptions& options);

std::string host_name();

}  // namespace gpt2::distributed

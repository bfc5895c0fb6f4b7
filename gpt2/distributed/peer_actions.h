// A collective as copies between ranks. Every rank has a window, memory that the others write into. A collective is rounds of: meet (all
// have left their windows), push (slices into the windows of the others), meet (everything has arrived), then sum or take from the own
// window. No action depends on collectives before it, so the same actions serve uncaptured work and every replay of a graph.
//
// Pure functions, which both the GPU's communicator and tests over host memory carry out.
#pragma once
#include <cstdint>
#include <vector>

#include "gpt2/distributed/communicator.h"

namespace gpt2::distributed {

struct PeerAction {
  enum class Kind {
    meet,   // waits until every rank has come to the same meet, and sees what they wrote before it
    push,   // copies `bytes` at `data` of the own array to `window` of the window of `peer`
    sum,    // adds to `bytes` at `data` the parts of the others in the own window, in the order of the ranks
    place,  // copies `bytes` at `data` of the own array to the same place in that of `peer`
    take,   // copies `bytes` at `window` of the own window, which `peer` pushed, to `data`
  };
  Kind kind = Kind::meet;
  int peer = -1;
  int64_t data = 0;  // bytes from the begin of the array
  int64_t window = 0;
  int64_t bytes = 0;
};

// Where the part of rank `from` lies in the window of rank `to`, in parts: a window has none of its own rank.
constexpr int part_of(int from, int to) { return from < to ? from : from - 1; }
// How far parts of at most `slice_bytes` lie apart; a multiple of 16 bytes, which sums read at once.
constexpr int64_t part_stride(int64_t slice_bytes) { return (slice_bytes + 15) / 16 * 16; }
constexpr int64_t window_bytes(int ranks, int64_t slice_bytes) { return (ranks - 1) * part_stride(slice_bytes); }

// Bytes of the slice of rank 0, which no rank's exceeds. An array of all_reduce that has no equal slices is cut into slices of whole 16
// bytes, of which the last may be shorter or empty.
int64_t slice_bytes_of(const Collective& collective, int ranks);
// What `rank` does; where the ranks write into each other's arrays, `direct`, an all-gather needs no window. Throws std::logic_error for a
// collective that no communicator takes.
std::vector<PeerAction> peer_actions(const Collective& collective, int rank, int ranks, bool direct = false);

}  // namespace gpt2::distributed

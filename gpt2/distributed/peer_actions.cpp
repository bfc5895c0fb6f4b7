#include "gpt2/distributed/peer_actions.h"

#include <algorithm>

#include "gpt2/distributed/sums.h"

namespace gpt2::distributed {
namespace {

struct Slices {
  int64_t total = 0, each = 0;  // bytes
  int64_t begin(int rank) const { return std::min(rank * each, total); }
  int64_t bytes(int rank) const { return std::min(each, total - begin(rank)); }
};

Slices slices_of(const Collective& c, int ranks) { return {c.elements * bytes_of(c.type), slice_bytes_of(c, ranks)}; }

class Actions {
 public:
  Actions(const Slices& slices, int rank, int ranks) : slices_(slices), rank_(rank), ranks_(ranks) {}

  // Every rank ends with the sum in its slice.
  void reduce() {
    meet();
    // Each rank begins with the one behind it, so that no two write to the same rank at first.
    for (int i = 1; i < ranks_; ++i) push((rank_ + i) % ranks_, (rank_ + i) % ranks_);
    meet();
    if (slices_.bytes(rank_) > 0) all_.push_back({PeerAction::Kind::sum, -1, slices_.begin(rank_), 0, slices_.bytes(rank_)});
  }
  void gather() {
    meet();
    for (int i = 1; i < ranks_; ++i) push((rank_ + i) % ranks_, rank_);
    meet();
    for (int r = 0; r < ranks_; ++r)
      if (r != rank_ && slices_.bytes(r) > 0)
        all_.push_back({PeerAction::Kind::take, r, slices_.begin(r), part_of(r, rank_) * part_stride(slices_.each), slices_.bytes(r)});
  }
  void gather_in_place() {
    meet();
    for (int i = 1; i < ranks_; ++i)
      if (slices_.bytes(rank_) > 0)
        all_.push_back({PeerAction::Kind::place, (rank_ + i) % ranks_, slices_.begin(rank_), 0, slices_.bytes(rank_)});
    meet();
  }
  std::vector<PeerAction> all() { return std::move(all_); }

 private:
  void meet() { all_.push_back({}); }
  void push(int peer, int slice) {
    if (slices_.bytes(slice) == 0) return;
    const int64_t window = part_of(rank_, peer) * part_stride(slices_.each);
    all_.push_back({PeerAction::Kind::push, peer, slices_.begin(slice), window, slices_.bytes(slice)});
  }

  Slices slices_;
  int rank_, ranks_;
  std::vector<PeerAction> all_;
};

}  // namespace

int64_t slice_bytes_of(const Collective& c, int ranks) {
  const int64_t bytes = c.elements * bytes_of(c.type);
  return c.elements % ranks == 0 ? bytes / ranks : part_stride((bytes + ranks - 1) / ranks);
}

std::vector<PeerAction> peer_actions(const Collective& c, int rank, int ranks, bool direct) {
  check_collective(c, ranks);
  Actions actions(slices_of(c, ranks), rank, ranks);
  if (c.kind != CollectiveKind::all_gather) actions.reduce();
  if (c.kind != CollectiveKind::reduce_scatter) direct ? actions.gather_in_place() : actions.gather();
  return actions.all();
}

}  // namespace gpt2::distributed

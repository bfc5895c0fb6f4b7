// Where a token source stands: all that a resumed run needs to see the tokens that the stopped one would have
// seen.
#pragma once
#include <cstdint>

namespace gpt2 {

struct DataPosition {
  uint64_t epoch = 0;
  uint64_t shard = 0;     // place in this epoch's order of shards, not the number of a file
  uint64_t sequence = 0;  // sequences (windows of T tokens) already taken from that shard
  bool operator==(const DataPosition&) const = default;
};

}  // namespace gpt2

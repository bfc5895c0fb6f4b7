// Sums over ranks in host memory, in the order of the ranks: ((r0 + r1) + r2) + …
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "gpt2/distributed/communicator.h"

namespace gpt2::distributed {

// Holds the sum of some elements while the ranks' parts come, one after the other, rank 0 first. bf16 is added in fp32 and rounded once.
class RankSum {
 public:
  RankSum(Element type, int64_t elements) : type_(type), elements_(elements) {}
  void add(const void* part);
  void store(void* result) const;

 private:
  Element type_;
  int64_t elements_;
  bool empty_ = true;
  std::vector<float> wide_;
  std::vector<double> double_;
};

// Throws std::logic_error for a collective that no communicator takes: no elements, or slices that are not equal.
void check_collective(const Collective& collective, int ranks);

}  // namespace gpt2::distributed

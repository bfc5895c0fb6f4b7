// The words by which a trainer tells a profiler about one collective: an NVTX range inside the leaf range "step/communication/-/OP",
// "all_reduce fp32 7077888 bucket 3"; without the bucket where it carries something else: tokens, rows, sums of the norm. A trace knows when a collective ran, but neither its size nor which part of the gradients it carried.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stepscope {

struct CollectiveWords {
  std::string kind;      // all_reduce | reduce_scatter | all_gather
  std::string type;      // fp32 | bf16 | fp64
  int64_t elements = 0;  // of the whole array, all ranks' slices together
  int64_t bucket = -1;   // -1: of none
  int64_t bytes() const { return elements * (type == "bf16" ? 2 : type == "fp64" ? 8 : 4); }
};

std::string collective_range(const CollectiveWords& words);
// nullopt: the text is not such a range.
std::optional<CollectiveWords> parse_collective_range(std::string_view text);

}  // namespace stepscope

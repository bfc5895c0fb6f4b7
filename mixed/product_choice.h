// Which of the library's algorithms a product takes: the rule, apart from cuBLASLt and the energy counter so that it is tested without a GPU.
//
// Times come from rounds of some milliseconds, which end before the GPU's power limit is felt. A training step runs at the limit, where its
// time is its joules over the limit: of algorithms that are equally fast, the step is fastest with the one that takes the fewest joules
// (docs/study/products-by-joules.md). On a GPU that stays below its limit the choice costs what the algorithms' times differ by, at most 1.5%
// of the product with `search`, and saves joules only.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mixed/variants.h"

namespace mixed {

// times_us: microseconds a launch, one for each algorithm; one that is no positive finite number takes its algorithm out.
// Returns the algorithms whose joules are to be measured, the fastest first, at least two; none where time decides:
//   fitting_tiles, search   where the fastest takes 2 ms or more, which alone reaches the limit: those within 1.5% of it, at most six
//   fewest_joules  where the fastest takes 20 us or more, below which a launch's latency is most of its joules: those within 8% of it, at
//                  most four, for there are many products
//   fastest, heuristic   never
std::vector<size_t> algorithms_to_weigh(MatmulAlgorithm rule, std::span<const double> times_us);
// From which time of the fastest on it names some, in words: "2 ms". Empty for a rule that never does.
std::string weighs_from(MatmulAlgorithm rule);

struct ProductChoice {
  size_t algorithm = 0;
  bool by_joules = false;  // joules were compared, also where they left the fastest its place
};
// joules[i]: joules a launch of algorithm i, one value for each window in which it was measured; as many as times_us, or empty. Windows of
// one algorithm that differ by more than 1% say how much the others can be off.
// The fastest of the algorithms that are within that error of the fewest joules. By time alone where the fastest has no joules, or no other has.
// Nothing where no time is a positive finite number.
std::optional<ProductChoice> choose_algorithm(std::span<const double> times_us, std::span<const std::vector<double>> joules);

}  // namespace mixed

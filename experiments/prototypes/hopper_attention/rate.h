#pragma once

namespace rate {

// Where the left operand lies; `across`: rows of the right operand's tile run along n.
enum class Left { shared, registers, registers_across };

// Cycles of a multiprocessor for a product of 64 x 64 x 16, its warpgroups at work on chains of eight.
double cycles_of_product(Left left, int warpgroups);

}  // namespace rate

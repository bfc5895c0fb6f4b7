// Times of products in turns with their rivals, and of the best alone.
#pragma once
#include <string>
#include <vector>

namespace hopper {

// Writes CSV to stdout, a few lines per product as soon as it is done, and stops at a product's end when `seconds` are over. `products`: how
// many of timed_cases(), the first. `names`: the ways that are timed (measure_cases.h), those that were checked.
void time_all(double seconds, size_t products, const std::vector<std::string>& names);

}  // namespace hopper

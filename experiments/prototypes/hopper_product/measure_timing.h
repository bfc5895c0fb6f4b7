// Times of products in turns with their rivals, and of the best alone.
#pragma once
#include <string>
#include <vector>

namespace hopper {

// Writes CSV to stdout, a few lines per product as soon as it is done, and stops at a product's end when `seconds` are over. `products`: how
// many of timed_cases(), the first. `names`: the ways that are timed (measure_cases.h), those that were checked.
// CSV of joules a launch of the products of a block at `rows` rows, each candidate alone for a second and a half: the fastest algorithm of
// cuBLASLt, then the named ways.
void joules_all(int rows, const std::string& product, const std::vector<std::string>& names);
void time_all(double seconds, size_t products, const std::vector<std::string>& names);

}  // namespace hopper

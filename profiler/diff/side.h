// One side of a change: the numbers of a row, or of several rows that belong together. Which of them a diff shows is declared in side.cpp.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string_view>

#include "profiler/document/profile.h"

namespace profiler {

struct Side : Numbers {
  int64_t launches = 0;  // and copies
  double time_ns = 0;
};
Side side_of(const Measured& row);
Side whole_of(const ProfileDocument& document, double time_ns);  // numbers and launches of its totals

// Times, launches, bytes and instructions add up; they are absent when one of the two has none, since half a sum would look like an answer.
// Means and rates of two rows together are not known. A side without a launch lacks nothing.
void add(Side& into, const Side& from);

// A number that a diff shows of both sides. `title` "": in JSON only.
struct DiffNumber {
  std::string_view key, title;
  Format format;
  std::optional<double> (*of)(const Side& side);
  bool of_kernels = false;  // in the table of the kernels too
};
std::span<const DiffNumber> diff_numbers();

std::optional<double> dram_bytes(const Side& side);
nlohmann::ordered_json to_json(const Side& side);

}  // namespace profiler

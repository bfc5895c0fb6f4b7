#include "profiler/diff/side.h"

#include <nlohmann/json.hpp>
#include <string>

namespace profiler {
namespace {

template <std::optional<double> Numbers::*member>
std::optional<double> number(const Side& side) {
  return side.*member;
}

// The columns of a diff, in their order: each is shown of A, then of B. JSON has all of them.
constexpr DiffNumber kNumbers[] = {
    {"dram_bytes", "GB", Format::gigabytes, dram_bytes},
    {"tensor_active_pct", "tc%", Format::tensor, number<&Numbers::tensor_active_pct>},
    {"tensor_instructions", "", Format::count, number<&Numbers::tensor_instructions>},
    {"sm_clock_hz", "", Format::megahertz, number<&Numbers::sm_clock_hz>},
};

}  // namespace

std::span<const DiffNumber> diff_numbers() { return kNumbers; }

Side side_of(const Measured& m) {
  Side side;
  static_cast<Numbers&>(side) = m;
  side.launches = m.launches + m.copies;
  side.time_ns = m.time_ns;
  return side;
}

Side whole_of(const ProfileDocument& d, double time_ns) {
  Side side;
  static_cast<Numbers&>(side) = d.totals;
  side.launches = d.totals.launches.value_or(0) + d.totals.copies.value_or(0);
  side.time_ns = time_ns;
  return side;
}

void add(Side& into, const Side& from) {
  const auto nothing = [](const Side& s) { return s.launches == 0 && s.time_ns == 0; };
  if (nothing(from)) return;
  if (nothing(into)) {
    into = from;
    return;
  }
  into.launches += from.launches;
  into.time_ns += from.time_ns;
  for (const NumberRow& n : number_rows()) {
    std::optional<double>& sum = into.*n.member;
    sum = n.adds_up ? sum_of(sum, from.*n.member) : std::nullopt;
  }
}

std::optional<double> dram_bytes(const Side& s) { return sum_of(s.dram_read_bytes, s.dram_write_bytes); }

nlohmann::ordered_json to_json(const Side& side) {
  nlohmann::ordered_json j{{"launches", side.launches}, {"time_ns", side.time_ns}};
  for (const DiffNumber& n : diff_numbers())
    if (const auto value = n.of(side)) j[std::string(n.key)] = *value;
  return j;
}

}  // namespace profiler

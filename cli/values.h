// What a flag takes. Every numeric flag of every command gets its range from here, by
// `->check(cli::whole(1, 64))`. The range stands in --help, and anything else ends with exit 2 and
// "--flag: found '0', expected a whole number, 1 to 64". tests/cli/flag_values_test.cpp walks all flags of all
// commands and fails for one that has no range.
//
// CLI11's own conversions are not enough: they take "nan", "inf" and "1e400" for numbers, "010" for 8, and
// its Range lets NaN through.
#pragma once
#include <cstdint>
#include <limits>

#include "cli/arguments.h"

namespace cli {

Check whole(int64_t low, int64_t high = std::numeric_limits<int64_t>::max());
Check seed();  // 0 to 2^64 - 1
Check real(double low, double high);
Check real_above(double low, double high);    // without `low` itself
Check real_between(double low, double high);  // without both

// For all flags and arguments of all commands, once they stand: an empty value is refused (most would mean
// "the default"), and a number without a range of its own must at least be one.
void guard_values(Command& app);

}  // namespace cli

// Units as ncu prints them, back to the base unit: "Kbyte" -> byte x 1000, "us" -> ns x 1000, "Ghz" -> Hz x 1e9. ncu's prefixes are
// decimal, also for bytes. Both spellings of its history are known: "usecond" and "us", "byte/second" and "byte/s".
#pragma once
#include <optional>
#include <string_view>

namespace profiler {

// What a printed value is multiplied with; 1 for units that have no prefix ("%", "inst", "cycle", "register/thread", "") and for words that
// are not known. A time is brought to ns, a rate to its value per second. nullopt: bytes or hz with a prefix that is not known.
std::optional<double> to_base_factor(std::string_view unit);

enum class Dimension { count, time, bytes, percent, rate };
// "us" time, "Kbyte" and "byte/block" bytes, "Ghz" and "byte/second" rate, "%" percent, all others ("inst",
// "cycle", "") count.
Dimension dimension(std::string_view unit);
// "", "inst", "Kinst", "register/thread" and the other words that ncu counts with.
bool is_known_count(std::string_view unit);

}  // namespace profiler

// The time as documents hold it: UTC, ISO 8601, seconds.
#pragma once
#include <fmt/chrono.h>

#include <ctime>
#include <string>

namespace cli {

inline std::string now_utc() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

}  // namespace cli

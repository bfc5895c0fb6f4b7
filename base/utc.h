// The time as documents hold it: UTC, ISO 8601, whole seconds.
#pragma once
#include <string>

namespace stepscope {

std::string now_utc();    // "2026-11-22T08:30:00Z"
std::string today_utc();  // "2026-11-22"

}  // namespace stepscope

#include "base/utc.h"

#include <ctime>

namespace stepscope {

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc)};
}

std::string today_utc() { return now_utc().substr(0, 10); }

}  // namespace stepscope

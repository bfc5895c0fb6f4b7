#include "profiler/collect/events.h"

#include <cxxabi.h>

#include <cstdlib>
#include <ctime>
#include <memory>

namespace profiler::collect {

int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

std::string demangle(std::string_view symbol) {
  const std::string text(symbol);
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(abi::__cxa_demangle(text.c_str(), nullptr, nullptr, &status), &std::free);
  // A plain C name such as "f" is also the mangled form of a built-in type ("float"): only _Z… names are
  // mangled functions.
  if (status != 0 || !plain || !text.starts_with("_Z")) return text;
  return plain.get();
}

std::optional<LaunchKind> launch_kind_of_api(std::string_view function) {
  while (function.starts_with('_')) function.remove_prefix(1);  // __cudaLaunchKernel_v13000, behind <<<>>> since CUDA 13
  if (function.starts_with("cuda")) {
    function.remove_prefix(4);
  } else if (function.starts_with("cu")) {
    function.remove_prefix(2);
    if (function.starts_with("64")) function.remove_prefix(2);
  } else {
    return std::nullopt;
  }
  if (function.starts_with("LaunchHostFunc")) return std::nullopt;
  if (function.starts_with("Launch")) return LaunchKind::kernel;
  if (function.starts_with("GraphLaunch")) return LaunchKind::graph;
  if (function.starts_with("Memcpy")) return LaunchKind::copy;
  if (function.starts_with("Memset")) return LaunchKind::memset;
  return std::nullopt;
}

int capture_change_of_api(std::string_view function) {
  if (function.starts_with("cuStreamBeginCapture")) return 1;
  if (function.starts_with("cuStreamEndCapture")) return -1;
  return 0;
}

CallNesting::Entered CallNesting::enter(uint32_t correlation, bool usable) {
  Entered entered;
  if (depth_++ == 0) {
    captured_ = false;
    launch_.reset();
    outer_.reset();
  }
  if (launch_) {
    if (*launch_ != correlation) entered.alias_of = launch_;
  } else if (usable) {
    launch_ = correlation;
    entered.is_launch = true;
    if (outer_ && *outer_ != correlation) entered.earlier_alias = outer_;
  } else {
    outer_ = correlation;
  }
  return entered;
}

CallNesting::Left CallNesting::exit() {
  Left left;
  if (depth_ == 0) return left;  // callbacks were switched on inside the call
  if (--depth_ > 0) return left;
  left.outermost = true;
  left.launch = launch_;
  left.captured = captured_;
  launch_.reset();
  return left;
}

}  // namespace profiler::collect

#include "profiler/collect/recorder.h"

#include <unistd.h>

#include <cstdio>

namespace profiler::collect {

void say(const std::string& text) {
  const std::string line = "stepscope: [" + std::to_string(getpid()) + "] " + text + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

Recorder::Recorder(const std::string& path) : writer_(path) {}

void Recorder::fail(const char* what) {
  if (!dead_.exchange(true)) say(std::string("recording stopped: ") + what);
}

void Recorder::report(const Failure& failure) {
  if (dead_) return;
  say(failure.missing + ": " + failure.detail);
  write(MissingRecord{failure.missing, 1, failure.detail});
}

void Recorder::count(std::string_view missing, int64_t n, std::string_view detail) {
  const std::lock_guard lock(mutex_);
  counts_[{std::string(missing), std::string(detail)}] += n;
}

void Recorder::finish() {
  std::map<std::pair<std::string, std::string>, int64_t> counts;
  {
    const std::lock_guard lock(mutex_);
    counts.swap(counts_);
  }
  for (const auto& [what, n] : counts) write(MissingRecord{what.first, n, what.second});
  guarded([&] { writer_.finish(); });
  dead_ = true;
}

}  // namespace profiler::collect

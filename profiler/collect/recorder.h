// The recording, as the collector writes it from callbacks of other people's programs: nothing throws, and
// the first write error ends recording with one line on stderr while the program runs on. Thread-safe.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "profiler/collect/backend.h"
#include "profiler/records/recording_file.h"

namespace profiler::collect {

// One line, prefixed `stepscope:`, with the pid.
void say(const std::string& text);

class Recorder {
 public:
  explicit Recorder(const std::string& path);  // throws like RecordingWriter

  template <class Record>
  void write(const Record& record) {
    guarded([&] { writer_.write(record); });
  }
  // At once, and on stderr.
  void report(const Failure& failure);
  // Added up by name and detail, written by finish().
  void count(std::string_view missing, int64_t n, std::string_view detail);
  void finish();
  // In a forked child: the file belongs to the parent, never touch it again.
  void abandon() { dead_ = true; }

 private:
  template <class F>
  void guarded(F&& f);
  void fail(const char* what);
  RecordingWriter writer_;
  std::atomic<bool> dead_ = false;
  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, int64_t> counts_;
};

template <class F>
void Recorder::guarded(F&& f) {
  if (dead_) return;
  try {
    f();
  } catch (const std::exception& e) {
    fail(e.what());
  } catch (...) {
    fail("unknown error");
  }
}

}  // namespace profiler::collect

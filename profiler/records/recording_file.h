// A recording on disk: JSON lines, one record each, written as they come so that a killed process leaves what
// it had. The first line is {"schema":"stepscope.recording/1"}; the last is {"type":"end"}; a file without it
// is "truncated_recording".
#pragma once
#include <cstdio>
#include <mutex>
#include <string>

#include "profiler/records/records.h"

namespace profiler {

// Thread-safe; every call appends whole lines. Throws std::runtime_error when the file cannot be created or
// written.
class RecordingWriter {
 public:
  explicit RecordingWriter(const std::string& path);
  ~RecordingWriter();  // closes without the end line: only finish() makes a recording complete
  RecordingWriter(const RecordingWriter&) = delete;
  RecordingWriter& operator=(const RecordingWriter&) = delete;

  void write(const SessionRecord& r);
  void write(const RankRecord& r);
  void write(const LaunchRecord& r);
  void write(const LaunchStats& r);
  void write(const StepRecord& r);
  void write(const CounterSet& r);
  void write(const CounterRecord& r);
  void write(const EnergySample& record);
  void write(const EnvironmentSample& r);
  void write(const MissingRecord& r);
  void flush();
  void finish();

 private:
  void line(const std::string& text);
  std::mutex mutex_;
  std::FILE* file_ = nullptr;
  std::string path_;
};

}  // namespace profiler

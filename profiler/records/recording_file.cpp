#include "profiler/records/recording_file.h"

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "base/json_text.h"
#include "profiler/records/record_json.h"

namespace profiler {
namespace {

// Kernel names and command lines are bytes of somebody else's making; what is not UTF-8 becomes U+FFFD
// instead of an exception in the middle of a run.
std::string dumped(const nlohmann::ordered_json& j) { return stepscope::json_text(j, -1); }

}  // namespace

RecordingWriter::RecordingWriter(const std::string& path) : path_(path) {
  file_ = std::fopen(path.c_str(), "we");  // e: children of the profiled program do not inherit it
  if (!file_) throw std::runtime_error("cannot create recording " + path + ": " + std::strerror(errno));
  nlohmann::ordered_json head;
  head["schema"] = kRecordingSchema;
  try {
    line(dumped(head));
  } catch (...) {
    std::fclose(file_);  // the destructor does not run for a constructor that threw
    throw;
  }
}

RecordingWriter::~RecordingWriter() {
  if (file_) std::fclose(file_);
}

void RecordingWriter::write(const SessionRecord& r) { line(dumped(record_to_json(r))); }
void RecordingWriter::write(const RankRecord& r) { line(dumped(record_to_json(r))); }
void RecordingWriter::write(const LaunchRecord& r) { line(dumped(record_to_json(r))); }
void RecordingWriter::write(const LaunchStats& r) { line(dumped(record_to_json(r))); }
void RecordingWriter::write(const StepRecord& r) { line(dumped(record_to_json(r))); }
void RecordingWriter::write(const CounterSet& r) { line(dumped(record_to_json(r))); }
void RecordingWriter::write(const CounterRecord& r) { line(dumped(record_to_json(r))); }
void RecordingWriter::write(const EnergySample& r) { line(dumped(record_to_json(r))); }
void RecordingWriter::write(const EnvironmentSample& r) { line(dumped(record_to_json(r))); }
void RecordingWriter::write(const MissingRecord& r) { line(dumped(record_to_json(r))); }

void RecordingWriter::flush() {
  const std::lock_guard lock(mutex_);
  if (file_ && std::fflush(file_) != 0) throw std::runtime_error("cannot write recording " + path_ + ": " + std::strerror(errno));
}

void RecordingWriter::finish() {
  line(R"({"type":"end"})");
  const std::lock_guard lock(mutex_);
  std::FILE* file = file_;
  file_ = nullptr;
  if (std::fclose(file) != 0) throw std::runtime_error("cannot write recording " + path_ + ": " + std::strerror(errno));
}

// Flushed per line: a line costs a few microseconds, and a program that is killed leaves every line it wrote.
void RecordingWriter::line(const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (!file_) throw std::runtime_error("recording " + path_ + " is finished; nothing can be added");
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fputc('\n', file_) == EOF || std::fflush(file_) != 0)
    throw std::runtime_error("cannot write recording " + path_ + ": " + std::strerror(errno));
}

}  // namespace profiler

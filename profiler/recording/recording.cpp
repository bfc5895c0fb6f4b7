#include "profiler/recording/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <istream>
#include <system_error>
#include <utility>

#include "base/errors.h"
#include "base/json_read.h"
#include "profiler/records/record_json.h"
#include "profiler/records/recording_file.h"

namespace profiler {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostRanks = 1 << 20;  // more than any run has; a damaged number would make a list of missing ranks without end

[[noreturn]] void fail(const std::string& source, int64_t line, const std::string& what) {
  throw stepscope::InputError(fmt::format("{}:{}: {}", source, line, what));
}

void check_schema(const Json& head, const std::string& source) {
  const auto schema = head.is_object() ? head.find("schema") : head.end();
  if (!head.is_object() || schema == head.end() || !schema->is_string())
    fail(source, 1, fmt::format("not a recording: expected {{\"schema\":\"{}\"}}", kRecordingSchema));
  if (schema->get<std::string>() != kRecordingSchema)
    fail(source, 1, fmt::format("schema \"{}\"; this program reads \"{}\"", schema->get<std::string>(), kRecordingSchema));
}

// A profile document is one JSON value over many lines, its schema on the second.
bool holds_profile(const std::string& first_line, std::istream& rest) {
  std::string second;
  return first_line.starts_with('{') && std::getline(rest, second) && second.find("\"stepscope.profile/") != second.npos;
}

// One line of a known type goes into its list. False: the type is none of ours.
bool store(const std::string& type, const Json& j, Recording& r, bool& has_session) {
  const auto into = [&]<class Record>(std::vector<Record>& list) {
    if (type != kRecordType<Record>) return false;
    list.push_back(record_from_json<Record>(j));
    return true;
  };
  if (type == kRecordType<SessionRecord>) {
    if (std::exchange(has_session, true)) throw RecordError("a second session line");
    r.session = record_from_json<SessionRecord>(j);
    return true;
  }
  if (type == kRecordType<RankRecord>) {
    if (r.rank) throw RecordError("a second rank line");
    r.rank = record_from_json<RankRecord>(j);
    if (r.rank->size < 2 || r.rank->rank < 0 || r.rank->rank >= r.rank->size || r.rank->size > kMostRanks)
      throw RecordError(fmt::format("rank {} of {} ranks", r.rank->rank, r.rank->size));
    return true;
  }
  return into(r.launches) || into(r.stats) || into(r.steps) || into(r.counter_sets) || into(r.counters) || into(r.environment) ||
         into(r.energy) || into(r.missing);
}

Recording read_lines(std::istream& in, const std::string& source, bool& has_session, bool& ended, int64_t& last_line) {
  Recording r;
  int64_t number = 0;
  std::string text;
  while (std::getline(in, text)) {
    ++number;
    const bool whole = !in.eof();  // the last line of a killed writer has no newline
    const Json j = stepscope::read_json<Json>(text);
    if (j.is_discarded()) {
      if (!whole && number > 1) break;
      if (number == 1 && holds_profile(text, in))
        fail(source, 1, fmt::format("not a recording, but a profile document: `stepscope report {}` shows it", source));
      fail(source, number, (number == 1 ? "not a recording: " : "not JSON: ") + stepscope::why_no_object_in_line(text, source));
    }
    if (number == 1) {
      check_schema(j, source);
      continue;
    }
    if (ended) fail(source, number, "a line after the end line");
    const auto type = j.is_object() ? j.find("type") : j.end();
    if (!j.is_object() || type == j.end() || !type->is_string()) fail(source, number, "expected an object with a \"type\"");
    if (*type == "end") {
      ended = true;
      continue;
    }
    try {
      if (!store(type->get<std::string>(), j, r, has_session))
        fail(source, number, fmt::format("unknown type of line \"{}\"", type->get<std::string>()));
    } catch (const RecordError& e) {
      fail(source, number, e.what());
    }
  }
  if (number == 0) fail(source, 1, "not a recording: the file is empty");
  last_line = number;
  return r;
}

// A folder opens like a file and reads like an empty one.
std::ifstream opened(const std::string& path) {
  std::error_code ignored;
  errno = std::filesystem::is_directory(path, ignored) ? EISDIR : 0;
  std::ifstream in;
  if (errno == 0) in.open(path, std::ios::binary);
  if (errno == EISDIR || !in) throw stepscope::InputError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  return in;
}

}  // namespace

Recording read_recording(std::istream& in, const std::string& source) {
  bool has_session = false, ended = false;
  int64_t last_line = 0;
  Recording r = read_lines(in, source, has_session, ended, last_line);
  if (ended && !has_session) fail(source, last_line, "no session line");
  if (!ended) r.missing.push_back({"truncated_recording", 1, fmt::format("{} ends after line {}", source, last_line)});
  return r;
}

std::vector<LaunchRecord> load_raw_trace(const std::string& path) {
  std::ifstream in = opened(path);
  bool has_session = false, ended = false;
  int64_t last_line = 0;
  Recording r = read_lines(in, path, has_session, ended, last_line);
  if (!ended) throw stepscope::InputError(fmt::format("{}: a raw trace without its end; the last line is {}", path, last_line));
  return std::move(r.launches);
}

Recording load_recording(const std::string& path) {
  std::ifstream in = opened(path);
  return read_recording(in, path);
}

void save_recording(const Recording& r, const std::string& path) {
  RecordingWriter writer(path);
  const auto all = [&](const auto& list) {
    for (const auto& record : list) writer.write(record);
  };
  writer.write(r.session);
  if (r.rank) writer.write(*r.rank);
  all(r.steps);
  all(r.launches);
  all(r.stats);
  all(r.counter_sets);
  all(r.counters);
  all(r.environment);
  all(r.energy);
  all(r.missing);
  writer.finish();
}

Recording join_program_runs(Recording activity, const Recording& counters) {
  const auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  append(activity.counter_sets, counters.counter_sets);
  append(activity.counters, counters.counters);
  for (const MissingRecord& m : counters.missing) {
    // Both runs keep as many launches of the same program: what is left out is the same.
    const auto same = std::find_if(activity.missing.begin(), activity.missing.end(), [&](const MissingRecord& of_activity) {
      return m.name == "launches_not_kept" && of_activity.name == m.name;
    });
    if (same == activity.missing.end())
      activity.missing.push_back(m);
    else
      same->count = std::max(same->count, m.count);
  }
  return activity;
}

}  // namespace profiler

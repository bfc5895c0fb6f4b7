// One record <-> one JSON object. Writer and reader walk the same field list (record_json.cpp), so they
// cannot drift apart. Reading is strict: every field must be there with its own JSON type, and no other. The
// JSON null that a NaN would become is a wrong type here, so a NaN written by anybody else is refused too.
#pragma once
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "profiler/records/records.h"

namespace profiler {

inline constexpr std::string_view kRecordingSchema = "stepscope.recording/1";

// The text says which field, what was found and what was expected; the caller adds file and line.
struct RecordError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The value of "type" in each record's line.
template <class Record>
inline constexpr std::string_view kRecordType = "";
template <>
inline constexpr std::string_view kRecordType<SessionRecord> = "session";
template <>
inline constexpr std::string_view kRecordType<RankRecord> = "rank";
template <>
inline constexpr std::string_view kRecordType<LaunchRecord> = "launch";
template <>
inline constexpr std::string_view kRecordType<LaunchStats> = "stats";
template <>
inline constexpr std::string_view kRecordType<StepRecord> = "step";
template <>
inline constexpr std::string_view kRecordType<CounterSet> = "counter_set";
template <>
inline constexpr std::string_view kRecordType<CounterRecord> = "counters";
template <>
inline constexpr std::string_view kRecordType<EnvironmentSample> = "environment";
template <>
inline constexpr std::string_view kRecordType<EnergySample> = "energy";
template <>
inline constexpr std::string_view kRecordType<MissingRecord> = "missing";

// Throws RecordError for a value that is not finite. Instantiated for the records above.
template <class Record>
nlohmann::ordered_json record_to_json(const Record& record);
template <class Record>
Record record_from_json(const nlohmann::ordered_json& object);

}  // namespace profiler

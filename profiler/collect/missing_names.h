// The rows of the catalogue of missing data (profiler/records/missing.h) that the collector counts. A test
// holds them against it.
#pragma once
#include <array>
#include <string_view>

namespace profiler::collect::missing {

inline constexpr std::string_view kDroppedRecords = "dropped_activity_records";
inline constexpr std::string_view kTornBuffer = "torn_activity_buffer";
inline constexpr std::string_view kNoTime = "kernels_without_time";
inline constexpr std::string_view kUnmatched = "unmatched_correlation";
inline constexpr std::string_view kNotKept = "launches_not_kept";
inline constexpr std::string_view kCountersUnavailable = "counters_unavailable";
inline constexpr std::string_view kCounterSetFailed = "counter_set_failed";
inline constexpr std::string_view kNoValue = "metric_without_value";
inline constexpr std::string_view kGraphInCounters = "graph_launch_in_counter_run";
inline constexpr std::string_view kOtherSubscriber = "other_subscriber";
inline constexpr std::string_view kNoEnvironment = "environment_not_sampled";
inline constexpr std::string_view kNoEnergy = "energy_not_measured";
inline constexpr std::string_view kSequenceChanged = "kernel_sequence_changed";
inline constexpr std::string_view kUnknownRange = "unknown_range_path";
inline constexpr std::string_view kNotTraced = "phases_not_traced";
inline constexpr std::string_view kRecordsLost = "records_lost_in_step";

inline constexpr std::array kAll = {kDroppedRecords,   kTornBuffer,      kNoTime,          kUnmatched,     kNotKept,  kCountersUnavailable,
                                    kCounterSetFailed, kGraphInCounters, kOtherSubscriber, kNoEnvironment, kNoEnergy, kSequenceChanged,
                                    kUnknownRange,     kNotTraced,       kRecordsLost,     kNoValue};

}  // namespace profiler::collect::missing

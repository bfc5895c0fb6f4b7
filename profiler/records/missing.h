// The catalogue of everything that can be missing from a profile: one row each, with the severity and what to
// do. Missing data is data: it is counted, stored in the document, shown in every report, and severe rows
// make the command fail.
#pragma once
#include <optional>
#include <span>
#include <string_view>

namespace profiler {

enum class Severity { info, notice, severe };

struct MissingKind {
  std::string_view name;  // "dropped_activity_records"
  Severity severity;
  std::string_view stage;   // collect | recording | ingest | attribute | document
  std::string_view advice;  // one sentence: what it means for the numbers and what to do
};

std::span<const MissingKind> missing_catalogue();
std::optional<MissingKind> find_missing(std::string_view name);
std::string_view name(Severity severity);

}  // namespace profiler

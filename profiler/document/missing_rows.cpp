#include "profiler/document/missing_rows.h"

#include <algorithm>

#include "profiler/records/missing.h"
#include "profiler/records/names.h"

namespace profiler {

void add_missing(ProfileDocument& d, const MissingRecord& m) {
  const auto at = std::find_if(d.missing.begin(), d.missing.end(), [&](const MissingRow& row) { return row.name == m.name; });
  if (at != d.missing.end()) {
    at->count += m.count;
    if (!m.detail.empty() && at->detail.find(m.detail) == std::string::npos && at->detail.size() < 400)
      at->detail += (at->detail.empty() ? "" : "; ") + m.detail;
    return;
  }
  const auto kind = find_missing(m.name);
  MissingRow row;
  row.name = m.name;
  row.severity = std::string(name(kind ? kind->severity : Severity::severe));
  row.stage = kind ? std::string(kind->stage) : "collect";
  row.count = m.count;
  row.detail = m.detail;
  row.advice =
      kind ? std::string(kind->advice) : "This program does not know this kind of missing data; it was recorded by another version.";
  d.missing.push_back(std::move(row));
}
bool is_missing(const ProfileDocument& d, std::string_view name) {
  return std::any_of(d.missing.begin(), d.missing.end(), [&](const MissingRow& m) { return m.name == name; });
}

std::string why_empty(const ProfileDocument& document, std::string_view otherwise) {
  return is_missing(document, "record_reduced") ? "this document was cut down to its sums (record_reduced)" : std::string(otherwise);
}

void sort_missing(ProfileDocument& d) {
  std::stable_sort(d.missing.begin(), d.missing.end(), [](const MissingRow& x, const MissingRow& y) {
    const auto rank = [](const MissingRow& m) {
      return m.severity == name(Severity::severe) ? 0 : m.severity == name(Severity::notice) ? 1 : 2;
    };
    return rank(x) < rank(y);
  });
}

}  // namespace profiler

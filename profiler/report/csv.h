// Rows of the document as CSV (RFC 4180, but lines end with LF). Columns are the fields of
// docs/profile-document.md in their order, so scripts may rely on their names; new fields are only ever added
// at the end of a list. Base units; no answer = empty.
#pragma once
#include <string>

#include "profiler/document/profile.h"

namespace profiler {

enum class CsvRows { pass, op, layer, kernel, launch, missing, rank, collective, collective_rank };

std::string csv_text(const ProfileDocument& document, CsvRows rows);

}  // namespace profiler

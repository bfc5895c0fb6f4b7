// The rows of `missing` while a document is built.
#pragma once
#include <string_view>

#include "profiler/document/profile.h"
#include "profiler/records/records.h"

namespace profiler {

// One row per kind, in the order of first sight; a kind outside the catalogue is shown and taken seriously.
void add_missing(ProfileDocument& document, const MissingRecord& missing);
bool is_missing(const ProfileDocument& document, std::string_view name);
// Why a list of the document is empty: it was cut down to its sums, else `otherwise`.
std::string why_empty(const ProfileDocument& document, std::string_view otherwise);
void sort_missing(ProfileDocument& document);  // severe ones first

}  // namespace profiler

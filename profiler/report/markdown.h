// A profile document as Markdown for a pull request: headline, passes, longest kernels (or ops, or layers), what is missing, and the
// environment folded away.
#pragma once
#include <cstddef>
#include <string>

#include "profiler/document/profile.h"
#include "profiler/report/table.h"

namespace profiler {

// `by`: the table below that of the passes, as in TableOptions.
std::string markdown_text(const ProfileDocument& document, size_t top, TableBy by = TableBy::kernel);

}  // namespace profiler

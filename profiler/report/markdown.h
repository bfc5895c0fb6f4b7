// A profile document as Markdown for a pull request: headline, passes, longest kernels, what is missing, and the environment folded away.
#pragma once
#include <cstddef>
#include <string>

#include "profiler/document/profile.h"

namespace profiler {

std::string markdown_text(const ProfileDocument& document, size_t top);

}  // namespace profiler

// What a document says twice must agree: a reader refuses one whose numbers contradict each other, as tables would be added up from them.
#pragma once
#include <string>
#include <string_view>

#include "profiler/document/profile.h"

namespace profiler {

// Throws stepscope::InputError unless `found` is `expected` but for rounding; `meaning` says what is expected there.
void check_number(double found, double expected, const std::string& source, std::string_view place, std::string_view meaning);

// The sections of ranks against each other and against those of main_rank. A field that is absent contradicts nothing. Throws
// stepscope::InputError naming `source` and the field.
void check_ranks(const ProfileDocument& document, const std::string& source);

}  // namespace profiler

// What a document says twice must agree: a reader refuses one whose numbers contradict each other, as tables would be added up from them.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "profiler/document/profile.h"

namespace profiler {

// What rounding may change of a number that was worked out of others.
inline double slack_of(double value) { return 1e-6 * std::max(1.0, std::abs(value)); }

// Throws stepscope::InputError unless `found` is `expected` but for rounding; `meaning` says what is expected there.
void check_number(double found, double expected, const std::string& source, std::string_view place, std::string_view meaning);

// The rows of passes, ops, layers, kernels and copies and the totals against the launches that they are made of, passes against their ops,
// and the timeline against its idle time. A document without launches, or cut down to its sums, has nothing to compare with; a number that is
// absent contradicts nothing. Throws stepscope::InputError naming `source`, the row and its field.
void check_rows(const ProfileDocument& document, const std::string& source);

// The sections of ranks against each other and against those of main_rank. A field that is absent contradicts nothing. Throws
// stepscope::InputError naming `source` and the field.
void check_ranks(const ProfileDocument& document, const std::string& source);

}  // namespace profiler

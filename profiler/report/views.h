// The tables of a document. Which columns they have, with which digits, and which go first on a narrow terminal, say the field lists
// (profiler/document/fields.cpp, profiler/attribute/numbers.cpp); here stand what names a row, and the rows.
#pragma once
#include <optional>

#include "profiler/document/profile.h"
#include "profiler/report/view.h"

namespace profiler {

// Nsight Compute ran each kernel alone: there is no step, so nothing stands idle between kernels.
bool measured_alone(const ProfileDocument& document);

// Of the step's time, in percent; absent without either.
Number share(const ProfileDocument& document, Number ns);

// What no pass holds, as a row beside them: bytes and headroom are of its kernels, and absent where one of these has none. Only where the
// document says how long it took.
std::optional<PassRow> unattributed_row(const ProfileDocument& document);

enum class Output { terminal, markdown, page };  // the page has room for more columns

// Passes, unattributed, idle and their sum; the longest kernels where steps of another program have no passes.
View pass_view(const ProfileDocument& document, Output output);
// Longest first, the rest in a note. The page gets all, in the order of the document.
View kernel_view(const ProfileDocument& document, Output output, size_t top);
View op_view(const ProfileDocument& document, Output output, size_t top);
View layer_view(const ProfileDocument& document, Output output, size_t top);
View launch_view(const ProfileDocument& document);  // for the page
// Cool and warm steps; no rows where the headline says it all: one state, and no energy.
View state_view(const ProfileDocument& document, Output output);
View step_view(const ProfileDocument& document);  // for the page: every timed step

}  // namespace profiler

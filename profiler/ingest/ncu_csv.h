// Reads what `ncu --csv` prints, live or with -i: page raw (a column per metric) and page details (a row per metric), with
// --print-units base or auto, with and without NVTX columns.
//
// Columns are found by their titles, never by position. Lines of ncu ("==PROF==") and of the profiled program before the table are
// stepped over. The printed values are rounded (base: two decimals; auto: two decimals of a scaled unit), so a .ncu-rep is the better
// source where there is one.
//
// Trap: page details prints the labels of sections ("Duration"), not metric names; those that are read here are translated by section
// and label, the others keep "SECTION: LABEL" as their name. `ncu --print-metric-name name` prints names instead.
#pragma once
#include <string>
#include <string_view>

#include "profiler/ingest/foreign_report.h"

namespace profiler {

bool looks_like_ncu_csv(std::string_view text);

// Throws profiler::DataError "SOURCE: line N: …": no table in the text, a quote that never closes, a row of another length, numbers
// with a decimal comma (a locale), an unknown unit. A table that ends in the middle of a row keeps what came before, with a
// MissingRecord "report_damaged".
ForeignReport read_ncu_csv(std::string_view text, const std::string& source);

}  // namespace profiler

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

// True also for a table that read_ncu_csv will refuse for its encoding or its separator: its message says
// more than "no report".
bool looks_like_ncu_csv(std::string_view text);

// Throws stepscope::InputError "SOURCE: line N, column M ('TITLE'): …", with what was found and what was
// expected: no table in the text, UTF-16, a zero byte, a title that stands twice, no row of units, a unit
// that the metric cannot have, a number that is none, too large, in another locale's spelling, or that the
// metric cannot have (a duration of 0), a result that stands twice. A second table with the same titles (`ncu
// --csv >> FILE`) is read on, with a MissingRecord "several_tables"; one with others is refused. A table that
// ends in the middle of a row, or goes on with something else, keeps what came before, with a MissingRecord
// "report_damaged".
ForeignReport read_ncu_csv(std::string_view text, const std::string& source);

}  // namespace profiler

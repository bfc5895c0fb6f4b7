// Every metric of every result of a foreign report, as CSV: what `ncu --page raw` prints, at full precision, in base units.
#pragma once
#include <string>

#include "profiler/ingest/foreign_report.h"

namespace profiler {

// A row per result, a column per metric that at least one result has, sorted by name. A metric that a result lacks is an empty cell.
std::string metrics_csv(const ForeignReport& report);

}  // namespace profiler

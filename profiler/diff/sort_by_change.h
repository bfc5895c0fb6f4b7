// The largest change of time first, whichever way it went.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

namespace profiler {

template <class Row>
void sort_by_change(std::vector<Row>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const Row& x, const Row& y) { return std::fabs(x.delta_ns()) > std::fabs(y.delta_ns()); });
}

}  // namespace profiler

#include "profiler/collect/counted_sets.h"

#include <cmath>

#include "profiler/collect/missing_names.h"

namespace profiler::collect {

void CountedSets::fill(CounterRecord& record, const std::vector<double>& values) {
  std::vector<std::string> left;
  for (size_t m = 0; m < metrics_.size(); ++m) {
    if (!std::isfinite(values[m])) {
      ++without_value_[metrics_[m]];
      continue;
    }
    left.push_back(metrics_[m]);
    record.values.push_back(values[m]);
  }
  if (left.size() == metrics_.size()) {
    record.set = name_;
    ++complete_;
    return;
  }
  Set& other = others_.try_emplace(left, Set{name_ + " in part, " + std::to_string(others_.size() + 1)}).first->second;
  ++other.records;
  record.set = other.name;
}

void CountedSets::write(Recorder& recorder, CounterSet costs, std::string_view what) const {
  costs.name = name_;
  costs.metrics = metrics_;
  costs.launches = costs.ranges = complete_;
  recorder.write(costs);
  for (const auto& [metrics, other] : others_) {
    CounterSet set;
    set.name = other.name;
    set.metrics = metrics;
    set.launches = set.ranges = other.records;
    recorder.write(set);
  }
  for (const auto& [metric, records] : without_value_)
    recorder.count(missing::kNoValue, records, metric + " of " + std::to_string(records) + " " + std::string(what));
}

}  // namespace profiler::collect

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
  ++others_[left];
  record.set = other_names_.try_emplace(left, name_ + " in part, " + std::to_string(other_names_.size() + 1)).first->second;
}

void CountedSets::write(Recorder& recorder, CounterSet costs, std::string_view what) const {
  costs.name = name_;
  costs.metrics = metrics_;
  costs.launches = costs.ranges = complete_;
  recorder.write(costs);
  for (const auto& [metrics, records] : others_) {
    CounterSet set;
    set.name = other_names_.at(metrics);
    set.metrics = metrics;
    set.launches = set.ranges = records;
    recorder.write(set);
  }
  for (const auto& [metric, records] : without_value_)
    recorder.count(missing::kNoValue, records, metric + " of " + std::to_string(records) + " " + std::string(what));
}

}  // namespace profiler::collect

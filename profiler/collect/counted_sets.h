// Counter records of one session whose ranges do not all have all metrics. A ratio of nothing by nothing has no value: the hit rate of a kernel
// that read nothing. Such ranges make sets of their own, without these metrics, so that one of them costs no other its numbers.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "profiler/collect/recorder.h"
#include "profiler/records/records.h"

namespace profiler::collect {

class CountedSets {
 public:
  CountedSets(std::string name, std::vector<std::string> metrics) : name_(std::move(name)), metrics_(std::move(metrics)) {}

  // Sets what `record` has of `values`, one for each metric, and in which set it is.
  void fill(CounterRecord& record, const std::vector<double>& values);
  // The set of all metrics with what collecting cost, then the others; what has no value is counted as missing of `what` ("kernels").
  void write(Recorder& recorder, CounterSet costs, std::string_view what) const;

 private:
  std::string name_;
  std::vector<std::string> metrics_;
  struct Set {
    std::string name;
    int64_t records = 0;
  };
  int64_t complete_ = 0;                            // records
  std::map<std::vector<std::string>, Set> others_;  // by the metrics that are left
  std::map<std::string, int64_t> without_value_;    // metric -> records
};

}  // namespace profiler::collect

// The host half of CUPTI's profiler: which metrics a chip has, how many passes a list takes, the
// configuration for the device, and values from a counter image. Needs neither GPU nor driver, only
// libnvperf_host.so beside libcupti.
//
// The trap: a host object is dead after one failed ConfigAddMetrics, and two such calls may need two passes
// where one needs one; so every question about a list is asked of a fresh object.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "profiler/collect/metric_catalogue.h"

namespace profiler::collect {

// Queries of the range profiler for `chip` as cuptiDeviceGetChipName spells it ("GH100"). The functions throw
// CuptiError (a std::runtime_error) when CUPTI does not know the chip or libnvperf_host cannot be loaded.
MetricQueries host_queries(const std::string& chip);
std::vector<std::string> host_chips();

class HostObject;  // owns a CUpti_Profiler_Host_Object

// The metrics of one collection: configuration image, and evaluation. Throws CuptiError; std::runtime_error
// if more than one pass.
class MetricConfig {
 public:
  MetricConfig(const std::string& chip, std::vector<std::string> metrics);
  ~MetricConfig();
  MetricConfig(const MetricConfig&) = delete;
  MetricConfig& operator=(const MetricConfig&) = delete;

  std::vector<uint8_t>& image() { return image_; }
  const std::vector<std::string>& metrics() const { return metrics_; }
  std::vector<const char*>& names() { return names_; }  // of metrics(), for the C calls
  std::vector<double> evaluate(const std::vector<uint8_t>& counter_data, size_t range) const;

 private:
  std::unique_ptr<HostObject> object_;
  std::vector<std::string> metrics_;
  mutable std::vector<const char*> names_;
  std::vector<uint8_t> image_;
};

}  // namespace profiler::collect

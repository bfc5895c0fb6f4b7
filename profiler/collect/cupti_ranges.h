// The device half of the range profiler: one object per context and mode, kept over sessions (a new one costs
// 0.2 s and 0.9 ms per range of room, the same again 46 ms). One pass, user replay: kernels run once, in
// place, with the caches as the program left them.
//
// The trap: an image too small for the launches loses ranges without any error; only ranges == launches
// tells.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "profiler/collect/backend.h"
#include "profiler/collect/cupti_host.h"

namespace profiler::collect {

class RangeProfiler {
 public:
  // `context` is a CUcontext. Throws CuptiError or std::runtime_error. The choice of metrics is made for the
  // device of the context.
  RangeProfiler(const CounterRequest& request, void* context, int device);
  ~RangeProfiler();  // disables
  RangeProfiler(const RangeProfiler&) = delete;
  RangeProfiler& operator=(const RangeProfiler&) = delete;

  const MetricChoice& metrics() const { return choice_; }
  void start();
  void push(const std::string& name);
  void pop();
  // Stop, decode, evaluate. The context must be idle.
  std::vector<RangeValues> stop();

 private:
  struct Device;
  MetricChoice choice_;
  std::unique_ptr<MetricConfig> config_;
  std::unique_ptr<Device> device_;
  std::vector<uint8_t> image_;
  const size_t max_ranges_;
  const bool user_ranges_;
};

// "GH100" for an H200. Throws CuptiError.
std::string chip_name(int device);

}  // namespace profiler::collect

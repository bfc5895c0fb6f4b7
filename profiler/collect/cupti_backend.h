// The backend that is CUPTI. One per process; made before CUDA is initialized, and never destroyed, because
// CUPTI calls back until the process ends.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>

#include "profiler/collect/backend.h"
#include "profiler/collect/events.h"

namespace profiler::collect {

class RangeProfiler;

class CuptiBackend : public Backend {
 public:
  // period_ms: see cupti_activity.h
  explicit CuptiBackend(unsigned flush_period_ms);
  ~CuptiBackend() override;

  // The one to be told everything; before subscribe().
  void set_observer(Observer& observer) { observer_ = &observer; }
  // Subscribes once; later calls return the first result. Nothing is switched on by it but graph construction
  // and context destruction.
  Outcome subscribe();

  SessionRecord describe() override;
  Outcome synchronize(const void* context) override;
  Outcome callbacks(Callbacks which) override;
  Outcome start_tracing() override;
  Outcome stop_tracing() override;
  Outcome enable_counters(const CounterRequest& request, const void* context) override;
  const MetricChoice& metrics() const override { return choice_; }
  Outcome start_ranges() override;
  Outcome push_range(const std::string& name) override;
  Outcome pop_range() override;
  SessionValues stop_ranges() override;
  void disable_counters() override;

 private:
  const unsigned flush_period_ms_;
  Observer* observer_ = nullptr;
  std::mutex subscribe_mutex_;
  bool tried_ = false;
  Outcome subscribe_failure_;
  void* subscriber_ = nullptr;
  Callbacks enabled_ = Callbacks::none;
  std::unique_ptr<RangeProfiler> profiler_;
  MetricChoice choice_;
};

}  // namespace profiler::collect

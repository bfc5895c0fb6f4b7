// A GPU made of numbers: every kernel launched while a session is on becomes a range, unless the test wants
// it otherwise.
#pragma once
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "profiler/collect/backend.h"
#include "profiler/collect/collector.h"

namespace profiler::collect {

class FakeBackend : public Backend {
 public:
  SessionRecord describe() override {
    SessionRecord s;
    s.producer = "cupti";
    s.device = device;
    return s;
  }
  Outcome synchronize(const void* context) override {
    log.push_back("sync");
    contexts.push_back(context);
    return {};
  }
  Outcome callbacks(Callbacks which) override {
    log.push_back(which == Callbacks::none ? "callbacks off" : which == Callbacks::kernels ? "callbacks kernels" : "callbacks all");
    listening = which;
    return {};
  }
  Outcome start_tracing() override {
    log.push_back("trace on");
    if (fail_tracing) return fail_tracing;
    tracing = true;
    return {};
  }
  Outcome stop_tracing() override {
    log.push_back("trace off");
    for (const ActivityEvent& e : buffered) observer->activity(e);
    buffered.clear();
    tracing = false;
    return {};
  }
  Outcome enable_counters(const CounterRequest& request, const void* context) override {
    contexts.push_back(context);
    std::this_thread::sleep_for(slow_enable);
    log.push_back(request.user_ranges ? "enable user" : "enable auto");
    requests.push_back(request);
    auto_ranges = !request.user_ranges;
    if (fail_enable) return fail_enable;
    choice.metrics = {"gpu__time_duration.sum", "dram__bytes_read.sum"};
    return {};
  }
  const MetricChoice& metrics() const override { return choice; }
  Outcome start_ranges() override {
    log.push_back("start");
    if (fail_start) return fail_start;
    session = true;
    ranges.clear();
    return {};
  }
  Outcome push_range(const std::string& name) override {
    log.push_back("push " + name);
    for (const auto& r : ranges)
      if (r.name == name) return {};
    ranges.push_back({name, {1, 2}});
    return {};
  }
  Outcome pop_range() override {
    log.push_back("pop");
    return {};
  }
  SessionValues stop_ranges() override {
    log.push_back("stop");
    session = false;
    SessionValues v;
    v.failure = fail_stop;
    v.ranges = ranges;
    if (spoil) spoil(v);
    return v;
  }
  void disable_counters() override { log.push_back("disable"); }

  // What the program does on the GPU.
  void launch(std::string_view symbol, LaunchKind kind = LaunchKind::kernel, LaunchEnd end = LaunchEnd::performed,
              const void* context = nullptr) {
    const uint32_t id = ++correlation;
    LaunchCall call;
    call.kind = kind;
    call.correlation = id;
    call.symbol = symbol;
    call.context = context;
    call.grid = {3, 2, 1};
    call.block = {64, 1, 1};
    call.host_ns = 1;
    if (listening != Callbacks::none) observer->launch_begins(call);
    if (kind == LaunchKind::kernel && session && auto_ranges && end == LaunchEnd::performed) ranges.push_back({"", {100.0 + id, 5}});
    if (listening != Callbacks::none) observer->launch_ends(id, kind, end);
    if (!tracing || end != LaunchEnd::performed) return;
    ActivityEvent e;
    e.activity = kind == LaunchKind::copy ? Activity::copy : kind == LaunchKind::memset ? Activity::memset : Activity::kernel;
    e.correlation = id;
    names.push_back(std::make_unique<std::string>(symbol));
    e.name = *names.back();
    e.grid = call.grid;
    e.block = call.block;
    e.stream = 13;
    e.registers = 40;
    e.shared_static_bytes = 512;
    e.shared_dynamic_bytes = 1024;
    if (kind == LaunchKind::copy) e.bytes = 4096;
    e.start_ns = clock += 10;
    e.end_ns = clock += 90;
    if (kind == LaunchKind::graph) e.graph_node = 0x500000001;
    buffered.push_back(e);
  }

  std::map<std::string, std::string> device{{"name", "fake"}, {"l2_bytes", "1024"}};  // empty: CUDA is not initialized
  Collector* observer = nullptr;
  std::vector<std::string> log;
  std::vector<CounterRequest> requests;
  std::chrono::milliseconds slow_enable{0};
  std::vector<const void*> contexts;  // given to synchronize and enable_counters
  Callbacks listening = Callbacks::none;
  bool tracing = false, session = false, auto_ranges = true;
  std::vector<RangeValues> ranges;
  std::vector<ActivityEvent> buffered;
  std::vector<std::unique_ptr<std::string>> names;
  MetricChoice choice;
  Outcome fail_enable, fail_start, fail_stop, fail_tracing;
  std::function<void(SessionValues&)> spoil;
  uint32_t correlation = 0;
  int64_t clock = 1000;
};

}  // namespace profiler::collect

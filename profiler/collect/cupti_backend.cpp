#include "profiler/collect/cupti_backend.h"

#include <cuda_runtime_api.h>

#include "base/read_file.h"
#include "profiler/collect/cupti_api.h"

#include <unistd.h>
#include <array>
#include <vector>

#include "profiler/collect/cupti_activity.h"
#include "profiler/collect/cupti_ranges.h"
#include "profiler/collect/driver_api.h"
#include "profiler/collect/missing_names.h"

namespace profiler::collect {
namespace {

// ---- which callbacks are launches

struct Api {
  std::optional<LaunchKind> kind;
  int capture = 0;
};

std::vector<Api> api_table(CUpti_CallbackDomain domain, uint32_t size) {
  std::vector<Api> table(size);
  for (uint32_t id = 1; id < size; ++id) {
    const char* name = nullptr;
    if (cuptiGetCallbackName(domain, id, &name) != CUPTI_SUCCESS || !name) continue;
    table[id].kind = launch_kind_of_api(name);
    if (domain == CUPTI_CB_DOMAIN_DRIVER_API) table[id].capture = capture_change_of_api(name);
  }
  return table;
}
const std::vector<Api>& driver_apis() {
  static const std::vector<Api> table = api_table(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_SIZE);
  return table;
}
const std::vector<Api>& runtime_apis() {
  static const std::vector<Api> table = api_table(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_SIZE);
  return table;
}

// ---- what a launch call says about its grid

template <class Params>
void grid_of_driver(const void* params, LaunchCall& call) {
  const auto* p = static_cast<const Params*>(params);
  call.grid = {p->gridDimX, p->gridDimY, p->gridDimZ};
  call.block = {p->blockDimX, p->blockDimY, p->blockDimZ};
}
void grid_of_dims(const dim3& grid, const dim3& block, LaunchCall& call) {
  call.grid = {grid.x, grid.y, grid.z};
  call.block = {block.x, block.y, block.z};
}

void grid_of(CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* params, LaunchCall& call) {
  if (!params) return;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API) {
    switch (id) {
      case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel:
      case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz:
        grid_of_driver<cuLaunchKernel_params>(params, call);
        return;
      case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel:
      case CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz:
        grid_of_driver<cuLaunchCooperativeKernel_params>(params, call);
        return;
      case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx:
      case CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz:
        if (const CUlaunchConfig* config = static_cast<const cuLaunchKernelEx_params*>(params)->config)
          grid_of_driver<CUlaunchConfig>(config, call);
        return;
      default:
        return;
    }
  }
  switch (id) {
    // cudaLaunchKernel, its cooperative form and the one behind <<<>>> have the same parameters in the same
    // order.
    case CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000:
    case CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000:
    case CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_v9000:
    case CUPTI_RUNTIME_TRACE_CBID_cudaLaunchCooperativeKernel_ptsz_v9000:
#if CUPTI_API_VERSION >= 130000
    case CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_v13000:
    case CUPTI_RUNTIME_TRACE_CBID___cudaLaunchKernel_ptsz_v13000:
#endif
    {
      const auto* p = static_cast<const cudaLaunchKernel_v7000_params*>(params);
      grid_of_dims(p->gridDim, p->blockDim, call);
      return;
    }
    case CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060:
    case CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_ptsz_v11060:
      if (const cudaLaunchConfig_t* config = static_cast<const cudaLaunchKernelExC_v11060_params*>(params)->config)
        grid_of_dims(config->gridDim, config->blockDim, call);
      return;
    default:
      return;
  }
}

// ---- callbacks

std::atomic<Observer*> g_callback_observer = nullptr;
// Changes whenever callbacks are switched: a thread may then have entered a call whose exit it never hears
// of, or the reverse.
std::atomic<uint64_t> g_epoch = 1;
// Our own CUDA calls (synchronize, start of a session) inside a callback are not the program's.
thread_local bool t_inside = false;

struct ThreadCalls {
  CallNesting nesting;
  uint64_t epoch = 0;
};
ThreadCalls& thread_calls() {
  thread_local ThreadCalls calls;
  return calls;
}

void on_api(Observer& observer, CUpti_CallbackDomain domain, CUpti_CallbackId id, const CUpti_CallbackData& data) {
  const auto& table = domain == CUPTI_CB_DOMAIN_DRIVER_API ? driver_apis() : runtime_apis();
  if (id >= table.size()) return;
  const Api& api = table[id];
  const bool entering = data.callbackSite == CUPTI_API_ENTER;
  // A CUresult or a cudaError_t; 0 is success in both.
  const bool failed = !entering && data.functionReturnValue && *static_cast<const int*>(data.functionReturnValue) != 0;
  if (api.capture != 0) {
    if (!entering && !failed) observer.capture_changed(api.capture);
    return;
  }
  if (!api.kind) return;
  ThreadCalls& calls = thread_calls();
  if (const uint64_t epoch = g_epoch; calls.epoch != epoch) {
    calls = ThreadCalls{};
    calls.epoch = epoch;
  }
  const auto describe = [&] {
    LaunchCall call;
    call.kind = *api.kind;
    call.correlation = data.correlationId;
    call.context = data.context;
    if (data.symbolName) call.symbol = data.symbolName;
    call.host_ns = now_ns();
    grid_of(domain, id, data.functionParams, call);
    return call;
  };
  if (entering) {
    const auto entered = calls.nesting.enter(data.correlationId, data.context != nullptr);
    if (entered.is_launch) observer.launch_begins(describe());
    if (entered.alias_of) observer.launch_alias(*entered.alias_of, data.correlationId);
    if (entered.earlier_alias) observer.launch_alias(data.correlationId, *entered.earlier_alias);
    return;
  }
  const auto left = calls.nesting.exit();
  if (!left.outermost) return;
  const LaunchEnd end = failed ? LaunchEnd::failed : left.captured ? LaunchEnd::captured : LaunchEnd::performed;
  if (left.launch) {
    observer.launch_ends(*left.launch, *api.kind, end);
  } else if (end == LaunchEnd::performed) {  // never knew its context while it ran
    observer.launch_begins(describe());
    observer.launch_ends(data.correlationId, *api.kind, end);
  }
}

void on_resource(Observer& observer, CUpti_CallbackId id, const CUpti_ResourceData& data) {
  if (id == CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING) {
    observer.context_ends(data.context);
    return;
  }
  const auto* graph = static_cast<const CUpti_GraphData*>(data.resourceDescriptor);
  if (!graph) return;
  uint64_t node = 0;
  if (cuptiGetGraphNodeId(graph->node, &node) != CUPTI_SUCCESS) return;
  if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) {
    thread_calls().nesting.node_created();
    observer.graph_node_created(node);
  } else if (id == CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED) {
    uint64_t original = 0;
    if (cuptiGetGraphNodeId(graph->originalNode, &original) == CUPTI_SUCCESS) observer.graph_node_cloned(node, original);
  }
}

void CUPTIAPI on_callback(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  Observer* observer = g_callback_observer;
  if (!observer || !data || t_inside) return;
  t_inside = true;
  try {
    if (domain == CUPTI_CB_DOMAIN_RESOURCE)
      on_resource(*observer, id, *static_cast<const CUpti_ResourceData*>(data));
    else
      on_api(*observer, domain, id, *static_cast<const CUpti_CallbackData*>(data));
  } catch (...) {  // out of memory, at the most: the program must not see it
  }
  t_inside = false;
}

Failure failure_of(const std::exception& e) {
  if (const auto* cupti = dynamic_cast<const CuptiError*>(&e)) return counter_failure(*cupti);
  return {std::string(missing::kCountersUnavailable), e.what()};
}

template <class F>
Outcome guarded(F&& f) {
  try {
    f();
    return std::nullopt;
  } catch (const std::exception& e) {
    return failure_of(e);
  }
}

// CUPTI has one subscriber at a time. Since CUDA 13 it tells `other`, the name of the one that it has.
CUptiResult subscribe_or_name(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback, std::string& other) {
#if CUPTI_API_VERSION >= 130000
  std::array<char, CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN * 2> name{};
  CUpti_SubscriberParams params{};
  params.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
  params.subscriberName = "stepscope";
  params.oldSubscriberName = name.data();
  params.oldSubscriberSize = name.size();
  const CUptiResult r = cuptiSubscribe_v2(handle, callback, nullptr, &params);
  other = name.data();
  return r;
#else
  (void)other;
  return cuptiSubscribe(handle, callback, nullptr);
#endif
}

std::string command_line() {
  std::string text = stepscope::read_file_if_there("/proc/self/cmdline").value_or("");
  while (!text.empty() && text.back() == '\0') text.pop_back();
  for (char& c : text)
    if (c == '\0') c = ' ';
  return text;
}

}  // namespace

CuptiBackend::CuptiBackend(unsigned flush_period_ms) : flush_period_ms_(flush_period_ms) {}
CuptiBackend::~CuptiBackend() = default;

Outcome CuptiBackend::subscribe() {
  const std::lock_guard lock(subscribe_mutex_);
  if (tried_) return subscribe_failure_;
  tried_ = true;
  g_callback_observer = observer_;
  CUpti_SubscriberHandle handle = nullptr;
  std::string other;
  const CUptiResult r = subscribe_or_name(&handle, on_callback, other);
  if (r == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
    subscribe_failure_ =
        Failure{std::string(missing::kOtherSubscriber), "held by " + (other.empty() ? "a tool that does not say its name" : other)};
  } else if (r != CUPTI_SUCCESS) {
    subscribe_failure_ = Failure{std::string(missing::kNotTraced), CuptiError("cuptiSubscribe", r).what()};
  }
  if (subscribe_failure_) return subscribe_failure_;
  subscriber_ = handle;
  // Both are rare, and graph nodes must be heard of when they are captured, which may be long before the
  // phase that needs them.
  for (const auto id :
       {CUPTI_CBID_RESOURCE_CONTEXT_DESTROY_STARTING, CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED, CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED})
    cuptiEnableCallback(1, handle, CUPTI_CB_DOMAIN_RESOURCE, id);
  return std::nullopt;
}

SessionRecord CuptiBackend::describe() {
  SessionRecord s;
  s.producer = "cupti";
  s.program = command_line();
  s.pid = getpid();
  CUdevice device = 0;
  if (const DriverApi* cu = driver_api()) {
    if (cu->ctx_device(&device) != CUDA_SUCCESS) cu->device(&device, 0);
    s.device = describe_device(device);
    if (!s.device.empty()) {
      try {
        s.device["chip"] = chip_name(device);
      } catch (const std::exception&) {  // no chip name: the counters will say why
      }
    }
  }
  s.versions = describe_versions();
  uint32_t version = 0;
  if (cuptiGetVersion(&version) == CUPTI_SUCCESS) s.versions["cupti"] = std::to_string(version);
  return s;
}

Outcome CuptiBackend::synchronize(const void* context) {
  const DriverApi* cu = driver_api();
  CUcontext current = nullptr;
  if (!cu || cu->ctx_current(&current) != CUDA_SUCCESS) return std::nullopt;
  const bool borrowed = !current && context;
  if (!current && !context) return std::nullopt;
  if (borrowed && cu->ctx_push(static_cast<CUcontext>(const_cast<void*>(context))) != CUDA_SUCCESS) return std::nullopt;
  const CUresult r = cu->ctx_synchronize();
  if (borrowed) cu->ctx_pop(&current);
  if (r == CUDA_SUCCESS || r == CUDA_ERROR_DEINITIALIZED) return std::nullopt;
  return Failure{std::string(missing::kRecordsLost), "cuCtxSynchronize fails with CUDA error " + std::to_string(static_cast<int>(r))};
}

Outcome CuptiBackend::callbacks(Callbacks which) {
  if (const Outcome failed = subscribe()) return failed;
  if (which == enabled_) return std::nullopt;
  const auto in = [](Callbacks level, const Api& api) {
    if (level == Callbacks::none) return false;
    if (api.capture != 0) return true;
    if (!api.kind) return false;
    return level == Callbacks::everything || *api.kind == LaunchKind::kernel || *api.kind == LaunchKind::graph;
  };
  ++g_epoch;
  CUptiResult worst = CUPTI_SUCCESS;
  const auto apply = [&](CUpti_CallbackDomain domain, const std::vector<Api>& table) {
    for (uint32_t id = 1; id < table.size(); ++id) {
      const bool want = in(which, table[id]);
      if (want == in(enabled_, table[id])) continue;
      const CUptiResult r = cuptiEnableCallback(want ? 1 : 0, static_cast<CUpti_SubscriberHandle>(subscriber_), domain, id);
      // A name of this toolkit that the loaded CUPTI does not know is no loss; a kernel launch that cannot be
      // heard is.
      if (r != CUPTI_SUCCESS && table[id].kind == LaunchKind::kernel) worst = r;
    }
  };
  apply(CUPTI_CB_DOMAIN_RUNTIME_API, runtime_apis());
  apply(CUPTI_CB_DOMAIN_DRIVER_API, driver_apis());
  enabled_ = which;
  if (worst != CUPTI_SUCCESS) return Failure{std::string(missing::kUnmatched), CuptiError("cuptiEnableCallback", worst).what()};
  return std::nullopt;
}

Outcome CuptiBackend::start_tracing() {
  if (const Outcome failed = subscribe()) return failed;
  try {
    start_activity(*observer_, flush_period_ms_);
    return std::nullopt;
  } catch (const std::exception& e) {
    return Failure{std::string(missing::kNotTraced), e.what()};
  }
}

Outcome CuptiBackend::stop_tracing() {
  try {
    stop_activity();
    return std::nullopt;
  } catch (const std::exception& e) {
    return Failure{std::string(missing::kRecordsLost), e.what()};
  }
}

Outcome CuptiBackend::enable_counters(const CounterRequest& request, const void* context) {
  if (const Outcome failed = subscribe()) return failed;
  profiler_.reset();
  return guarded([&] {
    const DriverApi* cu = driver_api();
    if (!cu) throw std::runtime_error("libcuda is not loaded");
    CUcontext current = nullptr;
    cu->ctx_current(&current);
    auto wanted = static_cast<CUcontext>(const_cast<void*>(context));
    if (!wanted) wanted = current;
    if (!wanted) throw std::runtime_error("no CUDA context is current");
    const bool switch_context = wanted != current;
    if (switch_context && cu->ctx_push(wanted) != CUDA_SUCCESS) throw std::runtime_error("the CUDA context cannot be made current");
    CUdevice device = 0;
    const bool known = cu->ctx_device(&device) == CUDA_SUCCESS;
    if (switch_context) cu->ctx_pop(&current);
    if (!known) throw std::runtime_error("the CUDA context has no device");
    profiler_ = std::make_unique<RangeProfiler>(request, wanted, device);
    choice_ = profiler_->metrics();
  });
}

Outcome CuptiBackend::start_ranges() {
  return guarded([&] {
    if (!profiler_) throw std::runtime_error("the range profiler is not enabled");
    profiler_->start();
  });
}

Outcome CuptiBackend::push_range(const std::string& name) {
  return guarded([&] { profiler_->push(name); });
}

Outcome CuptiBackend::pop_range() {
  return guarded([&] { profiler_->pop(); });
}

SessionValues CuptiBackend::stop_ranges() {
  SessionValues values;
  const int64_t begin = now_ns();
  values.failure = guarded([&] {
    if (!profiler_) throw std::runtime_error("the range profiler is not enabled");
    values.ranges = profiler_->stop();
  });
  if (values.failure) values.failure->missing = missing::kCounterSetFailed;
  values.decode_ns = static_cast<double>(now_ns() - begin);
  return values;
}

void CuptiBackend::disable_counters() { profiler_.reset(); }

}  // namespace profiler::collect

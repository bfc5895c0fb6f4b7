#include "profiler/collect/cupti_ranges.h"

#include "profiler/collect/cupti_api.h"

#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>

#include <algorithm>

namespace profiler::collect {
namespace {

// Once per process and never undone: de-initialization is not reference-counted, a second one crashes.
void initialize_once() {
  static const CUptiResult result = [] {
    STEPSCOPE_CUPTI_PARAMS(CUpti_Profiler_Initialize_Params, p);
    return cuptiProfilerInitialize(&p);
  }();
  check(result, "cuptiProfilerInitialize");
}

void require_support(int device) {
  STEPSCOPE_CUPTI_PARAMS(CUpti_Profiler_DeviceSupported_Params, p);
  p.cuDevice = device;
  p.api = CUPTI_PROFILER_RANGE_PROFILING;
  check(cuptiProfilerDeviceSupported(&p), "cuptiProfilerDeviceSupported");
  if (p.isSupported == CUPTI_PROFILER_CONFIGURATION_SUPPORTED) return;
  std::string why;
  const auto name = [&](CUpti_Profiler_Support_Level level, const char* what) {
    if (level != CUPTI_PROFILER_CONFIGURATION_SUPPORTED) why += (why.empty() ? "" : ", ") + std::string(what);
  };
  name(p.architecture, "architecture");
  name(p.sli, "SLI");
  name(p.vGpu, "vGPU without profiling");
  name(p.confidentialCompute, "confidential computing");
  name(p.cmp, "CMP device");
  name(p.wsl, "WSL");
  throw std::runtime_error("the range profiler does not support this device: " + (why.empty() ? std::string("no reason given") : why));
}

}  // namespace

std::string chip_name(int device) {
  STEPSCOPE_CUPTI_PARAMS(CUpti_Device_GetChipName_Params, p);
  p.deviceIndex = static_cast<size_t>(device);
  check(cuptiDeviceGetChipName(&p), "cuptiDeviceGetChipName");
  return p.pChipName ? p.pChipName : "";
}

struct RangeProfiler::Device {
  explicit Device(void* context) {
    STEPSCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_Enable_Params, p);
    p.ctx = static_cast<CUcontext>(context);
    check(cuptiRangeProfilerEnable(&p), "cuptiRangeProfilerEnable");
    object = p.pRangeProfilerObject;
  }
  ~Device() {
    STEPSCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_Disable_Params, p);
    p.pRangeProfilerObject = object;
    cuptiRangeProfilerDisable(&p);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  CUpti_RangeProfiler_Object* object = nullptr;
};

RangeProfiler::RangeProfiler(const CounterRequest& request, void* context, int device)
    : max_ranges_(static_cast<size_t>(std::max<int64_t>(1, request.max_ranges))), user_ranges_(request.user_ranges) {
  initialize_once();
  require_support(device);
  const std::string chip = chip_name(device);
  choice_ = choose_metrics(request.wanted, host_queries(chip));
  if (choice_.metrics.empty()) throw std::runtime_error("chip " + chip + " has none of the metrics asked for");
  config_ = std::make_unique<MetricConfig>(chip, choice_.metrics);
  device_ = std::make_unique<Device>(context);
  STEPSCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataSize_Params, size);
  size.pRangeProfilerObject = device_->object;
  size.pMetricNames = config_->names().data();
  size.numMetrics = config_->names().size();
  size.maxNumOfRanges = max_ranges_;
  size.maxNumRangeTreeNodes = static_cast<uint32_t>(max_ranges_);
  check(cuptiRangeProfilerGetCounterDataSize(&size), "cuptiRangeProfilerGetCounterDataSize");
  image_.resize(size.counterDataSize);
}

RangeProfiler::~RangeProfiler() = default;

void RangeProfiler::start() {
  STEPSCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params, init);
  init.pRangeProfilerObject = device_->object;
  init.counterDataSize = image_.size();
  init.pCounterData = image_.data();
  check(cuptiRangeProfilerCounterDataImageInitialize(&init), "cuptiRangeProfilerCounterDataImageInitialize");
  STEPSCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_SetConfig_Params, set);
  set.pRangeProfilerObject = device_->object;
  set.configSize = config_->image().size();
  set.pConfig = config_->image().data();
  set.counterDataImageSize = image_.size();
  set.pCounterDataImage = image_.data();
  set.range = user_ranges_ ? CUPTI_UserRange : CUPTI_AutoRange;
  set.replayMode = CUPTI_UserReplay;
  set.maxRangesPerPass = max_ranges_;
  set.numNestingLevels = 1;
  set.minNestingLevel = 1;
  set.passIndex = 0;
  set.targetNestingLevel = 1;
  check(cuptiRangeProfilerSetConfig(&set), "cuptiRangeProfilerSetConfig");
  STEPSCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_Start_Params, begin);
  begin.pRangeProfilerObject = device_->object;
  check(cuptiRangeProfilerStart(&begin), "cuptiRangeProfilerStart");
}

void RangeProfiler::push(const std::string& name) {
  STEPSCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_PushRange_Params, p);
  p.pRangeProfilerObject = device_->object;
  p.pRangeName = name.c_str();
  check(cuptiRangeProfilerPushRange(&p), "cuptiRangeProfilerPushRange");
}

void RangeProfiler::pop() {
  STEPSCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_PopRange_Params, p);
  p.pRangeProfilerObject = device_->object;
  check(cuptiRangeProfilerPopRange(&p), "cuptiRangeProfilerPopRange");
}

std::vector<RangeValues> RangeProfiler::stop() {
  STEPSCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_Stop_Params, stop);
  stop.pRangeProfilerObject = device_->object;
  check(cuptiRangeProfilerStop(&stop), "cuptiRangeProfilerStop");
  STEPSCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_DecodeData_Params, decode);
  decode.pRangeProfilerObject = device_->object;
  check(cuptiRangeProfilerDecodeData(&decode), "cuptiRangeProfilerDecodeData");
  if (!stop.isAllPassSubmitted) throw std::runtime_error("cuptiRangeProfilerStop: one pass was not enough");
  STEPSCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataInfo_Params, info);
  info.pCounterDataImage = image_.data();
  info.counterDataImageSize = image_.size();
  check(cuptiRangeProfilerGetCounterDataInfo(&info), "cuptiRangeProfilerGetCounterDataInfo");
  std::vector<RangeValues> ranges(info.numTotalRanges);
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (user_ranges_) {
      STEPSCOPE_CUPTI_PARAMS(CUpti_RangeProfiler_CounterData_GetRangeInfo_Params, range);
      range.pCounterDataImage = image_.data();
      range.counterDataImageSize = image_.size();
      range.rangeIndex = i;
      range.rangeDelimiter = "/";
      check(cuptiRangeProfilerCounterDataGetRangeInfo(&range), "cuptiRangeProfilerCounterDataGetRangeInfo");
      if (range.rangeName) ranges[i].name = range.rangeName;
    }
    ranges[i].values = config_->evaluate(image_, i);
  }
  return ranges;
}

}  // namespace profiler::collect

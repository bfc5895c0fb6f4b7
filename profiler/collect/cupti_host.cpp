#include "profiler/collect/cupti_host.h"

#include "profiler/collect/cupti_api.h"

#include <cupti_profiler_host.h>
#include <dlfcn.h>

#include <filesystem>

namespace profiler::collect {

namespace {

// libcupti opens libnvperf_host by its plain name and has no rpath; loaded from the folder of libcupti
// beforehand, it is found wherever the toolkit lies. A failure shows as the error of the first host call.
void load_nvperf_beside_cupti() {
  static const bool once = [] {
    Dl_info cupti{};
    if (dladdr(reinterpret_cast<const void*>(&cuptiGetVersion), &cupti) == 0 || !cupti.dli_fname) return false;
    const std::string folder = std::filesystem::path(cupti.dli_fname).parent_path().string();
    return dlopen((folder + "/libnvperf_host.so").c_str(), RTLD_LAZY | RTLD_LOCAL) != nullptr;
  }();
  (void)once;
}

}  // namespace

class HostObject {
 public:
  explicit HostObject(const std::string& chip) {
    load_nvperf_beside_cupti();
    STEPSCOPE_CUPTI_PARAMS(CUpti_Profiler_Host_Initialize_Params, p);
    p.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
    p.pChipName = chip.c_str();
    check(cuptiProfilerHostInitialize(&p), "cuptiProfilerHostInitialize");
    host = p.pHostObject;
  }
  ~HostObject() {
    STEPSCOPE_CUPTI_PARAMS(CUpti_Profiler_Host_Deinitialize_Params, p);
    p.pHostObject = host;
    cuptiProfilerHostDeinitialize(&p);
  }
  HostObject(const HostObject&) = delete;
  HostObject& operator=(const HostObject&) = delete;

  // Once per object, all metrics together.
  std::vector<uint8_t> configure(std::vector<const char*>& names) const {
    STEPSCOPE_CUPTI_PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params, add);
    add.pHostObject = host;
    add.ppMetricNames = names.data();
    add.numMetrics = names.size();
    check(cuptiProfilerHostConfigAddMetrics(&add), "cuptiProfilerHostConfigAddMetrics");
    STEPSCOPE_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params, size);
    size.pHostObject = host;
    check(cuptiProfilerHostGetConfigImageSize(&size), "cuptiProfilerHostGetConfigImageSize");
    std::vector<uint8_t> image(size.configImageSize);
    STEPSCOPE_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImage_Params, get);
    get.pHostObject = host;
    get.configImageSize = image.size();
    get.pConfigImage = image.data();
    check(cuptiProfilerHostGetConfigImage(&get), "cuptiProfilerHostGetConfigImage");
    return image;
  }

  CUpti_Profiler_Host_Object* host = nullptr;
};

namespace {

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> p;
  p.reserve(texts.size());
  for (const std::string& t : texts) p.push_back(t.c_str());
  return p;
}

size_t passes_of(std::vector<uint8_t>& image) {
  STEPSCOPE_CUPTI_PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params, p);
  p.configImageSize = image.size();
  p.pConfigImage = image.data();
  check(cuptiProfilerHostGetNumOfPasses(&p), "cuptiProfilerHostGetNumOfPasses");
  return p.numOfPasses;
}

}  // namespace

MetricConfig::MetricConfig(const std::string& chip, std::vector<std::string> metrics)
    : object_(std::make_unique<HostObject>(chip)), metrics_(std::move(metrics)), names_(pointers(metrics_)) {
  image_ = object_->configure(names_);
  const size_t passes = passes_of(image_);
  if (passes != 1) throw std::runtime_error("the metrics need " + std::to_string(passes) + " passes, a running program allows one");
}

MetricConfig::~MetricConfig() = default;

std::vector<double> MetricConfig::evaluate(const std::vector<uint8_t>& counter_data, size_t range) const {
  std::vector<double> values(metrics_.size());
  STEPSCOPE_CUPTI_PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params, p);
  p.pHostObject = object_->host;
  p.pCounterDataImage = counter_data.data();
  p.counterDataImageSize = counter_data.size();
  p.rangeIndex = range;
  p.ppMetricNames = names_.data();
  p.numMetrics = names_.size();
  p.pMetricValues = values.data();
  check(cuptiProfilerHostEvaluateToGpuValues(&p), "cuptiProfilerHostEvaluateToGpuValues");
  return values;
}

MetricQueries host_queries(const std::string& chip) {
  MetricQueries q;
  q.exists = [chip](const std::string& metric) {
    const HostObject object(chip);
    STEPSCOPE_CUPTI_PARAMS(CUpti_Profiler_Host_GetMetricProperties_Params, p);
    p.pHostObject = object.host;
    p.pMetricName = metric.c_str();
    return cuptiProfilerHostGetMetricProperties(&p) == CUPTI_SUCCESS;
  };
  q.passes = [chip](const std::vector<std::string>& metrics) -> std::optional<size_t> {
    const HostObject object(chip);
    std::vector<const char*> names = pointers(metrics);
    try {
      std::vector<uint8_t> image = object.configure(names);
      return passes_of(image);
    } catch (const CuptiError&) {
      return std::nullopt;  // some lists exist but cannot be scheduled
    }
  };
  return q;
}

std::vector<std::string> host_chips() {
  load_nvperf_beside_cupti();
  STEPSCOPE_CUPTI_PARAMS(CUpti_Profiler_Host_GetSupportedChips_Params, p);
  check(cuptiProfilerHostGetSupportedChips(&p), "cuptiProfilerHostGetSupportedChips");
  std::vector<std::string> chips;
  for (size_t i = 0; i < p.numChips; ++i) chips.emplace_back(p.ppChipNames[i]);
  return chips;
}

}  // namespace profiler::collect

#include "profiler/collect/cupti_activity.h"

#include "profiler/collect/cupti_api.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "profiler/collect/missing_names.h"

namespace profiler::collect {
namespace {

// About 10,000 kernel records. Small, so that few records are under way; zeroed by us, because CUPTI would do
// it on the launching thread.
constexpr size_t kBufferBytes = 2u << 20;
constexpr size_t kPooled = 16;

std::atomic<Observer*> g_activity_observer = nullptr;
std::mutex g_pool_mutex;
std::vector<uint8_t*> g_pool;

constexpr std::array kKinds = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY2,
                               CUPTI_ACTIVITY_KIND_MEMSET};

std::string_view copy_name(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "copy HtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "copy DtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "copy DtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH:
      return "copy HtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return "copy PtoP";
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA:
      return "copy HtoA";
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH:
      return "copy AtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOA:
      return "copy AtoA";
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOD:
      return "copy AtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOA:
      return "copy DtoA";
    default:
      return "copy";
  }
}

// What the record types have in common by name. The structs are packed: no references to their fields.
template <class Record>
ActivityEvent common(const Record* r, Activity activity) {
  ActivityEvent e;
  e.activity = activity;
  e.correlation = r->correlationId;
  e.graph_node = r->graphNodeId;
  e.start_ns = static_cast<int64_t>(r->start);
  e.end_ns = static_cast<int64_t>(r->end);
  e.device = r->deviceId;
  e.stream = r->streamId;
  return e;
}

void deliver(Observer& observer, const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    case CUPTI_ACTIVITY_KIND_KERNEL: {
      // Newer toolkits add fields at the end (Kernel10 in 13.0); 9 is the newest that 12.8 has, and every later one has it too.
      const auto* k = reinterpret_cast<const CUpti_ActivityKernel9*>(record);
      ActivityEvent e = common(k, Activity::kernel);
      const char* name = k->name;
      e.name = name ? name : "";
      e.grid = {k->gridX, k->gridY, k->gridZ};
      e.block = {k->blockX, k->blockY, k->blockZ};
      e.registers = k->registersPerThread;
      e.shared_static_bytes = k->staticSharedMemory;
      e.shared_dynamic_bytes = k->dynamicSharedMemory;
      observer.activity(e);
      return;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto* c = reinterpret_cast<const CUpti_ActivityMemcpy6*>(record);
      ActivityEvent e = common(c, Activity::copy);
      e.name = copy_name(c->copyKind);
      e.bytes = static_cast<int64_t>(c->bytes);
      observer.activity(e);
      return;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2: {
      const auto* c = reinterpret_cast<const CUpti_ActivityMemcpyPtoP4*>(record);
      ActivityEvent e = common(c, Activity::copy);
      e.name = "copy PtoP";
      e.bytes = static_cast<int64_t>(c->bytes);
      observer.activity(e);
      return;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto* m = reinterpret_cast<const CUpti_ActivityMemset4*>(record);
      ActivityEvent e = common(m, Activity::memset);
      e.name = "memset";
      e.bytes = static_cast<int64_t>(m->bytes);
      observer.activity(e);
      return;
    }
    default:
      return;
  }
}

void CUPTIAPI buffer_requested(uint8_t** buffer, size_t* size, size_t* max_records) {
  *max_records = 0;  // as many as fit
  *size = kBufferBytes;
  {
    const std::lock_guard lock(g_pool_mutex);
    if (!g_pool.empty()) {
      *buffer = g_pool.back();
      g_pool.pop_back();
      return;
    }
  }
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(64, kBufferBytes));
  if (*buffer)
    std::memset(*buffer, 0, kBufferBytes);
  else
    *size = 0;  // CUPTI then drops records and counts them
}

void CUPTIAPI buffer_completed(CUcontext, uint32_t, uint8_t* buffer, size_t size, size_t valid) {
  Observer* observer = g_activity_observer;
  try {
    if (observer && valid > 0) {
      CUpti_Activity* record = nullptr;
      CUptiResult r = CUPTI_SUCCESS;
      while ((r = cuptiActivityGetNextRecord(buffer, valid, &record)) == CUPTI_SUCCESS) deliver(*observer, record);
      if (r != CUPTI_ERROR_MAX_LIMIT_REACHED)
        observer->lost(missing::kTornBuffer, 1, "activity buffers that could not be read to their end");
    }
    size_t dropped = 0;
    if (observer && cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped) == CUPTI_SUCCESS && dropped > 0)
      observer->lost(missing::kDroppedRecords, static_cast<int64_t>(dropped), "records that CUPTI had no buffer for");
  } catch (...) {  // out of memory, at the most: CUPTI must not see it
    if (observer) observer->lost(missing::kTornBuffer, 1, "activity buffers that could not be processed");
  }
  if (!buffer) return;
  std::memset(buffer, 0, std::min(valid, size));
  const std::lock_guard lock(g_pool_mutex);
  if (g_pool.size() < kPooled)
    g_pool.push_back(buffer);
  else
    std::free(buffer);
}

uint64_t CUPTIAPI timestamp() { return static_cast<uint64_t>(now_ns()); }

// Once per process: registering the timestamp callback again corrupts kernel records, and it must precede the
// first enabled kind.
void register_once() {
  static const bool done = [] {
    g_pool.reserve(kPooled);
    check(cuptiActivityRegisterTimestampCallback(timestamp), "cuptiActivityRegisterTimestampCallback");
    uint8_t zeroed = 1;
    size_t bytes = sizeof zeroed;
    // A performance hint; an older CUPTI without it clears the buffers itself.
    cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &bytes, &zeroed);
    check(cuptiActivityRegisterCallbacks(buffer_requested, buffer_completed), "cuptiActivityRegisterCallbacks");
    return true;
  }();
  (void)done;
}

}  // namespace

void start_activity(Observer& observer, unsigned period_ms) {
  register_once();
  g_activity_observer = &observer;
  for (const auto kind : kKinds) check(cuptiActivityEnable(kind), "cuptiActivityEnable");
  if (period_ms > 0) cuptiActivityFlushPeriod(period_ms);
}

void stop_activity() {
  for (const auto kind : kKinds) cuptiActivityDisable(kind);
  check(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
}

}  // namespace profiler::collect

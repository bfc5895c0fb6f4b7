#include "profiler/ingest/ncu_csv.h"

#include "base/errors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const profiler::ForeignReport r = profiler::read_ncu_csv({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (r.results.empty()) __builtin_trap();
    for (const profiler::ForeignResult& k : r.results)
      for (const auto& [index, value] : k.values)
        if (index >= r.metrics.size() || value != value) __builtin_trap();
  } catch (const stepscope::InputError&) {
  }
  return 0;
}

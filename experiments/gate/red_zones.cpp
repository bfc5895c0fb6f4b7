#include "experiments/gate/red_zones.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

// The names that the linker's --wrap gives to the function that was asked for and to the real one.
extern "C" {
cudaError_t __real_cudaMalloc(void** memory, size_t bytes);
cudaError_t __real_cudaFree(void* memory);
cudaError_t __wrap_cudaMalloc(void** memory, size_t bytes);
cudaError_t __wrap_cudaFree(void* memory);
}

namespace gate {
namespace {

constexpr size_t kZone = size_t{1} << 20;
constexpr unsigned char kPattern = 0xc3, kPoison = 0xff;

struct Watched {
  std::mutex mutex;
  bool on = false;
  std::unordered_map<void*, size_t> bytes;  // asked for, of what has a zone behind it
  int64_t written = 0;                      // behind memory that is gone
};

Watched& watched() {
  static auto* const w = new Watched;  // trainers of static storage may be freed last
  return *w;
}

// Where the device takes no more calls, another check says so.
int64_t written_behind(const void* memory, size_t bytes) {
  std::vector<unsigned char> zone(kZone);
  if (cudaMemcpy(zone.data(), static_cast<const char*>(memory) + bytes, kZone, cudaMemcpyDeviceToHost) != cudaSuccess) return 0;
  return static_cast<int64_t>(kZone) - std::ranges::count(zone, kPattern);
}

cudaError_t fill_behind(void* memory, size_t bytes) {
  if (const cudaError_t e = cudaMemset(static_cast<char*>(memory) + bytes, kPattern, kZone); e != cudaSuccess) return e;
  return cudaStreamSynchronize(cudaStreamLegacy);  // streams of the trainer do not wait for this one
}

}  // namespace

void watch_memory(bool on) {
  const std::scoped_lock lock(watched().mutex);
  watched().on = on;
}

int64_t bytes_beyond_memory() {
  if (cudaDeviceSynchronize() != cudaSuccess) return 0;
  Watched& w = watched();
  const std::scoped_lock lock(w.mutex);
  int64_t written = std::exchange(w.written, 0);
  for (const auto& [memory, bytes] : w.bytes) {
    const int64_t here = written_behind(memory, bytes);
    written += here;
    if (here > 0) (void)fill_behind(memory, bytes);
  }
  return written;
}

}  // namespace gate

cudaError_t __wrap_cudaMalloc(void** memory, size_t bytes) {
  gate::Watched& w = gate::watched();
  const std::scoped_lock lock(w.mutex);
  if (!w.on || bytes == 0) return __real_cudaMalloc(memory, bytes);
  if (const cudaError_t e = __real_cudaMalloc(memory, bytes + gate::kZone); e != cudaSuccess) return e;
  w.bytes[*memory] = bytes;
  if (const cudaError_t e = cudaMemset(*memory, gate::kPoison, bytes); e != cudaSuccess) return e;
  return gate::fill_behind(*memory, bytes);
}

cudaError_t __wrap_cudaFree(void* memory) {
  gate::Watched& w = gate::watched();
  const std::scoped_lock lock(w.mutex);
  if (const auto found = w.bytes.find(memory); found != w.bytes.end()) {
    if (cudaDeviceSynchronize() == cudaSuccess) w.written += gate::written_behind(memory, found->second);
    w.bytes.erase(found);
  }
  return __real_cudaFree(memory);
}

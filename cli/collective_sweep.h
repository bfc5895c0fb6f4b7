// Every collective at every size, alone: what the links between the ranks do. Run by all ranks at once; it knows neither NCCL nor CUDA.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpt2/distributed/communicator.h"
#include "profiler/ranks/link_model.h"

namespace cli {

// Memory and clock of the place where the communicator's data lie.
class SweepDevice {
 public:
  virtual ~SweepDevice() = default;
  virtual void* memory() = 0;  // of at least SweepOptions::most_bytes
  virtual void* stream() = 0;
  // Runs `enqueue` `times` times in a row, `samples` times over; the median of the time that one took, ns. The first run is not counted.
  virtual double time_ns(const std::function<void()>& enqueue, int64_t times, int samples) = 0;
};

struct SweepOptions {
  int64_t least_bytes = 4 << 10, most_bytes = 512 << 20;  // each size is double the one before it
  std::vector<gpt2::distributed::Element> types{gpt2::distributed::Element::fp32, gpt2::distributed::Element::bf16};
  std::vector<gpt2::distributed::CollectiveKind> kinds{gpt2::distributed::CollectiveKind::all_reduce,
                                                       gpt2::distributed::CollectiveKind::reduce_scatter,
                                                       gpt2::distributed::CollectiveKind::all_gather};
  int samples = 20;
};

// How many bytes `device` must hold: most_bytes, rounded up so that every rank has an equal slice.
int64_t sweep_bytes(const SweepOptions& options, int ranks);

// All ranks must give the same options. Each rank gets the times that it saw.
std::vector<profiler::LinkPoint> sweep_collectives(gpt2::distributed::Communicator& communicator, SweepDevice& device,
                                                   const SweepOptions& options);

std::string word(gpt2::distributed::CollectiveKind kind);  // "all_reduce", as profile documents spell it
std::string word(gpt2::distributed::Element type);         // "fp32"

// Host memory and the host's clock: for a staged communicator, and for tests.
class HostSweepDevice : public SweepDevice {
 public:
  explicit HostSweepDevice(int64_t bytes) : memory_(static_cast<size_t>(bytes)) {}
  void* memory() override { return memory_.data(); }
  void* stream() override { return nullptr; }
  double time_ns(const std::function<void()>& enqueue, int64_t times, int samples) override;

 private:
  std::vector<unsigned char> memory_;
};

}  // namespace cli

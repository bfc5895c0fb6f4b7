// How near a kernel or an op is to what this device has been seen to do. Ceilings are measured, never from a
// data sheet.
//
// Two floors, never mixed: a kernel's floor is the time that the bytes and instructions it really issued
// would take at the ceilings; an op's floor is the time of the fewest bytes and FLOPs that its mathematics
// needs. The first tells how well the kernel runs, the second what a better kernel could win.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "profiler/attribute/counters.h"
#include "profiler/records/records.h"

namespace profiler {

struct Ceilings {
  std::optional<double> copy_bytes_per_s;  // bytes read + bytes written
  std::optional<double> read_bytes_per_s;
  std::optional<double> write_bytes_per_s;
  std::map<std::string, double> matmul_flops_per_s;  // "fp32", "tf32", "bf16"
  std::string device, uuid, driver;
  std::string measured_at;  // UTC, ISO 8601
};

// DRAM ceiling of a mix of reads and writes: linear in the share of writes between the read, copy and write
// ceilings (shares 0, 1/2, 1); the copy ceiling when only that is known; absent without it.
std::optional<double> dram_ceiling_bytes_per_s(const Ceilings& ceilings, double read_bytes, double write_bytes);

// What the device's SMs do per cycle, for turning tensor-pipe cycles into FLOPs. Absent for chips that are
// not in the table. Source: dense peak of the architecture white papers; the GH100 row was checked against op
// counters (exact for wgmma).
std::optional<double> tensor_flops_per_cycle(const std::string& chip, const std::string& precision);

struct RooflineInput {
  Ceilings ceilings;
  std::string chip;  // "GH100"
  std::optional<int64_t> sm_count;
  std::string precision = "bf16";  // of the run's tensor-core products; foreign programs: bf16, see docs/metrics.md
  bool tensor_measured = false;    // the recording has tensor use of its kernels: one without it is unknown, not free of it
};

enum class Bound { memory, tensor, latency, neither };
std::string_view name(Bound bound);

inline constexpr double kBoundShare = 0.60;            // of a ceiling, from which a kernel counts as bound by it
inline constexpr double kLatencyDuration_ns = 5000.0;  // below it launch and drain dominate
inline constexpr double kTensorNoise_pct = 2.0;        // of cycles; below it the pipe ran packed half FMAs, no matrix products

struct KernelRoofline {
  std::optional<double> dram_ns, tensor_ns, fma_ns;  // time that its traffic or work needs at the ceiling
  // It used the tensor cores, or may have, and how much work that was does not follow from what was counted.
  bool tensor_unknown = false;
  std::optional<double> floor_ns;  // the largest of the times; absent when dram_ns is, or tensor_unknown
  std::optional<Bound> bound;
};

// `duration_ns` > 0. Copies and memsets on the device get a dram_ns from their size; copies to or from the
// host get nothing.
KernelRoofline kernel_roofline(const LaunchRecord& launch, double duration_ns, const KernelCounters& counters, const RooflineInput& input);

// Of an op's mathematics: max(min_bytes / copy ceiling, flops / matmul ceiling of the run's precision).
std::optional<double> work_floor_ns(double flops, double min_bytes, const Ceilings& ceilings, const std::string& precision);

}  // namespace profiler

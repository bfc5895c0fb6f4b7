#include "profiler/attribute/roofline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

namespace profiler {
namespace {

std::optional<double> rate_of(const Ceilings& c, const std::string& precision) {
  const auto at = c.matmul_flops_per_s.find(precision);
  if (at == c.matmul_flops_per_s.end() || !(at->second > 0)) return std::nullopt;
  return at->second;
}

std::optional<double> traffic_ns(const Ceilings& c, double read_bytes, double write_bytes) {
  const auto ceiling = dram_ceiling_bytes_per_s(c, read_bytes, write_bytes);
  if (!ceiling) return std::nullopt;
  return (read_bytes + write_bytes) / *ceiling * 1e9;
}

bool on_device(const LaunchRecord& launch) { return launch.name.find("DtoD") != std::string::npos; }

std::optional<double> dram_ns(const LaunchRecord& launch, const KernelCounters& c, const Ceilings& ceilings) {
  const auto bytes = static_cast<double>(launch.bytes);
  if (launch.activity == Activity::memset) return traffic_ns(ceilings, 0, bytes);
  if (launch.activity == Activity::copy) return on_device(launch) ? traffic_ns(ceilings, bytes, bytes) : std::nullopt;
  if (!c.dram_read_bytes || !c.dram_write_bytes) return std::nullopt;
  return traffic_ns(ceilings, *c.dram_read_bytes, *c.dram_write_bytes);
}

std::optional<double> tensor_ns(const KernelCounters& c, const RooflineInput& in) {
  if (!c.tensor_active_pct) return c.tensor_instructions == 0 ? std::optional(0.0) : std::nullopt;
  // wgmma keeps the pipe busy for up to 128 cycles by one instruction of a warp: a product that fills it issues a few percent.
  const bool of_instructions = c.tensor_is == KernelCounters::TensorIs::instructions;
  if (of_instructions ? *c.tensor_active_pct <= 0 : *c.tensor_active_pct < kTensorNoise_pct) return 0.0;
  if (c.tensor_is != KernelCounters::TensorIs::all_cycles) return std::nullopt;  // no work follows from it
  const auto per_cycle = tensor_flops_per_cycle(in.chip, in.precision);
  const auto rate = rate_of(in.ceilings, in.precision);
  if (!per_cycle || !rate || !in.sm_count || !c.sm_cycles) return std::nullopt;
  const double flops = *c.tensor_active_pct / 100 * *per_cycle * *c.sm_cycles * static_cast<double>(*in.sm_count);
  return flops / *rate * 1e9;
}

// 32 lanes, 2 FLOPs each.
std::optional<double> fma_ns(const KernelCounters& c, const RooflineInput& in) {
  const auto rate = rate_of(in.ceilings, "fp32");
  if (!c.fma_instructions || !rate) return std::nullopt;
  return *c.fma_instructions * 64 / *rate * 1e9;
}

}  // namespace

std::optional<double> dram_ceiling_bytes_per_s(const Ceilings& c, double read_bytes, double write_bytes) {
  if (!c.copy_bytes_per_s || !(*c.copy_bytes_per_s > 0)) return std::nullopt;
  const double total = read_bytes + write_bytes;
  if (!(total > 0)) return c.copy_bytes_per_s;
  const double writes = write_bytes / total;
  const auto& end = writes < 0.5 ? c.read_bytes_per_s : c.write_bytes_per_s;
  if (!end || !(*end > 0)) return c.copy_bytes_per_s;
  const double towards_end = std::abs(writes - 0.5) * 2;
  return *c.copy_bytes_per_s + towards_end * (*end - *c.copy_bytes_per_s);
}

std::optional<double> tensor_flops_per_cycle(const std::string& chip, const std::string& precision) {
  static const std::array<std::tuple<const char*, const char*, double>, 4> table = {
      {{"GH100", "bf16", 4096}, {"GH100", "tf32", 2048}, {"GA100", "bf16", 2048}, {"GA100", "tf32", 1024}}};
  for (const auto& [known_chip, known_precision, flops] : table)
    if (chip == known_chip && precision == known_precision) return flops;
  return std::nullopt;
}

std::string_view name(Bound bound) {
  constexpr std::array<std::string_view, 4> words = {"memory", "tensor", "latency", "neither"};
  return words.at(static_cast<size_t>(bound));
}

KernelRoofline kernel_roofline(const LaunchRecord& launch, double duration_ns, const KernelCounters& c, const RooflineInput& in) {
  KernelRoofline r;
  r.dram_ns = dram_ns(launch, c, in.ceilings);
  if (launch.activity == Activity::kernel) {
    r.tensor_ns = tensor_ns(c, in);
    r.fma_ns = fma_ns(c, in);
    r.tensor_unknown = !r.tensor_ns && (in.tensor_measured || c.tensor_active_pct || c.tensor_instructions);
  }
  if (!r.dram_ns) return r;
  // Without any tensor metric in the whole recording the floor is that of traffic and FMA work, and `missing` names the metric.
  if (!r.tensor_unknown) r.floor_ns = std::max({*r.dram_ns, r.tensor_ns.value_or(0), r.fma_ns.value_or(0)});
  if (!(duration_ns > 0)) return r;

  const double memory = *r.dram_ns / duration_ns, tensor = r.tensor_ns.value_or(0) / duration_ns;
  const int64_t blocks = launch.grid[0] * launch.grid[1] * launch.grid[2];
  if (memory >= kBoundShare && memory >= tensor)
    r.bound = Bound::memory;
  else if (tensor >= kBoundShare)
    r.bound = Bound::tensor;
  else if (launch.activity == Activity::kernel && !r.tensor_ns)
    return r;  // the tensor side is not known
  else if (duration_ns < kLatencyDuration_ns)
    r.bound = Bound::latency;
  else if (launch.activity == Activity::kernel && (blocks <= 0 || !in.sm_count))
    return r;  // whether its blocks fill the device is not known
  else
    r.bound = launch.activity != Activity::kernel || blocks >= *in.sm_count ? Bound::neither : Bound::latency;
  return r;
}

std::optional<double> work_floor_ns(double flops, double min_bytes, const Ceilings& c, const std::string& precision) {
  const auto rate = rate_of(c, precision);
  if (!c.copy_bytes_per_s || !(*c.copy_bytes_per_s > 0) || (flops > 0 && !rate)) return std::nullopt;
  return std::max(min_bytes / *c.copy_bytes_per_s, flops > 0 ? flops / *rate : 0.0) * 1e9;
}

}  // namespace profiler

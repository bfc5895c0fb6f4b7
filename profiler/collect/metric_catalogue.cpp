#include "profiler/collect/metric_catalogue.h"

#include <stdexcept>

namespace profiler::collect {
namespace {

constexpr std::string_view kPrefix = "set:";

// One pass together on GA100, GA102, AD102, GH100, GB100 (on GB20x with the second DRAM spelling), by
// CUPTI 13.0's host API.
std::vector<Quantity> portable() {
  return {
      {"time_ns", {"gpu__time_duration.sum"}},
      {"dram_read_bytes", {"dram__bytes_read.sum", "dram__bytes_op_read.sum"}},
      {"dram_write_bytes", {"dram__bytes_write.sum", "dram__bytes_op_write.sum"}},
      {"tensor_active_pct_elapsed", {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed"}},
      {"sm_cycles_active", {"sm__cycles_active.avg"}},
      {"sm_cycles_elapsed", {"sm__cycles_elapsed.max"}},
      {"gpc_cycles_elapsed", {"gpc__cycles_elapsed.max"}},
      {"gpc_clock_hz", {"gpc__cycles_elapsed.avg.per_second"}},
      {"dram_clock_hz", {"dram__cycles_elapsed.avg.per_second"}},
      {"warps_active_pct", {"sm__warps_active.avg.pct_of_peak_sustained_active"}},
      {"l2_bytes", {"lts__t_bytes.sum"}},
      {"instructions", {"sm__inst_executed.sum"}},
      {"dram_pct", {"dram__throughput.avg.pct_of_peak_sustained_elapsed"}},
      {"l2_sectors_tex_read", {"lts__t_sectors_srcunit_tex_op_read.sum"}},
      {"l2_sectors_tex_write", {"lts__t_sectors_srcunit_tex_op_write.sum"}},
  };
}

std::vector<Quantity> hopper(const std::string& tensor_ops, const std::string& tensor_ops_metric) {
  std::vector<Quantity> set = portable();
  set.insert(set.end(), {
                            {tensor_ops, {tensor_ops_metric}},
                            {"sm_cycles_elapsed_sum", {"sm__cycles_elapsed.sum"}},
                            {"tensor_cycles_sum", {"sm__pipe_tensor_cycles_active.sum"}},
                            {"tensor_active_pct_active", {"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"}},
                            {"l2_sectors_read", {"lts__t_sectors_op_read.sum"}},
                            {"l2_sectors_write", {"lts__t_sectors_op_write.sum"}},
                            {"instructions_fma", {"sm__inst_executed_pipe_fma.sum"}},
                            {"instructions_issued", {"sm__inst_issued.sum"}},
                            {"fp8_ops", {"sm__ops_path_tensor_src_fp8.sum"}},
                        });
  return set;
}

}  // namespace

std::vector<Quantity> metric_set(std::string_view set) {
  if (set == "portable") return portable();
  if (set == "bf16") return hopper("bf16_ops", "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32.sum");
  if (set == "tf32") return hopper("tf32_ops", "sm__ops_path_tensor_op_hgmma_src_tf32_dst_fp32.sum");
  throw std::runtime_error("metric set '" + std::string(set) + "' is unknown; expected portable, bf16 or tf32");
}

bool asked_by_name(const std::vector<std::string>& plan_metrics) {
  return !plan_metrics.empty() && !(plan_metrics.size() == 1 && plan_metrics[0].starts_with(kPrefix));
}

std::vector<Quantity> wanted_metrics(const std::vector<std::string>& plan_metrics) {
  if (plan_metrics.empty()) return metric_set("bf16");
  if (!asked_by_name(plan_metrics)) return metric_set(std::string_view(plan_metrics[0]).substr(kPrefix.size()));
  std::vector<Quantity> wanted;
  for (const std::string& m : plan_metrics) wanted.push_back({m, {m}});
  return wanted;
}

MetricChoice choose_metrics(const std::vector<Quantity>& wanted, const MetricQueries& queries) {
  MetricChoice choice;
  std::vector<std::string> existing;
  for (const Quantity& q : wanted) {
    bool found = false;
    for (const std::string& candidate : q.candidates) {
      if (!queries.exists(candidate)) continue;
      existing.push_back(candidate);
      found = true;
      break;
    }
    if (!found) choice.left_out.emplace_back(q.name, "this chip has no such metric");
  }
  if (existing.empty()) return choice;
  if (queries.passes(existing) == std::optional<size_t>(1)) {
    choice.metrics = existing;
    return choice;
  }
  for (const std::string& metric : existing) {
    choice.metrics.push_back(metric);
    const std::optional<size_t> passes = queries.passes(choice.metrics);
    if (passes == std::optional<size_t>(1)) continue;
    choice.metrics.pop_back();
    choice.left_out.emplace_back(metric, passes ? "does not fit one pass with the metrics before it" : "cannot be scheduled");
  }
  return choice;
}

}  // namespace profiler::collect

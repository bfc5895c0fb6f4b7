#include "profiler/attribute/numbers.h"

#include <algorithm>

#include "profiler/attribute/sums.h"

namespace profiler {
namespace {

using Number = std::optional<double>;
using K = KernelCounters;
using Counter = Number K::*;

Number ratio(Number over, Number under) {
  if (!over || !under || !(*under > 0)) return std::nullopt;
  return *over / *under;
}

// Absent where one has no time: the bytes of a kernel whose time was lost, over the times of the others, read as more than the GPU can.
Number duration_ns(const Launches& launches) {
  return sum_all(launches,
                 [](const AttributedLaunch& l) { return l.has_time || l.duration_ns > 0 ? Number(l.duration_ns) : std::nullopt; });
}

template <Counter counter>
Number sum(const Launches& launches) {
  return sum_all(launches, [](const AttributedLaunch& l) { return l.counters.*counter; });
}

// One launch needs no weight: its own value is the mean.
Number weighted(const Launches& launches, Counter value, Counter weight) {
  if (launches.size() == 1) return launches.front()->counters.*value;
  const auto product = sum_all(launches, [&](const AttributedLaunch& l) -> Number {
    if (!(l.counters.*value) || !(l.counters.*weight)) return std::nullopt;
    return *(l.counters.*value) * *(l.counters.*weight);
  });
  return ratio(product, sum_all(launches, [&](const AttributedLaunch& l) { return l.counters.*weight; }));
}
template <Counter value, Counter weight>
Number mean(const Launches& launches) {
  return weighted(launches, value, weight);
}

// A report may hold percentages without any cycles: kernels that ran at one clock (ncu locks it) have cycles as their times.
Number weighted_by_time(const Launches& launches, Counter value) {
  const auto product = sum_all(launches, [&](const AttributedLaunch& l) -> Number {
    if (!(l.counters.*value)) return std::nullopt;
    return *(l.counters.*value) * l.duration_ns;
  });
  return ratio(product, duration_ns(launches));
}

Number tensor_use(const Launches& launches) {
  const bool of_active = std::any_of(launches.begin(), launches.end(), [](const AttributedLaunch* l) {
    return l->counters.tensor_active_pct && l->counters.tensor_is == K::TensorIs::active_cycles;
  });
  const auto by_cycles = weighted(launches, &K::tensor_active_pct, of_active ? &K::sm_active_cycles : &K::sm_cycles);
  return by_cycles ? by_cycles : weighted_by_time(launches, &K::tensor_active_pct);
}

Number bandwidth(const Launches& launches) {
  const Number read = sum<&K::dram_read_bytes>(launches), written = sum<&K::dram_write_bytes>(launches);
  if (!read || !written) return std::nullopt;
  return ratio((*read + *written) * 1e9, duration_ns(launches));
}

// The time that the work needs at the ceiling over the time taken, in percent.
template <Number KernelRoofline::*needed>
Number of_ceiling(const Launches& launches) {
  const auto share = ratio(sum_all(launches, [](const AttributedLaunch& l) { return l.roofline.*needed; }), duration_ns(launches));
  return share ? Number(*share * 100) : std::nullopt;
}

using N = Numbers;
// Name, unit, source, help | member, whether rows add up, where besides rows | formula | how it is shown.
constexpr NumberRow kRows[] = {
    {"dram_read_bytes", "bytes", "counter dram__bytes_read.sum", "bytes that the kernels read from DRAM",  //
     &N::dram_read_bytes, true, kLaunches | kTotals, sum<&K::dram_read_bytes>},
    {"dram_write_bytes", "bytes", "counter dram__bytes_write.sum", "bytes that the kernels wrote to DRAM",  //
     &N::dram_write_bytes, true, kLaunches | kTotals, sum<&K::dram_write_bytes>},
    {"dram_bytes_per_s",
     "bytes/s",
     "formula",
     "(read + written) / duration of the kernels",  //
     &N::dram_bytes_per_s,
     false,
     kLaunches | kTotals,
     bandwidth,
     {"GB/s", Format::gigabytes_per_s, kRowTables, kNoTable, 5}},
    {"dram_of_ceiling_pct",
     "%",
     "formula",
     "time the traffic needs at the measured ceiling of its mix / duration of the kernels",
     &N::dram_of_ceiling_pct,
     false,
     kLaunches | kTotals,
     of_ceiling<&KernelRoofline::dram_ns>,
     {"(max)", Format::in_brackets, kRowTables, kNoTable, 8}},
    {"l2_bytes", "bytes", "counter lts__t_bytes.sum", "bytes through the L2 cache",  //
     &N::l2_bytes, true, kLaunches, sum<&K::l2_bytes>},
    {"instructions", "", "counter sm__inst_executed.sum", "warp instructions",  //
     &N::instructions, true, kLaunches, sum<&K::instructions>},
    {"tensor_active_pct",
     "%",
     "counter, see collection.tensor_metric",
     "cycles with the tensor pipe busy, in percent of all SM cycles of the kernels; rows weight their launches by SM cycles; idle time is "
     "not in it",
     &N::tensor_active_pct,
     false,
     kLaunches | kTotals,
     tensor_use,
     {"tensor%", Format::tensor, kRowTables, kNoTable, 7}},
    {"tensor_instructions", "", "counter, see collection.tensor_instructions_metric",
     "warp instructions on the tensor pipe, where a report of another tool counted them",  //
     &N::tensor_instructions, true, kLaunches | kTotals, sum<&K::tensor_instructions>},
    {"tensor_while_busy_pct", "%", "counter sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
     "tensor_active_pct over only the cycles in which the SM had warps",  //
     &N::tensor_while_busy_pct, false, kLaunches, mean<&K::tensor_while_busy_pct, &K::sm_active_cycles>},
    {"tensor_of_ceiling_pct", "%", "formula", "time the tensor work needs at the measured matmul ceiling / duration of the kernels",
     &N::tensor_of_ceiling_pct, false, kRowsOnly, of_ceiling<&KernelRoofline::tensor_ns>},
    {"fma_of_ceiling_pct", "%", "counter sm__inst_executed_pipe_fma.sum",
     "time the FMA-pipe instructions need at the rate of the measured fp32 matmul / duration of the kernels",  //
     &N::fma_of_ceiling_pct, false, kRowsOnly, of_ceiling<&KernelRoofline::fma_ns>},
    {"occupancy_pct",
     "%",
     "counter sm__warps_active.avg.pct_of_peak_sustained_active",
     "resident warps in percent of the most that an SM can hold, over the cycles in which it had any",  //
     &N::occupancy_pct,
     false,
     kLaunches,
     mean<&K::occupancy_pct, &K::sm_active_cycles>,
     {"occ.%", Format::percent, kNoTable, kKernelTable}},
    {"sm_clock_hz", "Hz", "counter gpc__cycles_elapsed.avg.per_second", "SM clock while the kernels were counted",  //
     &N::sm_clock_hz, false, kLaunches, mean<&K::sm_clock_hz, &K::counted_time_ns>},
};
static_assert(sizeof(Numbers) == std::size(kRows) * sizeof(Number), "a member of Numbers has no row here, or a row has no member");

}  // namespace

std::span<const NumberRow> number_rows() { return kRows; }

Numbers numbers_of(const Launches& kernels) {
  Numbers numbers;
  for (const NumberRow& row : kRows) numbers.*row.member = row.of(kernels);
  return numbers;
}

std::optional<double> sum_of(const std::optional<double>& a, const std::optional<double>& b) {
  return a && b ? std::optional(*a + *b) : std::nullopt;
}

}  // namespace profiler

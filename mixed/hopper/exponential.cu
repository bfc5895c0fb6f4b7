#include "mixed/hopper/launch.cuh"

namespace hopper {

Launch prepare_exponential(const Problem& p, const Cut& cut) {
  const ExpOverOffset tail(p.offset, p.row_sums, p.overflow, p.kept);
  return cut.columns == 192 ? prepare<192, false, false>(p, cut.plan, tail) : prepare<128, false, false>(p, cut.plan, tail);
}

}  // namespace hopper

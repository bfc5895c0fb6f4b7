#include "mixed/hopper/launch.cuh"

namespace hopper {
Launch prepare_plain(const Problem& p, const Cut& cut) {
  if (cut.columns == 128) return p.a_across || p.b_across ? Launch{} : prepare<128, false, false>(p, cut.plan, Plain{});
  if (p.a_across) return prepare<192, true, true>(p, cut.plan, Plain{});
  return p.b_across ? prepare<192, false, true>(p, cut.plan, Plain{}) : prepare<192, false, false>(p, cut.plan, Plain{});
}

}  // namespace hopper

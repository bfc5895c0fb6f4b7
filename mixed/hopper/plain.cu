#include "mixed/hopper/launch.cuh"

namespace hopper {
namespace {

template <int kN, bool kTurns>
Launch of_layout(const Problem& p, const Plan& plan) {
  if (p.a_across) return prepare<kN, kTurns, true, true>(p, plan, Plain{});
  return p.b_across ? prepare<kN, kTurns, false, true>(p, plan, Plain{}) : prepare<kN, kTurns, false, false>(p, plan, Plain{});
}

}  // namespace

Launch prepare_plain(const Problem& p, const Cut& cut) {
  if (cut.turns && cut.columns == 192) return of_layout<192, true>(p, cut.plan);
  if (!cut.turns && cut.columns == 256) return of_layout<256, false>(p, cut.plan);
  if (p.a_across || p.b_across) return {};
  return cut.turns ? prepare<128, true, false, false>(p, cut.plan, Plain{}) : prepare<192, false, false, false>(p, cut.plan, Plain{});
}

}  // namespace hopper

#include "mixed/hopper/launch.cuh"

namespace hopper {

Launch prepare_gelu(const Problem& p, const Cut& cut) {
  const GeluForward tail(p.bias);
  return cut.columns == 192 ? prepare<192, false, false>(p, cut.plan, tail) : prepare<128, false, false>(p, cut.plan, tail);
}

Launch prepare_gelu_backward(const Problem& p, const Cut& cut) {
  const GeluBackward tail(p.partial);
  return cut.columns == 192 ? prepare<192, false, true>(p, cut.plan, tail) : prepare<128, false, true>(p, cut.plan, tail);
}

}  // namespace hopper

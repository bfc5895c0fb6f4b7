#include "experiments/prototypes/hopper_product/cutlass_rival.h"

namespace hopper {

NamedLaunches cutlass_launches(const Problem& p, Tail tail) {
  if (p.a_across) return {};
  if (tail == Tail::plain && !p.b_across) return cutlass_plain(p);
  if (tail == Tail::gelu) return cutlass_gelu(p);
  if (tail == Tail::gelu_backward) return cutlass_gelu_backward(p);
  return {};
}

}  // namespace hopper

#include "experiments/prototypes/hopper_product/cutlass_rival.cuh"

namespace hopper {

NamedLaunches cutlass_plain(const Problem& p) {
  using namespace rival;
  using Fusion = cutlass::epilogue::fusion::LinearCombination<Element, float, void, float>;
  const auto set = [](auto& fusion) { fusion.alpha = 1, fusion.beta = 0; };
  NamedLaunches out;
  add<ProductOf<false, Pingpong, cute::Shape<_192, _128, _64>, cute::Shape<_2, _1, _1>, Fusion>>(out, "cutlass-pingpong-192x128-c2x1", p,
                                                                                                 set);
  add<ProductOf<false, Cooperative, cute::Shape<_256, _128, _64>, cute::Shape<_2, _1, _1>, Fusion>>(out, "cutlass-cooperative-256x128-c2x1",
                                                                                                    p, set);
  return out;
}

}  // namespace hopper

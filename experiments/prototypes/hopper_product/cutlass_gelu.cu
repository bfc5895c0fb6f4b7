#include "experiments/prototypes/hopper_product/cutlass_rival.cuh"

namespace hopper {

NamedLaunches cutlass_gelu(const Problem& p) {
  using namespace rival;
  using Fusion = cutlass::epilogue::fusion::LinCombPerRowBiasEltActAux<Column, cutlass::epilogue::thread::GELU_taylor, Element, float,
                                                                       Element, Element, void, float>;
  const auto set = [&](auto& fusion) {
    fusion.alpha = 1, fusion.beta = 0;
    fusion.bias_ptr = reinterpret_cast<const Element*>(p.bias);
    fusion.aux_ptr = reinterpret_cast<Element*>(p.slope);  // keeps x, not GELU'
    fusion.dAux = cutlass::make_cute_packed_stride(decltype(fusion.dAux){}, cute::make_shape(p.n, p.m, 1));
  };
  NamedLaunches out;
  add<ProductOf<false, Pingpong, cute::Shape<_128, _128, _64>, cute::Shape<_2, _1, _1>, Fusion>>(out, "cutlass-pingpong-128x128-c2x1", p,
                                                                                                 set);
  add<ProductOf<false, Cooperative, cute::Shape<_256, _128, _64>, cute::Shape<_2, _1, _1>, Fusion>>(out, "cutlass-cooperative-256x128-c2x1",
                                                                                                    p, set);
  return out;
}

}  // namespace hopper

#include "experiments/prototypes/hopper_product/cutlass_rival.cuh"

namespace hopper {

NamedLaunches cutlass_gelu_backward(const Problem& p) {
  using namespace rival;
  using Fusion = cutlass::epilogue::fusion::LinCombDeEltActDePerRowBias<Column, cutlass::epilogue::thread::dGELU, Element, float, Element,
                                                                        float, void, float>;
  const auto set = [&](auto& fusion) {
    fusion.alpha = 1, fusion.beta = 0;
    fusion.aux_ptr = reinterpret_cast<const Element*>(p.given);
    fusion.dAux = cutlass::make_cute_packed_stride(decltype(fusion.dAux){}, cute::make_shape(p.n, p.m, 1));
    fusion.dbias_ptr = p.partial;
  };
  NamedLaunches out;
  add<ProductOf<true, Pingpong, cute::Shape<_128, _128, _64>, cute::Shape<_2, _1, _1>, Fusion>>(out, "cutlass-pingpong-128x128-c2x1", p,
                                                                                                set);
  add<ProductOf<true, Cooperative, cute::Shape<_256, _128, _64>, cute::Shape<_2, _1, _1>, Fusion>>(out, "cutlass-cooperative-256x128-c2x1",
                                                                                                   p, set);
  return out;
}

}  // namespace hopper

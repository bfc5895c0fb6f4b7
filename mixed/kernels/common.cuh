// What the mixed-precision kernels share; all of it is gpt2/ops/storage.cuh.
#pragma once
#include "gpt2/ops/storage.cuh"

namespace mixed {

using gpt2::ops::bf16;

using gpt2::ops::aligned_16;
using gpt2::ops::ceil_div;
using gpt2::ops::grid_blocks;
using gpt2::ops::kWarp;
using gpt2::ops::row_threads;
#ifdef __CUDACC__
using gpt2::ops::block_max;
using gpt2::ops::block_sum;
using gpt2::ops::load;
using gpt2::ops::Pack;
using gpt2::ops::pack_bf16;
using gpt2::ops::rounded;
using gpt2::ops::store;
using gpt2::ops::warp_max;
using gpt2::ops::warp_sum;
#endif

// Whether rows of `columns` values at these addresses can be moved in packs of 8.
template <class... Pointers>
bool can_pack(int64_t columns, const Pointers*... pointers) {
  return gpt2::ops::can_pack<bf16>(columns, pointers...);
}

}  // namespace mixed

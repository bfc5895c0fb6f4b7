// A product of CUTLASS for a fusion, made ready to launch. CUTLASS has sums only over rows of what it calls D, so it makes the transposed result,
// as cuBLASLt does: D is n x m with n contiguous.
#pragma once
#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/util/packed_stride.hpp>

#include <memory>

#include "experiments/prototypes/hopper_product/cutlass_rival.h"
#include "gpt2/cuda/check.h"
#include "gpt2/cuda/device_buffer.h"

namespace hopper::rival {

using Element = cutlass::bfloat16_t;
using Column = cutlass::layout::ColumnMajor;
using Row = cutlass::layout::RowMajor;
using cute::_1;
using cute::_128;
using cute::_192;
using cute::_2;
using cute::_256;
using cute::_64;

struct Pingpong {
  using Kernel = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
  using Epilogue = cutlass::epilogue::TmaWarpSpecialized;
};
struct Cooperative {
  using Kernel = cutlass::gemm::KernelTmaWarpSpecializedCooperative;
  using Epilogue = cutlass::epilogue::TmaWarpSpecializedCooperative;
};

template <bool kAcrossB, class Schedule, class Tile, class Cluster, class Fusion>
struct ProductOf {
  using LayoutA = std::conditional_t<kAcrossB, Column, Row>;
  using Epilogue =
      typename cutlass::epilogue::collective::CollectiveBuilder<cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
                                                                cutlass::epilogue::collective::EpilogueTileAuto, float, float, void, Column,
                                                                8, Element, Column, 8, typename Schedule::Epilogue, Fusion>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, LayoutA, 8, Element, Column, 8, float, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
      typename Schedule::Kernel>::CollectiveOp;
  using Kernel =
      cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue, cutlass::gemm::PersistentScheduler>;
  using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
};

inline void ok(cutlass::Status status) {
  if (status != cutlass::Status::kSuccess) throw gpt2::cuda::CallError(std::string("CUTLASS: ") + cutlassGetStatusString(status));
}

// `set_fusion` fills the arguments of the fusion.
template <class Of, class SetFusion>
std::function<void(cudaStream_t)> ready(const Problem& p, const SetFusion& set_fusion) {
  using Gemm = typename Of::Gemm;
  using Kernel = typename Of::Kernel;
  const auto stride_a = cutlass::make_cute_packed_stride(typename Kernel::StrideA{}, cute::make_shape(p.n, p.k, 1));
  const auto stride_b = cutlass::make_cute_packed_stride(typename Kernel::StrideB{}, cute::make_shape(p.m, p.k, 1));
  const auto stride_c = cutlass::make_cute_packed_stride(typename Kernel::StrideC{}, cute::make_shape(p.n, p.m, 1));
  const auto stride_d = cutlass::make_cute_packed_stride(typename Kernel::StrideD{}, cute::make_shape(p.n, p.m, 1));
  cutlass::KernelHardwareInfo hardware;
  hardware.device_id = 0;
  hardware.sm_count = cutlass::KernelHardwareInfo::query_device_multiprocessor_count(0);
  typename Gemm::Arguments arguments{cutlass::gemm::GemmUniversalMode::kGemm,
                                     {p.n, p.m, p.k, 1},
                                     {reinterpret_cast<const Element*>(p.b), stride_a, reinterpret_cast<const Element*>(p.a), stride_b},
                                     {{}, nullptr, stride_c, reinterpret_cast<Element*>(p.out), stride_d},
                                     hardware};
  arguments.scheduler.max_swizzle_size = 8;
  set_fusion(arguments.epilogue.thread);
  const auto gemm = std::make_shared<Gemm>();
  ok(gemm->can_implement(arguments));
  const auto workspace =
      std::make_shared<gpt2::cuda::DeviceBuffer<unsigned char>>(static_cast<int64_t>(Gemm::get_workspace_size(arguments)));
  ok(gemm->initialize(arguments, workspace->data()));
  return [gemm, workspace](cudaStream_t stream) { ok(gemm->run(stream)); };
}

// Kernels that do not take this problem are left out.
template <class Of, class SetFusion>
void add(NamedLaunches& to, const char* name, const Problem& p, const SetFusion& set_fusion) {
  try {
    to.emplace_back(name, ready<Of>(p, set_fusion));
  } catch (const gpt2::cuda::CallError&) {
  }
}

}  // namespace hopper::rival

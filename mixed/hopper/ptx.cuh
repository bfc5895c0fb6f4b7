// The instructions of Hopper (sm_90a) that a product is made of, one function each: barriers in shared memory, copies of tiles by the tensor
// memory accelerator (TMA), products of a warpgroup (wgmma). Names and operands as in the PTX ISA 8.x, sections "mbarrier",
// "cp.async.bulk.tensor", "wgmma". Shared addresses are 32-bit.
#pragma once
#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>
#ifdef STEPSCOPE_WAIT_TELLS
#include <cstdio>
#endif

namespace hopper {

#ifdef __CUDACC__

__device__ __forceinline__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// ---- barriers: a phase ends when `count` arrivals and all expected bytes are in; waiting names the parity of the phase -------------

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// The barrier at the same address in CTA `rank` of the cluster. It orders no memory beyond the CTA: with .release.cluster every arrival is a
// MEMBAR.GPU and the whole product takes 1.4 times as long. None is needed: what the arrival frees was read by wgmma, which is waited for.
__device__ __forceinline__ void barrier_arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n .reg .b32 remote;\n mapa.shared::cluster.u32 remote, %0, %1;\n mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(
          barrier),
      "r"(rank)
      : "memory");
}
__device__ __forceinline__ void barrier_arrive_expecting(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ bool barrier_is_past(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
               : "=r"(done)
               : "r"(barrier), "r"(parity)
               : "memory");
  return done != 0;
}
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
#ifdef STEPSCOPE_WAIT_LIMIT_NS
  // A check's build: a barrier that nobody completes ends the kernel with an error instead of never.
  uint64_t begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  while (!barrier_is_past(barrier, parity)) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (now - begin > STEPSCOPE_WAIT_LIMIT_NS) {
#ifdef STEPSCOPE_WAIT_TELLS  // a call of a function: ptxas then waits behind every wgmma
      printf("block %d thread %d waits for barrier %u, parity %u\n", blockIdx.x, threadIdx.x, barrier, parity);
#endif
      asm volatile("trap;");
    }
  }
#else
  asm volatile(
      "{\n .reg .pred done;\n again:\n mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n @done bra finished;\n bra "
      "again;\n finished:\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
#endif
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// ---- TMA: a box of a matrix into shared memory; the barrier receives the bytes. Outside the matrix it writes zeros. -----------------

__device__ __forceinline__ void tma_load(uint32_t to, const CUtensorMap* map, int column, int row, uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
               "l"(map), "r"(barrier), "r"(column), "r"(row)
               : "memory");
}
// A box of a stack of matrices.
__device__ __forceinline__ void tma_load(uint32_t to, const CUtensorMap* map, int column, int row, int matrix, uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
               "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(matrix)
               : "memory");
}
// Consecutive bytes, a multiple of 16 from an address that is one.
__device__ __forceinline__ void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes),
               "r"(barrier)
               : "memory");
}
// Into the same place of every CTA of the cluster whose bit is set, and onto the barrier at the same place there.
__device__ __forceinline__ void tma_load_multicast(uint32_t to, const CUtensorMap* map, int column, int row, uint32_t barrier,
                                                   uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::
          "r"(to),
      "l"(map), "r"(barrier), "r"(column), "r"(row), "h"(ctas)
      : "memory");
}

// A box into the L2 only.
__device__ __forceinline__ void tma_prefetch(const CUtensorMap* map, int column, int row) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];" ::"l"(map), "r"(column), "r"(row) : "memory");
}

// A box from shared memory to the matrix; what lies outside the matrix is not written. Its writer fences first (fence_for_tma).
__device__ __forceinline__ void tma_store(const CUtensorMap* map, uint32_t from, int column, int row) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map), "r"(from), "r"(column), "r"(row)
               : "memory");
}
__device__ __forceinline__ void tma_store(const CUtensorMap* map, uint32_t from, int column, int row, int matrix) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map), "r"(from), "r"(column),
               "r"(row), "r"(matrix)
               : "memory");
}
__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until at most N of this thread's groups of stores have yet to read shared memory; what they write is there when the kernel ends.
template <int N>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
// Orders this thread's accesses of shared memory before those of TMA.
__device__ __forceinline__ void fence_for_tma() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- wgmma: a warpgroup multiplies 64 x 16 by 16 x N, both from shared memory, onto N / 2 floats per thread ------------------------

// Where an operand lies (PTX ISA, "matrix descriptor"): address, the two strides in bytes, swizzle of 128 bytes.
__device__ __forceinline__ uint64_t operand(uint32_t address, uint32_t leading_bytes, uint32_t stride_bytes) {
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | static_cast<uint64_t>(leading_bytes >> 4) << 16 |
         static_cast<uint64_t>(stride_bytes >> 4) << 32 | uint64_t{1} << 62;
}
__device__ __forceinline__ void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most N groups are under way.
template <int N>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

#define STEPSCOPE_8(n) \
  "+f"(d[n]), "+f"(d[n + 1]), "+f"(d[n + 2]), "+f"(d[n + 3]), "+f"(d[n + 4]), "+f"(d[n + 5]), "+f"(d[n + 6]), "+f"(d[n + 7])
#define STEPSCOPE_32(n) STEPSCOPE_8(n), STEPSCOPE_8(n + 8), STEPSCOPE_8(n + 16), STEPSCOPE_8(n + 24)
// d = a b + (accumulate ? d : 0), a: 64 x 16, b: 16 x kN. Rows of an operand's tile run along k; with kAcross* along m or n.
template <int kN, int kAcrossA, int kAcrossB>
__device__ __forceinline__ void wgmma_64xNx16(float (&d)[kN / 2], uint64_t a, uint64_t b, int accumulate) {
  static_assert(kN == 128 || kN == 192);
  if constexpr (kN == 128)
    asm volatile(
        "{\n .reg .pred p;\n setp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "
        "%25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, %64, %65, p, 1, 1, %67, %68;\n}"
        : STEPSCOPE_32(0), STEPSCOPE_32(32)
        : "l"(a), "l"(b), "r"(accumulate), "n"(kAcrossA), "n"(kAcrossB));
  else
    asm volatile(
        "{\n .reg .pred p;\n setp.ne.b32 p, %98, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "
        "%25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, "
        "%71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, "
        "%94, %95"
        "}, %96, %97, p, 1, 1, %99, %100;\n}"
        : STEPSCOPE_32(0), STEPSCOPE_32(32), STEPSCOPE_32(64)
        : "l"(a), "l"(b), "r"(accumulate), "n"(kAcrossA), "n"(kAcrossB));
}
// d = a b + (accumulate ? d : 0) with 64 columns, a: 64 x 16 from registers: the fragments of mma.m16n8k16, 16 rows for each warp.
template <int kAcrossB>
__device__ __forceinline__ void wgmma_64x64x16(float (&d)[32], const uint32_t (&a)[4], uint64_t b, int accumulate) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "
      "%25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}"
      : STEPSCOPE_32(0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kAcrossB));
}
// The same with a from shared memory, whose rows run along k.
template <int kAcrossB>
__device__ __forceinline__ void wgmma_64x64x16(float (&d)[32], uint64_t a, uint64_t b, int accumulate) {
  asm volatile(
      "{\n .reg .pred p;\n setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, "
      "%25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, %35;\n}"
      : STEPSCOPE_32(0)
      : "l"(a), "l"(b), "r"(accumulate), "n"(kAcrossB));
}
#undef STEPSCOPE_32
#undef STEPSCOPE_8
// After the wait for the products that write d: the compiler knows nothing of that wait and may read d before it.
template <int N>
__device__ __forceinline__ void settle(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

template <int N>
__device__ __forceinline__ void registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ __forceinline__ void registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// Four 8 x 8 matrices of 16 bits, one row address per lane.
__device__ __forceinline__ void store_matrices(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}
// The same four matrices back.
__device__ __forceinline__ void load_matrices(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
// A barrier of `threads` threads by number: waits for all of them.
__device__ __forceinline__ void named_sync(int name, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory"); }

#endif  // __CUDACC__

}  // namespace hopper

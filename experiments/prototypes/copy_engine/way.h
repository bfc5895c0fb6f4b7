// One way of moving gradients and weights between two ranks.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <string>

#include "experiments/prototypes/copy_engine/pair.h"

namespace copy_engine {

inline constexpr int64_t kMostElements = 62'238'720;  // fp32, 249 MB: as many bytes as all weights of d12 in bf16

// Everything is queued on a stream. `elements` of a call are those of the whole array, an even number, of which rank r owns half r.
class Way {
 public:
  virtual ~Way() = default;
  virtual float* gradients() = 0;  // kMostElements, and so has weights()
  virtual float* weights() = 0;
  // After both, in this order, this rank's half of gradients() holds the sum over ranks. `sum` does nothing where `exchange` adds.
  virtual void exchange(int64_t elements, cudaStream_t stream) = 0;
  virtual void sum(int64_t elements, cudaStream_t stream) = 0;
  // In place: afterwards weights() has the halves of both.
  virtual void gather(int64_t elements, cudaStream_t stream) = 0;
  // The other rank's weights() where kernels may store into them, else null.
  virtual float* their_weights() { return nullptr; }
};

// NCCL's reduce-scatter and all-gather with at most `ctas` thread blocks (0: what it chooses).
std::unique_ptr<Way> make_nccl_kernels(Pair& pair, int ctas);
// The same on symmetric windows, for which NCCL has kernels that read the other GPU's memory directly.
std::unique_ptr<Way> make_nccl_windows(Pair& pair);
// NCCL's all-to-all and all-gather on symmetric windows with NCCL_CTA_POLICY_ZERO, then a sum.
std::unique_ptr<Way> make_nccl_copies(Pair& pair);

enum class Flags { by_stream, by_kernel };
// cudaMemcpyAsync into the other process's memory, cut into `copies` at the same time; ranks wait for each other by values in memory that
// the streams themselves write and wait for, or by a kernel of one thread.
std::unique_ptr<Way> make_peer_copies(Pair& pair, Flags flags, int copies);

}  // namespace copy_engine

// What ranks on GPUs of one host do beside copies: wait for each other, and add what the others brought.
#pragma once
#include <cuda_runtime.h>

#include <array>
#include <cstdint>

#include "gpt2/distributed/communicator.h"
#include "gpt2/distributed/peer_limit.h"

namespace gpt2::distributed {

inline constexpr int kFlagStride = 32;  // words: flags lie in lines of their own

// Device memory. A meet counts `generation` up, writes it to this rank's flag on every other rank and waits until the others have written
// as much to theirs here. All words are zero before the first meet. The number lives on the device, so a meet captured in a graph is
// another one in every replay.
struct Meeting {
  std::array<uint32_t*, kMostPeers> theirs{};  // [rank] this rank's flag in that rank's window
  uint32_t* flags = nullptr;                   // own window: the flag of rank r at r * kFlagStride
  uint32_t* generation = nullptr;
  const uint32_t* aborted = nullptr;  // host memory: once it is not 0, no meet waits any more
  int rank = 0, ranks = 1;
};
void meet(const Meeting& meeting, cudaStream_t stream);

// own = ((r0 + r1) + r2) + … over the ranks, of which the part of rank `rank` stands in `own` and the others, `stride` bytes apart, in
// `parts`. bf16 is added in fp32 and rounded once. Both begin at a multiple of the element, and faster at one of 16 bytes.
void add_parts(Element type, void* own, const void* parts, int64_t stride, int64_t elements, int rank, int ranks, cudaStream_t stream);

}  // namespace gpt2::distributed

// Without NCCL: memory of cudaMalloc that the other process opens, copies into it, and flags.
#include <cuda.h>
#include <fmt/format.h>

#include <array>
#include <vector>

#include "base/errors.h"
#include "experiments/prototypes/copy_engine/kernels.h"
#include "experiments/prototypes/copy_engine/way.h"
#include "experiments/prototypes/copy_engine/work.h"
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/cuda/driver_function.h"

namespace copy_engine {
namespace {

using BatchMemOp = CUresult(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);

BatchMemOp* batch_mem_op() {
  const auto found = gpt2::cuda::driver_function<BatchMemOp>("cuStreamBatchMemOp");
  if (found == nullptr) throw stepscope::MachineError("the driver has no cuStreamBatchMemOp");
  return found;
}

class PeerCopies final : public Way {
 public:
  PeerCopies(Pair& pair, Flags flags, int copies)
      : flags_(flags), rank_(pair.rank()), mem_op_(batch_mem_op()), beside_(static_cast<size_t>(copies - 1)), fences_(beside_.size() * 2) {
    STEPSCOPE_CUDA_CHECK(cudaMemset(own_.data(), 0, static_cast<size_t>(own_.bytes())));
    STEPSCOPE_CUDA_CHECK(cudaDeviceSynchronize());
    // One allocation and one handle: a handle of a small allocation opens the block that it lies in.
    cudaIpcMemHandle_t mine{};
    STEPSCOPE_CUDA_CHECK(cudaIpcGetMemHandle(&mine, own_.data()));
    const cudaIpcMemHandle_t theirs = pair.swap(mine);
    void* opened = nullptr;
    STEPSCOPE_CUDA_CHECK(cudaIpcOpenMemHandle(&opened, theirs, cudaIpcMemLazyEnablePeerAccess));
    theirs_ = static_cast<float*>(opened);
    pair.meet();
  }
  float* gradients() override { return own_.data(); }
  float* weights() override { return own_.data() + kWeights; }
  void exchange(int64_t elements, cudaStream_t stream) override {
    const int64_t half = elements / kRanks;
    push(theirs_ + kReceived, gradients() + (1 - rank_) * half, half, stream);
  }
  void sum(int64_t elements, cudaStream_t stream) override {
    const int64_t half = elements / kRanks;
    add(gradients() + rank_ * half, own_.data() + kReceived, half, stream);
  }
  void gather(int64_t elements, cudaStream_t stream) override {
    const int64_t half = elements / kRanks;
    push(theirs_ + kWeights + rank_ * half, weights() + rank_ * half, half, stream);
  }
  float* their_weights() override { return theirs_ + kWeights; }

 private:
  // In floats from the begin of the allocation of either rank.
  static constexpr int64_t kWeights = kMostElements, kReceived = 2 * kMostElements, kFlags = 3 * kMostElements, kAll = kFlags + 1024;

  // The other rank may be written to (its last use of that memory is over), and has been.
  void push(float* to, const float* from, int64_t elements, cudaStream_t stream) {
    meet(0, stream);
    const auto pieces = static_cast<int64_t>(beside_.size()) + 1, each = elements / pieces;
    for (int64_t p = 0; p < pieces; ++p) {
      const cudaStream_t on = p == 0 ? stream : beside_[static_cast<size_t>(p - 1)].get();
      if (p > 0) fences_[static_cast<size_t>(p - 1)].order(stream, on);
    }
    for (int64_t p = 0; p < pieces; ++p) {
      const cudaStream_t on = p == 0 ? stream : beside_[static_cast<size_t>(p - 1)].get();
      const int64_t count = p + 1 == pieces ? elements - p * each : each;
      STEPSCOPE_CUDA_CHECK(
          cudaMemcpyAsync(to + p * each, from + p * each, static_cast<size_t>(count) * sizeof(float), cudaMemcpyDeviceToDevice, on));
    }
    for (int64_t p = 1; p < pieces; ++p)
      fences_[beside_.size() + static_cast<size_t>(p - 1)].order(beside_[static_cast<size_t>(p - 1)].get(), stream);
    meet(1, stream);
  }

  // Two flags in turn: whoever sets one again has seen the other, which was set after the first was cleared. They are zero between calls,
  // so the same values serve every replay of a graph.
  void meet(int which, cudaStream_t stream) {
    auto* theirs = reinterpret_cast<unsigned*>(theirs_ + kFlags) + which * 32;
    auto* mine = reinterpret_cast<unsigned*>(own_.data() + kFlags) + which * 32;
    if (flags_ == Flags::by_kernel) return meet_by_kernel(theirs, mine, stream);
    const auto write = [&](unsigned* at, unsigned value) {
      CUstreamBatchMemOpParams p{};
      p.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
      p.writeValue.address = reinterpret_cast<CUdeviceptr>(at);
      p.writeValue.value = value;
      p.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
      return p;
    };
    CUstreamBatchMemOpParams wait{};
    wait.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    wait.waitValue.address = reinterpret_cast<CUdeviceptr>(mine);
    wait.waitValue.value = 1;
    wait.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    std::array<CUstreamBatchMemOpParams, 3> all{write(theirs, 1), wait, write(mine, 0)};
    const CUresult status = mem_op_(stream, static_cast<unsigned>(all.size()), all.data(), 0);
    if (status != CUDA_SUCCESS) throw stepscope::MachineError(fmt::format("cuStreamBatchMemOp: error {}", static_cast<int>(status)));
  }

  Flags flags_;
  int rank_;
  BatchMemOp* mem_op_;
  std::vector<gpt2::cuda::Stream> beside_;
  std::vector<gpt2::cuda::Fence> fences_;
  gpt2::cuda::DeviceBuffer<float> own_{kAll};
  float* theirs_ = nullptr;
};

}  // namespace

std::unique_ptr<Way> make_peer_copies(Pair& pair, Flags flags, int copies) { return std::make_unique<PeerCopies>(pair, flags, copies); }

}  // namespace copy_engine

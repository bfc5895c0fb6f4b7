// Collectives on device memory through a communicator of host memory: copy down, let the ranks sum or gather, copy up. Slow and exact: for
// ranks that share one GPU, for machines without NCCL, and for steps whose kernels are counted, since no kernel waits for another rank.
#pragma once
#include "gpt2/cuda/device_buffer.h"
#include "gpt2/distributed/communicator.h"

namespace gpt2::distributed {

class DeviceStaged final : public Communicator {
 public:
  explicit DeviceStaged(Communicator& host);  // outlives this

  const World& world() const override { return host_.world(); }
  // Waits for `stream`, then for the other ranks.
  void enqueue(const Collective& collective, void* data, void* stream) override;
  bool memory_is_host() const override { return false; }
  bool is_asynchronous() const override { return false; }
  std::string name() const override { return host_.name(); }
  std::optional<Failure> failure() override { return host_.failure(); }
  void abort() noexcept override { host_.abort(); }

 private:
  Communicator& host_;
  cuda::PinnedBuffer<unsigned char> buffer_;
};

}  // namespace gpt2::distributed

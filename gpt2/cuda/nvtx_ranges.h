// Turns the model's ranges into NVTX ranges of our own domain "stepscope": "step" around each step, inside it the leaf
// "PASS/LAYER/OP". Joined by '/', the open ranges of a launch spell step/PASS/LAYER/OP, which is what attribution reads.
// The leaf is ONE range whose text holds slashes, not three nested ones.
// Without a tool attached a push costs a few nanoseconds.
#pragma once
#include <cstdint>
#include <memory>

#include "gpt2/op_range.h"

namespace gpt2::cuda {

// Use from one host thread (NVTX stacks are per thread, and so is the table of registered texts).
class NvtxRanges final : public RangeListener {
 public:
  NvtxRanges();
  ~NvtxRanges() override;
  NvtxRanges(const NvtxRanges&) = delete;
  NvtxRanges& operator=(const NvtxRanges&) = delete;

  void begin_step(int64_t step) override;
  void end_step(int64_t step) override;
  void begin_op(Pass pass, int layer, Op op) override;
  void end_op(Pass pass, int layer, Op op) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpt2::cuda

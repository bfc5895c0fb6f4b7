// Work of one kind, to be repeated: what a byte, a FLOP and a GPU that only stays awake cost in joules.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <string>

namespace energy {

// One thread that waits for so long by the GPU's own clock, on an otherwise idle device.
void queue_spin(double seconds, cudaStream_t stream);

// Device memory to device memory, far more than L2 holds: at most 2 GiB, at most a quarter of the free memory. Throws
// stepscope::MachineError without memory.
class CopyProbe {
 public:
  CopyProbe();
  ~CopyProbe();
  CopyProbe(const CopyProbe&) = delete;
  CopyProbe& operator=(const CopyProbe&) = delete;
  void queue(cudaStream_t stream) const;
  double bytes() const;  // read and written by one copy

 private:
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
};

// A square product at the run's rate ("fp32", "tf32", "bf16") on random operands, as profiler/ceilings measures it.
class ProductProbe {
 public:
  explicit ProductProbe(const std::string& matmul);
  ~ProductProbe();
  ProductProbe(const ProductProbe&) = delete;
  ProductProbe& operator=(const ProductProbe&) = delete;
  void queue(cudaStream_t stream) const;
  double flops() const;
  double bytes() const;  // each operand read and the result written once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace energy

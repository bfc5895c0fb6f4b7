// Something queued on a stream and one beside it, as a CUDA graph where it can be captured, with the times at which both ended.
#pragma once
#include <cuda_runtime.h>

#include <functional>
#include <string>

#include "experiments/prototypes/copy_engine/pair.h"
#include "gpt2/cuda/device_buffer.h"

namespace copy_engine {

struct Streams {
  gpt2::cuda::Stream main;
  gpt2::cuda::Stream beside = gpt2::cuda::Stream::highest_priority();
};

using Queue = std::function<void(cudaStream_t)>;

class Work {
 public:
  // `main` and `beside` queue their parts (null: none) and start together. Throws where a capture fails; nothing runs yet.
  Work(const Streams& streams, Queue main, Queue beside, bool captured);
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  void run();  // and waits; stepscope::MachineError after 5 s, because the other rank may never come
  struct Times {
    double main_ms = 0, beside_ms = 0;  // from the start of both
  };
  // Medians of `runs`; both ranks begin each together.
  Times time(Pair& pair, int runs);
  // "3 kernels, 2 copies, 4 memory operations": what the graph holds; "" without one.
  std::string nodes() const;

 private:
  void queue(bool captured);
  void capture();
  Times times() const;

  const Streams& streams_;
  Queue main_, beside_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
  gpt2::cuda::Event begin_, main_end_, beside_end_;
  gpt2::cuda::Fence fork_, join_;
};

}  // namespace copy_engine

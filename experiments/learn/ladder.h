// The ladders of docs/learn: for an op, the rungs below the trainer's own variants, in the order in which the chapter climbs them. A rung
// is launched on the tensors of an op case (experiments/gate/op_case.h) of the fp32 trainer, so the gate's oracle judges it like a variant.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/gate/op_case.h"

namespace learn {

// The sizes that a launch needs, read from the tensors of a case. What an op does not have is 1.
struct Sizes {
  int64_t rows = 1, C = 1;       // layernorm
  int64_t in = 1, out = 1;       // linear, with `rows`
  int64_t B = 1, T = 1, NH = 1;  // attention, with C
  int64_t V = 1, Vp = 1;         // classifier, with `rows`
  bool bias = true;              // linear
};
// `vocab_size`: V of the model, which no tensor tells. Throws std::logic_error for an op without a ladder.
Sizes sizes_of(const gate::OpCase& c, int64_t vocab_size);

// How a chapter predicts the time of a rung before anybody runs it: the longest of three times.
struct Prediction {
  double bytes = 0;       // through DRAM, at the measured copy bandwidth
  double wavefronts = 0;  // of loads and stores between registers and L1 or shared memory, at one for each SM and cycle
  double flops = 0;       // outside of tensor cores, at the measured rate of fp32 products
};
struct Machine {
  double copy_bytes_per_s = 0, fp32_flops_per_s = 0, sm_count = 0, clock_hz = 0;
};
double predicted_ns(const Prediction& p, const Machine& m);

struct Rung {
  std::string op, name, idea;
  std::function<Prediction(const Sizes&)> predict;
  std::function<void(const Sizes&, std::span<void* const> pointers, cudaStream_t)> launch;
  bool teaches_an_error = false;  // the gate must refuse it
};

// The rungs of an op in their order; empty for an op without a ladder.
std::vector<Rung> ladder_of(std::string_view op);
std::vector<std::string> ops_with_a_ladder();

// A reader's own solution as one more rung, named "yours": the function OP with the signature of rungs.h and C linkage in a CUDA source
// file, compiled by `nvcc` for the device here and loaded. Its predicted time is not known. Throws stepscope::InputError when the file
// does not compile or lacks the function, stepscope::MachineError without nvcc. The library stays loaded as long as the rung lives.
// The compiler is $CUDACXX, a path or a name of the PATH, else nvcc.
Rung solution(std::string_view op, const std::string& file);

// Throws stepscope::InputError where there is no such file; needs no device.
void require_source(const std::string& file);

}  // namespace learn

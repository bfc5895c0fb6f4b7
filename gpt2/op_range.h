// The only place where a range is opened. A listener hears every range: the NVTX one (gpt2/cuda/nvtx_ranges.h) for the GPU
// trainers, a recording one for the CPU reference, none for a plain run. One listener per process, set before training.
#pragma once
#include <cstdint>

#include "gpt2/ops.h"

namespace gpt2 {

class RangeListener {
 public:
  virtual ~RangeListener() = default;
  virtual void begin_step(int64_t step) = 0;
  virtual void end_step(int64_t step) = 0;
  virtual void begin_op(Pass pass, int layer, Op op) = 0;
  virtual void end_op(Pass pass, int layer, Op op) = 0;
};

// nullptr: nobody listens. The listener must outlive all ranges.
void set_range_listener(RangeListener* listener);
RangeListener* range_listener();

// While one lives, nobody listens: for work that is no part of any step.
class ListenerPause {
 public:
  ListenerPause() : listener_(range_listener()) { set_range_listener(nullptr); }
  ~ListenerPause() { set_range_listener(listener_); }
  ListenerPause(const ListenerPause&) = delete;
  ListenerPause& operator=(const ListenerPause&) = delete;

 private:
  RangeListener* listener_;
};

// Scoped; neither copied nor moved nor allocated, so that ranges nest as the braces do.
class StepRange {
 public:
  explicit StepRange(int64_t step) : step_(step) {
    if (auto* l = range_listener()) l->begin_step(step_);
  }
  ~StepRange() {
    if (auto* l = range_listener()) l->end_step(step_);
  }
  StepRange(const StepRange&) = delete;
  StepRange& operator=(const StepRange&) = delete;
  static void* operator new(std::size_t) = delete;

 private:
  int64_t step_;
};

class OpRange {
 public:
  OpRange(Pass pass, int layer, Op op) : pass_(pass), op_(op), layer_(layer) {
    if (auto* l = range_listener()) l->begin_op(pass_, layer_, op_);
  }
  ~OpRange() {
    if (auto* l = range_listener()) l->end_op(pass_, layer_, op_);
  }
  OpRange(const OpRange&) = delete;
  OpRange& operator=(const OpRange&) = delete;
  static void* operator new(std::size_t) = delete;

 private:
  Pass pass_;
  Op op_;
  int layer_;
};

}  // namespace gpt2

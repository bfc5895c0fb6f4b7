// The run that tests of the training loop give to a toy trainer.
#pragma once
#include "gpt2/train_loop.h"

namespace gpt2::testing {

inline LoopOptions loop_options(int64_t steps) {
  LoopOptions o;
  o.data = {"synthetic"};
  o.steps = steps;
  o.learning_rate = {"cosine", 1e-2f, 3, 0.1f, 12};
  return o;
}

}  // namespace gpt2::testing

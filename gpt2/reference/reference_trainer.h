// The "reference" trainer: ReferenceModel<float> behind gpt2/trainer.h. It trains where there is no GPU, and
// it is what the gate, the loop and the profile are tested with.
#pragma once
#include <memory>

#include "gpt2/trainer.h"

namespace gpt2 {

// Parameters, gradients and optimizer state are zero until written. `options.matmul` and `options.variants`
// offer no choice here: throws stepscope::InputError for anything but "fp32" and none, and for what
// ReferenceModel refuses. enqueue_step computes the whole step before it returns; throws
// stepscope::InputError for tokens outside the vocabulary, and then leaves parameters and optimizer state as
// they were.
std::unique_ptr<Trainer> make_reference_trainer(const TrainerOptions& options);

// "CPU, 2 threads": what a reference trainer of this process says that it runs on.
std::string reference_device();

}  // namespace gpt2

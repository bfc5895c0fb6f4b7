// The mixed trainer as a CPU can play it: fp32 masters, weights rounded to bf16 (nearest or at random), activations and
// their gradients stored in bf16, the residual stream in fp32, moments rounded to 16 bits at random unless the variant moments=fp32 is asked for, gradients of the blocks' matrices in bf16 by default, which gives way to fp32
// where a step has several micro-batches. Right unless a mistake is chosen.
#pragma once
#include "experiments/gate/model_gate.h"

namespace gate_test {

enum class RoundingMistake {
  none,
  weights_cut_off,           // towards zero instead of to the nearest
  weights_from_old_masters,  // one step behind
  always_up,                 // "stochastic" rounding that never goes down
  two_steps_off,             // to a neighbour of a neighbour
  activations_in_5_bits,     // stored in far less than bf16
  scale_from_last_norm,      // clipping by the norm of the step before
  bf16_arena_not_normed,     // the norm leaves the gradients in bf16 out
  first_micro_batch_lost,    // its gradients are written over
  gradients_in_3_bits,       // of the blocks' matrices, where they are stored in bf16
  seed_of_8_bits,            // "stochastic" rounding draws the same bits every 256 steps
  moments_cut_off,           // to 16 bits, towards zero
  moments_to_nearest,        // to 16 bits, and not at random
  moment_seed_of_8_bits,     // moments draw the same bits every 256 steps
  two_weights_one_draw,      // "stochastic" rounding of neighbours by the same bits
  eight_moments_one_byte,    // eight elements that lie together are rounded with one byte
  low_byte_of_v_lost,        // v is rounded to its upper half
  bytes_swapped_at_the_end,  // the last elements have the lower byte of v behind the upper half of m, and the other way round
  update_of_unrounded,       // parameters move by moments that nobody stores
  split_although_fp32,       // moments have 16 bits where fp32 was asked for
  left_out_keeps_weights,    // a step whose update is left out leaves the weights as the step before rounded them
  gradient_stream_8_bits,    // the residual stream's gradient is stored in bf16
  written_is_to_nearest,     // masters that were written are not rounded at random before the step that comes
};

gate::TrainerFactory rounded(RoundingMistake mistake = RoundingMistake::none);

}  // namespace gate_test

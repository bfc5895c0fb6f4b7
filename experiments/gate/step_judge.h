// One optimizer step held against two judges. Against arithmetic: norm, clipping, moments, parameters and weights
// follow from the trainer's own gradients and from the state before the step; each element may be off by as many
// roundings as the formula has, and no more. Against the oracle: the gradients themselves, computed from the weights
// that this trainer multiplied with.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "experiments/gate/budgets.h"
#include "experiments/gate/expected.h"
#include "experiments/gate/moment_bits.h"
#include "experiments/gate/report.h"
#include "experiments/gate/workload.h"
#include "gpt2/trainer.h"

namespace gate {

// How the weights follow from the parameters.
enum class WeightRounding { none, nearest, stochastic };  // none: they are the parameters

// All that a step took and left.
struct StepTaken {
  Case c;
  int64_t t = 1;
  gpt2::AdamW adamw;
  std::vector<Tokens> tokens;                                               // one micro-batch each
  std::vector<float> weights;                                               // that it multiplied with
  std::vector<float> parameters, m, v;                                      // before
  std::vector<float> new_parameters, new_m, new_v, new_weights, gradients;  // after
  gpt2::StepOutcome outcome;
};

// Names of the results. An empty one is not checked.
struct StepNames {
  std::string norm, m, v, update, weights;  // arithmetic
  std::string loss, grad_norm, gradients;   // the oracle
  std::string detail;                       // of all results
};

// How many roundings in fp32 of each an element may be off; the formulas have 6, 9 and 8, in whatever order they are done.
inline constexpr double kRoundingsOfM = 8, kRoundingsOfV = 16, kRoundingsOfUpdate = 16;
// Moments that are stored with fewer bits: the means of their roundings in the same units, as a share of the distance of neighbours of
// `bits` significant bits, are no further from 0 than all these roundings in one direction, and kBiasOfRounding deviations.
inline constexpr double share_of_arithmetic(double roundings, int bits) { return roundings / static_cast<double>(1 << (24 - bits)); }
// Of the norm of the trainer's own gradients. Both trainers add in double; a tree of fp32 sums would do.
inline constexpr double kNormOfOwnGradients = 1e-6;
// Deviations that the mean of stochastic rounding may be from no bias: 2e-9 by chance.
inline constexpr double kBiasOfRounding = 6;

// moment_bits: moment_bits_of the trainer. An element of moments with fewer bits than fp32 may be off by the distance to either neighbour,
// beside the roundings of the formula.
std::vector<CheckResult> judge_arithmetic(const StepTaken& step, const StepNames& names, WeightRounding rounding,
                                          const MomentBits& moment_bits);
std::vector<CheckResult> judge_against_oracle(const StepTaken& step, const StepNames& names, const Expected& expected,
                                              const ModelBudgets& budgets);

// Loss of a batch against the loss of the trainer's own logits: in units of size_of_logits, which is that of what is subtracted.
// `rounded_after_loss`: Trainer::logits_rounded_after_loss.
CheckResult loss_of_own_logits(const std::string& name, const std::string& tensor, double loss, std::span<const float> logits,
                               std::span<const int32_t> targets, int64_t vocab_size, double rounded_after_loss = 0);
double size_of_logits(std::span<const float> logits, int64_t vocab_size);
// What rounding logits afterwards may move the mean loss of so many tokens, in these units: the target's logit and the logarithm of the sum by
// the whole rounding at worst, and the mean of many independent ones by four of their deviations. No trainer is granted more than bf16's.
double moved_by_rounding(double rounded_after_loss, int64_t tokens);

// bf16 as fp32: the nearest, ties to even; and whether `weight` is one of the two neighbours of `parameter`.
float nearest_bf16(float x);
bool is_bf16_neighbour(float weight, float parameter);
// The weights that follow from the parameters without chance.
std::vector<float> rounded_weights(std::span<const float> parameters, WeightRounding rounding);

}  // namespace gate

// What a right trainer computes, and how far a right trainer may be from it: the double-precision oracle's answer,
// and the same oracle once more for each of a few draws of the roundings that the trainer's storage makes. An error
// is then measured against the errors of those draws on the very same weights and tokens. So a budget needs no
// seed, no device and no calibration: inputs on which a precision loses much get much, others little.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/gate/budgets.h"
#include "experiments/gate/metrics.h"
#include "experiments/gate/moment_bits.h"
#include "experiments/gate/report.h"
#include "experiments/gate/workload.h"
#include "gpt2/trainer.h"

namespace gate {

// Significant bits (the leading one counted) of what a trainer stores; 0: nothing is rounded.
struct Storage {
  int activation_bits = 0;
  int stream_bits = 0;        // of the residual stream and its gradient
  int weight_bits = 0;        // of the weights as a matrix product takes them, beyond how they are stored
  int gradient_bits = 0;      // of the gradients of the blocks' matrices
  int wte_gradient_bits = 0;  // of wte's
  // How often an activation is rounded on its way to where it stays: twice where a product is stored before its bias comes to it. The draws
  // round once; so many independent roundings have so many times the variance.
  int roundings = 1;
  bool operator==(const Storage&) const = default;
};
// bf16 has 8, tf32 11. fp32 has 24, and one bit is given away for its sums, which are in fp32 too. A split value has 16: its lower byte puts
// 8 bits behind those of its upper half, which is a bf16 number.
// `variants`: those that run, where they are not the defaults (gpt2::Trainer::options()).
Storage storage_of(std::string_view trainer, std::string_view matmul, const std::map<std::string, std::string>& variants);

// The same of AdamW's moments.
MomentBits moment_bits_of(std::string_view trainer, const std::map<std::string, std::string>& variants);

// Root mean square over the draws of what compare() says of each.
struct Noise {
  double norm = 0, row = 0, column = 0;
};

struct Expected {
  double loss = 0, grad_norm = 0;
  std::vector<double> logits, gradients;  // logits of the last micro-batch; gradients their mean
  double token_loss_noise = 0;            // of one token of the last micro-batch, absolute
  Noise logits_noise;
  std::vector<Noise> gradients_noise;  // in the order of known_tensors()
};

// `weights`: those that the trainer multiplies with. Without gradients (forward_only) they stay empty.
Expected expect(const Case& c, std::span<const float> weights, std::span<const Tokens> tokens, const Storage& storage, int draws,
                bool with_gradients);

// The same, remembered by everything that it depends on: all variants of a trainer are asked about the same weights and
// tokens. Safe to use from several threads: who asks what is being computed waits for it. Memory: about 16 bytes per logit and gradient of
// every answer.
class ExpectedCache {
 public:
  // `folder`: answers are looked for there too, and kept there (kept_answers.h); empty: in memory alone.
  explicit ExpectedCache(std::filesystem::path folder = {}) : folder_(std::move(folder)) {}
  std::shared_ptr<const Expected> get(const Case& c, std::span<const float> weights, std::span<const Tokens> tokens, const Storage& storage,
                                      int draws, bool with_gradients);
  void clear();

 private:
  std::filesystem::path folder_;
  std::mutex mutex_;
  using Answer = std::shared_ptr<const Expected>;
  Answer find_or_compute(const std::array<uint64_t, 2>& key, const std::function<Expected()>& compute) const;
  std::map<std::array<uint64_t, 2>, std::shared_future<Answer>> known_;
};

// An error may be this many times that of the draws. They round to either neighbour, which has twice the variance of
// rounding to the nearest: so the variance of a trainer's error would have to be 12 times what its storage makes.
// For an error of d independent parts and two draws that is an F(d, 2d) variable beyond 12: d = 10 (no tensor of the
// gate's models has fewer) gives 3e-6, d = 20 1e-10.
inline constexpr double kNoiseFactor = 2.5;
// Where a few logits carry the whole error of a row or column: F(3, 6) is beyond 50 once in 10,000.
inline constexpr double kFewPartsFactor = 5;

// A row whose terms cancel loses more than the tensor does, and as much more of what sums round as of what the draws round. So where
// the draws' worst row is far worse than their norm, the floor of rows is higher too: twice as far above the tensor's, because the worst
// row of one draw is not that of another, nor that of a trainer. At most four times what slice_factor gives.
// (fp32, d12 at T = 1024: the worst of 27,648 rows of qkvw loses 11 times what the tensor loses in a draw of 23 bits and 9 in one of 20;
// an H200 had 2.16e-5 where 8 times a floor of 2e-6 were allowed, seed 840747842.)
inline constexpr double kUnlikeDraw = 2, kMostOfSlices = 4;

// What a sum in fp32 of so many independent terms of any sign loses when they are added one after another, relative to the sum, in the root
// mean square over many sums: a matrix product over a vocabulary of 50,257 as much as 4e-6 where another order loses 1e-6.
double lost_by_sum(int64_t terms);
// What every gradient of a pass over so many tokens may be off by, relative, for the sums of fp32 alone. `budget` (budgets.h) was calibrated on
// models whose longest sum has 1,280 terms; nearly all gradients come through a product over the vocabulary.
double gradient_floor(const gpt2::ModelConfig& config, int64_t tokens, double budget);

// Limits on a tensor: the noise factor on what the draws lost, and never below `floor` (what the sums lose that no
// draw rounds; budgets.h), which for rows and columns is slice_factor times as high, or as the draws say.
Tolerance limits_of(const Noise& noise, double floor, double slice_factor, double noise_factor = kNoiseFactor);
// On the mean loss of `tokens` tokens. Errors of tokens are not independent (all share the weights): they are taken
// to be nine times as correlated as independent ones, at six deviations.
double loss_limit(const Expected& e, int64_t tokens, double floor);
// On the norm of all gradients. No error of the norm is larger than the norm of the error, so what the tensors may
// be off by together bounds it: this can refuse nothing that the tensors' own limits do not refuse.
double grad_norm_limit(const gpt2::ModelConfig& config, const Expected& e, double floor, double slice_factor);

}  // namespace gate

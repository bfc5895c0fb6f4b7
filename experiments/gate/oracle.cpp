#include "experiments/gate/oracle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "experiments/gate/expected.h"
#include "experiments/gate/known_model.h"
#include "gpt2/reference/reference_model.h"

namespace gate {

using gpt2::State;

namespace {

uint64_t mixed_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Each value to one of its two neighbours of `bits` significant bits, up with the probability of what is cut off.
void round_at_random(std::span<double> values, int bits, uint64_t draw) {
  const uint64_t cut = (uint64_t{1} << (53 - bits)) - 1;
#pragma omp parallel for schedule(static)
  for (size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    const uint64_t random = mixed_bits(draw + (i + 1) * 0x9e3779b97f4a7c15ull);
    values[i] = std::bit_cast<double>((std::bit_cast<uint64_t>(values[i]) + (random & cut)) & ~cut);
  }
}

}  // namespace

Oracle::Oracle(const gpt2::ModelConfig& config, int64_t batch_size, int64_t seq_len)
    : model_(std::make_unique<gpt2::reference::ReferenceModel<double>>(config, batch_size, seq_len)) {}
Oracle::~Oracle() = default;

void Oracle::set(State which, std::span<const float> values) {
  if (which == State::gradients) throw std::logic_error("the oracle computes its gradients itself");
  const std::span<double> to = which == State::parameters ? model_->parameters()
                               : which == State::adam_m   ? model_->adam_m()
                                                          : model_->adam_v();
  if (to.size() != values.size()) throw std::logic_error("oracle: state of another model");
  std::copy(values.begin(), values.end(), to.begin());
  if (which == State::parameters && weight_bits_ > 0) round_at_random(to, weight_bits_, mixed_bits(draw_));
}

void Oracle::set_rounding(const Storage& storage, uint64_t draw) {
  weight_bits_ = storage.weight_bits;
  gradient_bits_ = storage.gradient_bits;
  wte_gradient_bits_ = storage.wte_gradient_bits;
  draw_ = draw;
  model_->set_storage([storage, calls = mixed_bits(draw << 32)](std::span<double> values, bool stream) mutable {
    const int bits = stream ? storage.stream_bits : storage.activation_bits;
    if (bits > 0) round_at_random(values, bits, calls = mixed_bits(calls + 0x9e3779b97f4a7c15ull));
  });
}

std::span<const double> Oracle::parameters() const { return model_->parameters(); }
std::span<const double> Oracle::gradients() const { return model_->gradients(); }
std::span<const double> Oracle::adam_m() const { return model_->adam_m(); }
std::span<const double> Oracle::adam_v() const { return model_->adam_v(); }
double Oracle::grad_norm() const {
  double sum = 0;
  for (double g : gradients()) sum += g * g;
  return std::sqrt(sum);
}

double Oracle::forward_backward(std::span<const gpt2::Batch> micro_batches) { return run(micro_batches, true); }
double Oracle::forward(std::span<const gpt2::Batch> micro_batches) { return run(micro_batches, false); }

double Oracle::run(std::span<const gpt2::Batch> micro_batches, bool with_gradients) {
  const auto rows = static_cast<size_t>(model_->batch_size() * model_->seq_len());
  const auto V = static_cast<size_t>(model_->config().vocab_size), Vp = static_cast<size_t>(model_->config().padded_vocab);
  const double share = 1.0 / static_cast<double>(micro_batches.size());
  double loss = 0;
  bool accumulate = false;
  const auto keep_logits = [&] {  // before the backward pass, which replaces them
    logits_.resize(rows * V);
    for (size_t r = 0; r < rows; ++r) {
      const auto from = model_->logits().subspan(r * Vp, V);
      std::copy(from.begin(), from.end(), logits_.begin() + static_cast<int64_t>(r * V));
    }
  };
  for (const gpt2::Batch& batch : micro_batches) {
    if (with_gradients) {
      loss += share * model_->forward_backward(batch, share, accumulate, keep_logits);
    } else {
      loss += share * model_->forward(batch);
      keep_logits();
    }
    accumulate = true;
  }
  if (with_gradients) round_gradients();
  return loss;
}

void Oracle::round_gradients() {
  for (const KnownTensor& t : known_tensors(model_->config())) {
    const bool of_block = t.name == "qkvw" || t.name == "attprojw" || t.name == "fcw" || t.name == "fcprojw";
    const int bits = of_block ? gradient_bits_ : t.name == "wte" ? wte_gradient_bits_ : 0;
    if (bits > 0)
      round_at_random(model_->gradients().subspan(static_cast<size_t>(t.offset), static_cast<size_t>(t.size())), bits,
                      mixed_bits(draw_ + static_cast<uint64_t>(t.offset)));
  }
}

gpt2::StepOutcome Oracle::step(const gpt2::StepPlan& plan) {
  gpt2::StepOutcome outcome;
  outcome.step = plan.step;
  outcome.loss = forward_backward(plan.micro_batches);
  outcome.grad_norm = grad_norm();
  const gpt2::AdamW& a = plan.adamw;
  const double clip = static_cast<double>(a.clip);
  const double scale = clip > 0 && outcome.grad_norm > clip ? clip / outcome.grad_norm : 1;
  known_adamw(model_->config(), model_->parameters(), model_->adam_m(), model_->adam_v(), gradients(), a, plan.step, scale);
  return outcome;
}

}  // namespace gate

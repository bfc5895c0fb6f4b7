#include "tests/gate/rounded_trainer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <memory>
#include <vector>

#include "base/counter_rng.h"
#include "base/errors.h"
#include "experiments/gate/moment_bits.h"
#include "experiments/gate/step_judge.h"
#include "gpt2/reference/reference_model.h"

namespace gate_test {
namespace {

class RoundedTrainer final : public gpt2::Trainer {
 public:
  RoundedTrainer(const gpt2::TrainerOptions& o, RoundingMistake mistake)
      : options_(o), mistake_(mistake), model_(o.model, o.batch_size, o.seq_len) {
    const std::string asked = o.variants.contains("weight_gradients") ? o.variants.at("weight_gradients") : "";
    if (asked == "bf16" && o.micro_batches > 1)
      throw stepscope::InputError("--variant weight_gradients=bf16 with --grad-accumulation: bf16 gradients do not add up");
    if (o.micro_batches > 1) options_.variants["weight_gradients"] = "fp32";
    const auto moments = options_.variants.find("moments");
    if (moments == options_.variants.end() || moments->second == "split" || mistake == RoundingMistake::split_although_fp32)
      moment_bits_ = gate::kSplitMoments;
    else if (moments->second == "16_bits")
      moment_bits_ = gate::kShortMoments;
    const int bits = mistake == RoundingMistake::activations_in_5_bits ? 5 : 8;
    model_.set_storage([this, bits](std::span<float> values, bool stream) {
      if (stream && !(mistake_ == RoundingMistake::gradient_stream_8_bits && backward_)) return;
      const uint32_t half = uint32_t{1} << (23 - bits), mask = (half << 1) - 1;
      for (float& x : values)
        if (std::isfinite(x)) x = std::bit_cast<float>((std::bit_cast<uint32_t>(x) + half) & ~mask);
    });
    for (std::vector<float>* v : {&masters_, &m_, &v_, &gradients_}) v->resize(static_cast<size_t>(gpt2::tensor_layout(o.model).total));
    round(0, false);
  }
  const gpt2::TrainerOptions& options() const override { return options_; }
  std::vector<std::string> notices() const override {
    if (bf16_gradients()) return {};
    return {"weight_gradients=fp32 runs, not the default bf16"};
  }
  std::string_view name() const override { return "mixed"; }
  std::string device() const override { return "CPU that plays bf16"; }
  std::vector<gpt2::MemoryItem> memory() const override { return {}; }

  void read(gpt2::State which, std::span<float> values) override {
    const std::vector<float>& from = state(which);
    std::copy(from.begin(), from.end(), values.begin());
  }
  void write(gpt2::State which, std::span<const float> values) override {
    state(which).assign(values.begin(), values.end());
    if (which == gpt2::State::adam_m)
      for (float& x : m_) x = to_nearest(x, moment_bits_.m);
    if (which == gpt2::State::adam_v)
      for (float& x : v_) x = to_nearest(x, moment_bits_.v);
    if (which != gpt2::State::parameters) return;
    round(0, false);
    written_ = true;
  }
  void read_weights(std::span<float> values) override { std::copy(weights_.begin(), weights_.end(), values.begin()); }

  void enqueue_step(const gpt2::StepPlan& plan) override {
    if (bf16_gradients() && plan.micro_batches.size() > 1) throw stepscope::InputError("bf16 gradients do not add up");
    const bool stochastic = options_.weight_rounding == "stochastic";
    if (written_ && stochastic && mistake_ != RoundingMistake::written_is_to_nearest) round(static_cast<uint64_t>(plan.step), true);
    written_ = false;
    gpt2::StepOutcome outcome;
    outcome.step = plan.step;
    const double share = 1.0 / static_cast<double>(plan.micro_batches.size());
    bool accumulate = false;
    for (const gpt2::Batch& b : plan.micro_batches) {
      outcome.loss += share * model_.forward_backward(b, share, accumulate, [this] { backward_ = true; });
      backward_ = false;
      accumulate = mistake_ != RoundingMistake::first_micro_batch_lost;
    }
    keep_gradients();
    double sum = 0;
    for (const float g : gradients_) sum += static_cast<double>(g) * static_cast<double>(g);
    if (mistake_ == RoundingMistake::bf16_arena_not_normed)
      in_blocks([&](float& g) { sum -= static_cast<double>(g) * static_cast<double>(g); });
    outcome.grad_norm = std::sqrt(sum);
    const double norm = mistake_ == RoundingMistake::scale_from_last_norm ? last_norm_ : outcome.grad_norm;
    last_norm_ = outcome.grad_norm;
    if (mistake_ == RoundingMistake::weights_from_old_masters) round(static_cast<uint64_t>(plan.step) + 1, stochastic);
    outcome.skipped = outcome.loss > plan.skip_above_loss || outcome.grad_norm > plan.skip_above_grad_norm;
    if (!outcome.skipped) update(plan, norm);
    const bool keeps = outcome.skipped && mistake_ == RoundingMistake::left_out_keeps_weights;
    if (mistake_ != RoundingMistake::weights_from_old_masters && !keeps) round(static_cast<uint64_t>(plan.step) + 1, stochastic);
    finished_.push_back(outcome);
  }
  gpt2::StepOutcome finish_step() override {
    const gpt2::StepOutcome o = finished_.front();
    finished_.pop_front();
    return o;
  }
  double evaluate(const gpt2::Batch& b, std::span<float> logits) override {
    const double loss = model_.forward(b);
    copy_logits(logits);
    return loss;
  }
  double forward_backward(const gpt2::Batch& b, std::span<float> logits) override {
    const double loss = model_.forward_backward(b, 1, false, [&] {
      copy_logits(logits);
      backward_ = true;
    });
    backward_ = false;
    keep_gradients();
    return loss;
  }

 private:
  std::vector<float>& state(gpt2::State which) {
    switch (which) {
      case gpt2::State::parameters:
        return masters_;
      case gpt2::State::gradients:
        return gradients_;
      case gpt2::State::adam_m:
        return m_;
      case gpt2::State::adam_v:
        return v_;
    }
    return masters_;
  }
  // To so many significant bits: by what lies below them and `random`, of which as many bits count.
  static float cut(float x, int bits, uint32_t random) {
    const uint32_t below = (uint32_t{1} << (gate::kFp32Bits - bits)) - 1;
    return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + (random & below)) & ~below);
  }
  static float to_nearest(float x, int bits) { return cut(x, bits, uint32_t{1} << (gate::kFp32Bits - bits) >> 1); }
  float at_random(float x, int bits, uint64_t seed, uint64_t i) const {
    if (mistake_ == RoundingMistake::moments_cut_off) return cut(x, bits, 0);
    if (mistake_ == RoundingMistake::moments_to_nearest) return to_nearest(x, bits);
    if (mistake_ == RoundingMistake::moment_seed_of_8_bits) seed &= 0x1ff;  // of two for each step
    if (mistake_ == RoundingMistake::eight_moments_one_byte) i /= 8;
    return cut(x, bits, static_cast<uint32_t>(gpt2::combine(seed, i)));
  }
  // The lower bytes of the last five elements of both change places.
  void swap_bytes() {
    for (size_t i = m_.size() - 5; i < m_.size(); ++i) {
      const auto m = std::bit_cast<uint32_t>(m_[i]), v = std::bit_cast<uint32_t>(v_[i]);
      m_[i] = std::bit_cast<float>((m & ~0xff00u) | (v & 0xff00u));
      v_[i] = std::bit_cast<float>((v & ~0xff00u) | (m & 0xff00u));
    }
  }
  void keep_gradients() {
    gradients_.assign(model_.gradients().begin(), model_.gradients().end());
    const uint32_t cut = mistake_ == RoundingMistake::gradients_in_3_bits ? 21 : 16, half = uint32_t{1} << (cut - 1);
    if (bf16_gradients()) in_blocks([&](float& g) { g = std::bit_cast<float>((std::bit_cast<uint32_t>(g) + half) >> cut << cut); });
  }
  bool bf16_gradients() const {
    const auto storage = options_.variants.find("weight_gradients");
    return storage == options_.variants.end() || storage->second == "bf16";
  }
  template <class Use>
  void in_blocks(const Use& use) {
    using gpt2::Tensor;
    const gpt2::TensorLayout layout = gpt2::tensor_layout(options_.model);
    for (const Tensor t : {Tensor::wte, Tensor::qkvw, Tensor::attprojw, Tensor::fcw, Tensor::fcprojw})
      for (int64_t i = layout[t].offset; i < layout[t].offset + layout[t].size; ++i) use(gradients_[static_cast<size_t>(i)]);
  }
  void copy_logits(std::span<float> logits) {
    if (logits.empty()) return;
    const auto V = static_cast<size_t>(options_.model.vocab_size), Vp = static_cast<size_t>(options_.model.padded_vocab);
    for (size_t row = 0; row < logits.size() / V; ++row)
      std::copy_n(model_.logits().begin() + static_cast<int64_t>(row * Vp), V, logits.begin() + static_cast<int64_t>(row * V));
  }
  void update(const gpt2::StepPlan& plan, double norm) {
    const gpt2::AdamW& a = plan.adamw;
    const float scale = a.clip > 0 && norm > static_cast<double>(a.clip) ? static_cast<float>(static_cast<double>(a.clip) / norm) : 1.0f;
    const double t = static_cast<double>(plan.step);
    const auto c1 = static_cast<float>(1 - std::pow(static_cast<double>(a.beta1), t));
    const auto c2 = static_cast<float>(1 - std::pow(static_cast<double>(a.beta2), t));
    const gpt2::TensorLayout layout = gpt2::tensor_layout(options_.model);
    for (const gpt2::TensorRow& row : gpt2::kTensorTable) {
      const float decay = row.decayed ? a.weight_decay : 0.0f;
      for (int64_t k = layout[row.id].offset; k < layout[row.id].offset + layout[row.id].size; ++k) {
        const auto i = static_cast<size_t>(k);
        const float g = gradients_[i] * scale;
        m_[i] = a.beta1 * m_[i] + (1.0f - a.beta1) * g;
        v_[i] = a.beta2 * v_[i] + (1.0f - a.beta2) * g * g;
        const float m = m_[i], v = v_[i];
        if (moment_bits_.at_random()) {
          const auto step = static_cast<uint64_t>(plan.step);
          m_[i] = at_random(m, moment_bits_.m, 2 * step, i);
          v_[i] = at_random(v, moment_bits_.v, 2 * step + 1, i);
          if (mistake_ == RoundingMistake::low_byte_of_v_lost)
            v_[i] = std::bit_cast<float>((std::bit_cast<uint32_t>(v) + 0x8000) & ~0xffffu);
        }
        const bool stored = mistake_ != RoundingMistake::update_of_unrounded;
        masters_[i] -=
            a.learning_rate * (((stored ? m_[i] : m) / c1) / (std::sqrt((stored ? v_[i] : v) / c2) + a.eps) + decay * masters_[i]);
      }
    }
    if (mistake_ == RoundingMistake::bytes_swapped_at_the_end) swap_bytes();
  }
  void round(uint64_t seed, bool at_random) {
    weights_.resize(masters_.size());
    if (mistake_ == RoundingMistake::seed_of_8_bits) seed &= 0xff;
    for (size_t i = 0; i < masters_.size(); ++i) {
      const uint32_t bits = std::bit_cast<uint32_t>(masters_[i]);
      const size_t draw = mistake_ == RoundingMistake::two_weights_one_draw ? i / 2 : i;
      uint32_t r = at_random ? static_cast<uint32_t>(gpt2::combine(seed, draw) & 0xffffu) : 0;
      if (mistake_ == RoundingMistake::always_up) r = 0xffffu;
      if (mistake_ == RoundingMistake::two_steps_off && i % 1000 == 3) r += 0x10000u;
      const bool cut = at_random || mistake_ == RoundingMistake::weights_cut_off || mistake_ == RoundingMistake::always_up;
      weights_[i] = cut ? std::bit_cast<float>((bits + r) & 0xffff0000u) : gate::nearest_bf16(masters_[i]);
    }
    model_.set_parameters(weights_);
  }

  gpt2::TrainerOptions options_;
  RoundingMistake mistake_;
  gpt2::reference::ReferenceModel<float> model_;
  std::vector<float> masters_, m_, v_, gradients_, weights_;
  std::deque<gpt2::StepOutcome> finished_;
  double last_norm_ = 0;
  gate::MomentBits moment_bits_;
  bool written_ = false;
  bool backward_ = false;  // the pass at hand goes backward
};

}  // namespace

gate::TrainerFactory rounded(RoundingMistake mistake) {
  return [mistake](const gpt2::TrainerOptions& o) { return std::make_unique<RoundedTrainer>(o, mistake); };
}

}  // namespace gate_test

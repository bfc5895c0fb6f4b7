// The twelve ways to pass wrongly that no kernel has but a harness may fall for, each a trainer that cheats
// so around the right one, with the check that must catch it. `cheats()` is the list; tests/bugs/table.tsv
// names each of them.
//
// Cheats of a device are played here by a device that a test makes up (FakeDevice): what a stream or a cache
// would do is what these hooks say. tests/bugs has the same cheats as patches for a real one.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "experiments/gate/model_gate.h"
#include "gpt2/reference/reference_trainer.h"
#include "gpt2/trainer.h"

namespace gate_test {

using Clock = std::chrono::steady_clock;

// A device of which one side stream may still work, whose last launch may have failed, and whose cache may be
// set aside. Its clock is made up too: a step takes 10 ms, and time passes only where somebody waits. So what the
// audit says of a cheat does not depend on how busy this machine is.
struct FakeDevice {
  Clock::time_point now = Clock::time_point(std::chrono::hours(1));
  Clock::time_point busy_until{}, thread_until{};  // of the side stream, and of a thread of the host
  double waited_for_cpu_ns = 0;                    // by the judge's thread
  void lose_the_cpu(std::chrono::milliseconds t) {
    now += t;
    waited_for_cpu_ns += std::chrono::duration<double, std::nano>(t).count();
  }
  void wait_until(Clock::time_point t) { now = std::max(now, t); }
  std::string launch_error;
  int64_t persisting_l2_bytes = 0;
  gate::DeviceHooks hooks{.wait_idle = [this] { wait_until(busy_until); },
                          .launch_error = [this] { return std::exchange(launch_error, ""); },
                          .persisting_l2_bytes = [this] { return persisting_l2_bytes; },
                          .now = [this] { return now; },
                          .other_thread_runs =
                              [this] {
                                if (now >= thread_until) return false;
                                now += std::chrono::milliseconds(1);
                                return true;
                              },
                          .waited_for_cpu_ns = [this] { return waited_for_cpu_ns; }};
  FakeDevice() = default;
  FakeDevice(const FakeDevice&) = delete;
};

// The right trainer behind every call; a cheat overrides the calls that it cheats in.
class Cheat : public gpt2::Trainer {
 public:
  Cheat(const gpt2::TrainerOptions& options, FakeDevice& device) : right_(gpt2::make_reference_trainer(options)), device_(device) {}
  const gpt2::TrainerOptions& options() const override { return right_->options(); }
  std::string_view name() const override { return right_->name(); }
  std::string device() const override { return right_->device(); }
  std::vector<gpt2::MemoryItem> memory() const override { return right_->memory(); }
  void read(gpt2::State which, std::span<float> values) override { right_->read(which, values); }
  void write(gpt2::State which, std::span<const float> values) override { right_->write(which, values); }
  void enqueue_step(const gpt2::StepPlan& plan) override { right_->enqueue_step(plan); }
  gpt2::StepOutcome finish_step() override {
    gpt2::StepOutcome o = right_->finish_step();
    device_.now += kStepTime;
    o.time_ns = std::chrono::duration<double, std::nano>(kStepTime).count();
    return o;
  }
  double evaluate(const gpt2::Batch& b, std::span<float> logits) override { return right_->evaluate(b, logits); }
  double forward_backward(const gpt2::Batch& b, std::span<float> logits) override { return right_->forward_backward(b, logits); }

 protected:
  static constexpr std::chrono::milliseconds kStepTime{10};
  std::unique_ptr<gpt2::Trainer> right_;
  FakeDevice& device_;
};

// Gradients of nothing.
struct Zeros : Cheat {
  using Cheat::Cheat;
  void read(gpt2::State which, std::span<float> values) override {
    Cheat::read(which, values);
    if (which == gpt2::State::gradients) std::fill(values.begin(), values.end(), 0.0f);
  }
};

// Logits that are all their mean, which is near the right ones where those hardly vary.
struct ConstantMean : Cheat {
  using Cheat::Cheat;
  double evaluate(const gpt2::Batch& b, std::span<float> logits) override { return flat(Cheat::evaluate(b, logits), logits); }
  double forward_backward(const gpt2::Batch& b, std::span<float> logits) override {
    return flat(Cheat::forward_backward(b, logits), logits);
  }
  static double flat(double loss, std::span<float> logits) {
    const double sum = std::accumulate(logits.begin(), logits.end(), 0.0);
    std::fill(logits.begin(), logits.end(), static_cast<float>(sum / static_cast<double>(std::max<size_t>(logits.size(), 1))));
    return loss;
  }
};

// What was computed for a shape once is handed out again for any tokens.
struct CachedOutput : Cheat {
  using Cheat::Cheat;
  void read(gpt2::State which, std::span<float> values) override {
    Cheat::read(which, values);
    if (which == gpt2::State::gradients && !gradients_.empty()) std::copy(gradients_.begin(), gradients_.end(), values.begin());
  }
  double forward_backward(const gpt2::Batch& b, std::span<float> logits) override {
    if (kept_.empty()) {
      loss_ = Cheat::forward_backward(b, logits);
      kept_.assign(logits.begin(), logits.end());
      gradients_.resize(static_cast<size_t>(gpt2::tensor_layout(options().model).total));
      Cheat::read(gpt2::State::gradients, gradients_);
    }
    std::copy_n(kept_.begin(), logits.size(), logits.begin());
    return loss_;
  }
  std::vector<float> kept_, gradients_;
  double loss_ = 0;
};

// The output buffer is not written: it holds what the call before left there.
struct PreviousOutput : Cheat {
  using Cheat::Cheat;
  double evaluate(const gpt2::Batch& b, std::span<float> logits) override {
    const double loss = Cheat::evaluate(b, logits);
    std::vector<float> now(logits.begin(), logits.end());
    if (now.size() == before_.size()) std::copy(before_.begin(), before_.end(), logits.begin());
    if (!now.empty()) before_ = std::move(now);
    return loss;
  }
  std::vector<float> before_;
};

// The step is called done while a stream that nobody waits for still updates.
struct SideStream : Cheat {
  using Cheat::Cheat;
  gpt2::StepOutcome finish_step() override {
    const gpt2::StepOutcome o = Cheat::finish_step();
    device_.busy_until = device_.now + std::chrono::milliseconds(40);
    return o;
  }
  void read(gpt2::State which, std::span<float> values) override {  // whoever looks, waits
    device_.hooks.wait_idle();
    Cheat::read(which, values);
  }
};

// The same with a thread of the host.
struct HostThread : Cheat {
  using Cheat::Cheat;
  gpt2::StepOutcome finish_step() override {
    device_.wait_until(device_.thread_until);
    const gpt2::StepOutcome o = Cheat::finish_step();
    device_.thread_until = device_.now + std::chrono::milliseconds(60);
    return o;
  }
  void read(gpt2::State which, std::span<float> values) override {
    device_.wait_until(device_.thread_until);
    Cheat::read(which, values);
  }
};

// Ten steps are right; from the eleventh on weights no longer decay, which no loss of a short run shows.
struct WrongAfterTen : Cheat {
  using Cheat::Cheat;
  void enqueue_step(const gpt2::StepPlan& plan) override {
    gpt2::StepPlan changed = plan;
    if (++calls_ > 10) changed.adamw.weight_decay = 0;
    Cheat::enqueue_step(changed);
  }
  int calls_ = 0;
};

// The targets that it was lent become the inputs, for whoever computes the expected loss from them
// afterwards.
struct InputOverwrite : Cheat {
  using Cheat::Cheat;
  double evaluate(const gpt2::Batch& b, std::span<float> logits) override {
    const double loss = Cheat::evaluate(b, logits);
    std::copy(b.inputs.begin(), b.inputs.end(), const_cast<int32_t*>(b.targets.data()));
    return loss;
  }
};

// Not a number equals nothing, and passes every judge that asks whether the error is too large.
struct NanWildcard : Cheat {
  using Cheat::Cheat;
  double evaluate(const gpt2::Batch& b, std::span<float> logits) override {
    Cheat::evaluate(b, logits);
    return nan(logits);
  }
  double forward_backward(const gpt2::Batch& b, std::span<float> logits) override {
    Cheat::forward_backward(b, logits);
    return nan(logits);
  }
  static double nan(std::span<float> logits) {
    std::fill(logits.begin(), logits.end(), std::numeric_limits<float>::quiet_NaN());
    return std::numeric_limits<double>::quiet_NaN();
  }
};

// Part of the cache is set aside for weights that a real run would have to fetch again.
struct PersistingL2 : Cheat {
  PersistingL2(const gpt2::TrainerOptions& o, FakeDevice& device) : Cheat(o, device) { device.persisting_l2_bytes = 1 << 20; }
};

// A launch of the backward pass fails; nobody asks, and what lies in memory passes for its result.
struct LaunchErrorIgnored : Cheat {
  using Cheat::Cheat;
  void enqueue_step(const gpt2::StepPlan& plan) override {
    Cheat::enqueue_step(plan);
    device_.launch_error = "invalid argument";
  }
};

// Steps that overlap without a look at the state are a run that is timed: after eight of them the warm-up
// must be over, and from there steps are left out. What is handed out is the last step's outcome.
struct ShorterRun : Cheat {
  using Cheat::Cheat;
  void read(gpt2::State which, std::span<float> values) override {
    overlapped_ = 0;
    Cheat::read(which, values);
  }
  void enqueue_step(const gpt2::StepPlan& plan) override {
    overlapped_ += !left_out_.empty();
    left_out_.push_back(overlapped_ > 8);
    if (!left_out_.back()) Cheat::enqueue_step(plan);
  }
  gpt2::StepOutcome finish_step() override {
    if (!left_out_.front()) last_ = Cheat::finish_step();
    left_out_.pop_front();
    return last_;
  }
  int overlapped_ = 0;
  std::deque<bool> left_out_;  // of the unfinished steps
  gpt2::StepOutcome last_;
};

// Beyond the twelve: the trainer reports a third of its time. Its steps last, so that a busy machine hides nothing.
struct TimerEdited : Cheat {
  using Cheat::Cheat;
  void enqueue_step(const gpt2::StepPlan& plan) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    Cheat::enqueue_step(plan);
  }
  gpt2::StepOutcome finish_step() override {
    gpt2::StepOutcome o = Cheat::finish_step();
    o.time_ns /= 3;
    return o;
  }
};

struct CheatCase {
  std::string name;   // as in tests/bugs/table.tsv
  std::string check;  // that must fail
  std::function<gate::TrainerFactory(FakeDevice&)> make;
};

template <class T>
gate::TrainerFactory cheating(FakeDevice& device) {
  return [&device](const gpt2::TrainerOptions& o) { return std::make_unique<T>(o, device); };
}

inline std::vector<CheatCase> cheats() {
  return {{"zeros", "gradients", cheating<Zeros>},
          {"constant mean", "forward", cheating<ConstantMean>},
          {"cached output", "fresh inputs", cheating<CachedOutput>},
          {"previous-output read", "causality", cheating<PreviousOutput>},
          {"side stream without sync", "late work", cheating<SideStream>},
          {"host thread", "late work", cheating<HostThread>},
          {"correct, then wrong after 10 calls", "timed steps", cheating<WrongAfterTen>},
          {"input overwrite", "inputs", cheating<InputOverwrite>},
          {"NaN as the judge's wildcard", "forward", cheating<NanWildcard>},
          {"persisting L2", "persisting L2", cheating<PersistingL2>},
          {"launch error ignored", "launch error", cheating<LaunchErrorIgnored>},
          {"shorter run when warm-up is detected", "timed steps", cheating<ShorterRun>}};
}

}  // namespace gate_test

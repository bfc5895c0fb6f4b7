// A GPU at its power cap, simulated: two kinds of arms on one device with one virtual clock. The model of
// docs/experiment-procedure.md ("Alone and in turns"): power P = P0 + leakage + D f^gamma, step time T = c / f + m, and a controller that
// lowers the SM clock when the mean power of the last `window_s` exceeds the limit (1) and raises it slowly. Fitted to step times recorded
// on an H200 (B=4); units are those of the steady state: clock 1, power 1.
#pragma once
#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "experiments/runner/alone_runner.h"

namespace experiments::simulation {

// `more` of the step's time is added work; `phi`: its dynamic power over the step's mean; `scaled`: how much of it follows the clock.
// `host`: of the step's time, spent waiting for the host when the device has just been woken by another arm's block.
struct Work {
  double more = 0, phi = 1, scaled = 0.5;
};

struct Model {
  double P0 = .25, D = .75, gamma = 1.4, kappa = .5, idle = .2, window_s = 1, gain = 8, up = .004, down = .01, eta = .6, low = .88,
         high = 1.02;
  double noise = .004, noise_s = .03, step_noise = .006, wander = .0008, process = .0008, leak = .0014, smooth = 6;
  double grid = 15. / 1815, fastest = 1980. / 1815;
  static Model slow() {  // a strong cycle of 1.5 s
    Model m;
    m.up = .005;
    m.down = .03;
    m.noise = .01;
    m.noise_s = .1;
    m.low = .75;
    m.high = 1.04;
    m.window_s = 1.5;
    return m;
  }
  static Model below_the_cap() {
    Model m;
    m.D = .5;
    return m;
  }
};

inline constexpr double kTick_s = .009;  // a step at clock 1, and of the controller

class Device {
 public:
  Device(const Model& m, uint64_t seed)
      : m_(m), random_(seed), ring_(static_cast<size_t>(m.window_s / kTick_s), 1.0), total_(static_cast<double>(ring_.size())) {}

  double seconds() const { return now_s_; }
  void idle(double s) {
    for (; s > 0; s -= kTick_s) tick(m_.idle);
    now_s_ += s > 0 ? s : 0;
  }
  // One step of an arm; its time in s.
  double step(const Work& w, double offset) {
    z_ = keep_ * z_ + m_.noise * std::sqrt(1 - keep_ * keep_) * normal();
    wander_ += m_.wander * std::sqrt(kTick_s) * normal();
    const double c = m_.kappa + w.more * w.scaled, m = 1 - m_.kappa + w.more * (1 - w.scaled),
                 D = m_.D * (1 + w.more * w.phi) / (1 + w.more);
    const double time = (c / clock_ + m) * std::exp(offset + m_.step_noise * normal());
    tick(m_.P0 + m_.leak * (warm_ + hot_) + D * std::pow(clock_, m_.gamma) * (1 + z_ + wander_), time * kTick_s);
    return time * kTick_s;
  }
  double process_offset() { return m_.process / std::sqrt(2.0) * normal() + drift_per_process * processes_++; }
  double clock() const { return clock_; }
  double drift_per_process = 0;

  // ln B / A: alone for long, and both at A's clock.
  double alone(const Work& b) const { return std::log(sustained(b) / sustained({})); }
  double at_one_clock(const Work& b) const {
    const double f = clock_of({});
    return std::log((m_.kappa + b.more * b.scaled) / f + 1 - m_.kappa + b.more * (1 - b.scaled)) - std::log(m_.kappa / f + 1 - m_.kappa);
  }
  // The amount of such work that costs `target` (ratio - 1) alone.
  Work costing(double target, double phi, double scaled) const {
    double low = -.05, high = .09;
    for (int i = 0; i < 60; ++i) {
      const double x = (low + high) / 2;
      (alone({x, phi, scaled}) < std::log1p(target) ? low : high) = x;
    }
    return {low, phi, scaled};
  }
  // Saves `more` at one clock and gives all of it back as clock.
  Work trap(double more) const {
    double low = -6, high = 9;
    for (int i = 0; i < 60; ++i) {
      const double phi = (low + high) / 2;
      // Less work: the more power it took, the more its absence saves.
      (alone({more, phi, .5}) > 0 ? low : high) = phi;
    }
    return {more, low, .5};
  }

 private:
  double normal() { return normal_(random_); }
  double clock_of(const Work& w) const {
    const double D = m_.D * (1 + w.more * w.phi) / (1 + w.more);
    return std::min(std::pow((1 - m_.P0) / D, 1 / m_.gamma), m_.fastest);
  }
  double sustained(const Work& w) const {
    const double f = clock_of(w);
    return (m_.kappa + w.more * w.scaled) / f + 1 - m_.kappa + w.more * (1 - w.scaled);
  }
  void tick(double P, double s = kTick_s) {
    now_s_ += s;
    warm_ += kTick_s / 3 * (6.25 * (P - 1) - warm_);
    hot_ += kTick_s / 20 * (6.25 * (P - 1) - hot_);
    total_ += P - ring_[at_];
    ring_[at_] = P;
    at_ = (at_ + 1) % ring_.size();
    power_ += (P - power_) / m_.smooth;
    const double want = std::clamp(1 + m_.gain * (1 - total_ / static_cast<double>(ring_.size())), m_.low, m_.high);
    f_ = std::clamp(f_ * (1 + std::clamp(m_.eta * (want / power_ - 1) / 1.4, -m_.down, m_.up)), .6, m_.fastest);
    clock_ = std::min(std::round(f_ / m_.grid) * m_.grid, m_.fastest);
  }

  Model m_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::vector<double> ring_;
  double total_, now_s_ = 1, warm_ = 0, hot_ = 0, f_ = 1, clock_ = 1, power_ = 1, z_ = 0, wander_ = 0;
  double keep_ = std::exp(-kTick_s / .03);
  size_t at_ = 0;
  int processes_ = 0;
};

inline Clock::time_point at(double s) { return Clock::time_point(std::chrono::nanoseconds(static_cast<int64_t>(s * 1e9))); }

class SimulatedArm : public Arm {
 public:
  SimulatedArm(Device& device, const Work& work) : device_(device), work_(work) {}
  void start() override { device_.idle(1.7); }
  void wait_ready(double) override { offset_ = device_.process_offset(); }
  BlockTimes block(int steps, double) override {
    BlockTimes out;
    for (int i = 0; i <= steps; ++i) {
      const double ns = device_.step(work_, offset_) * 1e9;
      if (i > 0) out.times_ns.push_back(ns);
    }
    out.last_loss = 4.5;
    return out;
  }
  Stretch stretch(const StretchRequest& q, double) override {
    Stretch out;
    out.began = at(device_.seconds());
    const auto take = [&](double s, int steps) {
      double sum = 0;
      for (int n = 0; n < steps || sum < s; ++n) {
        out.times_ns.push_back(device_.step(work_, offset_) * 1e9);
        sum += out.times_ns.back() * 1e-9;
      }
    };
    take(q.settle_s, q.settle_steps);
    take(q.measure_s, q.measure_steps);
    out.last_loss = 4.5;
    return out;
  }
  int steps_again(uint64_t, double) override { return 1; }
  bool keeps_state() const override { return true; }
  const nlohmann::ordered_json& info() const override { return info_; }

 private:
  Device& device_;
  Work work_;
  double offset_ = 0;
  nlohmann::ordered_json info_ = nlohmann::ordered_json::object();
};

// Arms "A" and "B", B with `work`, on `device`, and its clock for the runner.
inline Hooks hooks(Device& device, const Work& work) {
  Hooks h;
  h.make_arm = [&device, work](const ArmSpec& spec) { return std::make_unique<SimulatedArm>(device, spec.label == "A" ? Work{} : work); };
  h.now = [&device] { return at(device.seconds()); };
  h.wait_until = [&device](Clock::time_point t) {
    device.idle(std::chrono::duration<double>(t.time_since_epoch()).count() - device.seconds());
  };
  return h;
}

}  // namespace experiments::simulation

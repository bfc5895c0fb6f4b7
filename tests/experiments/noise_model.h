// Step times of two processes taking turns on one machine, with the noise that the procedure was designed
// against (20 ms steps): white 0.3%, spikes, a warm-up ramp of 1.5%, slow wander 0.3%, clock jumps of 0.4%,
// an offset of each process of sd 0.25%; optionally 30% of processes 1.5% slower ("modes") and a drift over
// the whole run.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "experiments/statistics/decision.h"

namespace experiments::simulation {

struct Noise {
  double white = 0.003;
  double spike_rate = 0.01, spike = 0.05;
  double ramp = 0.015;        // of a fresh process, gone with a time constant of 1 s
  double wander = 0.003;      // stationary sd of an AR(1) with a time constant of 20 s
  double clock_jump = 0.004;  // a state that flips every 15 s on average
  double process_offset = 0.0025;
  bool modes = false;
  double drift = 0;  // over the whole run, e.g. 0.03
};

class Machine {
 public:
  Machine(const Noise& noise, uint64_t seed) : n_(noise), random_(seed) {}

  // One pair of fresh processes as the runner measures it: 1 s of warm-up, then quads of four blocks.
  PairValue pair(double b_log_effect, double expected_run_s, int quads = 4, int steps = 12) {
    std::array<double, 2> offset{}, age_s{};
    for (double& o : offset) o = normal(n_.process_offset) + (n_.modes && uniform() < 0.3 ? 0.015 : 0);
    for (double end = now_s_ + 1; now_s_ < end;)
      for (size_t arm : {size_t{0}, size_t{1}}) block(arm, steps, 0, offset, age_s, expected_run_s);
    std::vector<Quad> measured;
    for (int q = 0; q < quads; ++q) {
      const size_t first = uniform() < 0.5 ? 0 : 1, second = 1 - first;
      std::array<std::vector<double>, 2> t;
      for (const size_t arm : {first, second, second, first})
        t[arm].push_back(block(arm, steps, arm == 1 ? b_log_effect : 0, offset, age_s, expected_run_s));
      measured.push_back({{t[0][0], t[0][1]}, {t[1][0], t[1][1]}});
    }
    return pair_value(measured).value();
  }

  // The whole procedure, all its planned looks.
  Decision experiment(double b_log_effect, const Thresholds& t = {}) {
    const double run_s = 5.0 * t.looks.front().pairs;
    std::vector<PairValue> pairs;
    for (int look = 1;; ++look) {
      while (static_cast<int>(pairs.size()) < t.looks[static_cast<size_t>(look - 1)].pairs) pairs.push_back(pair(b_log_effect, run_s));
      const Decision d = decide(pairs, t, look);
      if (!wants_another_look(d, t)) return d;
    }
  }

 private:
  double uniform() { return std::uniform_real_distribution<double>()(random_); }
  double normal(double sd) { return std::normal_distribution<double>(0, sd)(random_); }

  double block(size_t arm, int steps, double effect, const std::array<double, 2>& offset, std::array<double, 2>& age_s, double run_s) {
    std::vector<double> times;
    for (int i = 0; i < steps; ++i) {
      double log_time =
          effect + offset[arm] + normal(n_.white) + n_.ramp * std::exp(-age_s[arm]) + wander_ + clock_ + n_.drift * now_s_ / run_s;
      if (uniform() < n_.spike_rate) log_time += n_.spike * uniform();
      const double seconds = 0.020 * std::exp(log_time);
      now_s_ += seconds;
      age_s[arm] += seconds;
      const double keep = std::exp(-seconds / 20);
      wander_ = wander_ * keep + normal(n_.wander * std::sqrt(1 - keep * keep));
      if (uniform() < seconds / 15) clock_ = clock_ == 0 ? n_.clock_jump : 0;
      if (i > 0) times.push_back(seconds * 1e9);
    }
    std::sort(times.begin(), times.end());
    const size_t n = times.size();
    return n % 2 ? times[n / 2] : 0.5 * (times[n / 2 - 1] + times[n / 2]);
  }

  Noise n_;
  std::mt19937_64 random_;
  double now_s_ = 0, wander_ = 0, clock_ = 0;
};

}  // namespace experiments::simulation

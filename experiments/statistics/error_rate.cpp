#include "experiments/statistics/error_rate.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

namespace experiments {

double rate_upper_bound(int64_t events, int64_t trials, double confidence) {
  if (events < 0 || trials < events) throw std::invalid_argument("rate_upper_bound: expected 0 <= events <= trials");
  if (trials == 0 || events == trials) return 1.0;
  return boost::math::binomial_distribution<>::find_upper_bound_on_p(static_cast<double>(trials), static_cast<double>(events),
                                                                     1 - confidence);
}

std::optional<ResampledRates> resample_trials(std::span<const PairValue> recorded, const Thresholds& t, int64_t trials,
                                              double planted_log_ratio, uint64_t seed) {
  const auto needed = [&](int look) { return static_cast<size_t>(t.looks.at(static_cast<size_t>(look - 1)).pairs); };
  if (recorded.size() < needed(1) || needed(1) < 2) return std::nullopt;
  std::mt19937_64 random(seed);
  ResampledRates out;
  std::vector<size_t> order(recorded.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (; out.trials < trials; ++out.trials) {
    // mt19937_64 is the same everywhere, std::shuffle and the distributions are not.
    for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[random() % (i + 1)]);
    std::vector<PairValue> drawn;
    for (const size_t i : order) {
      PairValue p = recorded[i];
      if (random() >> 63) p.log_ratio = -p.log_ratio;
      p.log_ratio += planted_log_ratio;
      drawn.push_back(p);
    }
    Decision d = decide(std::span(drawn).first(needed(1)), t, 1);
    while (wants_another_look(d, t) && drawn.size() >= needed(d.look + 1))
      d = decide(std::span(drawn).first(needed(d.look + 1)), t, d.look + 1);
    switch (d.verdict) {
      case Verdict::faster:
      case Verdict::slower:
        ++out.called_different;
        break;
      case Verdict::same:
        ++out.same;
        break;
      default:
        ++out.undecided;
    }
  }
  return out;
}

std::optional<double> slot_bias_p_value(std::span<const PairValue> recorded) {
  std::vector<double> values;
  for (const PairValue& p : recorded) values.push_back(p.log_ratio);
  const auto e = estimate(values);
  if (!e) return std::nullopt;
  return t_p_value(*e);
}

}  // namespace experiments

#include "mixed/product_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace mixed {
namespace {

struct Share {
  double from_us;  // of the fastest
  double slower;   // than the fastest, at most
  size_t most;
};
constexpr double kNoiseOfJoules = 0.01;

std::optional<Share> share_of(MatmulAlgorithm rule) {
  switch (rule) {
    case MatmulAlgorithm::fitting_tiles:
    case MatmulAlgorithm::search:
      return Share{2000, 0.015, 6};
    case MatmulAlgorithm::fewest_joules:
      // A step of GPT-2 has 13 products of the library, and the correctness gate takes a trainer that is not built in 100 s for hung. Its
      // small models, which it builds by the dozen, have products of 3 to 10 us: from 5 us on its run did not end in 250 s (H200, 2026-11-24).
      return Share{20, 0.08, 4};
    case MatmulAlgorithm::fastest:
    case MatmulAlgorithm::heuristic:
      break;
  }
  return std::nullopt;
}

bool is_measured(double value) { return std::isfinite(value) && value > 0; }

// The measured ones, the fastest first; those of one time in the library's order.
std::vector<size_t> by_time(std::span<const double> times_us) {
  std::vector<size_t> order;
  for (size_t i = 0; i < times_us.size(); ++i)
    if (is_measured(times_us[i])) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return times_us[a] < times_us[b]; });
  return order;
}

}  // namespace

std::vector<size_t> algorithms_to_weigh(MatmulAlgorithm rule, std::span<const double> times_us) {
  const auto share = share_of(rule);
  std::vector<size_t> order = by_time(times_us);
  if (!share || order.empty() || times_us[order.front()] < share->from_us) return {};
  const double limit_us = times_us[order.front()] * (1 + share->slower);
  std::erase_if(order, [&](size_t i) { return times_us[i] > limit_us; });
  if (order.size() > share->most) order.resize(share->most);
  if (order.size() < 2) return {};
  return order;
}

std::string weighs_from(MatmulAlgorithm rule) {
  const auto share = share_of(rule);
  if (!share) return "";
  return share->from_us < 1000 ? fmt::format("{} us", share->from_us) : fmt::format("{} ms", share->from_us / 1000);
}

std::optional<ProductChoice> choose_algorithm(std::span<const double> times_us, std::span<const std::vector<double>> joules) {
  if (!joules.empty() && joules.size() != times_us.size()) throw std::invalid_argument("times and joules of different algorithms");
  const std::vector<size_t> order = by_time(times_us);
  if (order.empty()) return std::nullopt;
  struct Weighed {
    size_t algorithm;
    double joules;
  };
  std::vector<Weighed> weighed;  // the fastest first
  double error = kNoiseOfJoules;
  for (const size_t i : order) {
    if (joules.empty() || joules[i].empty() || !std::all_of(joules[i].begin(), joules[i].end(), is_measured)) continue;
    const auto [fewest, most] = std::minmax_element(joules[i].begin(), joules[i].end());
    error = std::max(error, *most / *fewest - 1);
    weighed.push_back({i, std::accumulate(joules[i].begin(), joules[i].end(), 0.0) / static_cast<double>(joules[i].size())});
  }
  if (weighed.size() < 2 || weighed.front().algorithm != order.front()) return ProductChoice{order.front(), false};
  const auto fewest =
      std::min_element(weighed.begin(), weighed.end(), [](const Weighed& a, const Weighed& b) { return a.joules < b.joules; });
  const double limit = fewest->joules * (1 + error);
  const auto chosen = std::find_if(weighed.begin(), weighed.end(), [&](const Weighed& w) { return w.joules <= limit; });
  return ProductChoice{chosen->algorithm, true};
}

}  // namespace mixed

#include "experiments/runner/alone_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>

#include "base/sustained.h"

namespace experiments {

using stepscope::kSustainedMeasure_s;

namespace {

constexpr std::array<std::string_view, 9> kChecks{"settled", "cycle", "order", "power", "host", "stalls", "burst", "energy", "pieces"};
constexpr std::array<std::string_view, 2> kEqualClocksBy{"turns", "full_clock"};

// A notice needs an effect that matters beside a verdict's interval and evidence for it.
constexpr double kNoticePct = 0.15, kNoticeP = 0.01, kCyclePct = 0.3, kPowerPct = 0.5, kEnergyPct = 1, kStallsPct = 1;

struct Round {
  const AloneRun* a = nullptr;
  const AloneRun* b = nullptr;
};

// Rounds in which both ran, in order.
std::vector<Round> rounds_of(std::span<const AloneRun> runs) {
  std::map<int, Round> by_pair;
  for (const AloneRun& r : runs) (r.arm == 'A' ? by_pair[r.pair].a : by_pair[r.pair].b) = &r;
  std::vector<Round> out;
  for (const auto& [pair, round] : by_pair)
    if (round.a && round.b) out.push_back(round);
  return out;
}

using Quantity = std::function<std::optional<double>(const AloneRun&)>;

// ln(B / A) of a quantity, one value a round; nullopt unless every round has it.
std::optional<std::vector<double>> log_ratios(const std::vector<Round>& rounds, const Quantity& of) {
  std::vector<double> out;
  for (const Round& r : rounds) {
    const auto a = of(*r.a), b = of(*r.b);
    if (!a || !b || !(*a > 0) || !(*b > 0)) return std::nullopt;
    out.push_back(std::log(*b / *a));
  }
  return out;
}

std::optional<PairedRatio> paired_ratio(const std::vector<Round>& rounds, const Quantity& of, double alpha) {
  const auto values = log_ratios(rounds, of);
  if (!values) return std::nullopt;
  const auto e = estimate(*values);
  if (!e) return std::nullopt;
  return PairedRatio{*e, t_interval(*e, alpha)};
}

std::optional<double> mean_of(const std::vector<const AloneRun*>& runs, const Quantity& of) {
  double sum = 0;
  for (const AloneRun* r : runs) {
    const auto v = of(*r);
    if (!v) return std::nullopt;
    sum += *v;
  }
  if (runs.empty()) return std::nullopt;
  return sum / static_cast<double>(runs.size());
}

const Quantity kClock = [](const AloneRun& r) { return r.device.sm_clock_mhz; };
const Quantity kPower = [](const AloneRun& r) { return r.device.power_w; };
const Quantity kJoules = [](const AloneRun& r) { return r.joules_per_step; };
const Quantity kFullClockStep = [](const AloneRun& r) { return r.full_clock_ns; };

SustainedArm arm_of(const std::vector<const AloneRun*>& runs, const DeviceLimits& limits) {
  SustainedArm out;
  double total_ns = 0;
  for (const AloneRun* r : runs) {
    total_ns += r->total_ns;
    out.steps += r->steps;
    out.burst |= r->burst;
    if (r->device.temperature_c) out.temperature_c = std::max(out.temperature_c.value_or(0), *r->device.temperature_c);
  }
  out.processes = static_cast<int>(runs.size());
  out.step_ns = total_ns / static_cast<double>(out.steps);
  out.sm_clock_mhz = mean_of(runs, kClock);
  out.power_w = mean_of(runs, kPower);
  out.joules_per_step = mean_of(runs, kJoules);
  out.full_clock_ns = mean_of(runs, kFullClockStep);
  out.clock_limited = stepscope::clock_limited(out.power_w, out.sm_clock_mhz, limits.power_limit_w, limits.max_sm_clock_mhz);
  // A CPU has first steps too, and no power limit that had not held them back yet.
  if (out.full_clock_ns && out.clock_limited) out.cap_cost_pct = 100 * (1 - *out.full_clock_ns / out.step_ns);
  return out;
}

std::string higher_or_lower(double pct) { return fmt::format("{:.2f}% {}", std::fabs(pct), pct < 0 ? "lower" : "higher"); }

SelfCheckResult settled_check(const std::vector<Round>& rounds) {
  SelfCheckResult out{SelfCheck::settled, false, std::nullopt, kNoticePct, std::nullopt, ""};
  const auto first = log_ratios(rounds, [](const AloneRun& r) { return r.first_half_ns; });
  const auto second = log_ratios(rounds, [](const AloneRun& r) { return r.second_half_ns; });
  std::vector<double> change;
  if (first && second)
    for (size_t i = 0; i < first->size(); ++i) change.push_back((*second)[i] - (*first)[i]);
  const auto e = estimate(change);
  if (!e) {
    out.sentence = "settled: fewer than two rounds, so nothing compares the halves of the counted time";
    return out;
  }
  out.value = ratio_pct(e->mean);
  out.p_value = t_p_value(*e);
  out.notice = std::fabs(*out.value) > kNoticePct && *out.p_value < kNoticeP;
  out.sentence = fmt::format("settled: from the first to the second half of the counted time the ratio changes by {:+.2f}% ({}){}",
                             *out.value, p_text(*out.p_value), out.notice ? "; it had not settled: take --settle-s 5 --measure-s 5" : "");
  return out;
}

SelfCheckResult cycle_check(std::span<const AloneRun> runs) {
  SelfCheckResult out{SelfCheck::cycle, false, std::nullopt, kCyclePct, std::nullopt, ""};
  double quarter = 0, second = 0;
  int n = 0;
  for (const AloneRun& r : runs) {
    if (!r.spread_quarter_s || !r.spread_second) continue;
    quarter += *r.spread_quarter_s * *r.spread_quarter_s;
    second += *r.spread_second * *r.spread_second;
    ++n;
  }
  if (n == 0) {
    out.notice = true;
    out.sentence =
        "cycle: fewer than two seconds were counted, so nothing says how far a mean over them depends on the phase of the clock's cycle; "
        "take a longer --measure-s";
    return out;
  }
  out.value = 100 * std::sqrt(second / n);
  out.notice = *out.value > kCyclePct;
  out.sentence =
      fmt::format("cycle: means of the step time over 0.25 s spread by {:.2f}%, over 1 s by {:.2f}%{}", 100 * std::sqrt(quarter / n),
                  *out.value, out.notice ? "; a second does not hold a whole cycle of this clock: take a longer --measure-s" : "");
  return out;
}

// By how much ln(B / A) differs between two kinds of rounds, first minus second, by Student's test of two means with one variance. False, and
// `out` as it was, where there are fewer than two of either.
bool compare_rounds(const std::array<std::vector<double>, 2>& log_ratios, SelfCheckResult& out) {
  const auto first = estimate(log_ratios[0]), second = estimate(log_ratios[1]);
  if (!first || !second) return false;
  const double difference = first->mean - second->mean;
  out.value = ratio_pct(difference);
  // As one sample whose mean has the error of a difference, with n - 2 degrees of freedom.
  const int n = first->n + second->n;
  const double pooled = std::sqrt(((first->n - 1) * first->sd * first->sd + (second->n - 1) * second->sd * second->sd) / (n - 2));
  const double error = pooled * std::sqrt(1.0 / first->n + 1.0 / second->n);
  out.p_value = t_p_value({difference, error * std::sqrt(n - 1.0), n - 1});
  out.notice = std::fabs(*out.value) > kNoticePct && *out.p_value < kNoticeP;
  return true;
}

double log_ratio(const Round& r) { return std::log(r.b->step_ns() / r.a->step_ns()); }

SelfCheckResult order_check(const std::vector<Round>& rounds) {
  SelfCheckResult out{SelfCheck::order, false, std::nullopt, kNoticePct, std::nullopt, ""};
  std::array<std::vector<double>, 2> d;
  for (const Round& r : rounds) d[r.a->position < r.b->position ? 0 : 1].push_back(log_ratio(r));
  if (!compare_rounds(d, out)) {
    out.sentence = "order: fewer than two rounds of each order";
    return out;
  }
  out.sentence =
      fmt::format("order: B / A is {} where A ran first ({}), twice the drift from process to process{}", higher_or_lower(*out.value),
                  p_text(*out.p_value), out.notice ? "; the balanced order cancels it, longer rests or more heating would remove it" : "");
  return out;
}

std::optional<SelfCheckResult> power_check(const std::optional<Sustained>& s) {
  if (!s || !s->power || !s->a.clock_limited.value_or(false) || !s->b.clock_limited.value_or(false)) return std::nullopt;
  SelfCheckResult out{SelfCheck::power, false, ratio_pct(s->power->log_ratio.mean), kPowerPct, std::nullopt, ""};
  out.notice = std::fabs(*out.value) > kPowerPct;
  out.sentence = fmt::format("power: both arms are at the power cap and B draws {:+.2f}%{}", *out.value,
                             out.notice ? "; at one cap they should draw the same" : "");
  return out;
}

// How the time of A follows its own clock, from full clock to sustained.
std::optional<double> clock_elasticity(const Sustained& s, const DeviceLimits& limits) {
  if (!s.a.full_clock_ns || !s.a.sm_clock_mhz || !limits.max_sm_clock_mhz) return std::nullopt;
  const double clocks = std::log(*limits.max_sm_clock_mhz / *s.a.sm_clock_mhz);
  if (clocks < 0.01) return 0;  // it runs at full clock: nothing to follow
  return std::clamp(std::log(s.a.step_ns / *s.a.full_clock_ns) / clocks, 0.0, 1.5);
}

std::optional<SelfCheckResult> host_check(const std::vector<Round>& rounds, const std::optional<Sustained>& s,
                                          const std::optional<EqualClocks>& equal, const DeviceLimits& limits, double alpha) {
  if (!s || !s->sm_clock || !equal) return std::nullopt;
  const auto kappa = clock_elasticity(*s, limits);
  const auto alone = paired_ratio(
      rounds, [](const AloneRun& r) { return std::optional(r.step_ns()); }, alpha);
  if (!kappa || !alone) return std::nullopt;
  const double expected = equal->ratio.log_ratio.mean - *kappa * s->sm_clock->log_ratio.mean;
  const auto half = [](const Interval& i) { return (i.high - i.low) / 2; };
  SelfCheckResult out{SelfCheck::host,
                      false,
                      ratio_pct(alone->log_ratio.mean - expected),
                      100 * (half(alone->interval) + half(equal->ratio.interval) + *kappa * half(s->sm_clock->interval)),
                      std::nullopt,
                      ""};
  out.notice = std::fabs(*out.value) > *out.limit;
  out.sentence =
      fmt::format("host: alone B / A is {:+.2f}%; the ratio at equal clocks ({}) and the clocks (elasticity {:.2f}) would give {:+.2f}%{}",
                  ratio_pct(alone->log_ratio.mean), name(equal->by), *kappa, ratio_pct(expected),
                  out.notice ? "; they differ by more than both intervals: the host has a part in one of them" : "");
  return out;
}

SelfCheckResult stalls_check(std::span<const AloneRun> runs, const std::vector<Round>& rounds) {
  SelfCheckResult out{SelfCheck::stalls, false, std::nullopt, kStallsPct, std::nullopt, ""};
  double stalls = 0, steps = 0;
  for (const AloneRun& r : runs) {
    stalls += r.stalls;
    steps += r.steps + r.stalls;
  }
  out.value = steps > 0 ? 100 * stalls / steps : 0;
  // A change may cause them.
  double with = 0, without = 0;
  for (const Round& r : rounds) {
    const auto all = [](const AloneRun& run) { return (run.total_ns + run.stalled_ns) / (run.steps + run.stalls); };
    with += std::log(all(*r.b) / all(*r.a));
    without += std::log(r.b->step_ns() / r.a->step_ns());
  }
  const double shift_pct = rounds.empty() ? 0 : ratio_pct((with - without) / static_cast<double>(rounds.size()));
  out.notice = *out.value > kStallsPct || std::fabs(shift_pct) > kNoticePct;
  if (stalls == 0) {
    out.sentence = fmt::format("stalls: none of {:.0f} steps took more than {} x the median", steps, kStall);
    return out;
  }
  out.sentence =
      fmt::format("stalls: {:.0f} of {:.0f} steps took more than {} x the median and are left out; with them B / A would be {}{}", stalls,
                  steps, kStall, higher_or_lower(shift_pct), out.notice ? "; something interrupts these programs" : "");
  return out;
}

std::optional<SelfCheckResult> energy_check(std::span<const AloneRun> runs) {
  double counted = 0, sampled = 0;
  for (const AloneRun& r : runs) {
    if (!r.device.joules || !r.device.power_w || !r.device.sampled_power_w) return std::nullopt;
    counted += *r.device.power_w;
    sampled += *r.device.sampled_power_w;
  }
  if (!(counted > 0) || !(sampled > 0)) return std::nullopt;
  SelfCheckResult out{SelfCheck::energy, false, 100 * (counted / sampled - 1), kEnergyPct, std::nullopt, ""};
  out.notice = std::fabs(*out.value) > kEnergyPct;
  out.sentence = fmt::format("energy: the energy counter gives a power that differs by {:+.2f}% from NVML's samples{}", *out.value,
                             out.notice ? "; one of the two does not see this load as it is" : "");
  return out;
}

SelfCheckResult burst_check(std::span<const AloneRun> runs) {
  const auto n = std::count_if(runs.begin(), runs.end(), [](const AloneRun& r) { return r.burst; });
  SelfCheckResult out{SelfCheck::burst, n > 0, static_cast<double>(n), 0, std::nullopt, ""};
  out.sentence = n == 0 ? fmt::format("burst: every process settled for {} s or more and was counted for {} s or more", kSustainedSettle_s,
                                      kSustainedMeasure_s)
                        : fmt::format(
                              "burst: {} of {} processes settled for less than {} s or were counted for less than {} s: this is the "
                              "time of a burst, not a sustained one; give them more steps",
                              n, runs.size(), kSustainedSettle_s, kSustainedMeasure_s);
  return out;
}

}  // namespace

std::string_view name(SelfCheck check) { return kChecks[static_cast<size_t>(check)]; }

std::optional<SelfCheck> self_check_from_name(std::string_view text) {
  for (size_t i = 0; i < kChecks.size(); ++i)
    if (kChecks[i] == text) return static_cast<SelfCheck>(i);
  return std::nullopt;
}

std::string_view name(EqualClocksBy by) { return kEqualClocksBy[static_cast<size_t>(by)]; }

std::vector<AloneRun> whole_rounds(std::span<const AloneRun> runs) {
  std::vector<AloneRun> out;
  for (const Round& r : rounds_of(runs)) {
    const bool a_first = r.a->position < r.b->position;
    out.push_back(a_first ? *r.a : *r.b);
    out.push_back(a_first ? *r.b : *r.a);
  }
  return out;
}

std::vector<PairValue> sustained_values(std::span<const AloneRun> runs) {
  std::vector<PairValue> out;
  for (const Round& r : rounds_of(runs)) out.push_back({log_ratio(r), std::nullopt});
  return out;
}

std::optional<Sustained> sustained(std::span<const AloneRun> runs, const DeviceLimits& limits, double alpha) {
  const std::vector<Round> rounds = rounds_of(runs);
  if (rounds.empty()) return std::nullopt;
  std::vector<const AloneRun*> a, b;
  for (const Round& r : rounds) {
    a.push_back(r.a);
    b.push_back(r.b);
  }
  return Sustained{arm_of(a, limits), arm_of(b, limits), paired_ratio(rounds, kJoules, alpha), paired_ratio(rounds, kClock, alpha),
                   paired_ratio(rounds, kPower, alpha)};
}

std::optional<EqualClocks> equal_clocks_of(std::span<const AloneRun> runs, const DeviceLimits& limits, double alpha) {
  const auto ratio = paired_ratio(rounds_of(runs), kFullClockStep, alpha);
  if (!ratio) return std::nullopt;
  return EqualClocks{EqualClocksBy::full_clock, *ratio, limits.max_sm_clock_mhz};
}

std::vector<SelfCheckResult> self_checks(std::span<const AloneRun> runs, const DeviceLimits& limits,
                                         const std::optional<EqualClocks>& equal_clocks, double alpha) {
  if (runs.empty()) return {};  // nothing was measured that they could be about
  const std::vector<Round> rounds = rounds_of(runs);
  const auto s = sustained(runs, limits, alpha);
  std::vector<SelfCheckResult> out{settled_check(rounds), cycle_check(runs), order_check(rounds)};
  if (auto check = power_check(s)) out.push_back(std::move(*check));
  if (auto check = host_check(rounds, s, equal_clocks, limits, alpha)) out.push_back(std::move(*check));
  out.push_back(stalls_check(runs, rounds));
  out.push_back(burst_check(runs));
  if (auto check = energy_check(runs)) out.push_back(std::move(*check));
  if (auto check = pieces_check(runs)) out.push_back(std::move(*check));
  return out;
}

std::optional<SelfCheckResult> pieces_check(std::span<const AloneRun> runs) {
  const std::vector<Round> rounds = rounds_of(runs);
  const auto began_s = [](const Round& r) { return std::min(r.a->at_s, r.b->at_s); };
  // Also where a command heats for longer than the one before it ran, so that it begins to count later: its first process has no rest.
  const auto begins_a_command = [](const Round& r) { return r.a->rest_s.has_value() != r.b->rest_s.has_value(); };
  size_t last = 0;  // the first round of the last command, whose clock begins anew
  for (size_t i = 1; i < rounds.size(); ++i)
    if (began_s(rounds[i]) < began_s(rounds[i - 1]) || begins_a_command(rounds[i])) last = i;
  if (last == 0) return std::nullopt;
  SelfCheckResult out{SelfCheck::pieces, false, std::nullopt, kNoticePct, std::nullopt, ""};
  std::array<std::vector<double>, 2> d;
  for (size_t i = 0; i < rounds.size(); ++i) d[i >= last ? 0 : 1].push_back(log_ratio(rounds[i]));
  if (!compare_rounds(d, out)) {
    out.sentence = "pieces: fewer than two rounds of the last command, or before it";
    return out;
  }
  out.sentence =
      fmt::format("pieces: B / A is {} in the {} rounds of the last command than in the {} before it ({}){}", higher_or_lower(*out.value),
                  d[0].size(), d[1].size(), p_text(*out.p_value),
                  out.notice ? "; another machine, or another state of this one: the verdict is of both together, and a run without "
                               "--continue is of one"
                             : "");
  return out;
}

}  // namespace experiments

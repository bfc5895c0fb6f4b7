// timing.state and timing.states against the definitions of docs/metrics.md ("Cool and warm"), over processes made at random: stretches of steps
// with a step time, clock and power of their own, whose edges lie anywhere; warm-up in front; an energy counter that may stop early.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "profiler/document/build_profile.h"
#include "tests/oracle/step_oracle.h"

namespace {

using namespace profiler;
using oracle::expect_near;
using oracle::Maybe;

struct Process {
  Recording recording;
  std::optional<RunInfo> run;
  ProfileOptions options;
  std::vector<double> begins, times;  // of the steps before the collector, as the trainer or the host has them
  size_t warmup = 0;
};

Process random_process(uint64_t seed) {
  std::mt19937_64 engine(seed);
  const auto upto = [&](int64_t most) { return static_cast<int64_t>(engine() % static_cast<uint64_t>(most + 1)); };
  const auto part = [&] { return static_cast<double>(upto(1'000'000)) * 1e-6; };
  struct Stretch {
    double until_s, step_ms, clock, power;
  };
  std::vector<Stretch> stretches;
  const double all_s = 1 + 12 * part(), step_ms = 4 + 396 * part() * part();
  for (double at = 0; at < all_s;) {
    at += 0.2 + 4 * part();
    // Some neighbours differ by less than the limits of settling, some in one of the three alone.
    const auto about = [&](double value, double little, double much) { return value * (1 + (upto(2) ? little : much) * part()); };
    stretches.push_back({at, about(step_ms, 0.0015, 0.02), about(1700, 0.004, 0.05), about(600, 0.004, 0.1)});
  }
  const auto at_time = [&](double seconds) {
    for (const Stretch& s : stretches)
      if (seconds < s.until_s) return s;
    return stretches.back();
  };
  Process p;
  p.warmup = static_cast<size_t>(upto(20));
  constexpr double kBegin_ns = 7e9;
  double t = 0;
  while (t < all_s || p.times.size() < p.warmup + 2) {
    const bool slow = p.times.size() < p.warmup / 2 && upto(1);  // it compiles or searches first
    const double ns = std::round(at_time(t).step_ms * 1e6 * (slow ? 4 : 1));
    p.begins.push_back(kBegin_ns + std::round(t * 1e9));
    p.times.push_back(ns);
    t += ns * 1e-9;
  }
  Recording& r = p.recording;
  r.session.producer = "cupti";
  for (size_t i = 0; i <= p.times.size(); ++i) {
    StepRecord s;
    s.step = static_cast<int64_t>(i);
    s.phase = i < p.warmup ? Phase::warmup : i < p.times.size() ? Phase::timed : Phase::counters;
    s.host_begin_ns = std::llround(i < p.times.size() ? p.begins[i] : kBegin_ns + t * 1e9);
    s.host_end_ns = s.host_begin_ns + 1000;
    r.steps.push_back(s);
  }
  for (double at = -0.3; at < t + 0.2; at += 0.015 + 0.1 * part()) {
    const Stretch s = at_time(at);
    r.environment.push_back({std::llround(kBegin_ns + at * 1e9), Phase::timed, s.clock, 3200, s.power, 60, 0});
  }
  const double counted_until = upto(3) ? t + 0.3 : t * part();
  double millijoules = 5e6;
  for (double at = -0.2 * part(), last = at; upto(9) && at < counted_until; at += 0.05 + 0.1 * part()) {
    millijoules += at_time(at).power * 1e3 * (at - last);
    last = at;
    r.energy.push_back({std::llround(kBegin_ns + at * 1e9), static_cast<uint64_t>(millijoules)});
  }
  p.options.first_timed_step = static_cast<int64_t>(p.warmup);
  p.options.timed_steps = static_cast<int64_t>(p.times.size() - p.warmup);
  if (upto(1)) {
    p.run.emplace();
    p.run->tokens_per_step = 4096;
    for (size_t i = 0; i < p.times.size(); ++i) p.run->steps.push_back({static_cast<int64_t>(i), 1.0, 1.0, p.times[i]});
  } else {  // of the host's clock, whose ends are the next begins
    for (size_t i = 0; i < p.times.size(); ++i) p.times[i] = static_cast<double>(r.steps[i + 1].host_begin_ns - r.steps[i].host_begin_ns);
  }
  return p;
}

// Mean over a stretch of samples each of which holds until the next; none where no sample lies in it.
Maybe mean_of(const std::vector<EnvironmentSample>& samples, double EnvironmentSample::*member, double begin, double end) {
  double sum = 0, time = 0;
  bool any = false;
  for (size_t i = 0; i < samples.size(); ++i) {
    const auto at = static_cast<double>(samples[i].time_ns);
    any = any || (at >= begin && at <= end);
    const double next = i + 1 < samples.size() ? static_cast<double>(samples[i + 1].time_ns) : end;
    const double held = std::min(next, end) - std::max(at, begin);
    if (held > 0) sum += held * samples[i].*member, time += held;
  }
  return any && time > 0 ? Maybe(sum / time) : Maybe();
}

// Joules in [begin, end], the counter rising evenly between its changes. At least a second and ten changes; a tenth may be missing at the end.
Maybe joules_of(const std::vector<EnergySample>& energy, double begin, double end) {
  if (end - begin < 1e9 || energy.size() < 2) return std::nullopt;
  double sum = 0, covered = 0;
  int64_t changes = 0;
  for (size_t i = 0; i < energy.size(); ++i) {
    const auto at = static_cast<double>(energy[i].time_ns);
    changes += at >= begin && at <= end;
    if (i + 1 == energy.size()) break;
    const auto next = static_cast<double>(energy[i + 1].time_ns);
    const double inside = std::min(next, end) - std::max(at, begin);
    if (inside <= 0) continue;
    covered += inside;
    sum += static_cast<double>(energy[i + 1].energy_mj - energy[i].energy_mj) * 1e-3 * inside / (next - at);
  }
  if (covered < 1e9 || changes < 10 || covered < 0.9 * (end - begin)) return std::nullopt;
  return sum / covered * (end - begin);
}

// The first step behind two windows in a row that are alike, which may be the one behind the last.
std::optional<size_t> settled_from(const Process& p) {
  const size_t n = p.times.size();
  const double usual = 1.5 * *oracle::median({p.times.begin() + static_cast<std::ptrdiff_t>(n / 2), p.times.end()});
  size_t first = 0;
  for (size_t i = 0, row = std::min<size_t>(8, n); i + row <= n; ++i)
    if (std::all_of(p.times.begin() + static_cast<std::ptrdiff_t>(i), p.times.begin() + static_cast<std::ptrdiff_t>(i + row),
                    [&](double t) { return t < usual; })) {
      first = i;
      break;
    }
  struct Window {
    double step = 0, clock = 0, power = 0;
  };
  std::vector<Window> windows;
  for (size_t i = first; i < n;) {
    double time = 0;
    size_t last = i;
    while (last < n && (time < 1.03e9 || last < i + 3)) time += p.times[last++];
    if (time < 1.03e9 || last < i + 3) break;
    const double begin = p.begins[i], end = p.begins[last - 1] + p.times[last - 1];
    Window w;
    w.step = time / static_cast<double>(last - i);
    w.clock = *mean_of(p.recording.environment, &EnvironmentSample::sm_clock_mhz, begin, end);
    for (const EnvironmentSample& s : p.recording.environment)  // NVML's power is a mean over the second before it
      if (static_cast<double>(s.time_ns) >= begin && static_cast<double>(s.time_ns) <= end) w.power = s.power_w;
    windows.push_back(w);
    i = last;
    if (windows.size() < 2) continue;
    const Window& before = windows[windows.size() - 2];
    if (std::fabs(w.step / before.step - 1) < 0.003 && std::fabs(w.clock / before.clock - 1) < 0.01 &&
        std::fabs(w.power / before.power - 1) < 0.01)
      return i;
  }
  return std::nullopt;
}

void expect_row(const Process& p, size_t first, size_t last, const StateRow& row) {
  double time = 0;
  for (size_t i = first; i < last; ++i) time += p.times[i];
  const double begin = p.begins[first], end = p.begins[last - 1] + p.times[last - 1];
  const auto steps = static_cast<double>(last - first);
  EXPECT_EQ(row.run, "timed");
  EXPECT_EQ(row.steps, static_cast<int64_t>(last - first));
  // Steps lie one behind the other, placed to whole ns.
  EXPECT_NEAR(row.time_ns, time, 1);
  EXPECT_NEAR(row.step_time_ns, time / steps, 1);
  EXPECT_NEAR(row.begin_ns, begin - p.begins[0], 2);
  const auto near = [&](const char* what, const Maybe& expected, const Number& found) {
    ASSERT_EQ(expected.has_value(), found.has_value()) << what;
    if (!expected) return;
    EXPECT_NEAR(*expected, *found, 1e-6 * *expected) << what;
  };
  near("tokens_per_s", p.run ? Maybe(4096 / (time / steps * 1e-9)) : Maybe(), row.tokens_per_s);
  const Maybe joules = joules_of(p.recording.energy, begin, end);
  near("joules_per_step", joules ? Maybe(*joules / steps) : Maybe(), row.joules_per_step);
  near("power_w", joules ? Maybe(*joules / (time * 1e-9)) : mean_of(p.recording.environment, &EnvironmentSample::power_w, begin + 1e9, end),
       row.power_w);
  near("sm_clock_mhz", mean_of(p.recording.environment, &EnvironmentSample::sm_clock_mhz, begin, end), row.sm_clock_mhz);
}

TEST(StateOracle, WhatIsCoolAndWarmAndWhatItTookIsWhatTheDefinitionsGive) {
  int64_t warm_rows = 0, unknown = 0, without_energy = 0;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Process p = random_process(seed);
    const ProfileDocument d = build_profile(p.recording, p.run, {}, p.options);
    const std::optional<size_t> settled = settled_from(p);
    const size_t n = p.times.size(), warm = std::max(settled.value_or(n), p.warmup);
    const double end = p.begins[n - 1] + p.times[n - 1];
    const double behind = warm < n ? end - p.begins[warm] : 0, counted = end - p.begins[p.warmup];
    // Ten seconds that did not settle leave it open.
    const bool known = settled || end - p.begins[0] < 10e9;
    EXPECT_EQ(d.timing.state.value_or(""), behind > counted / 2 ? "warm" : known ? "cool" : "");
    std::vector<const StateRow*> rows;
    for (const StateRow& row : d.timing.states) rows.push_back(&row);
    size_t next = 0;
    if (known && warm > p.warmup) {
      ASSERT_LT(next, rows.size());
      EXPECT_EQ(rows[next]->state, "cool");
      expect_row(p, p.warmup, warm, *rows[next++]);
    }
    if (behind >= 3e9 && n - warm >= 8) {
      ASSERT_LT(next, rows.size());
      EXPECT_EQ(rows[next]->state, "warm");
      expect_row(p, warm, n, *rows[next++]);
      ++warm_rows;
    }
    EXPECT_EQ(rows.size(), next);
    if (seed % 20 == 0) oracle::expect_readable(d);
    unknown += !known;
    without_energy += !rows.empty() && !rows[0]->joules_per_step;
    if (HasFailure()) return;
  }
  EXPECT_GT(warm_rows, 20);
  EXPECT_GT(unknown, 1);
  EXPECT_GT(without_energy, 10);
}

}  // namespace

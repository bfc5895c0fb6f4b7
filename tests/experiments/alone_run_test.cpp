// What is counted of a process's steps, and the checks of a measurement on itself, on made-up records.
#include "experiments/runner/alone_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "base/errors.h"
#include "experiments/runner/alone_window.h"
#include "experiments/runner/run_log.h"
#include "tests/experiments/student_tail.h"
#include "tests/golden.h"

namespace experiments {
namespace {

using ::testing::HasSubstr;

std::vector<double> steps_of(int n, double ms) { return std::vector<double>(static_cast<size_t>(n), ms * 1e6); }

TEST(counted_steps, begin_after_the_settling_seconds_and_last_as_long_as_told) {
  std::vector<double> t = steps_of(200, 10);
  for (size_t i = 0; i < 50; ++i) t[i] = 12e6;  // 0.6 s
  const Counted c = count_steps(t, {0.6, 1.0, 3, 8});
  EXPECT_EQ(c.run.settle_steps, 50);
  EXPECT_EQ(c.run.steps, 100);
  EXPECT_DOUBLE_EQ(c.run.step_ns(), 10e6);
  EXPECT_NEAR(c.begin_s, 0.6, 1e-9);
  EXPECT_NEAR(c.end_s, 1.6, 1e-9);
  EXPECT_TRUE(c.run.burst);  // less than 2 and 3 s
  EXPECT_FALSE(count_steps(steps_of(600, 10), {2, 3, 3, 8}).run.burst);
}

// Five seconds of compiling are no settling.
TEST(counted_steps, are_a_burst_where_only_the_skipped_step_took_long) {
  std::vector<double> t = steps_of(500, 10);
  t[0] = 5e9;
  const Counted c = count_steps(t, {1, 3, 3, 8}, 1);
  EXPECT_NEAR(c.begin_s, 6, 1e-9);
  EXPECT_TRUE(c.run.burst);
  EXPECT_FALSE(count_steps(steps_of(600, 10), {2, 3, 3, 8}, 1).run.burst);
}

TEST(counted_steps, are_as_many_as_told_where_the_seconds_hold_fewer) {
  const Counted c = count_steps(steps_of(20, 1000), {2, 3, 3, 8});
  EXPECT_EQ(c.run.settle_steps, 3);
  EXPECT_EQ(c.run.steps, 8);
}

// Five steps of a second follow the three that settle: enough seconds, but not the eight steps that were wanted.
TEST(counted_steps, that_are_too_few_are_all_but_the_first_and_a_burst) {
  const AloneRun r = count_steps(steps_of(8, 1000), {2, 3, 3, 8}).run;
  EXPECT_EQ(r.settle_steps, 1);
  EXPECT_EQ(r.steps, 7);
  EXPECT_TRUE(r.burst);
}

TEST(counted_steps, take_the_total_time_and_no_median) {
  std::vector<double> t = steps_of(500, 10);
  for (size_t i = 300; i < 350; ++i) t[i] = 11e6;
  EXPECT_NEAR(count_steps(t, {2, 3, 3, 8}).run.step_ns(), (50 * 11e6 + 245 * 10e6) / 295, 1);
}

TEST(counted_steps, leave_stalls_out_and_keep_their_number) {
  std::vector<double> t = steps_of(520, 10);
  t[300] = 50e6;
  t[301] = 12.4e6;  // below 1.25 x the median
  const AloneRun r = count_steps(t, {2, 3, 3, 8}).run;
  EXPECT_EQ(r.stalls, 1);
  EXPECT_DOUBLE_EQ(r.stalled_ns, 50e6);
  EXPECT_NEAR(r.step_ns(), 10e6, 0.02e6);
}

TEST(counted_steps, two_to_five_are_at_full_clock_only_where_they_end_within_40_ms) {
  std::vector<double> t = steps_of(600, 9);
  t[0] = 13e6;  // what a start costs is not in it
  for (size_t i = 1; i < 5; ++i) t[i] = 8.5e6;
  EXPECT_DOUBLE_EQ(count_steps(t, {2, 3, 3, 8}).run.full_clock_ns.value(), 8.5e6);
  const AloneRun slow = count_steps(steps_of(600, 11), {2, 3, 3, 8}).run;
  EXPECT_FALSE(slow.full_clock_ns);
  EXPECT_THAT(slow.full_clock_absent, HasSubstr("44 ms"));
  // A program that compiles in its first steps was 80% slower "at equal clocks".
  EXPECT_TRUE(count_steps(t, {2, 3, 3, 8}, 1).run.full_clock_ns);
  const AloneRun compiles = count_steps(t, {2, 3, 3, 8}, 5).run;
  EXPECT_FALSE(compiles.full_clock_ns);
  EXPECT_EQ(compiles.full_clock_absent, "the first 5 steps are the program's start");
}

TEST(counted_steps, a_second_holds_a_whole_cycle_and_a_quarter_of_it_does_not) {
  std::vector<double> t;
  for (double s = 0; s < 5.5;) {
    t.push_back(9e6 * (1 + 0.02 * std::sin(2 * M_PI * s / 1.0)));
    s += t.back() * 1e-9;
  }
  const AloneRun r = count_steps(t, {2, 3, 3, 8}).run;
  EXPECT_GT(r.spread_quarter_s.value(), 0.01);
  EXPECT_LT(r.spread_second.value(), 0.001);
  ASSERT_GE(r.tenths_ns.size(), 50u);
  EXPECT_NEAR(r.tenths_ns[2], 9.18e6, 0.05e6);
  EXPECT_FALSE(count_steps(t, {2, 1, 3, 8}).run.spread_second);
  EXPECT_FALSE(count_steps(t, {2, 1.9, 3, 8}).run.spread_second) << "two seconds do not fit";
  EXPECT_TRUE(count_steps(t, {2, 2.1, 3, 8}).run.spread_second);
}

TEST(settle_rule, ends_after_two_seconds_that_agree) {
  std::vector<double> t = steps_of(1000, 10);
  EXPECT_NEAR(settled_after_s(t).value(), 2.06, 1e-9);
  for (size_t i = 0; i < t.size(); ++i) t[i] *= 1 - 0.02 * std::exp(-static_cast<double>(i) * 0.01 / 2);  // 2% with a time constant of 2 s
  const double after = settled_after_s(t).value();
  EXPECT_GT(after, 3);
  EXPECT_LT(after, 6);
  EXPECT_FALSE(settled_after_s(steps_of(150, 10)));  // too short to know
}

// Two means over 1.03 s each are compared, [0, 1.03) and [1.03, 2.06): steps that become slower later are no part of either.
TEST(settle_rule, looks_at_nothing_after_the_moment_that_it_judges) {
  std::vector<double> t = steps_of(206, 10);
  t.resize(400, 12e6);
  EXPECT_NEAR(settled_after_s(t).value(), 2.06, 1e-9);
}

TEST(steady_steps, begin_after_what_compiles) {
  std::vector<double> t = steps_of(100, 10);
  t[0] = 900e6;
  t[5] = 100e6;
  EXPECT_EQ(first_steady_step(t), 6u);
  EXPECT_EQ(first_steady_step(steps_of(100, 10)), 0u);
}

// n rounds; `b` changes the run of B in round i.
template <class Change>
std::vector<AloneRun> rounds(int n, Change change) {
  std::vector<AloneRun> out;
  for (int i = 0; i < n; ++i)
    for (const char arm : {'A', 'B'}) {
      AloneRun r;
      r.arm = arm;
      r.pair = i;
      r.position = (arm == 'A') == (i % 2 == 0) ? 0 : 1;
      r.steps = 300;
      r.total_ns = 300 * 9e6 * (1 + (i % 3 - 1) * 1e-4);
      r.first_half_ns = r.second_half_ns = r.step_ns();
      r.spread_quarter_s = 0.006;
      r.spread_second = 0.001;
      r.device = {1800, 693, 692, 60, 693 * 2.7, 4, 30, "", ""};
      r.joules_per_step = 693 * 9e-3;
      r.full_clock_ns = 8.5e6;
      change(r, i);
      out.push_back(r);
    }
  return out;
}

const DeviceLimits kLimits{1980, 700};

SelfCheckResult checked(const std::vector<AloneRun>& runs, SelfCheck check) {
  for (const SelfCheckResult& c : self_checks(runs, kLimits, equal_clocks_of(runs, kLimits, 0.008), 0.008))
    if (c.check == check) return c;
  ADD_FAILURE() << "no check " << name(check);
  return {};
}

TEST(self_checks, of_a_good_measurement_notice_nothing) {
  const auto runs = rounds(8, [](AloneRun&, int) {});
  const auto all = self_checks(runs, kLimits, equal_clocks_of(runs, kLimits, 0.008), 0.008);
  EXPECT_EQ(all.size(), 8u);
  for (const SelfCheckResult& c : all) EXPECT_FALSE(c.notice) << c.sentence;
  for (const SelfCheckResult& c : all) EXPECT_EQ(self_check_from_name(name(c.check)), c.check);
}

TEST(self_checks, each_notices_what_it_is_for) {
  const auto noticed = [](SelfCheck check, auto change) {
    const SelfCheckResult c = checked(rounds(8, change), check);
    EXPECT_TRUE(c.notice) << c.sentence;
    return c.sentence;
  };
  EXPECT_THAT(noticed(SelfCheck::settled, [](AloneRun& r, int i) { *r.second_half_ns *= r.arm == 'B' ? 1.003 + 1e-4 * (i % 2) : 1; }),
              HasSubstr("--settle-s 5"));
  EXPECT_THAT(noticed(SelfCheck::cycle, [](AloneRun& r, int) { r.spread_second = 0.004; }), HasSubstr("longer --measure-s"));
  EXPECT_THAT(noticed(SelfCheck::cycle, [](AloneRun& r, int) { r.spread_second.reset(); }), HasSubstr("fewer than two seconds"));
  EXPECT_THAT(noticed(SelfCheck::order, [](AloneRun& r, int) { r.total_ns *= r.position == 1 ? 1.003 : 1; }),
              HasSubstr("B / A is 0.60% higher where A ran first (p < 0.0001)"));
  EXPECT_THAT(noticed(SelfCheck::order, [](AloneRun& r, int) { r.total_ns *= r.position == 0 ? 1.003 : 1; }),
              HasSubstr("B / A is 0.60% lower where A ran first"));
  EXPECT_THAT(noticed(SelfCheck::power, [](AloneRun& r, int) { *r.device.power_w *= r.arm == 'B' ? 0.99 : 1; }), HasSubstr("-1.00%"));
  EXPECT_THAT(noticed(SelfCheck::host, [](AloneRun& r, int i) { *r.full_clock_ns *= r.arm == 'B' ? 1.04 + 1e-4 * (i % 2) : 1; }),
              HasSubstr("the host has a part"));
  EXPECT_THAT(noticed(SelfCheck::stalls,
                      [](AloneRun& r, int) {
                        r.stalls = 5;
                        r.stalled_ns = 5 * 20e6;
                      }),
              HasSubstr("interrupts"));
  // Few stalls, but all of them in B: leaving them out would hide what the change does.
  EXPECT_THAT(noticed(SelfCheck::stalls,
                      [](AloneRun& r, int) {
                        if (r.arm == 'A') return;
                        r.stalls = 2;
                        r.stalled_ns = 2 * 20e6;
                      }),
              testing::ContainsRegex("with them B / A would be 0[.]8.% higher;"));
  EXPECT_THAT(noticed(SelfCheck::burst, [](AloneRun& r, int) { r.burst = true; }), HasSubstr("16 of 16"));
  EXPECT_THAT(noticed(SelfCheck::energy, [](AloneRun& r, int) { *r.device.sampled_power_w = 600; }), HasSubstr("energy counter"));
}

// 16 runs of 300 counted steps, each with 5 that are not.
TEST(self_checks, stalls_are_a_share_of_all_steps) {
  const SelfCheckResult c = checked(rounds(8, [](AloneRun& r, int) { r.stalls = 5, r.stalled_ns = 5 * 20e6; }), SelfCheck::stalls);
  EXPECT_NEAR(*c.value, 100 * 5.0 / 305, 1e-9);
  EXPECT_THAT(c.sentence, HasSubstr("80 of 4880 steps"));
}

// Student's test of two means with one variance: log ratios of 4 and 4 rounds, +-d about means that lie 2 d apart.
TEST(self_checks, the_order_has_the_p_value_of_two_means) {
  const auto runs = rounds(8, [](AloneRun& r, int i) {
    r.total_ns = 300 * 9e6;
    if (r.arm == 'B') r.total_ns *= std::exp(1e-3 * ((i % 2 == 0 ? 1 : -1) + (i / 2 % 2 == 0 ? 1 : -1)));
  });
  // Means +-1e-3, deviations sqrt(4 / 3) 1e-3 each: t = 2 / sqrt(4 / 3 * (1 / 4 + 1 / 4)) = 2.449 with 6 degrees of freedom.
  EXPECT_NEAR(*checked(runs, SelfCheck::order).p_value, 0.0498, 0.0003);
}

TEST(self_checks, rounds_of_two_commands_are_compared) {
  // The second command's clock begins anew; its B takes `more` of a percent more.
  const auto of_two = [](int before, double more) {
    return rounds(7, [&](AloneRun& r, int i) {
      r.at_s = 100 + 10 * (i < before ? i : i - before);
      if (r.arm == 'B' && i >= before) r.total_ns *= 1 + more / 100;
    });
  };
  const SelfCheckResult differ = checked(of_two(3, 1), SelfCheck::pieces);
  EXPECT_TRUE(differ.notice);
  EXPECT_NEAR(*differ.value, 1, 0.01);
  EXPECT_THAT(differ.sentence, AllOf(HasSubstr("1.00% higher in the 4 rounds of the last command than in the 3 before it"),
                                     HasSubstr("a run without --continue is of one")));
  const SelfCheckResult agree = checked(of_two(3, 0.1), SelfCheck::pieces);
  EXPECT_FALSE(agree.notice);
  EXPECT_NEAR(*agree.value, 0.1, 0.01);
  EXPECT_THAT(checked(of_two(6, 1), SelfCheck::pieces).sentence, HasSubstr("fewer than two rounds of the last command"));
  EXPECT_FALSE(pieces_check(of_two(7, 1)));
}

// The same test where the two sides have unlike numbers of rounds and unlike spreads, for both checks that make it.
TEST(self_checks, unlike_numbers_of_rounds_weigh_as_they_have_degrees_of_freedom) {
  std::mt19937 random(5);
  for (int trial = 0; trial < 100; ++trial) {
    SCOPED_TRACE(trial);
    const int n = std::uniform_int_distribution(6, 17)(random), last = std::uniform_int_distribution(2, n - 2)(random);
    const int a_first = std::uniform_int_distribution(2, n - 2)(random);
    std::vector<double> ratio;
    for (int i = 0; i < n; ++i) ratio.push_back(std::normal_distribution(0.0, i < last ? 0.004 : 0.0008)(random));
    std::vector<int> order(static_cast<size_t>(n));
    for (int i = 0; i < n; ++i) order[static_cast<size_t>(i)] = i < a_first;
    std::shuffle(order.begin(), order.end(), random);
    const auto runs = rounds(n, [&](AloneRun& r, int i) {
      const auto at = static_cast<size_t>(i);
      r.total_ns = 300 * 9e6 * (r.arm == 'B' ? std::exp(ratio[at]) : 1);
      r.position = (r.arm == 'A') == static_cast<bool>(order[at]) ? 0 : 1;
      r.at_s = 10 * (i < last ? i : i - last) + r.position;
    });
    const auto expect = [&](SelfCheck check, const auto& is_first) {
      double mean[2] = {}, squares[2] = {};
      int count[2] = {};
      for (int i = 0; i < n; ++i) mean[!is_first(i)] += ratio[static_cast<size_t>(i)], ++count[!is_first(i)];
      for (int k = 0; k < 2; ++k) mean[k] /= count[k];
      for (int i = 0; i < n; ++i) squares[!is_first(i)] += std::pow(ratio[static_cast<size_t>(i)] - mean[!is_first(i)], 2);
      const double variance = (squares[0] + squares[1]) / (n - 2);
      const double t = std::fabs(mean[0] - mean[1]) / std::sqrt(variance * (1.0 / count[0] + 1.0 / count[1]));
      const SelfCheckResult found = checked(runs, check);
      EXPECT_NEAR(*found.value, 100 * std::expm1(mean[0] - mean[1]), 1e-6) << name(check);
      EXPECT_NEAR(*found.p_value, 2 * student_tail(t, n - 2), 1e-6) << name(check);
      EXPECT_EQ(found.notice, std::fabs(*found.value) > 0.15 && *found.p_value < 0.01) << name(check);
    };
    expect(SelfCheck::pieces, [&](int i) { return i >= last; });
    expect(SelfCheck::order, [&](int i) { return order[static_cast<size_t>(i)] != 0; });
  }
}

// The second command heated for so long that it began to count later than the first one ended.
TEST(self_checks, a_command_that_begins_to_count_late_is_another_command_too) {
  const auto late = [](bool resident) {
    return rounds(7, [&](AloneRun& r, int i) {
      r.at_s = 100 + 10 * i + r.position;
      r.rest_s.reset();
      if (resident && (r.position > 0 || (i != 0 && i != 3))) r.rest_s = 2;
      if (r.arm == 'B' && i >= 3) r.total_ns *= 1.01;
    });
  };
  const auto check = pieces_check(late(true));
  ASSERT_TRUE(check);
  EXPECT_THAT(check->sentence, HasSubstr("in the 4 rounds of the last command than in the 3 before it"));
  EXPECT_FALSE(pieces_check(late(false))) << "whole programs do not rest";
}

// At one power the clock that B gets back explains its ratio alone.
TEST(self_checks, the_host_has_no_part_where_the_clocks_explain_the_difference) {
  const auto runs = rounds(8, [](AloneRun& r, int i) {
    if (r.arm == 'A') return;
    const double clocks = 1.02 + 1e-5 * (i % 2);
    r.device.sm_clock_mhz = 1800 * clocks;
    *r.full_clock_ns *= 1.03;
    const double kappa = std::log(9 / 8.5) / std::log(1980. / 1800);
    r.total_ns *= 1.03 * std::pow(clocks, -kappa);
  });
  const SelfCheckResult c = checked(runs, SelfCheck::host);
  EXPECT_FALSE(c.notice) << c.sentence;
  EXPECT_NEAR(*c.value, 0, 0.01);
}

// Eight rounds whose ln ratios lie at +-1e-3 alone, at +-2e-3 at full clock and at +-3e-3 for the clock: half intervals of
// 3.6666 (Student, 7 degrees of freedom, 0.4% above) / sqrt(7) times that. The clock's counts by the elasticity of A,
// ln(9 / 8.5) / ln(1980 / 1800) = 0.5997: 100 * 3.6666 / 2.6458 * (1e-3 + 2e-3 + 0.5997 * 3e-3) = 0.6651.
TEST(self_checks, the_host_may_differ_by_the_three_intervals_together) {
  const auto runs = rounds(8, [](AloneRun& r, int i) {
    r.total_ns = 300 * 9e6;
    if (r.arm == 'A') return;
    const double sign = i % 2 == 0 ? 1 : -1;
    r.total_ns *= std::exp(1e-3 * sign);
    *r.full_clock_ns *= std::exp(2e-3 * sign);
    *r.device.sm_clock_mhz *= std::exp(3e-3 * sign);
  });
  const SelfCheckResult c = checked(runs, SelfCheck::host);
  EXPECT_NEAR(*c.limit, 0.6651, 1e-4);
  EXPECT_NEAR(*c.value, 0, 1e-9);
}

// The processes of a document: one with everything that is known, one of a device that says nothing.
TEST(run_log, has_every_field_of_a_process_in_its_json) {
  AloneRun r;
  r.arm = 'B';
  r.pair = 3;
  r.position = 1;
  r.at_s = 41.25;
  r.start_s = 1.7;
  r.rest_s = 2.57;
  r.settle_s = 2.01;
  r.settle_steps = 223;
  r.steps = 330;
  r.total_ns = 2.97e9;
  r.stalls = 2;
  r.stalled_ns = 41e6;
  r.first_half_ns = 9.01e6;
  r.second_half_ns = 8.99e6;
  r.full_clock_ns = 8.5e6;
  r.device = {1815, 691.5, 690.25, 57, 2064.5, 4, 29, "", ""};
  r.joules_per_step = 6.25;
  r.last_loss = 4.5;
  r.tenths_ns = {8.5e6, 9e6};
  r.tenths_mhz = {1980, 1815};
  r.spread_quarter_s = 0.006;
  r.spread_second = 0.001;
  AloneRun dark;
  dark.steps = 20;
  dark.total_ns = 2e9;
  dark.full_clock_absent = "fewer than 5 steps";
  dark.device.absent = "no NVML";
  dark.device.energy_absent = "no counter";
  dark.burst = true;
  const nlohmann::ordered_json json = runs_to_json(std::vector{r, dark});
  expect_golden("experiments/data/runs.json", json.dump(1) + "\n");
  EXPECT_EQ(runs_to_json(runs_from_json(json, "x")), json);
  const auto refused = [&](const auto& change) {
    nlohmann::ordered_json runs = json;
    change(runs);
    EXPECT_THROW(runs_from_json(runs, "x"), stepscope::InputError);
  };
  refused([](auto& runs) { runs[0]["step_ns"] = 1; });
  refused([](auto& runs) { runs[0]["pair"] = -4; });
  refused([](auto& runs) { runs[0]["pair"] = 3.5; });  // was read as round 3
  refused([](auto& runs) { runs[0]["steps"] = 330.5; });
  refused([](auto& runs) { runs.push_back(runs[0]); });
  refused([](auto& runs) { runs[1].update({{"arm", "B"}, {"pair", 3}}); });  // the first of the two was dropped without a word
}

// A pair with what its blocks say, and one without; of audits that are equally far from their limits the first stays.
TEST(run_log, has_every_field_of_a_pair_in_its_json) {
  RunLog log;
  log.steps_again_checks = 5;
  PairRecord p;
  p.time = {-0.02, 1e-4};
  p.cycles = PairValue{-0.01, 1e-4};
  p.started_first = 'B';
  p.stationary = false;
  p.seconds = 7.5;
  p.blocks = {{'A', 1, 2, 3.14159, 10e6, 8, 4.5, BlockEnvironment{1815, 690.5, 57, 4, 3}}, {'B', 1, 3, 3.3, 9.8e6, 8, {}, {}}};
  log.pairs = {p, PairRecord{}};
  expect_golden("experiments/data/pairs.json", pairs_to_json(log).dump(1) + "\n");
}

// Of audits that are equally far from their limits the first stays; B's are B's also where A has none.
TEST(run_log, has_the_worst_of_every_measure_of_an_arm) {
  const auto finding = [](char arm, const char* check, double value, double limit) {
    return ArmFinding{arm, {check, "what", value, limit, ""}};
  };
  RunLog log;
  log.pairs.resize(2);
  log.pairs[0].audits = {finding('B', "clock", 1, 3), finding('B', "late work", 1, 3)};
  log.pairs[1].audits = {finding('A', "clock", 5, 9), finding('B', "clock", 2, 4), finding('B', "late work", 2, 3)};
  const auto worst = worst_findings(log);
  ASSERT_EQ(worst.size(), 3u);
  EXPECT_EQ(worst[0].arm, 'B');
  EXPECT_EQ(worst[0].finding.limit, 3);
  EXPECT_EQ(worst[1].finding.value, 2);
  EXPECT_EQ(worst[2].arm, 'A');
  EXPECT_TRUE(worst_findings(RunLog{}).empty());
}

// A session that was interrupted in the middle of a round: the figures of an arm are those of which the ratio is.
TEST(sustained_arms, a_process_whose_partner_never_ran_is_in_no_figure) {
  std::vector<AloneRun> runs = rounds(3, [](AloneRun&, int) {});
  const auto whole = sustained(runs, kLimits, 0.008);
  AloneRun alone = runs.front();
  alone.pair = 3, alone.total_ns *= 2;
  runs.push_back(alone);
  const auto cut = sustained(runs, kLimits, 0.008);
  ASSERT_TRUE(whole && cut);
  EXPECT_EQ(cut->a.processes, 3);
  EXPECT_EQ(cut->b.processes, 3);
  EXPECT_EQ(cut->a.step_ns, whole->a.step_ns);
  EXPECT_EQ(cut->b.step_ns, whole->b.step_ns);
}

TEST(sustained_arms, are_clock_limited_at_the_cap_below_full_clock_only) {
  const auto limited = [](double mhz, double watt) {
    const auto s = sustained(rounds(2,
                                    [&](AloneRun& r, int) {
                                      r.device.sm_clock_mhz = mhz;
                                      r.device.power_w = watt;
                                    }),
                             kLimits, 0.008);
    return s->a.clock_limited.value();
  };
  EXPECT_TRUE(limited(1800, 692));
  EXPECT_FALSE(limited(1975, 692));  // the bit may be set all the same
  EXPECT_FALSE(limited(1800, 600));
  const auto s = sustained(rounds(2, [](AloneRun&, int) {}), kLimits, 0.008);
  EXPECT_NEAR(s->a.cap_cost_pct.value(), 100 * (1 - 8.5 / 9), 1e-2);
  // A CPU has first steps too, and neither a clock nor a power that a cap would hold back.
  const auto cpu = sustained(rounds(2, [](AloneRun& r, int) { r.device = {}; }), kLimits, 0.008);
  EXPECT_FALSE(cpu->a.clock_limited);
  EXPECT_TRUE(cpu->a.full_clock_ns);
  EXPECT_FALSE(cpu->a.cap_cost_pct);
  EXPECT_FALSE(sustained(rounds(2, [](AloneRun&, int) {}), {}, 0.008)->a.cap_cost_pct);
}

}  // namespace
}  // namespace experiments

#include "experiments/statistics/decision.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/experiments/student_tail.h"

namespace experiments {
namespace {

// n pairs around ln(1 + pct / 100) that alternate by +- spread.
std::vector<PairValue> pairs(double pct, double spread_pct, int n = 12) {
  std::vector<PairValue> out;
  for (int i = 0; i < n; ++i) out.push_back({std::log1p(pct / 100) + (i % 2 ? 1 : -1) * spread_pct / 100, 0.001});
  return out;
}

// One look at 12 pairs, at 2%.
Thresholds one_look() {
  Thresholds t;
  t.looks = extended_looks(12, 12);
  return t;
}

TEST(decision, calls_a_clear_difference_by_its_direction) {
  EXPECT_EQ(decide(pairs(-1, 0.2), {}, 1).verdict, Verdict::faster);
  EXPECT_EQ(decide(pairs(+1, 0.2), {}, 1).verdict, Verdict::slower);
}

TEST(decision, calls_a_certain_but_pointless_difference_the_same) {
  const Decision d = decide(pairs(-0.2, 0.05), {}, 1);
  EXPECT_LT(d.interval->high, 0);  // it does exclude 0
  EXPECT_EQ(d.verdict, Verdict::same);
  EXPECT_EQ(d.reason, reason::kEquivalent);
}

TEST(decision, calls_pairs_without_any_difference_the_same_and_asks_no_sign_of_them) {
  const Decision d = decide(std::vector<PairValue>(12, {0.0, {}}), {}, 1);
  EXPECT_EQ(d.verdict, Verdict::same);
  EXPECT_EQ(d.reason, reason::kEquivalent);
  EXPECT_EQ(d.interval->low, 0);
  EXPECT_EQ(d.interval->high, 0);
  EXPECT_FALSE(d.sign_flip_p);
}

TEST(decision, leaves_a_wide_interval_undecided_and_says_what_would_have_been_found) {
  const Decision d = decide(pairs(-0.5, 2), one_look(), 1);
  EXPECT_EQ(d.verdict, Verdict::undecided);
  EXPECT_EQ(d.reason, reason::kNotEnough);
  // sd of 12 values +-2% is 2% * sqrt(12/11); 3.5936 * sd / sqrt(12) = 2.167% as a log, 2.19% as a ratio.
  EXPECT_NEAR(*d.detectable_effect, 0.0219, 1e-4);
}

TEST(decision, needs_the_exact_test_to_agree_with_the_t_test) {
  // 6 equal pairs: t is certain, but 6 signs cannot be rarer than 2/64 = .031 > .02.
  const Decision d = decide(pairs(-1, 0.01, 6), one_look(), 1);
  EXPECT_EQ(d.verdict, Verdict::undecided);
  EXPECT_EQ(d.reason, reason::kTestsDisagree);
  EXPECT_EQ(decide(pairs(-1, 0.01, 7), one_look(), 1).verdict, Verdict::faster);
}

TEST(decision, judges_both_looks_at_the_level_that_holds_for_them_together) {
  // p = .0143 over 24 pairs (t = 2.65, df 23): enough for a single look (.02), not for one of two (.0111).
  const double spread = 0.5 / 2.65 * std::sqrt(23.0);
  std::vector<PairValue> p = pairs(0, 0, 24);
  for (size_t i = 0; i < p.size(); ++i) p[i].log_ratio = -0.005 + (i % 2 ? 1 : -1) * spread / 100;
  EXPECT_NEAR(*decide(p, {}, 2).p_value, 0.0143, 2e-4);
  EXPECT_EQ(decide(p, one_look(), 1).verdict, Verdict::faster);
  EXPECT_EQ(decide(p, {}, 1).verdict, Verdict::undecided);
  EXPECT_EQ(decide(p, {}, 2).verdict, Verdict::undecided);
}

TEST(decision, gives_a_campaign_the_smallest_p_value_of_its_looks_times_their_number) {
  // Sure after 8 pairs and blurred afterwards: p of the last look is not the smallest.
  std::vector<PairValue> p = pairs(-1, 0.1, 8);
  for (int i = 0; i < 16; ++i) p.push_back({(i % 2 ? 1 : -1) * 0.02, {}});
  Thresholds t;
  t.looks = alone_looks();
  ASSERT_EQ(t.looks.size(), 3u);
  const Decision first = decide(std::span(p).first(8), t, 1), last = decide(p, t, 3);
  EXPECT_GT(*last.p_value, *first.p_value);
  EXPECT_DOUBLE_EQ(*first.campaign_p, 3 * *first.p_value);
  EXPECT_DOUBLE_EQ(*last.campaign_p, 3 * *first.p_value);
  EXPECT_DOUBLE_EQ(*decide(pairs(0, 1, 24), t, 3).campaign_p, 1.0);
}

TEST(alone_looks, are_at_8_16_and_24_pairs_and_8_need_one_sign) {
  Thresholds t;
  t.looks = alone_looks();
  EXPECT_EQ(t.looks[0].pairs, 8);
  EXPECT_EQ(t.looks[1].pairs, 16);
  EXPECT_EQ(t.looks[2].pairs, 24);
  EXPECT_EQ(decide(pairs(-1, 0.1, 8), t, 1).verdict, Verdict::faster);
  std::vector<PairValue> split = pairs(-2, 0.01, 8);
  split[0].log_ratio = 1e-6;
  EXPECT_NE(decide(split, t, 1).verdict, Verdict::faster);
}

TEST(alone_looks, of_pairs_that_three_does_not_divide_come_no_earlier_than_at_a_third_and_two) {
  const std::vector<Look> looks = alone_looks(10);
  EXPECT_EQ(looks[0].pairs, 4);
  EXPECT_EQ(looks[1].pairs, 7);
  EXPECT_EQ(looks[2].pairs, 10);
}

// Levels were simulated for 24 pairs; plans of fewer have the smaller ones.
TEST(alone_looks, of_exactly_24_pairs_have_the_levels_of_24) {
  EXPECT_EQ(alone_looks(24).back().alpha, 0.0080);
  EXPECT_EQ(alone_looks(23).back().alpha, 0.0075);
}

TEST(decision, without_two_pairs_is_undecided) {
  EXPECT_EQ(decide(pairs(-5, 0, 1), {}, 1).reason, reason::kTooFewPairs);
  EXPECT_EQ(decide({}, {}, 1).reason, reason::kTooFewPairs);
}

TEST(decision, names_process_level_modes) {
  EXPECT_FALSE(decide(pairs(-1, 0.2), {}, 1).process_modes);
  EXPECT_TRUE(decide(pairs(-1, 0.4), {}, 1).process_modes);  // inner error is 0.1%
}

// Pairs whose errors differ, some of which have none, as of a single quad; every number of the decision by its definition.
TEST(decision, has_the_numbers_of_its_definitions_for_any_pairs) {
  std::mt19937 random(11);
  int modes = 0, without_modes = 0;
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(trial);
    const int n = std::uniform_int_distribution(3, 24)(random);
    const double middle = std::uniform_real_distribution(-0.02, 0.02)(random);
    std::normal_distribution<double> about(middle, std::pow(10, std::uniform_real_distribution(-4.0, -2.0)(random)));
    std::vector<PairValue> drawn;
    double sum = 0, squares = 0;
    int with_error = 0;
    for (int i = 0; i < n; ++i) {
      PairValue p{about(random), std::nullopt};
      if (random() % 4) p.error = std::pow(10, std::uniform_real_distribution(-5.0, -2.0)(random));
      if (p.error) squares += std::pow(*p.error, 2), ++with_error;
      sum += p.log_ratio;
      drawn.push_back(p);
    }
    const double mean = sum / n;
    double spread = 0;
    for (const PairValue& p : drawn) spread += std::pow(p.log_ratio - mean, 2) / (n - 1);
    const double sd = std::sqrt(spread), error = sd / std::sqrt(n);

    Thresholds t;
    t.looks = extended_looks(n, n);
    const Decision d = decide(drawn, t, 1);
    ASSERT_EQ(d.within_pair_error.has_value(), with_error > 0);
    EXPECT_NEAR(d.log_ratio->mean, mean, 1e-12);
    EXPECT_NEAR(d.log_ratio->sd, sd, 1e-9 * sd);
    EXPECT_NEAR((d.interval->low + d.interval->high) / 2, mean, 1e-12);
    EXPECT_NEAR(2 * student_tail((d.interval->high - mean) / error, n - 1), 0.02, 1e-6);
    const double p = 2 * student_tail(std::fabs(mean) / error, n - 1), bound = std::log1p(0.005);
    EXPECT_NEAR(*d.p_value, p, 1e-6);
    EXPECT_NEAR(*d.campaign_p, p, 1e-6);
    EXPECT_NEAR(*d.equivalence_p, std::max(student_tail((mean + bound) / error, n - 1), 1 - student_tail((mean - bound) / error, n - 1)),
                1e-6);
    if (!d.within_pair_error) continue;
    const double within = std::sqrt(squares / with_error);
    EXPECT_NEAR(*d.within_pair_error, within, 1e-12);
    EXPECT_EQ(d.process_modes, sd > 3 * within);
    const std::string said = fmt::format("process-level modes: pairs spread {:.1f} times their inner error", sd / within);
    EXPECT_EQ(d.sentence.find(said) != std::string::npos, sd > 3 * within) << d.sentence;
    (d.process_modes ? modes : without_modes) += 1;
  }
  EXPECT_GT(modes, 10);
  EXPECT_GT(without_modes, 10);
}

TEST(another_look, is_planned_only_after_an_undecided_first_look) {
  EXPECT_TRUE(wants_another_look(decide(pairs(-0.5, 2), {}, 1), {}));
  EXPECT_FALSE(wants_another_look(decide(pairs(-0.5, 2, 24), {}, 2), {}));
  EXPECT_FALSE(wants_another_look(decide(pairs(-1, 0.2), {}, 1), {}));
  Thresholds fixed;
  fixed.looks = extended_looks(12, 12);
  EXPECT_FALSE(wants_another_look(decide(pairs(-0.5, 2), fixed, 1), fixed));
}

TEST(sequential_looks, stop_at_6_pairs_only_for_what_is_sure_and_spend_two_percent_in_all) {
  Thresholds t;
  t.looks = sequential_looks();
  ASSERT_EQ(t.looks.size(), 3u);
  EXPECT_EQ(t.looks[0].pairs, 6);
  EXPECT_EQ(t.looks[1].pairs, 9);
  EXPECT_EQ(t.looks[2].pairs, 12);
  EXPECT_EQ(decide(pairs(-1, 0.1, 6), t, 1).verdict, Verdict::faster);
  // One pair of the other sign: the exact test of 6 cannot agree.
  std::vector<PairValue> split = pairs(-1, 0.01, 6);
  split[0].log_ratio = 1e-6;
  for (size_t i = 1; i < split.size(); ++i) split[i].log_ratio = -0.02;
  EXPECT_NE(decide(split, t, 1).verdict, Verdict::faster);
  // p = .0145 over 12 pairs (t = 2.9) is enough for the only look, not for the last of three.
  std::vector<PairValue> p;
  for (int i = 0; i < 12; ++i) p.push_back({-0.005 * (1 + (i - 5.5) / std::sqrt(13.0) * std::sqrt(12.0) / 2.9), 0.001});
  EXPECT_EQ(decide(p, one_look(), 1).verdict, Verdict::faster);
  EXPECT_EQ(decide(p, t, 3).verdict, Verdict::undecided);
  EXPECT_TRUE(wants_another_look(decide(p, t, 2), t));
  EXPECT_FALSE(wants_another_look(decide(p, t, 3), t));
  // A document from before campaign_p: the level of the look becomes that of the campaign.
  Decision old = decide(p, t, 3);
  old.campaign_p.reset();
  EXPECT_NEAR(*campaign_p_value(old, t), *old.p_value * 0.02 / 0.0085, 1e-12);
}

TEST(sequential_looks, call_identical_normal_pairs_different_in_two_percent_of_trials) {
  Thresholds t;
  t.looks = sequential_looks();
  t.minimum_effect = 1e-9;  // the level of the test alone
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal(0, 1e-6);
  int different = 0;
  constexpr int kTrials = 4000;
  for (int i = 0; i < kTrials; ++i) {
    std::vector<PairValue> p;
    Decision d;
    for (int look = 1; look <= 3; ++look) {
      while (static_cast<int>(p.size()) < t.looks[static_cast<size_t>(look - 1)].pairs) p.push_back({normal(random), {}});
      d = decide(p, t, look);
      if (!wants_another_look(d, t)) break;
    }
    different += d.verdict == Verdict::faster || d.verdict == Verdict::slower;
  }
  // 2% = 80, standard deviation 9; the exact test takes a few away.
  EXPECT_LE(different, 107);
  EXPECT_GE(different, 35);
}

TEST(campaign, takes_back_a_claim_that_would_not_survive_holm) {
  // p = .0145 alone is below .02; of two claims the smaller must be below .01.
  const Estimate graded = estimate(std::vector<double>{-5.5, -4.5, -3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5}).value();
  std::vector<PairValue> weak;
  for (int i = 0; i < 12; ++i)  // t = 2.9 with 11 degrees of freedom
    weak.push_back({-0.005 * (1 + (i - 5.5) / graded.sd * std::sqrt(12.0) / 2.9), 0.001});
  const Decision claim = decide(weak, one_look(), 1);
  ASSERT_EQ(claim.verdict, Verdict::faster) << claim.sentence;
  std::vector<Decision> one{claim, decide(pairs(0, 0.1), {}, 1)};
  correct_for_campaign(one, {});
  EXPECT_EQ(one[0].verdict, Verdict::undecided);  // the only claim, but one of two tests
  std::vector<Decision> alone{claim};
  correct_for_campaign(alone, {});
  EXPECT_EQ(alone[0].verdict, Verdict::faster);
  Decision refused;  // never measured
  refused.verdict = Verdict::invalid;
  std::vector<Decision> beside{claim, refused};
  correct_for_campaign(beside, {});
  EXPECT_EQ(beside[0].verdict, Verdict::faster);
  beside[1].p_value = 0.5;  // measured, and then found to be invalid
  beside[1].alpha = claim.alpha;
  correct_for_campaign(beside, {});
  EXPECT_EQ(beside[0].verdict, Verdict::faster) << "what is invalid is no test";
  std::vector<Decision> two{claim, claim, decide(pairs(-3, 0.1), {}, 1)};
  correct_for_campaign(two, {});
  EXPECT_EQ(two[0].verdict, Verdict::undecided);
  EXPECT_EQ(two[0].reason, reason::kNotAfterHolm);
  EXPECT_EQ(two[2].verdict, Verdict::faster);
}

// 3 looks times p = .0075 would be .0225 and above the level of all looks together, which is what the look's own .0085 stands for.
TEST(campaign, of_one_experiment_keeps_what_a_look_of_several_claims) {
  // One pair of another size: t = 1 + n / 5.31 over n of them, 3.26 over all 12, and all of one sign.
  std::vector<PairValue> weak(12, {-0.003, {}});
  weak[0].log_ratio *= 1 + 5.31;
  Thresholds t;
  t.looks = sequential_looks();
  const Decision claim = decide(weak, t, 3);
  ASSERT_EQ(claim.verdict, Verdict::faster) << claim.sentence;
  ASSERT_GT(3 * *claim.p_value, 0.0222);
  EXPECT_EQ(*claim.campaign_p, 0.02);
  std::vector<Decision> alone{claim};
  correct_for_campaign(alone, t);
  EXPECT_EQ(alone[0].verdict, Verdict::faster) << alone[0].sentence;
  std::vector<Decision> beside{claim, decide(pairs(0, 0.1, 12), t, 3)};
  correct_for_campaign(beside, t);
  EXPECT_EQ(beside[0].verdict, Verdict::undecided) << "one of two tests";
  // An earlier look that reached its level counts when a later one blurs it; a p value above every level is multiplied as it is.
  std::vector<PairValue> blurred(weak.begin(), weak.end());
  t.looks = {{12, 0.0085, 0.024, 0.0085}, {14, 0.0085, 0.024, 0.0085}, {16, 0.0085, 0.024, 0.0085}};
  for (const double v : {0.05, -0.05}) blurred.push_back({v, {}});
  EXPECT_EQ(*decide(blurred, t, 2).campaign_p, 0.02);
  t.looks[0].alpha = 0.007;
  EXPECT_DOUBLE_EQ(*decide(blurred, t, 2).campaign_p, 3 * *claim.p_value);
}

TEST(campaign, of_eight_experiments_without_an_effect_rarely_claims_one) {
  Thresholds t;
  t.minimum_effect = 1e-9;  // the level of the test alone
  std::mt19937_64 random(11);
  std::normal_distribution<double> normal(0, 0.006);
  int claimed = 0;
  constexpr int kCampaigns = 400;
  for (int c = 0; c < kCampaigns; ++c) {
    std::vector<Decision> decisions;
    for (int e = 0; e < 8; ++e) {
      std::vector<PairValue> p;
      for (int i = 0; i < 12; ++i) p.push_back({normal(random), {}});
      decisions.push_back(decide(p, t, 1));
    }
    correct_for_campaign(decisions, t);
    claimed += std::any_of(decisions.begin(), decisions.end(),
                           [](const Decision& d) { return d.verdict == Verdict::faster || d.verdict == Verdict::slower; });
  }
  EXPECT_LE(claimed, kCampaigns * 4 / 100);  // 2% nominal; 14% when only the claims are counted
}

TEST(detectable_effect, is_never_below_the_effect_that_a_claim_needs) {
  // sd 0.13%, 12 pairs: the interval would exclude 0 at 0.14%, but less than 0.3% is never called different.
  std::mt19937_64 random(12);
  std::normal_distribution<double> normal(0, 0.0013);
  const auto called = [&](double effect) {
    int n = 0;
    for (int trial = 0; trial < 400; ++trial) {
      std::vector<PairValue> p;
      for (int i = 0; i < 12; ++i) p.push_back({std::log1p(effect) + normal(random), {}});
      n += decide(p, {}, 1).verdict == Verdict::slower;
    }
    return n / 400.0;
  };
  std::vector<double> spread;
  for (int i = 0; i < 12; ++i) spread.push_back((i - 5.5) / std::sqrt(13.0) * 0.0013);
  std::vector<PairValue> p;
  for (const double x : spread) p.push_back({x, {}});
  const double detectable = decide(p, {}, 1).detectable_effect.value();
  EXPECT_GT(detectable, 0.003);
  EXPECT_NEAR(called(detectable), 0.8, 0.06);
}

TEST(thresholds, leave_no_estimate_that_is_both_different_and_the_same) {
  // At the minimum effect with an interval that just excludes 0, the equivalence test must not accept.
  for (const double effect : {0.001, 0.003, 0.01, 0.05}) {
    Thresholds t;
    t.minimum_effect = effect;
    const double mean = std::log1p(effect), half98 = mean * 1.0001;
    const Estimate e{mean, half98 / 2.718079 * std::sqrt(12.0), 12};
    EXPECT_GT(equivalence_p_value(e, std::log1p(t.equivalence_bound())), 0.03) << effect;
  }
}

TEST(verdict, names_are_those_of_the_contract) {
  for (const char* text : {"faster", "slower", "same", "undecided", "invalid"}) EXPECT_EQ(name(verdict_from_name(text).value()), text);
  EXPECT_FALSE(verdict_from_name("better"));
}

}  // namespace
}  // namespace experiments

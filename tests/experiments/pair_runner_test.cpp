// The runner with small programs as arms: what it decides, in which order it steps, and what is left of an
// arm that misbehaves. No GPU, no trainer.
#include "experiments/runner/pair_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/errors.h"
#include "experiments/runner/run_log.h"
#include "tests/experiments/runner_fixture.h"

namespace experiments {
namespace {

using ::testing::HasSubstr;

TEST_F(PairRunner, finds_a_planted_difference_in_its_direction) {
  EXPECT_EQ(run_pairs(plan(arm("A", "good", 1e6), arm("B", "good", 1.02e6)), {}).decision.verdict, Verdict::slower);
  EXPECT_EQ(run_pairs(plan(arm("A", "good", 1e6), arm("B", "good", 0.98e6)), {}).decision.verdict, Verdict::faster);
  const RunLog same = run_pairs(plan(arm("A", "good", 1e6), arm("B", "good", 1e6)), {});
  EXPECT_EQ(same.decision.verdict, Verdict::same) << same.decision.sentence;
}

TEST_F(PairRunner, starts_fresh_processes_for_every_pair) {
  run_pairs(plan(arm("A", "good"), arm("B", "good"), 5), {});
  EXPECT_EQ(started().size(), 10u);
}

TEST_F(PairRunner, steps_in_abba_or_baab_quads_and_draws_which) {
  const RunLog log = run_pairs(plan(arm("A", "good"), arm("B", "good"), 12), {});
  int abba = 0, baab = 0, a_first = 0;
  for (const PairRecord& p : log.pairs) {
    ASSERT_EQ(p.blocks.size(), 8u);
    for (size_t q = 0; q < 2; ++q) {
      std::string order;
      for (size_t i = 0; i < 4; ++i) order += p.blocks[4 * q + i].arm;
      abba += order == "ABBA";
      baab += order == "BAAB";
    }
    a_first += p.started_first == 'A';
  }
  EXPECT_EQ(abba + baab, 24);
  EXPECT_GT(abba, 4);
  EXPECT_GT(baab, 4);
  EXPECT_GT(a_first, 1);
  EXPECT_LT(a_first, 11);
}

TEST_F(PairRunner, takes_as_many_quads_as_the_pair_can_afford_and_at_least_four) {
  PairPlan p = plan(arm("A", "good"), arm("B", "good"), 2);  // steps of 1 ms, blocks of 2 + 1
  p.quads = 24;
  p.pair_s = 0.122;  // a quad takes 12 ms
  EXPECT_EQ(run_pairs(p, {}).pairs.at(0).blocks.size(), 40u);
  p.pair_s = 0.001;
  EXPECT_EQ(run_pairs(p, {}).pairs.at(0).blocks.size(), 16u);
  p.pair_s = 100;
  EXPECT_EQ(run_pairs(p, {}).pairs.at(0).blocks.size(), 96u);
}

TEST_F(PairRunner, takes_as_many_steps_as_fill_a_block_and_no_fewer_than_told) {
  PairPlan p = plan(arm("A", "good"), arm("B", "good", 2e6), 2);  // the faster arm takes 1 ms
  p.block_s = 0.0095;
  for (const Block& b : run_pairs(p, {}).pairs[0].blocks) EXPECT_EQ(b.steps, 10);
  p.block_steps = 12;
  for (const Block& b : run_pairs(p, {}).pairs[0].blocks) EXPECT_EQ(b.steps, 12);
}

// On a clock of its own: steps of 10 ms, or of ever 5% more.
class WarmingArm final : public Arm {
 public:
  WarmingArm(double& seconds, double growth) : seconds_(seconds), growth_(growth) {}
  void start() override {}
  void wait_ready(double) override {}
  BlockTimes block(int steps, double) override {
    BlockTimes out;
    out.times_ns.assign(static_cast<size_t>(steps), 10e6 * growth_now_);
    seconds_ += (steps + 1) * 0.01;
    growth_now_ *= growth_;
    return out;
  }
  Stretch stretch(const StretchRequest&, double) override { return {}; }
  int steps_again(uint64_t, double) override { return 1; }
  bool keeps_state() const override { return true; }
  const nlohmann::ordered_json& info() const override { return info_; }

 private:
  double& seconds_;
  double growth_, growth_now_ = 1;
  nlohmann::ordered_json info_ = nlohmann::ordered_json::object();
};

TEST_F(PairRunner, warms_up_until_the_steps_have_settled_and_at_most_five_times_as_long) {
  const auto first_pair = [&](double growth) {
    double seconds = 0;
    Hooks h;
    h.now = [&] { return Clock::time_point(std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9))); };
    h.make_arm = [&](const ArmSpec&) { return std::make_unique<WarmingArm>(seconds, growth); };
    PairPlan p = plan(arm("A", ""), arm("B", ""), 2);
    p.warmup_s = 2;
    p.steps_again = false;
    return run_pairs(p, h).pairs.at(0);
  };
  const PairRecord level = first_pair(1), rising = first_pair(1.05);
  EXPECT_TRUE(level.stationary);
  EXPECT_NEAR(level.blocks[0].at_s, 2, 0.1);
  EXPECT_FALSE(rising.stationary);
  EXPECT_NEAR(rising.blocks[0].at_s, 10, 0.1);
}

TEST_F(PairRunner, leaves_the_first_step_of_a_block_out) {
  // The fake's first step of each block takes 100 times as long; of two steps, half of it would show.
  PairPlan p = plan(arm("A", "good"), arm("B", "good"), 2);
  p.block_steps = 1;
  const RunLog log = run_pairs(p, {});
  for (const Block& b : log.pairs[0].blocks) EXPECT_NEAR(b.step_ns, 1e6, 2e3);
}

TEST_F(PairRunner, an_arm_takes_its_group_with_it_even_where_orphans_cannot_be_listed) {
  {
    const auto a = make_arm(arm("A", "grandchild"), nullptr);
    a->start();
    a->wait_ready(600);
  }
  EXPECT_EQ(started().size(), 2u);
  expect_gone();
}

TEST_F(PairRunner, extends_once_when_the_first_look_decides_nothing) {
  PairPlan p = plan(arm("A", "good", 1e6), arm("B", "good", 1.02e6), 3);  // 3 signs: p >= 1/4, cannot agree
  p.thresholds.looks = extended_looks(3, 9);
  const RunLog log = run_pairs(p, {});
  EXPECT_EQ(log.pairs.size(), 9u);
  EXPECT_EQ(log.decision.look, 2);
  EXPECT_EQ(log.decision.verdict, Verdict::slower);
}

TEST_F(PairRunner, looks_in_sequence_and_stops_at_the_one_that_decides) {
  PairPlan p = plan(arm("A", "good", 1e6), arm("B", "good", 1.02e6));
  p.thresholds.looks = sequential_looks(12);
  const RunLog slower = run_pairs(p, {});
  EXPECT_EQ(slower.pairs.size(), 6u);
  EXPECT_EQ(slower.decision.look, 1);
  EXPECT_EQ(slower.decision.verdict, Verdict::slower);
}

// `rise` in degrees over each pair of 5 s, then level.
RunLog warmed(double rise_c, int rising_pairs) {
  RunLog log;
  double c = 40;
  for (int i = 0; i < 12; ++i) {
    PairRecord p;
    if (i < rising_pairs) c += rise_c;
    for (int k = 0; k < 4; ++k) {
      Block b;
      b.at_s = 5 * i + k;
      b.environment = BlockEnvironment{1900, 600, c, 0, 1};
      p.blocks.push_back(b);
    }
    log.pairs.push_back(p);
  }
  return log;
}

TEST(Heating, names_the_pairs_after_which_the_device_still_warmed_up) {
  const Heating h = heating(warmed(1, 4)).value();  // 2 degrees in 10 s, then 1 in 10 s from the third to the fifth pair
  EXPECT_NEAR(h.most_c_per_10_s, 2, 1e-9);
  EXPECT_EQ(h.pairs, (std::vector<int>{1, 2}));
  EXPECT_TRUE(heating(warmed(0.5, 12)).value().pairs.empty());  // exactly the limit
  EXPECT_LT(heating(warmed(-1, 12)).value().most_c_per_10_s, 0);
  EXPECT_FALSE(heating(RunLog()));
  RunLog dark = warmed(1, 4);
  for (PairRecord& p : dark.pairs)
    for (Block& b : p.blocks) b.environment.reset();
  EXPECT_FALSE(heating(dark));
}

struct Misbehaviour {
  const char* mode;
  const char* sentence;
};
class Misbehaving : public PairRunner, public ::testing::WithParamInterface<Misbehaviour> {};

TEST_P(Misbehaving, arm_makes_the_run_invalid_with_the_reason_and_leaves_no_process) {
  const std::string mode = GetParam().mode;
  PairPlan p = plan(arm("A", "good"), arm("B", mode));
  // Only what waits for the time limit has a short one, and it is the limit of both arms: five seconds for a process that has
  // nothing to do but answer.
  if (mode == "hang") p.block_timeout_s = 5;
  if (mode == "silent") p.start_timeout_s = 5;
  if (mode == "slow_answer") p.audit.outside_floor_ns = 2.5e8;
  // Late by 0.9 ms in blocks of 19 steps of 1 ms, of which it says that they were one step of 19.
  if (mode == "few_steps") p.block_steps = 19;
  const RunLog log = run_pairs(p, {});
  EXPECT_EQ(log.decision.verdict, Verdict::invalid);
  EXPECT_EQ(log.decision.reason, reason::kArmFailed);
  EXPECT_THAT(log.decision.sentence, HasSubstr("arm B"));
  EXPECT_THAT(log.decision.sentence, HasSubstr(GetParam().sentence));
}

INSTANTIATE_TEST_SUITE_P(each, Misbehaving,
                         ::testing::Values(Misbehaviour{"crash", "exited with code 9"}, Misbehaviour{"killed", "killed by signal 9"},
                                           Misbehaviour{"hang", "said nothing for 5 s"}, Misbehaviour{"silent", "before it was ready"},
                                           Misbehaviour{"exit_at_start", "no such device"},
                                           Misbehaviour{"refuses", "refused its arguments; its last output:\nunknown flag --newer"},
                                           Misbehaviour{"garbage", "hello"}, Misbehaviour{"error", "out of memory"},
                                           Misbehaviour{"nan_time", "null as a step's time"},
                                           Misbehaviour{"zero_time", "0 as a step's time"}, Misbehaviour{"nan_loss", "the loss became NaN"},
                                           Misbehaviour{"short_answer", "times_ns"}, Misbehaviour{"no_audit", "expected an audit"},
                                           Misbehaviour{"two_clocks", "clock: a block took"},
                                           Misbehaviour{"slow_answer", "longer by the runner's clock"},
                                           Misbehaviour{"late_work", "late work: device or threads worked for 0.900 ms more"},
                                           Misbehaviour{"few_steps", "late work: device or threads worked for 0.900 ms more"},
                                           Misbehaviour{"no_list", "times_ns, got '{\"times_ns\":5}"},
                                           Misbehaviour{"launch_error", "launch error: a kernel launch failed"},
                                           Misbehaviour{"persisting_l2", "persisting L2: 1048576 bytes"},
                                           Misbehaviour{"other_steps", "timed steps: a fresh trainer computes other results"}),
                         [](const auto& case_) { return std::string(case_.param.mode); });

TEST_F(PairRunner, keeps_what_the_arms_answered_for_and_asks_for_steps_again_once) {
  const RunLog log = run_pairs(plan(arm("A", "good"), arm("B", "good"), 3), {});
  EXPECT_EQ(log.steps_again_checks, 1);
  for (const PairRecord& p : log.pairs) EXPECT_EQ(p.audits.size(), 10u);  // five of each arm
  const std::vector<ArmFinding> worst = worst_findings(log);
  ASSERT_EQ(worst.size(), 10u);
  EXPECT_EQ(worst[4].arm, 'A');
  EXPECT_EQ(worst[5].arm, 'B');
}

TEST_F(PairRunner, one_late_block_is_not_held_against_an_arm) {
  std::vector<gate::BlockAudit> blocks(4, {8, 8e6, 8e6, 1e4, "", 0, 9e6});
  blocks[2].late_ns = 5e8;
  blocks[0].clock_ns = 9e9;
  blocks[1].outside_ns = 9e9;
  for (const gate::AuditFinding& f : gate::findings(blocks)) EXPECT_TRUE(f.passed()) << f.sentence;
  blocks[0].launch_error = "invalid argument";  // but one failed launch is
  int failed = 0;
  for (const gate::AuditFinding& f : gate::findings(blocks)) failed += !f.passed();
  EXPECT_EQ(failed, 1);
}

TEST_F(PairRunner, a_time_that_is_not_a_number_passes_no_audit) {
  const std::vector<gate::BlockAudit> blocks(3, {8, NAN, NAN, NAN, "", 0, NAN});
  for (const gate::AuditFinding& f : gate::findings(blocks))
    if (f.check == "clock" || f.check == "late work") {
      EXPECT_FALSE(f.passed()) << f.what;
    }
}

TEST_F(PairRunner, says_that_an_arm_cannot_be_started) {
  ArmSpec none = arm("B", "good");
  none.argv[0] = (folder_ / "no-such-program").string();
  const RunLog log = run_pairs(plan(arm("A", "good"), none), {});
  EXPECT_EQ(log.decision.verdict, Verdict::invalid);
  EXPECT_THAT(log.decision.sentence, HasSubstr("No such file"));
}

TEST_F(PairRunner, leaves_no_grandchild_and_no_daemon_behind) {
  Hooks hooks;  // between pairs too: an orphan of one would run beside the next
  hooks.progress = [&](const Hooks::Progress&) { expect_gone(); };
  run_pairs(plan(arm("A", "grandchild"), arm("B", "daemon"), 2), hooks);
  EXPECT_EQ(started().size(), 8u);  // TearDown looks for them
}

TEST_F(PairRunner, keeps_what_was_measured_when_interrupted_and_says_undecided) {
  static std::atomic<bool> stop;
  stop = false;
  auto* before = signal(SIGINT, [](int) { stop = true; });
  Hooks hooks;
  hooks.stop = &stop;
  int pairs = 0;
  hooks.progress = [&](const Hooks::Progress& p) { pairs = p.pairs_done; };
  PairPlan p = plan(arm("A", "good"), arm("B", "good"));
  p.quads = 2;
  hooks.block_begins = [&](char) {
    if (pairs == 3) raise(SIGINT);
  };
  const RunLog log = run_pairs(p, hooks);
  signal(SIGINT, before);
  EXPECT_EQ(log.decision.verdict, Verdict::undecided);
  EXPECT_EQ(log.decision.reason, reason::kInterrupted);
  EXPECT_EQ(log.pairs.size(), 3u);
  EXPECT_TRUE(log.decision.interval);
}

TEST_F(PairRunner, refuses_a_device_that_somebody_else_uses) {
  Hooks hooks;
  hooks.foreign_process = [](int own) -> std::optional<std::string> {
    if (own == 2) return "3 compute processes, 2 are ours";
    return std::nullopt;
  };
  const RunLog log = run_pairs(plan(arm("A", "good"), arm("B", "good")), hooks);
  EXPECT_EQ(log.decision.verdict, Verdict::invalid);
  EXPECT_EQ(log.decision.reason, reason::kForeignProcess);
  EXPECT_THAT(log.decision.sentence, HasSubstr("3 compute processes"));
}

TEST_F(PairRunner, refuses_a_stranger_that_came_while_a_pair_was_measured) {
  bool measuring = false;
  Hooks hooks;
  hooks.block_begins = [&](char) { measuring = true; };
  hooks.foreign_process = [&](int own) -> std::optional<std::string> {
    if (own == 2 && measuring) return "3 compute processes, 2 are ours";
    return std::nullopt;
  };
  const RunLog log = run_pairs(plan(arm("A", "good"), arm("B", "good")), hooks);
  EXPECT_EQ(log.decision.verdict, Verdict::invalid);
  EXPECT_EQ(log.decision.reason, reason::kForeignProcess);
  EXPECT_TRUE(log.pairs.empty()) << "the pair beside which it ran does not count";
}

TEST_F(PairRunner, compares_cycles_beside_times_when_both_arms_have_enough_clocks) {
  // B takes 2% longer, and its blocks ran at a clock 2% lower: the same work.
  char running = 'A';
  Hooks hooks;
  hooks.block_begins = [&](char arm) { running = arm; };
  hooks.block_ended = [&]() -> std::optional<BlockEnvironment> {
    return BlockEnvironment{running == 'B' ? 1980 / 1.02 : 1980, 500, 60, 0, 3};
  };
  PairPlan p = plan(arm("A", "good", 1e6), arm("B", "good", 1.02e6));
  p.quads = 4;
  const RunLog slow_clock = run_pairs(p, hooks);
  EXPECT_EQ(slow_clock.decision.verdict, Verdict::slower);
  ASSERT_TRUE(slow_clock.cycles);
  EXPECT_EQ(slow_clock.cycles->verdict, Verdict::same);
  const RunLog none = run_pairs(plan(arm("A", "good"), arm("B", "good"), 2), {});
  EXPECT_FALSE(none.cycles);
  p.quads = 3;  // 6 blocks of each arm
  EXPECT_FALSE(run_pairs(p, hooks).cycles);
  // Clocks of one arm are none: the sampler may miss every short block of the other.
  p.quads = 4;
  hooks.block_ended = [&]() -> std::optional<BlockEnvironment> {
    if (running == 'B') return std::nullopt;
    return BlockEnvironment{1980, 500, 60, 0, 3};
  };
  EXPECT_FALSE(run_pairs(p, hooks).cycles);
}

TEST_F(PairRunner, runs_any_command_to_its_end_once_per_block) {
  const std::string print = "i=0; while [ $i -lt 12 ]; do echo \"step $i | $((TIME + i % 3)).5 ms\"; i=$((i+1)); done";
  PairPlan p = plan(command("A", "TIME=100; " + print), command("B", "TIME=120; " + print));
  p.quads = 1;
  const RunLog log = run_pairs(p, {});
  EXPECT_EQ(log.decision.verdict, Verdict::slower) << log.decision.sentence;
  EXPECT_EQ(started().size(), 32u);  // 8 pairs x 4 blocks, none shared
  EXPECT_EQ(log.pairs[0].blocks[0].steps, 11);
}

TEST_F(PairRunner, says_what_is_wrong_with_a_command) {
  const auto sentence = [&](const std::string& shell) {
    PairPlan p = plan(command("A", "echo step 1 5 ms; echo step 2 5 ms"), command("B", shell));
    if (shell.starts_with("sleep")) p.block_timeout_s = 5;
    const RunLog log = run_pairs(p, {});
    EXPECT_EQ(log.decision.verdict, Verdict::invalid) << shell;
    return log.decision.sentence;
  };
  EXPECT_THAT(sentence("echo nothing to see"), HasSubstr("printed 0 step times"));
  EXPECT_THAT(sentence("echo step 1 5 ms; exit 3"), HasSubstr("exited with code 3"));
  EXPECT_THAT(sentence("echo 'step 1 | loss nan | 5 ms'"), HasSubstr("loss nan"));
  EXPECT_THAT(sentence("sleep 100 & sleep 100"), HasSubstr("did not end within 5 s"));
  EXPECT_THAT(sentence("kill -KILL $$"), HasSubstr("killed by signal 9"));
}

TEST_F(PairRunner, refuses_two_kinds_of_arms_and_plans_that_make_no_sense) {
  EXPECT_THROW(run_pairs(plan(arm("A", "good"), command("B", "true")), {}), stepscope::InputError);
  EXPECT_THROW(run_pairs(plan(arm("A", "good"), arm("B", "good"), 1), {}), stepscope::InputError);
  PairPlan too_many = plan(arm("A", "good"), arm("B", "good"), 20);
  too_many.thresholds.looks = extended_looks(20, 40);
  EXPECT_THROW(run_pairs(too_many, {}), stepscope::InputError);
  for (double PairPlan::*member : {&PairPlan::block_s, &PairPlan::pair_s, &PairPlan::warmup_s}) {
    PairPlan negative = plan(arm("A", "good"), arm("B", "good"), 2);
    negative.*member = -1;
    EXPECT_THROW(run_pairs(negative, {}), stepscope::InputError);
  }
  const std::atomic<bool> stop{true};  // the exact test of one look is not enumerated: 27 pairs are no error
  Hooks stopped;
  stopped.stop = &stop;
  EXPECT_EQ(run_pairs(plan(arm("A", "good"), arm("B", "good"), 27), stopped).decision.reason, reason::kInterrupted);
}

TEST_F(PairRunner, writes_what_it_measured_and_reads_it_back) {
  const RunLog log = run_pairs(plan(arm("A", "good"), arm("B", "good", 1.03e6)), {});
  const auto values = pair_values_from_json(pairs_to_json(log), "test");
  ASSERT_EQ(values.size(), log.pairs.size());
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i].log_ratio, log.pairs[i].time.log_ratio);
}

TEST_F(PairRunner, refuses_a_recording_that_contradicts_itself_or_counts_a_pair_twice) {
  using nlohmann::ordered_json;
  const ordered_json right = pairs_to_json(run_pairs(plan(arm("A", "good"), arm("B", "good", 1.03e6)), {}));
  const auto why = [&](const auto& change) {
    ordered_json pairs = right;
    change(pairs);
    try {
      pair_values_from_json(pairs, "test");
      return std::string();
    } catch (const stepscope::InputError& e) {
      return std::string(e.what());
    }
  };
  EXPECT_EQ(why([](ordered_json&) {}), "");
  EXPECT_THAT(why([](ordered_json& p) { p[1]["log_ratio"] = 5.0; }), HasSubstr("test: pairs[1].log_ratio is 5.000000, its blocks say 0.0"));
  EXPECT_THAT(why([](ordered_json& p) { p[1]["log_ratio"] = p[1]["log_ratio"].get<double>() + 1e-6; }), HasSubstr("its blocks say"));
  EXPECT_THAT(why([](ordered_json& p) { p[0]["blocks"][2]["step_ns"] = -5; }),
              HasSubstr("pairs[0].blocks[2]: expected arm, quad and a step_ns"));
  EXPECT_THAT(why([](ordered_json& p) { p.push_back(p[0]); }), HasSubstr("] is pairs[0] once more"));
}

}  // namespace
}  // namespace experiments

// Processes alone, with small programs as arms: which run when, what each is told, and what is left of an arm that misbehaves.
#include "experiments/runner/alone_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/errors.h"
#include "experiments/runner/run_log.h"
#include "tests/experiments/runner_fixture.h"

namespace experiments {
namespace {

using ::testing::HasSubstr;

class AloneRunner : public PairRunner {
 protected:
  static PairPlan quick(const ArmSpec& a, const ArmSpec& b, int pairs = 8) {
    PairPlan p = plan(a, b, pairs);
    p.alone.heat_s = 0.05;
    p.alone.settle_s = 0.02;
    p.alone.measure_s = 0.03;
    p.alone.turns = 0;
    p.alone.teardown_s = 0;
    return p;
  }
};

TEST_F(AloneRunner, finds_a_planted_difference_in_its_direction) {
  EXPECT_EQ(run_alone(quick(arm("A", "good", 1e6), arm("B", "good", 1.02e6)), {}).decision.verdict, Verdict::slower);
  EXPECT_EQ(run_alone(quick(arm("A", "good", 1e6), arm("B", "good", 0.98e6)), {}).decision.verdict, Verdict::faster);
  const RunLog same = run_alone(quick(arm("A", "good", 1e6), arm("B", "good", 1e6)), {});
  EXPECT_EQ(same.decision.verdict, Verdict::same) << same.decision.sentence;
  EXPECT_EQ(same.procedure, Procedure::alone);
  const RunLog slower = run_alone(quick(arm("A", "good", 1e6), arm("B", "good", 1.02e6), 4), {});
  EXPECT_NEAR(step_ns_of(slower, 'A').value(), 1e6, 1e3);
  EXPECT_NEAR(step_ns_of(slower, 'B').value(), 1.02e6, 1e3);
  ASSERT_TRUE(same.sustained);
  EXPECT_EQ(same.sustained->a.processes, 8);
  EXPECT_NEAR(same.sustained->a.step_ns, 1e6, 1e3);
  EXPECT_NEAR(step_ns_of(same, 'B').value(), 1e6, 1e3);
}

TEST_F(AloneRunner, never_runs_two_processes_at_once) {
  std::vector<int> own;
  Hooks hooks;
  hooks.foreign_process = [&](int n) -> std::optional<std::string> {
    int alive = 0;
    for (const pid_t pid : started()) alive += runs(pid);
    own.push_back(n);
    EXPECT_LE(alive, 1);
    return std::nullopt;
  };
  run_alone(quick(arm("A", "good"), arm("B", "good"), 4), hooks);
  EXPECT_EQ(started().size(), 12u);  // two that heat, two that only start, and four pairs
  EXPECT_EQ(own.size(), 32u);        // before each, with and after each that steps
}

TEST_F(AloneRunner, says_after_every_round_what_an_interrupt_would_leave) {
  std::vector<std::pair<size_t, std::string>> told;
  Hooks hooks;
  hooks.round_ended = [&](std::span<const RunLog> logs) {
    ASSERT_EQ(logs.size(), 1u);
    const Decision& d = logs[0].decision;
    EXPECT_EQ(d.verdict, Verdict::undecided);
    EXPECT_EQ(d.reason, reason::kInterrupted);
    EXPECT_TRUE(logs[0].sustained);
    EXPECT_TRUE(logs[0].a_info.is_object());
    told.emplace_back(logs[0].runs.size(), d.sentence);
  };
  const RunLog log = run_alone(quick(arm("A", "good", 1e6), arm("B", "good", 1.02e6), 4), hooks);
  ASSERT_EQ(told.size(), 3u) << "the last round decides";
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].first, 2 * (i + 1));
    EXPECT_THAT(told[i].second, HasSubstr("stopped after " + std::to_string(i + 1) + " of 4 pairs"));
  }
  EXPECT_EQ(log.runs.size(), 8u);
  EXPECT_NE(log.decision.reason, reason::kInterrupted);
}

TEST_F(AloneRunner, goes_on_from_the_rounds_of_a_command_before) {
  const ArmSpec a = arm("A", "good", 1e6), b = arm("B", "good", 1.02e6);
  const auto looks = [](PairPlan p) {
    p.thresholds.looks = extended_looks(4, 12);
    return p;
  };
  PairPlan plan = looks(quick(a, b));
  plan.alone.earlier = run_alone(quick(a, b, 8), {}).runs;  // with one round more, enough to decide if that were a look
  plan.alone.settle_s.reset();
  plan.alone.earlier_settle_s = 0.02;
  plan.alone.earlier_seconds = 1000;
  plan.alone.earlier_commands = 1;
  const size_t before = started().size();
  const RunLog log = run_alone(plan, {});
  EXPECT_EQ(started().size() - before, 2 * 4 + 4u) << "four rounds more, and four processes that heat and start";
  EXPECT_EQ(log.runs.size(), 24u);
  EXPECT_EQ(log.decision.look, 2) << "the look after four rounds did not decide, or there would be nothing to go on from";
  EXPECT_EQ(log.runs.back().pair, 11);
  EXPECT_EQ(log.settle_s, 0.02);
  EXPECT_EQ(log.commands, 2);
  EXPECT_GT(log.seconds_alone, 1000);
}

TEST_F(AloneRunner, rounds_of_a_command_before_decide_where_their_look_has_its_pairs) {
  PairPlan plan = quick(arm("A", "good", 1e6), arm("B", "good", 1.02e6), 8);
  const RunLog before = run_alone(plan, {});
  plan.alone.earlier = before.runs;
  plan.alone.settle_s.reset();
  plan.alone.earlier_settle_s = 0.02;
  plan.alone.earlier_commands = 1;
  const RunLog log = run_alone(plan, {});
  EXPECT_EQ(log.runs.size(), 16u) << "that command was stopped behind its last round";
  EXPECT_EQ(log.decision.verdict, before.decision.verdict);
  EXPECT_EQ(log.decision.look, before.decision.look);
  EXPECT_TRUE(log.a_info.is_object()) << "of the process that heated";
  EXPECT_EQ(log.commands, 1) << "this one measured nothing";
}

// Commands of one round each drew the order every time, so that A may have begun in all of them.
TEST_F(AloneRunner, goes_on_in_the_order_that_the_rounds_before_lack) {
  const ArmSpec a = arm("A", "good"), b = arm("B", "good");
  PairPlan plan = quick(a, b, 2);
  std::vector<AloneRun> round = run_alone(plan, {}).runs;
  round.resize(2);
  ASSERT_EQ(round[1].pair, 0);
  for (const char began : {'A', 'B'}) {
    for (AloneRun& r : round) r.position = r.arm == began ? 0 : 1;
    plan.alone.earlier = round;
    const RunLog log = run_alone(plan, {});  // one seed draws one order
    ASSERT_EQ(log.runs.size(), 4u);
    EXPECT_EQ(log.runs[2].arm, began == 'A' ? 'B' : 'A');
  }
}

TEST_F(AloneRunner, a_command_that_is_stopped_before_it_settles_keeps_what_the_one_before_had_settled) {
  PairPlan plan = quick(arm("A", "good"), arm("B", "good"), 8);
  plan.alone.earlier = run_alone(quick(arm("A", "good"), arm("B", "good"), 4), {}).runs;
  plan.alone.settle_s.reset();
  plan.alone.earlier_settle_s = 0.02;
  plan.alone.earlier_commands = 1;
  const std::atomic<bool> stop{true};
  Hooks hooks;
  hooks.stop = &stop;
  const RunLog log = run_alone(plan, hooks);
  EXPECT_EQ(log.decision.reason, reason::kInterrupted);
  EXPECT_EQ(log.runs.size(), 8u);
  EXPECT_EQ(log.settle_s, 0.02);
  EXPECT_EQ(log.settle_rule, "as in the command before, which was stopped");
  EXPECT_EQ(log.commands, 1) << "this one measured nothing";
}

TEST_F(AloneRunner, tells_every_counted_process_the_same) {
  run_alone(quick(arm("A", "good"), arm("B", "good"), 4), {});
  for (const char* label : {"A", "B"}) {
    std::vector<std::string> told;
    for (const std::string& line : log(label))
      if (line.starts_with("run ")) told.push_back(line);
    ASSERT_EQ(told.size(), 5u);
    for (size_t i = 1; i < told.size(); ++i) EXPECT_EQ(told[i], "run 0.020000 0.030000");
  }
}

TEST_F(AloneRunner, has_the_steps_taken_again_by_the_processes_that_are_thrown_away) {
  const RunLog log = run_alone(quick(arm("A", "good"), arm("B", "good"), 4), {});
  EXPECT_EQ(log.steps_again_checks, 1);
  EXPECT_EQ(worst_findings(log).size(), 10u);  // five of each arm
}

TEST_F(AloneRunner, what_an_arm_does_wrong_makes_the_run_invalid_with_the_reason) {
  for (const auto& [mode, sentence] : std::vector<std::pair<std::string, std::string>>{{"crash", "exited with code 9"},
                                                                                       {"exit_at_start", "no such device"},
                                                                                       {"garbage", "hello"},
                                                                                       {"error", "out of memory"},
                                                                                       {"nan_time", "null as a step's time"},
                                                                                       {"nan_loss", "the loss became NaN"},
                                                                                       {"short_answer", "times_ns"},
                                                                                       {"no_list", "expected times_ns, got"},
                                                                                       {"no_begin", "expected began_ns"},
                                                                                       {"begun_before", "CLOCK_MONOTONIC"},
                                                                                       {"no_audit", "expected an audit"},
                                                                                       {"two_clocks", "clock: a block took"},
                                                                                       {"late_work", "late work"},
                                                                                       {"launch_error", "launch error"},
                                                                                       {"persisting_l2", "persisting L2"},
                                                                                       {"other_steps", "timed steps"}}) {
    const RunLog log = run_alone(quick(arm("A", "good"), arm("B", mode)), {});
    EXPECT_EQ(log.decision.verdict, Verdict::invalid) << mode;
    EXPECT_EQ(log.decision.reason, reason::kArmFailed) << mode;
    EXPECT_THAT(log.decision.sentence, HasSubstr(sentence)) << mode;
  }
}

TEST_F(AloneRunner, turns_report_no_progress_of_their_own_and_commands_take_none) {
  std::vector<int> planned;
  Hooks hooks;
  hooks.progress = [&](const Hooks::Progress& p) { planned.push_back(p.pairs_planned); };
  PairPlan p = quick(arm("A", "good"), arm("B", "good"), 4);
  p.alone.turns = 2;
  EXPECT_EQ(run_alone(p, hooks).pairs.size(), 2u);
  EXPECT_EQ(planned, (std::vector<int>{4, 4, 4, 4}));
  const std::string print = "i=0; while [ $i -lt 20 ]; do echo \"step $i | 10.$((i % 3)) ms\"; i=$((i+1)); done";
  p = quick(command("A", print), command("B", print), 2);
  p.alone.turns = 2;
  const RunLog log = run_alone(p, {});
  EXPECT_TRUE(log.pairs.empty());
  EXPECT_NE(log.decision.verdict, Verdict::invalid) << log.decision.sentence;
}

// Two steps of 100 ms each by its own words, whose lines come 300 ms apart or later: one step cannot have taken that long.
TEST_F(AloneRunner, a_program_whose_lines_come_later_than_its_steps_has_no_place_in_time) {
  const Stretch late = make_arm(command("A", "echo step 1 100 ms; sleep 0.3; echo step 2 100 ms"), nullptr)->stretch({0, 0, 0, 0}, 600);
  EXPECT_EQ(late.times_ns.size(), 2u);
  EXPECT_FALSE(late.began);
  EXPECT_THAT(late.began_absent, HasSubstr("did not come as its steps ran"));
}

TEST_F(AloneRunner, a_change_that_fails_does_not_keep_the_others_from_their_verdicts) {
  const std::vector<PairPlan> plans{quick(arm("A", "good"), arm("B", "crash")), quick(arm("A", "good"), arm("C", "good", 1.02e6))};
  const std::vector<std::string> names{"x", "y"};
  const std::vector<RunLog> logs = run_alone(plans, names, {});
  EXPECT_EQ(logs[0].decision.verdict, Verdict::invalid);
  EXPECT_EQ(logs[1].decision.verdict, Verdict::slower) << logs[1].decision.sentence;
  EXPECT_THROW(run_alone(std::vector{plans[0], quick(arm("D", "good"), arm("B", "good"))}, names, {}), stepscope::InputError);
}

TEST_F(AloneRunner, keeps_what_was_measured_when_interrupted_and_says_undecided) {
  std::atomic<bool> stop{false};
  Hooks hooks;
  hooks.stop = &stop;
  hooks.progress = [&](const Hooks::Progress& p) { stop = p.pairs_done == 3; };
  const RunLog log = run_alone(quick(arm("A", "good"), arm("B", "good")), hooks);
  EXPECT_EQ(log.decision.verdict, Verdict::undecided);
  EXPECT_EQ(log.decision.reason, reason::kInterrupted);
  EXPECT_EQ(sustained_values(log.runs).size(), 3u);
}

TEST_F(AloneRunner, refuses_a_device_that_somebody_else_uses) {
  Hooks hooks;
  int asked = 0;
  hooks.foreign_process = [&](int own) { return ++asked > 8 && own == 1 ? std::optional<std::string>("somebody") : std::nullopt; };
  const RunLog log = run_alone(quick(arm("A", "good"), arm("B", "good")), hooks);
  EXPECT_EQ(log.decision.verdict, Verdict::invalid);
  EXPECT_EQ(log.decision.reason, reason::kForeignProcess);
}

// Stalls are no steps, but their joules are among those that were counted.
TEST_F(AloneRunner, divides_the_joules_of_steps_and_stalls_by_both) {
  Hooks hooks;
  hooks.device_between = [](Clock::time_point from, Clock::time_point to) {
    const double s = std::chrono::duration<double>(to - from).count();
    return DeviceWindow{1500, 650, 650, 60, 690 * s, 4, 30, "", ""};
  };
  const RunLog log = run_alone(quick(arm("A", "stalls"), arm("B", "good")), hooks);
  const auto stalled = std::find_if(log.runs.begin(), log.runs.end(), [](const AloneRun& r) { return r.stalls > 0; });
  ASSERT_NE(stalled, log.runs.end());
  const double all = stalled->steps + stalled->stalls;
  EXPECT_NEAR(*stalled->joules_per_step, 690 * 1e-3 * (stalled->steps + 5 * stalled->stalls) / all, 690e-3 * 0.002);
  EXPECT_GT(stalled->stalls / all, 0.015) << "so that the wrong divisor shows";
}

TEST_F(AloneRunner, asks_the_device_about_the_counted_steps_and_keeps_why_it_cannot) {
  Hooks hooks;
  hooks.limits = {1980, 700};
  Clock::time_point begun;
  int processes = 0;
  hooks.process_begins = [&] {
    begun = Clock::now();
    ++processes;
  };
  hooks.device_between = [&](Clock::time_point from, Clock::time_point to) {
    EXPECT_GE(from, begun) << "what came before the last process need not be kept";
    const double s = std::chrono::duration<double>(to - from).count();
    return DeviceWindow{1500, 650, 650, 60, 690 * s, 4, 30, "", ""};
  };
  const RunLog log = run_alone(quick(arm("A", "good"), arm("B", "good")), hooks);
  EXPECT_EQ(processes, 4 + 16) << "two that heat, two that only start, and eight pairs";
  const AloneRun& r = log.runs[0];
  EXPECT_NEAR(*r.device.power_w, 690, 1) << "joules over seconds, not the mean of samples";
  EXPECT_NEAR(*r.joules_per_step, 0.69, 0.01);
  EXPECT_EQ(r.tenths_mhz.size(), r.tenths_ns.size());
  EXPECT_TRUE(log.sustained->a.clock_limited.value());
  EXPECT_NEAR(log.sustained->joules_per_step->log_ratio.mean, 0, 0.01);
  hooks.device_between = nullptr;
  hooks.environment_absent = "no GPU";
  const RunLog none = run_alone(quick(arm("A", "good"), arm("B", "good")), hooks);
  EXPECT_EQ(none.runs[0].device.absent, "no GPU");
  EXPECT_FALSE(none.sustained->a.clock_limited);
}

TEST_F(AloneRunner, labels_whole_programs_that_are_too_short_as_bursts_and_gives_steps_to_those_that_take_them) {
  const std::string print = "i=0; while [ $i -lt 40 ]; do echo \"step $i | 10.$((i % 3)) ms\"; i=$((i+1)); done";
  PairPlan p = quick(command("A", print), command("B", print));
  p.alone.settle_s = 2;
  p.alone.measure_s = 3;
  const RunLog burst = run_alone(p, {});
  EXPECT_TRUE(burst.runs[0].burst);
  EXPECT_TRUE(burst.sustained->a.burst);
  EXPECT_EQ(burst.runs[0].settle_steps, 4);  // a tenth
  EXPECT_THAT(burst.runs[0].device.absent, HasSubstr("did not come as its steps ran"));
  // A program that compiles first: its slow steps are no part of the time in which it settles.
  const std::string told = "echo step 0 900 ms; i=0; while [ $i -lt {steps} ]; do echo \"step $i | 100.$((i % 3)) ms\"; i=$((i+1)); done";
  PairPlan q = quick(command("A", told), command("B", told), 2);
  q.alone.settle_s = 2;
  q.alone.measure_s = 3;
  q.a.steps = q.b.steps = 20;
  const RunLog enough = run_alone(q, {});
  EXPECT_FALSE(enough.runs[0].burst);
  EXPECT_EQ(enough.runs[0].settle_steps, 21);
  EXPECT_NEAR(enough.runs[0].step_ns(), 100.1e6, 0.1e6);
  // What the user leaves out comes on top of the seconds.
  q.a.skip_steps = q.b.skip_steps = 40;
  q.a.steps = q.b.steps = 60;
  const RunLog without_many = run_alone(q, {});
  EXPECT_FALSE(without_many.runs[0].burst);
  EXPECT_EQ(without_many.runs[0].settle_steps, 60);
}

// Microseconds that a program calls ms, or times since its start, would make a confident verdict of nothing.
TEST_F(AloneRunner, refuses_steps_that_take_longer_together_than_their_program) {
  const std::string print = "i=0; while [ $i -lt 40 ]; do echo \"step $i | 1000.$((i % 3)) ms\"; i=$((i+1)); done";
  PairPlan p = quick(command("A", print), command("B", print));
  p.a.in_real_time = p.b.in_real_time = true;
  const RunLog log = run_alone(p, {});
  EXPECT_EQ(log.decision.verdict, Verdict::invalid);
  EXPECT_THAT(log.decision.sentence, HasSubstr("arm A printed 40 steps that take 40 s together, and ran for 0."));
  EXPECT_TRUE(log.self_checks.empty()) << "nothing was measured that they could be about";
}

// A program that becomes slower: what is counted is behind the steps that the user leaves out, also where they were steady.
TEST_F(AloneRunner, leaves_out_of_a_whole_program_what_it_was_told_to) {
  const auto late = [&](const char* label, int then) {
    return command(
        label,
        fmt::format("i=0; while [ $i -lt 60 ]; do t=10; [ $i -ge 30 ] && t={}; echo \"step $i | $t.$((i % 3)) ms\"; i=$((i+1)); done",
                    then));
  };
  PairPlan p = quick(late("A", 10), late("B", 20), 2);
  p.a.skip_steps = p.b.skip_steps = 30;
  const RunLog log = run_alone(p, {});
  EXPECT_GE(log.runs[0].settle_steps, 30);
  EXPECT_NEAR(log.sustained->b.step_ns / log.sustained->a.step_ns, 2, 0.05);
  p.a.skip_steps = p.b.skip_steps = 60;
  const RunLog none = run_alone(p, {});
  EXPECT_EQ(none.decision.verdict, Verdict::invalid);
  EXPECT_THAT(none.decision.sentence, HasSubstr("printed 60 step times and the first 60 do not count"));
}

TEST_F(AloneRunner, writes_its_runs_and_reads_them_back) {
  const RunLog log = run_alone(quick(arm("A", "good"), arm("B", "good", 1.03e6)), {});
  const std::vector<AloneRun> back = runs_from_json(runs_to_json(log.runs), "test");
  ASSERT_EQ(back.size(), log.runs.size());
  const auto values = sustained_values(back), wanted = sustained_values(log.runs);
  ASSERT_EQ(values.size(), 8u);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i].log_ratio, wanted[i].log_ratio);
  EXPECT_EQ(decide(values, {}, 1).verdict, decide(wanted, {}, 1).verdict);
  EXPECT_THROW(runs_from_json(nlohmann::ordered_json::parse(R"([{"arm": "A"}])"), "test"), stepscope::InputError);
}

}  // namespace
}  // namespace experiments

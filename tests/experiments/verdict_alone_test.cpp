// A verdict of processes that ran alone: what document, page, summary and index say of it, and its reason where the power cap gave the
// gain back as clock. The processes are made by hand; nothing runs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "experiments/verdict/campaign.h"
#include "experiments/verdict/check.h"
#include "experiments/verdict/index.h"
#include "experiments/verdict/make_document.h"
#include "experiments/verdict/page.h"
#include "experiments/verdict/words.h"
#include "tests/golden.h"

namespace experiments {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A process at the power cap: 3 s of steps of `step_ns`.
AloneRun process(char arm, int pair, double step_ns, double clock_mhz, double joules_per_step) {
  AloneRun r;
  r.arm = arm;
  r.pair = pair;
  r.position = (arm == 'A') == (pair % 2 == 0) ? 0 : 1;
  r.at_s = 10 + 12 * pair + 6 * r.position;
  r.settle_s = 2;
  r.settle_steps = 220;
  r.steps = 330;
  r.total_ns = step_ns * r.steps;
  r.first_half_ns = r.second_half_ns = step_ns;
  r.full_clock_ns = arm == 'A' ? 8.5e6 : 8.5e6 * 0.98;
  r.device.sm_clock_mhz = clock_mhz;
  r.device.joules = joules_per_step * r.steps;
  r.joules_per_step = joules_per_step;
  r.device.power_w = r.device.sampled_power_w = 692;
  r.device.temperature_c = 55;
  r.device.samples = 30;
  r.device.throttle_reasons = 4;
  r.tenths_ns.assign(50, step_ns);
  r.spread_quarter_s = 0.006;
  r.spread_second = 0.001;
  return r;
}

// Eight pairs in which B takes `pct` more time alone; at equal clocks it takes 2% less.
WorkloadResult alone(double pct, int64_t batch_size = 4) {
  WorkloadResult r;
  r.workload = {"d12", batch_size, 1024, "", 0.05};
  r.a.gate = r.b.gate = {true, "40 checks passed (seed 7)", true, {}};
  r.waterfall_absent = "--no-profile";
  RunLog& log = r.log;
  log.procedure = Procedure::alone;
  log.limits = {1980, 700};
  log.settle_s = 2;
  log.measure_s = 3;
  log.seconds_alone = 118;
  log.settle_rule = "--settle-s";
  for (int pair = 0; pair < 8; ++pair) {
    const double wobble = 1 + (pair % 2 ? 2e-4 : -2e-4);
    log.runs.push_back(process('A', pair, 9e6, 1800, 6.2));
    log.runs.push_back(process('B', pair, 9e6 * (1 + pct / 100) * wobble, 1818, 6.2 * (1 + pct / 100)));
  }
  Thresholds t;
  t.looks = {{8, 0.008, 0.0224, 0.008}};
  log.decision = decide(sustained_values(log.runs), t, 1);
  log.equal_clocks = equal_clocks_of(log.runs, log.limits, 0.008);
  log.self_checks = self_checks(log.runs, log.limits, log.equal_clocks, 0.008);
  return r;
}

VerdictDocument document(const std::vector<WorkloadResult>& results) {
  const Experiment e = parse_experiment(
      "question: Q?\nhypothesis: H.\ntrainer: mixed\nchange: {variant: {gelu_backward: kernel}}\n"
      "predicted: {saving_ms: 0.05, arithmetic: half of it}\nworkloads: [{model: d12, batch_size: 4, seq_len: 1024}]\n",
      "mixed-idea.yaml");
  RunFacts f;
  f.at = "2026-11-22T09:00:00Z";
  f.device = "NVIDIA H200";
  f.git_revision = "0123456789abcdef0123456789abcdef01234567";
  f.thresholds.looks = {{8, 0.008, 0.0224, 0.008}};
  return verdict_document("mixed-idea", e, results, f);
}

TEST(alone, the_ratio_of_sustained_steps_is_the_verdict_and_the_one_at_equal_clocks_stands_beside_it) {
  const VerdictDocument d = document({alone(-0.5)});
  const WorkloadSection& w = d.workloads[0];
  EXPECT_EQ(w.verdict, Verdict::faster);
  ASSERT_NE(w.sustained_statistics(), nullptr);
  EXPECT_NEAR(*w.sustained_statistics()->ratio, 0.995, 1e-5);
  EXPECT_NEAR(w.at_equal_clocks()->ratio, 0.98, 1e-9);
  EXPECT_NEAR(*w.a_step_ns, 9e6, 1);
  EXPECT_NEAR(*w.saved_ms, 0.045, 1e-4);
  EXPECT_NEAR(w.sustained->joules_per_step->ratio, 0.995, 1e-6);
  EXPECT_NEAR(*w.sustained->a.cap_cost_pct, 100 * (1 - 8.5 / 9), 1e-6);
  EXPECT_TRUE(*w.sustained->a.clock_limited);
  EXPECT_TRUE(w.pairs.empty());
  EXPECT_EQ(w.runs.size(), 16u);
  EXPECT_THAT(contradictions(d), IsEmpty());
}

// A faster and a slower workload with everything that can be known, and one of which only the times are: all that a reader sees.
TEST(alone, page_summary_and_row_as_files) {
  WorkloadResult bare = alone(-0.5, 16);
  for (AloneRun& run : bare.log.runs) {
    run.device = {};
    run.device.absent = run.device.energy_absent = "no NVML";
    run.joules_per_step.reset();
    run.full_clock_ns.reset();
    run.full_clock_absent = "steps of 110 ms";
  }
  bare.log.limits = {};
  bare.log.equal_clocks.reset();
  bare.log.equal_clocks_absent = "steps of 110 ms";
  bare.log.self_checks = self_checks(bare.log.runs, bare.log.limits, bare.log.equal_clocks, 0.008);
  const VerdictDocument d = document({alone(-0.5), alone(0.9, 64), bare});
  expect_golden("experiments/data/three.page.md", page_of(d));
  expect_golden("experiments/data/three.summary.txt", summary_of(d));
  expect_golden("experiments/data/three.index.md", index_table({d}, ""));
  int number = 0;
  for (Json json = to_json(d); auto& w : json["workloads"]) {  // without the processes, which are what the test made
    w.erase("runs");
    expect_golden(fmt::format("experiments/data/workload-{}.json", ++number), w.dump(1) + "\n");
  }
}

TEST(alone, document_is_read_back_with_every_process) {
  const Json json = to_json(document({alone(-0.5), alone(0.9, 64)}));
  const VerdictDocument d = verdict_from_json(json, "x");
  EXPECT_EQ(to_json(d), json);
  EXPECT_EQ(d.workloads[1].runs[3].tenths_ns.size(), 50u);
  EXPECT_EQ(json["workloads"][0]["runs"][0]["power_w"], 692);
  EXPECT_EQ(json["workloads"][0]["procedure"], "alone");
}

TEST(alone, page_names_both_ratios_clock_energy_power_and_what_the_cap_costs) {
  const std::string page = page_of(document({alone(-0.5)}));
  for (const char* part :
       {"| **step, sustained, ms** | 9.000 | 8.955 | **-0.50% [-0.53%, -0.47%]** |",
        "| step, at equal clocks (first steps of a process, 1980 MHz), ms | 8.500 | 8.330 | -2.00% [",
        "| SM clock, sustained, MHz (at most 1980) | 1800 | 1818 | +1.00% [", "| energy, J/step | 6.20 | 6.17 | -0.50% [",
        "| power, W (limit 700) | 692 | 692 | the cap costs 5.6% of A's step and 7.0% of B's |",
        "Both arms are at the power cap. At one clock B takes 2.00% less; alone it runs at 1.0% more clock: who trains sees 0.50% less.",
        "8 pairs of fresh processes, interval at 99.2%",
        "Each process alone on the device: 2.0 s not counted (--settle-s), 3.0 s counted; 118 s in all.",
        "The measurement's checks on itself:", "- cycle: means of the step time over 0.25 s spread by 0.60%, over 1 s by 0.10%"})
    EXPECT_THAT(page, HasSubstr(part));
  EXPECT_THAT(page, Not(HasSubstr("in turns")));
  EXPECT_THAT(page, Not(HasSubstr("uncommitted")));
}

TEST(alone, a_gain_that_the_clock_gives_back_has_its_reason) {
  const auto reason_of = [](double pct) {
    const VerdictDocument d = document({alone(pct)});
    return std::string(name(d.workloads[0].verdict)) + " " + d.workloads[0].reason;
  };
  EXPECT_EQ(reason_of(0.0), "same given_back_as_clock");
  EXPECT_EQ(reason_of(0.9), "slower given_back_as_clock");
  EXPECT_EQ(reason_of(-0.5), "faster interval_excludes_zero");
  WorkloadResult r = alone(0.0);
  r.log.equal_clocks.reset();
  EXPECT_EQ(document({r}).workloads[0].reason, "equivalent");
  r = alone(0.0);  // at equal clocks less than what matters
  r.log.equal_clocks->ratio.log_ratio.mean = -0.002;
  r.log.equal_clocks->ratio.interval = {-0.0022, -0.0018};
  EXPECT_EQ(document({r}).workloads[0].reason, "equivalent");
  r = alone(0.0);  // no limit holds either back, as on a CPU
  for (AloneRun& run : r.log.runs) run.device.power_w = 400;
  EXPECT_EQ(document({r}).workloads[0].reason, "equivalent");
  for (AloneRun& run : r.log.runs) run.device.power_w.reset();
  EXPECT_EQ(document({r}).workloads[0].reason, "equivalent");
}

TEST(alone, page_leads_with_where_the_workloads_differ) {
  const VerdictDocument d = document({alone(-0.5), alone(0.9, 64)});
  EXPECT_EQ(d.verdict, Verdict::slower);
  const std::string line =
      "The answer depends on the workload. d12 B=4 T=1024: faster -0.50% [-0.53%, -0.47%] sustained; d12 B=64 T=1024: slower +0.90% [";
  const std::string page = page_of(d);
  EXPECT_THAT(page, HasSubstr("**" + line));
  EXPECT_LT(page.find(line), page.find("**Question.**"));
  EXPECT_THAT(summary_of(d), HasSubstr(line));
  EXPECT_THAT(index_table({d}, ""), HasSubstr("- mixed-idea: " + line));
  EXPECT_THAT(page_of(document({alone(-0.5), alone(-0.6, 64)})), Not(HasSubstr("depends on the workload")));
}

TEST(alone, index_has_both_ratios_and_what_explains_their_difference) {
  EXPECT_THAT(
      index_table({document({alone(-0.5)})}, ""),
      HasSubstr(
          "| [mixed-idea](mixed-idea/README.md) | `--variant gelu_backward=kernel` | d12 B=4 T=1024 | faster | -0.50% [-0.53%, -0.47%] | "
          "-2.00% [-2.00%, -2.00%] | 1800 → 1818 | 6.20 → 6.17 | 692 → 692 | 5.6 → 7.0 | +0.050 (not shown to be earlier) | +0.045 | "
          "NVIDIA H200 |"));
}

TEST(alone, notices_shared_baseline_and_uncommitted_changes_are_said) {
  WorkloadResult r = alone(-0.5);
  r.log.shared_baseline = true;
  r.log.shared_with = "mixed-x, mixed-y";
  r.log.self_checks[0].notice = true;
  VerdictDocument d = document({r});
  d.code.git_revision += "-dirty";
  for (const std::string& text : {page_of(d), summary_of(d)}) {
    EXPECT_THAT(text, HasSubstr("Arm A's processes also served mixed-x, mixed-y"));
    EXPECT_THAT(text, HasSubstr(r.log.self_checks[0].sentence));
    EXPECT_THAT(text, HasSubstr("uncommitted changes"));
  }
  EXPECT_THAT(page_of(d), HasSubstr("- **settled:"));
  EXPECT_THAT(page_of(document({alone(-0.5)})), Not(HasSubstr("also served")));
  EXPECT_THAT(index_table({d}, ""), HasSubstr("faster (uncommitted changes)"));
}

// "against the defaults" was said of arms that both had another way of communication.
TEST(alone, page_says_what_both_arms_have_and_that_gpus_differ) {
  VerdictDocument d = document({alone(-0.5)});
  EXPECT_THAT(page_of(d), HasSubstr(", against the defaults.\n"));
  EXPECT_THAT(page_of(d), Not(HasSubstr("ran on the first ones")));
  d.workloads[0].a.command = {"stepscope", "train", "--trainer", "mixed",   "--model", "d12", "--batch-size", "4",
                              "--seq-len", "1024",  "--steps",   "{steps}", "--gpus",  "2",   "--variant",    "communication=zero1",
                              "--matmul",  "bf16"};
  d.workloads[0].a_gpus = d.workloads[0].b_gpus = 2;
  EXPECT_THAT(page_of(d), HasSubstr(", against the defaults with `--variant communication=zero1`.\n"));
  EXPECT_THAT(page_of(d), Not(HasSubstr("ran on the first ones")));
  // Figures of one GPU were read as those of all.
  const std::string watched =
      "Clock, energy and power are those of the first GPU alone; nobody looked for other processes on the others.\n";
  for (const std::string& text : {page_of(d), summary_of(d)}) EXPECT_THAT(text, HasSubstr(watched));
  EXPECT_THAT(page_of(document({alone(-0.5)})), Not(HasSubstr(watched)));
  EXPECT_THAT(page_of(d), HasSubstr("| energy, J/step | 6.20 | 6.17 | -0.50% ["));
  d.workloads[0].a_gpus = 1;
  for (const std::string& text : {page_of(d), summary_of(d)})
    EXPECT_THAT(text, AllOf(HasSubstr("The arm of fewer GPUs ran on the first ones"), HasSubstr("B / A does too. " + watched)));
  EXPECT_THAT(page_of(d), HasSubstr("| energy, J/step | 6.20 | 6.17 | - |\n"));
  VerdictDocument on_cpus = d;  // nothing of a GPU is known
  for (SustainedArm* arm : {&on_cpus.workloads[0].sustained->a, &on_cpus.workloads[0].sustained->b}) *arm = {};
  EXPECT_THAT(page_of(on_cpus), Not(HasSubstr("Clock, energy and power")));
  d.code.a_revision = "abc";
  EXPECT_THAT(page_of(d), HasSubstr(", against the defaults.\n")) << "flags of `experiment since` are its own";
}

TEST(alone, what_was_not_to_be_had_is_absent) {
  WorkloadResult r = alone(-0.5);
  for (AloneRun& run : r.log.runs) {
    run.device = {};
    run.device.absent = run.device.energy_absent = "no NVML";
    run.joules_per_step.reset();
    run.full_clock_ns.reset();
    run.full_clock_absent = "steps of 110 ms";
  }
  r.log.limits = {};
  r.log.equal_clocks.reset();
  r.log.equal_clocks_absent = "steps of 110 ms";
  const VerdictDocument d = document({r});
  const Json w = to_json(d)["workloads"][0];
  for (const char* key : {"sm_clock_mhz", "power_w", "joules_per_step", "cap_cost_pct", "clock_limited", "temperature_c"})
    EXPECT_FALSE(w["sustained"]["a"].contains(key)) << key;
  EXPECT_FALSE(w["runs"][0].contains("power_w"));
  EXPECT_EQ(w["runs"][0]["energy_absent"], "no NVML");
  const std::string page = page_of(d);
  EXPECT_THAT(page, HasSubstr("| step, at equal clocks (not measured), ms | - | - | - |"));
  EXPECT_THAT(page, HasSubstr("No ratio at equal clocks: steps of 110 ms."));
  for (const char* part : {"J/step", "SM clock", "power, W", "Both arms are at the power cap"}) EXPECT_THAT(page, Not(HasSubstr(part)));
}

TEST(alone, power_of_one_arm_has_its_row_and_clocks_without_a_ratio_explain_nothing) {
  const VerdictDocument d = document({alone(-0.5)});
  ASSERT_THAT(page_of(d), HasSubstr("Both arms are at the power cap."));
  VerdictDocument a = d, b = d, clocks = d;
  a.workloads[0].sustained->b.power_w.reset();
  b.workloads[0].sustained->a.power_w.reset();
  clocks.workloads[0].sustained->sm_clock.reset();
  EXPECT_THAT(page_of(a), HasSubstr("| power, W (limit 700) | 692 | - |"));
  EXPECT_THAT(page_of(b), HasSubstr("| power, W (limit 700) | - | 692 |"));
  EXPECT_THAT(page_of(clocks), Not(HasSubstr("Both arms are at the power cap")));
}

TEST(alone, a_changed_number_is_not_what_its_runs_say) {
  VerdictDocument d = document({alone(-0.5)});
  d.workloads[0].statistics.ratio = 0.9;
  EXPECT_THAT(contradictions(d), ::testing::ElementsAre("d12 B=4 T=1024: statistics.ratio is not what its runs say"));
  d.workloads[0].runs.clear();
  EXPECT_THAT(contradictions(d), ::testing::Contains("d12 B=4 T=1024: statistics.ratio is not what its runs say"));
}

// The table of all experiments shows both ratios.
TEST(alone, a_changed_ratio_at_equal_clocks_is_not_what_its_runs_say) {
  VerdictDocument d = document({alone(-0.5)});
  d.workloads[0].equal_clocks.emplace(EqualClocksSection{EqualClocksBy::full_clock, {}, 1980});
  decide_again(d);
  ASSERT_THAT(contradictions(d), IsEmpty());
  EXPECT_NEAR(d.workloads[0].equal_clocks->ratio.ratio, 0.98, 1e-12);
  VerdictDocument changed = d;
  changed.workloads[0].equal_clocks->ratio = {1.02, {1.019, 1.021}, 1e-3, 7};
  EXPECT_THAT(contradictions(changed), ::testing::Contains(HasSubstr("workloads[0].equal_clocks.ratio")));
  changed = d;
  for (AloneRun& r : changed.workloads[0].runs) r.full_clock_ns.reset();
  EXPECT_THAT(contradictions(changed), ::testing::Contains(HasSubstr("workloads[0].equal_clocks")));
  changed = d;
  changed.workloads[0].memory = MemorySection{100, 90, 10};
  EXPECT_THAT(contradictions(changed), ::testing::ElementsAre("d12 B=4 T=1024: memory.delta_bytes is not b_bytes less a_bytes"));
}

TEST(alone, is_decided_again_from_its_processes) {
  VerdictDocument d = document({alone(-0.5)});
  const Json first = to_json(d);
  d.workloads[0].statistics.ratio = 0.9;
  d.workloads[0].sustained->b.step_ns = 1;
  decide_again(d);
  EXPECT_EQ(to_json(d), first);
}

}  // namespace
}  // namespace experiments

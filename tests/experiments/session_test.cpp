// The order of things in an experiment, with a small script in the place of `stepscope`: gate before time, no
// time without a gate, profile after, campaign and ctrl-C. The script writes down what it was asked to do.
#include "experiments/session/session.h"
#include "experiments/session/campaign_run.h"
#include "experiments/session/gates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include <fmt/format.h>

#include "base/errors.h"
#include "gpt2/reference/reference_trainer.h"
#include "tests/experiments/session_fixture.h"
#include "tests/temporary_folder.h"

namespace experiments {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using ::testing::HasSubstr;

TEST_F(Session, gates_both_arms_then_measures_and_decides) {
  program(gate_answer(true), arm());
  const ordered_json d = to_json(session().run(experiment(), {}));
  EXPECT_EQ(d["verdict"], "slower") << d["workloads"][0]["sentence"];
  EXPECT_EQ(count("gate"), 2);
  EXPECT_EQ(count("arm"), 20);  // of each arm one heats and one only starts, then eight pairs
  EXPECT_LT(log().rfind("gate"), log().find("arm"));
  EXPECT_EQ(d["workloads"][0]["b"]["gate"]["sentence"], "1 checks passed (seed 7)");
}

TEST_F(Session, a_receipt_of_these_sources_and_this_device_answers_for_the_ops) {
  std::ifstream in(SOURCE_DIR "/receipts/fp32.json");
  const ordered_json receipt = ordered_json::parse(in);
  const std::string device = receipt["device"]["name"], driver = receipt["device"]["driver"];
  EXPECT_EQ(experiments::receipt_of_ops(SOURCE_DIR, "fp32", device, driver), "receipts/fp32.json of " + receipt["date"].get<std::string>());
  EXPECT_EQ(experiments::receipt_of_ops(SOURCE_DIR, "fp32", "NVIDIA H100 80GB HBM3", driver), "");
  EXPECT_EQ(experiments::receipt_of_ops(SOURCE_DIR, "fp32", device, "580.1"), "");
  EXPECT_EQ(experiments::receipt_of_ops(folder_, "fp32", device, driver), "");  // other sources

  program(gate_answer(true), arm());
  const std::vector<std::string> arm_of{"--trainer", "fp32"};
  experiments::Gates without((folder_ / "program").string(), 60, nullptr, false),
      with((folder_ / "program").string(), 60, nullptr, false,
           [](const std::string&trainer) { return "receipts/" + trainer + ".json of today"; });
  EXPECT_EQ(without.check(arm_of).sentence, "1 checks passed (seed 7)");
  EXPECT_EQ(log().find("--no-ops"), std::string::npos);
  EXPECT_EQ(with.check(arm_of).sentence, "1 checks passed (seed 7); ops as in receipts/fp32.json of today");
  EXPECT_NE(log().find("--no-ops"), std::string::npos);
}

TEST_F(Session, gates_of_a_session_share_a_seed_and_the_oracles_answers) {
  program(gate_answer(true), arm());
  session().run(experiment(), {});
  std::istringstream lines(log());
  std::set<std::string> shared;
  int gates = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("gate")) {
      ++gates;
      const size_t at = line.find(" --seed ");
      ASSERT_NE(at, std::string::npos) << line;
      EXPECT_NE(line.find(" --oracle-answers /", at), std::string::npos) << line;
      shared.insert(line.substr(at, line.find(" --no-ops", at) - at));
    }
  EXPECT_EQ(gates, 2);
  EXPECT_EQ(shared.size(), 1u);
}

// Of one program: answers are structs of the program that wrote them.
TEST_F(Session, gates_of_a_later_session_take_the_seed_and_the_answers_that_an_earlier_one_kept) {
  const fs::path kept = folder_ / "kept";
  const auto asked = [&] {
    fs::remove(folder_ / "log");
    Gates gates((folder_ / "program").string(), 60, nullptr, false, {}, kept);
    gates.check({"train", "--trainer", "fp32"});
    return log();
  };
  program(gate_answer(true), arm());
  const std::string first = asked();
  EXPECT_THAT(first, HasSubstr("--oracle-answers " + kept.string()));
  EXPECT_EQ(asked(), first);
  program(gate_answer(true) + "; : another program", arm());
  const std::string other = asked();
  EXPECT_THAT(other, HasSubstr("--oracle-answers " + kept.string()));
  EXPECT_NE(other.substr(other.find("--oracle-answers")), first.substr(first.find("--oracle-answers")));
  EXPECT_NE(other.substr(0, other.find("--oracle-answers")), first.substr(0, first.find("--oracle-answers"))) << "the same seed";
  for (const auto& entry : fs::directory_iterator(kept)) std::ofstream(entry.path() / "seed") << "7 or 8";
  EXPECT_THROW(asked(), stepscope::InputError);
}

TEST_F(Session, gates_that_keep_their_answers_make_no_temporary_folder_and_name_a_folder_that_cannot_be_written) {
  program(gate_answer(true), arm());
  const char* before = std::getenv("TMPDIR");
  const std::string restored = before == nullptr ? "" : before;
  setenv("TMPDIR", "/no/such/folder", 1);
  EXPECT_NO_THROW(Gates((folder_ / "program").string(), 60, nullptr, false, {}, folder_ / "kept"));
  EXPECT_THROW(Gates((folder_ / "program").string(), 60, nullptr, false), stepscope::MachineError);
  before == nullptr ? unsetenv("TMPDIR") : setenv("TMPDIR", restored.c_str(), 1);
  std::ofstream(folder_ / "file") << "x";
  EXPECT_THAT([&] { Gates((folder_ / "program").string(), 60, nullptr, false, {}, folder_ / "file"); },
              testing::ThrowsMessage<stepscope::InputError>(HasSubstr("--gate-answers: cannot write into ")));
}

TEST(arguments, have_the_value_that_follows_a_flag) {
  const std::vector<std::string> arguments{"--model", "d12", "--trainer", "fp32", "--json"};
  EXPECT_EQ(value_of(arguments, "--trainer"), "fp32");
  EXPECT_EQ(value_of(arguments, "--model"), "d12");
  EXPECT_EQ(value_of(arguments, "--json"), "");
  EXPECT_EQ(value_of(arguments, "--seed"), "");
}

TEST_F(Session, says_which_flags_of_an_arm_the_gate_did_not_see) {
  program(gate_answer(true), arm());
  const ordered_json d = to_json(session().run(experiment("common: {flags: {clip: 0.5}}\n"), {}));
  for (const char* label : {"a", "b"})
    EXPECT_THAT(d["workloads"][0][label]["gate"]["sentence"].get<std::string>(), HasSubstr("without --clip, which the gate does not take"));
}

TEST_F(Session, never_times_an_arm_that_fails_the_gate) {
  program("case \"$*\" in *new*) " + gate_answer(false) + ";; *) " + gate_answer(true) + ";; esac", arm());
  const ordered_json d = to_json(session().run(experiment(), {}));
  EXPECT_EQ(d["verdict"], "invalid");
  EXPECT_EQ(d["workloads"][0]["reason"], "gate_failed");
  EXPECT_THAT(d["workloads"][0]["sentence"].get<std::string>(), HasSubstr("gradients wte: error \"nan\""));
  EXPECT_EQ(count("arm"), 0);
  EXPECT_EQ(count("profile"), 0);
}

TEST_F(Session, does_not_believe_a_gate_that_says_passed_and_fails) {
  program(gate_answer(true) + " ; true", arm());
  std::string lying = gate_answer(true);
  lying.replace(lying.rfind("exit 0"), 6, "exit 1");
  program(lying, arm());
  EXPECT_EQ(session().run(experiment(), {}).verdict, experiments::Verdict::invalid);
  program("kill -KILL $$", arm());
  EXPECT_EQ(session().run(experiment(), {}).verdict, experiments::Verdict::invalid);
  program("echo good; exit 0", arm());
  EXPECT_EQ(session().run(experiment(), {}).verdict, experiments::Verdict::invalid);
  EXPECT_EQ(count("arm"), 0);
}

TEST_F(Session, passes_on_that_the_machine_cannot_or_the_input_is_wrong) {
  program("echo no GPU >&2; exit 3", arm());
  EXPECT_THROW(session().run(experiment(), {}), stepscope::MachineError);
  program("echo no such variant >&2; exit 2", arm());
  EXPECT_THROW(session().run(experiment(), {}), stepscope::InputError);
}

TEST_F(Session, gates_what_it_times_with_every_option_of_the_arm) {
  program(gate_answer(true), arm());
  const auto gate_line = [&](const std::string& settings) {
    fs::remove(folder_ / "log");
    auto e = experiment("common: {flags: {" + settings + "}}\n");
    e.trainer = "mixed";
    session().run(e, {});
    const std::string line = log().substr(0, log().find('\n'));
    return line.substr(0, line.find(" --seed "));  // of the session, with its folder of answers
  };
  EXPECT_EQ(gate_line("recompute: gelu, weight-rounding: stochastic"),
            "gate --trainer mixed --recompute gelu --weight-rounding stochastic --variant op=new "
            "--not-deterministic --json");
  EXPECT_EQ(gate_line("deterministic: true"), "gate --trainer mixed --variant op=new --json");
}

TEST_F(Session, says_why_there_is_no_waterfall) {
  program(gate_answer(true), arm());
  EXPECT_THAT(session().run(experiment(), {}).workloads[0].waterfall_absent, HasSubstr("no profile here"));
}

TEST_F(Session, gates_an_arm_once_for_all_workloads) {
  program(gate_answer(true), arm());
  auto e = experiment();
  e.workloads.push_back(e.workloads[0]);
  const ordered_json d = to_json(session().run(e, {}));
  EXPECT_EQ(d["workloads"].size(), 2u);
  EXPECT_EQ(count("gate"), 2);
}

TEST_F(Session, experiments_of_one_baseline_share_its_processes_and_others_do_not) {
  program(gate_answer(true), arm());
  std::vector<Experiment> all{experiment(), experiment(), experiment("common: {flags: {clip: 0.5}}\n")};
  all[0].name = "first";
  all[1].name = "second";
  all[1].change.variants["op"] = "newer";
  all[2].name = "other";
  ExperimentSession s = session();
  std::vector<size_t> done;
  int arms_when_first_done = 0;
  const auto outcomes = s.run(all, {}, [&](size_t i, const auto&) {
    if (done.empty()) arms_when_first_done = count("arm");
    done.push_back(i);
  });
  ASSERT_EQ(outcomes.size(), 3u);
  EXPECT_EQ(done, (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(arms_when_first_done, 3 * 10) << "kept before the next group is measured";
  for (const auto& o : outcomes) {
    ASSERT_FALSE(o.failure);
    EXPECT_EQ(o.document.verdict, Verdict::slower);
  }
  // Three arms of the first two, two of the third: heated once, started once, and eight rounds.
  EXPECT_EQ(count("arm"), 3 * 10 + 2 * 10);
}

TEST_F(Session, a_campaign_with_an_answer_of_no_exits_1_whatever_else_is_undecided) {
  program("case \"$*\" in *op=bad*) " + gate_answer(false) + ";; *) " + gate_answer(true) + ";; esac", arm());
  std::vector<Experiment> all{experiment(), experiment()};
  all[0].name = "fails_the_gate";
  all[0].change.variants["op"] = "bad";
  all[1].name = "undecided";
  SessionOptions o = options();
  o.plan.thresholds.looks = {{2, 0.02, 0.05, 0.02}};  // signs of two pairs prove nothing
  ExperimentSession s(std::move(o));
  EXPECT_EQ(run_campaign(s, {all[1]}, {folder_ / "alone", folder_ / "none"}), 4);
  EXPECT_EQ(run_campaign(s, all, {folder_ / "both", folder_ / "none"}), 1);
}

TEST_F(Session, an_arm_of_more_gpus_than_there_are_is_left_out_of_a_campaign) {
  std::vector<Experiment> all(4, experiment());
  all[0].name = "one";
  for (size_t i = 1; i < 4; ++i) all[i].trainer = "mixed";
  all[1].name = "both";
  all[1].workloads[0].gpus = 2;
  all[2].name = "change";
  all[2].change.flags["gpus"] = "4";
  all[3].name = "cpu";
  all[3].trainer = "reference";
  all[3].workloads[0].gpus = 8;
  std::vector<Experiment> rest = all;
  EXPECT_THAT(keep_those_with_enough_gpus(rest, 1),
              ::testing::ElementsAre("both: trains on 2 GPUs, and 1 is visible here", "change: trains on 4 GPUs, and 1 is visible here"));
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[0].name, "one");
  EXPECT_EQ(rest[1].name, "cpu");
  rest = all;
  EXPECT_EQ(keep_those_with_enough_gpus(rest, 2).size(), 1u);
  EXPECT_TRUE(keep_those_with_enough_gpus(rest, 4).empty());
}

TEST_F(Session, plants_nothing_where_nothing_can_be_planted) {
  program(gate_answer(true), arm());
  std::vector<Experiment> all(1, experiment());
  const auto refused = [&](double pct, const std::string& gpu) {
    SessionOptions o = options();
    o.plant_pct = pct;
    o.plant_gpu = gpu;
    std::string why;
    ExperimentSession(o).run(all, {}, [&](size_t, const ExperimentSession::Outcome& outcome) {
      try {
        if (outcome.failure) std::rethrow_exception(outcome.failure);
      } catch (const stepscope::InputError& e) {
        why = e.what();
      }
    });
    return why;
  };
  all[0].trainer = "reference";
  EXPECT_THAT(refused(0, "dram:1"), HasSubstr("the reference trainer has none; expected --plant PCT"));
  all[0].workloads[0].gpus = 2;
  EXPECT_THAT(refused(30, ""), HasSubstr("the arms run as whole programs, into which nothing can be planted"));
  EXPECT_FALSE(fs::exists(folder_ / "log")) << "refused before the gate";
}

TEST_F(Session, in_turns_takes_resident_pairs) {
  program(gate_answer(true), arm());
  SessionOptions o;
  o.root = folder_;
  o.program = (folder_ / "program").string();
  o.procedure = Procedure::in_turns;
  o.plan.thresholds.looks = extended_looks(8, 8);
  o.plan.block_s = o.plan.warmup_s = 0;
  o.plan.quads = 1;
  o.plan.block_timeout_s = o.plan.start_timeout_s = 600;
  EXPECT_EQ(ExperimentSession(std::move(o)).run(experiment(), {}).verdict, Verdict::slower);
  EXPECT_EQ(count("arm"), 16);
}

// On a machine with a GPU too: its name is not that of the CPU.
TEST_F(Session, names_its_device_also_when_stopped_before_anything_was_measured) {
  program(gate_answer(true), arm());
  const std::atomic<bool> stop{true};
  SessionOptions o = options(&stop);
  o.gpu.present = true;
  o.gpu.name = "NVIDIA H200";
  Experiment cpu = experiment();
  EXPECT_EQ(ExperimentSession(o).run(cpu, {}).environment.device, "NVIDIA H200");
  cpu.trainer = "reference";
  for (const bool gpu : {true, false}) {
    o.gpu.present = gpu;
    const VerdictDocument d = ExperimentSession(o).run(cpu, {{"", gpt2::reference_device(), "", 0, Verdict::faster, 24, 0, 0, "", 0.3}});
    EXPECT_EQ(d.workloads[0].reason, "interrupted");
    EXPECT_EQ(d.environment.device, gpt2::reference_device()) << gpu;
    EXPECT_EQ(d.ledger.trials, 1) << "those of its device";
  }
}

TEST_F(Session, says_undecided_when_stopped_before_anything_was_measured) {
  program(gate_answer(true), arm());
  const std::atomic<bool> stop{true};
  const ordered_json d = to_json(session(&stop).run(experiment(), {}));
  EXPECT_EQ(d["verdict"], "undecided");
  EXPECT_EQ(d["workloads"][0]["reason"], "interrupted");
  EXPECT_EQ(count("arm"), 0);
}

TEST_F(Session, does_not_time_a_frozen_baseline_that_was_touched) {
  program(gate_answer(true), arm());
  fs::create_directories(folder_ / "baselines");
  fs::copy(SOURCE_DIR "/baselines/fp32-v1", folder_ / "baselines/fp32-v1", fs::copy_options::recursive);
  const auto e = experiment("baseline: fp32-v1\ncompound: true\n");
  EXPECT_THROW(session().run(e, {}), stepscope::MachineError);  // unchanged, but not built beside the program
  std::ofstream(folder_ / "baselines/fp32-v1/main.cu", std::ios::app) << " ";
  const ordered_json d = to_json(session().run(e, {}));
  EXPECT_EQ(d["verdict"], "invalid");
  EXPECT_EQ(d["workloads"][0]["reason"], "baseline_changed");
  EXPECT_THAT(d["workloads"][0]["sentence"].get<std::string>(), HasSubstr("main.cu"));
}

TEST_F(Session, times_the_frozen_baseline_and_the_trainer_of_today_as_programs) {
  program_and_baseline();
  const ordered_json d = to_json(session().run(experiment("baseline: fp32-v1\ncompound: true\n"), {}));
  EXPECT_EQ(d["verdict"], "faster") << d["workloads"][0]["sentence"];
  EXPECT_EQ(count("train"), 9);  // alone, each once in a pair
  EXPECT_EQ(count("gate"), 1);   // a frozen baseline has its manifest
  EXPECT_EQ(d["workloads"][0]["a"]["said"]["command"][0], "baseline-fp32-v1") << "no folder of this machine";
}

// It ended the whole campaign, with nothing kept of what was measured.
TEST_F(Session, a_profile_that_cannot_be_kept_takes_no_verdict_with_it) {
  program(gate_answer(true), arm() + ";;\nprofile) for word; do [ \"$before\" = --out ] && cp " SOURCE_DIR
                                     "/tests/profiler/data/gpu.profile.json \"$word\"; before=$word; done");
  SessionOptions o = options();
  o.keep_profiles = folder_ / "gone";
  ::testing::internal::CaptureStderr();
  const VerdictDocument d = ExperimentSession(std::move(o)).run(experiment(), {});
  const std::string said = ::testing::internal::GetCapturedStderr();
  for (const char* arm : {"a", "b"})
    EXPECT_THAT(said, HasSubstr(fmt::format(
                          "--keep-profiles: {}/idea-d12-B=4-T=64.{}.json cannot be written: ", (folder_ / "gone").string(), arm)));
  EXPECT_TRUE(d.workloads[0].waterfall) << d.workloads[0].waterfall_absent;
  EXPECT_EQ(d.workloads[0].runs.size(), 16u);
}

// Its collector needs a step for every phase of the plan: warm-up 10, timed 10, counted 2, traced 7. Fewer would end before the last.
TEST_F(Session, profiles_the_frozen_baseline_over_enough_steps_for_every_phase) {
  program_and_baseline();
  const auto profiled_steps = [&](int timed) {
    fs::remove(folder_ / "log");
    session(nullptr, timed).run(experiment("baseline: fp32-v1\ncompound: true\n"), {});
    const std::string all = log();
    const std::string line = all.substr(all.find("profile"), all.find('\n', all.find("profile")) - all.find("profile"));
    const size_t at = line.rfind("--steps ");  // what stands before it are the profiler's own
    EXPECT_THAT(line.substr(0, at), HasSubstr(" -- ")) << line;
    return std::stoi(line.substr(at + 8));
  };
  EXPECT_EQ(profiled_steps(12), 29);
  EXPECT_EQ(profiled_steps(40), 40);
}

TEST_F(Session, compares_any_two_commands_and_says_that_nothing_checked_them) {
  program("true", "true");
  const std::string a = "for i in 1 2 3 4 5; do echo step $i 10.$i ms; done", b = "for i in 1 2 3 4 5; do echo it took 12.$i; done";
  const ordered_json d = to_json(session().run_commands({a, "for i in 1 2 3 4 5; do echo step $i 12.$i ms; done", "", -1, false, ""}, {}));
  EXPECT_EQ(d["verdict"], "slower") << d["workloads"][0]["sentence"];
  EXPECT_FALSE(d["workloads"][0]["b"]["gate"]["checked"].get<bool>());
  EXPECT_EQ(session().run_commands({b, b, "took ([0-9.]+)", -1, false, "true"}, {}).verdict, experiments::Verdict::same);
  EXPECT_EQ(session().run_commands({b, b, "took ([0-9.]+)", -1, false, "false"}, {}).workloads[0].reason, "gate_failed");
}

// --command-steps once reached frozen baselines and ranks, and commands took 40 steps whatever it said.
TEST_F(Session, tells_commands_how_many_steps_to_take_before_it_knows_how_long_one_takes) {
  program("true", "true");
  const std::string told = "echo told {steps} >>" + (folder_ / "log").string() + "; for i in 1 2 3 4 5; do echo step $i 10.$i ms; done";
  session(nullptr, 7).run_commands({told, told, "", -1, false, ""}, {});
  const std::string alone = log();
  EXPECT_TRUE(alone.starts_with("told 7\ntold 7\ntold ")) << alone;
  fs::remove(folder_ / "log");
  SessionOptions o = options(nullptr, 7);
  o.procedure = Procedure::in_turns;
  ExperimentSession(std::move(o)).run_commands({told, told, "", -1, false, ""}, {});
  EXPECT_GT(count("told "), 16);
  EXPECT_EQ(count("told "), count("told 7")) << log();
}

}  // namespace
}  // namespace experiments

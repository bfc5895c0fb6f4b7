// The order of things in an experiment, with a small script in the place of `stepscope`: gate before time, no
// time without a gate, profile after, campaign and ctrl-C. The script writes down what it was asked to do.
#include "experiments/session/session.h"
#include "experiments/session/campaign_run.h"
#include "experiments/session/gates.h"
#include "experiments/verdict/campaign.h"
#include "experiments/verdict/page.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/sha256.h"
#include "gpt2/reference/reference_trainer.h"
#include "tests/temporary_folder.h"

namespace experiments {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;

class Session : public ::testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }

  // `gate`, `arm`: what the script does for these commands.
  void program(const std::string& gate, const std::string& arm) {
    const fs::path file = folder_ / "program";
    std::ofstream(file) << "#!/bin/sh\necho \"$@\" >>" << (folder_ / "log").string() << "\ncase \"$1\" in\ngate) " << gate << ";;\narm) "
                        << arm << ";;\nprofile) echo no profile here; exit 1;;\nesac\n";
    chmod(file.c_str(), 0755);
  }
  static std::string gate_answer(bool passed) {
    return std::string("echo '{\"passed\": ") + (passed ? "true" : "false") +
           ", \"reports\": [{\"seed\": 7, \"checks\": [{\"name\": \"gradients\", \"tensor\": \"wte\", "
           "\"passed\": " +
           (passed ? "true" : "false") + ", \"error\": \"nan\", \"budget\": 1e-5}]}]}'; exit " + (passed ? "0" : "1");
  }
  // In the folder, a tree whose fp32 step is compiled from one file.
  void tree_of_one_file() const {
    fs::create_directories(folder_ / "fp32");
    std::ofstream(folder_ / "fp32/CMakeLists.txt") << "stepscope_stage(fp32_trainer SOURCES step.cpp)\n";
    std::ofstream(folder_ / "fp32/step.cpp") << "here";
  }
  // The fake arm, slower when it has the change.
  static std::string arm() {
    return "case \"$*\" in *new*) exec " BINARY_DIR "/bin/fake_arm good 1.03e6;; *) exec " BINARY_DIR "/bin/fake_arm good 1e6;; esac";
  }

  ExperimentSession session(const std::atomic<bool>* stop = nullptr, int command_steps = SessionOptions().command_steps) const {
    return ExperimentSession(options(stop, command_steps));
  }
  SessionOptions options(const std::atomic<bool>* stop = nullptr, int command_steps = SessionOptions().command_steps) const {
    SessionOptions o;
    o.command_steps = command_steps;
    o.root = folder_;
    o.program = (folder_ / "program").string();
    o.plan.thresholds.looks = extended_looks(8, 8);
    o.plan.block_s = o.plan.warmup_s = 0;
    o.plan.quads = 1;
    o.plan.alone = {.heat_s = 0.05, .settle_s = 0.02, .measure_s = 0.03, .teardown_s = 0, .turns = 0};
    o.plan.block_timeout_s = o.plan.start_timeout_s = 600;
    o.stop = stop;
    return o;
  }
  static Experiment experiment(const std::string& more = "") {
    return parse_experiment(
        "question: Q\nhypothesis: H\ntrainer: fp32\nchange: {variant: {op: new}}\npredicted: {saving_ms: "
        "0.1, arithmetic: x}\n"
        "workloads: [{model: d12, batch_size: 4, seq_len: 64}]\n" +
            more,
        "idea.yaml");
  }
  std::string log() const {
    std::ifstream in(folder_ / "log");
    return {std::istreambuf_iterator<char>(in), {}};
  }
  int count(const std::string& word) const {
    std::istringstream in(log());
    int n = 0;
    for (std::string line; std::getline(in, line);) n += line.rfind(word, 0) == 0;
    return n;
  }
  // A program that trains too, and a frozen baseline beside it; both print five steps, whatever they are told.
  void program_and_baseline() {
    program(gate_answer(true), arm());
    std::ofstream(folder_ / "program", std::ios::app)
        << "if [ \"$1\" = train ]; then for i in 1 2 3 4 5; do echo \"step $i | $((90 + i)) ms\"; done; fi\n";
    fs::create_directories(folder_ / "baselines");
    fs::copy(SOURCE_DIR "/baselines/fp32-v1", folder_ / "baselines/fp32-v1", fs::copy_options::recursive);
    std::ofstream(folder_ / "baseline-fp32-v1") << "#!/bin/sh\nfor i in 1 2 3 4 5; do echo \"step    $i | loss "
                                                   "4.5 | $((100 + i)) ms | 9 tokens/s\"; done\n";
    chmod((folder_ / "baseline-fp32-v1").c_str(), 0755);
  }
  fs::path folder_ = fresh_test_folder();
};

TEST_F(Session, gates_both_arms_then_measures_and_decides) {
  program(gate_answer(true), arm());
  const ordered_json d = to_json(session().run(experiment(), {}));
  EXPECT_EQ(d["verdict"], "slower") << d["workloads"][0]["sentence"];
  EXPECT_EQ(count("gate"), 2);
  EXPECT_EQ(count("arm"), 20);  // of each arm one heats and one only starts, then eight pairs
  EXPECT_LT(log().rfind("gate"), log().find("arm"));
  EXPECT_EQ(d["workloads"][0]["b"]["gate"]["sentence"], "1 checks passed (seed 7)");
}

// A run that was stopped after its first round, in a tree whose step is one file.
class LeftOffSession : public Session {
 protected:
  LeftOffSession() {
    tree_of_one_file();
    program(gate_answer(true), arm());
    std::atomic<bool> stop{false};
    SessionOptions o = few_pairs(&stop);
    o.git_revision = "first";
    left_.push_back(
        ExperimentSession(std::move(o)).run({&idea_, 1}, {}, {}, [&](size_t, const VerdictDocument&) { stop = true; }).front().document);
  }
  // Enough to be stopped behind the first.
  SessionOptions few_pairs(const std::atomic<bool>* stop = nullptr) const {
    SessionOptions o = options(stop);
    o.plan.thresholds.looks = extended_looks(kPairs, kPairs);
    return o;
  }
  ExperimentSession later() const {
    SessionOptions o = few_pairs();
    o.git_revision = "later";
    return ExperimentSession(std::move(o));
  }
  ExperimentSession::Outcome go_on() const { return later().run({&idea_, 1}, {}, {}, {}, left_).front(); }
  std::string refusal_of(ExperimentSession s) const {
    const ExperimentSession::Outcome o = s.run({&idea_, 1}, {}, {}, {}, left_).front();
    if (!o.failure) return "none";
    try {
      std::rethrow_exception(o.failure);
    } catch (const stepscope::InputError& e) {
      return e.what();
    }
  }
  void build_again() const { std::ofstream(folder_ / "program", std::ios::app) << "# other bytes\n"; }

  static constexpr int kPairs = 3;
  const Experiment idea_ = experiment();
  std::vector<std::optional<VerdictDocument>> left_;
};

TEST_F(LeftOffSession, goes_on_at_another_revision_with_a_program_that_was_built_again_from_the_same_step) {
  ASSERT_TRUE(was_cut_short(*left_[0]));
  const size_t before = left_[0]->workloads[0].runs.size();
  ASSERT_GE(before, 2u);
  ASSERT_LT(before, 2u * kPairs);
  build_again();
  EXPECT_EQ(later().differs_from(*left_[0], idea_), "");
  const ExperimentSession::Outcome o = go_on();
  ASSERT_FALSE(o.failure);
  ASSERT_EQ(o.document.workloads[0].runs.size(), 2u * kPairs);
  for (size_t i = 0; i < before; ++i) EXPECT_EQ(o.document.workloads[0].runs[i].total_ns, left_[0]->workloads[0].runs[i].total_ns) << i;
  EXPECT_EQ(o.document.code.git_revision, "later");
  EXPECT_EQ(o.document.code.earlier_revisions, std::vector<std::string>{"first"});
  EXPECT_EQ(o.document.code.first_revision(), "first");  // which must hold the prediction
  EXPECT_THAT(page_of(o.document), HasSubstr("What commands at first measured counts too: no source of the step differs."));
}

TEST_F(LeftOffSession, asks_the_gate_again_only_for_another_driver) {
  const int before = count("gate");
  left_[0]->environment.driver = "1.2";
  const VerdictDocument asked = go_on().document;
  EXPECT_EQ(count("gate"), before + 2);
  EXPECT_EQ(asked.workloads[0].b.gate.checked_by, "");

  left_[0]->environment.driver = "";
  left_[0]->at = "then";
  program(gate_answer(false), arm());
  VerdictDocument d = go_on().document;
  EXPECT_EQ(count("gate"), before + 2);
  EXPECT_NE(d.verdict, Verdict::invalid);
  for (const ArmReport* arm : {&d.workloads[0].a, &d.workloads[0].b}) {
    EXPECT_EQ(arm->gate.sentence, "1 checks passed (seed 7)");
    EXPECT_EQ(arm->gate.checked_by, "first on then");
  }
  EXPECT_THAT(page_of(d), HasSubstr("B: 1 checks passed (seed 7), checked by first on then"));
  // A third command names the one that asked, not the second.
  left_[0]->workloads[0].b.gate.checked_by = "one before";
  EXPECT_EQ(go_on().document.workloads[0].b.gate.checked_by, "one before");
  // What did not pass is no answer for later.
  left_[0]->workloads[0].b.gate.passed = false;
  EXPECT_EQ(go_on().document.verdict, Verdict::invalid);
}

TEST_F(LeftOffSession, does_not_go_on_where_a_source_of_the_step_differs_or_nothing_says_that_none_does) {
  std::ofstream(folder_ / "fp32/step.cpp") << "changed";
  const auto refusal = [&] { return refusal_of(later()); };
  const int gates = count("gate"), arms = count("arm");
  EXPECT_THAT(refusal(), HasSubstr("of another step: sources "));
  EXPECT_EQ(count("gate"), gates) << "refused before anything ran";
  EXPECT_EQ(count("arm"), arms);
  // The revision does not say what an uncommitted change is.
  left_[0]->code.git_revision = "later";
  EXPECT_THAT(refusal(), HasSubstr("of another step: sources "));
  // Where nothing is hashed, revision and program speak for it.
  fs::remove_all(folder_ / "fp32");
  left_[0]->code.a_sources_sha256 = left_[0]->code.b_sources_sha256 = "";
  build_again();
  EXPECT_THAT(refusal(), HasSubstr("of another program in arm A"));
  left_[0]->code.git_revision = "first";
  EXPECT_THAT(refusal(), HasSubstr("of another revision: first, now later"));
}

TEST_F(LeftOffSession, does_not_go_on_under_other_conditions) {
  SessionOptions o = few_pairs();
  o.serial = true;
  EXPECT_THAT(refusal_of(ExperimentSession(std::move(o))), HasSubstr("of another command of arm A: arm --trainer fp32"));
  o = few_pairs();
  o.procedure = Procedure::in_turns;
  EXPECT_THAT(refusal_of(ExperimentSession(std::move(o))),
              HasSubstr("of another quantity: sustained step times, now the ratio at equal clocks"));
  left_[0]->code.patch_sha256 = "0123";
  EXPECT_THAT(refusal_of(later()), HasSubstr("of another patch: 0123, now (none)"));
}

TEST_F(LeftOffSession, does_not_go_on_with_another_number_of_threads) {
  VerdictDocument d = *left_[0];
  d.code.git_revision = "later";
  d.environment.device = "CPU, 99 threads";
  Experiment of_the_reference = idea_;
  of_the_reference.trainer = "reference";
  EXPECT_THAT(later().differs_from(d, of_the_reference), HasSubstr("another device: CPU, 99 threads, now CPU, "));
}

TEST_F(LeftOffSession, a_verdict_is_kept_although_nobody_reads_what_is_said_of_it) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  std::fflush(stdout);
  const int out = dup(STDOUT_FILENO);
  dup2(ends[1], STDOUT_FILENO);
  const auto before = signal(SIGPIPE, SIG_IGN);
  ExperimentSession s = later();
  try {
    run_campaign(s, {idea_}, {folder_ / "out", folder_ / "none"});
  } catch (const std::system_error&) {  // of fmt
  }
  std::fflush(stdout);
  std::clearerr(stdout);
  dup2(out, STDOUT_FILENO);
  signal(SIGPIPE, before);
  for (const int fd : {ends[1], out}) close(fd);
  EXPECT_EQ(load_verdict(folder_ / "out/idea/verdict.json").workloads[0].runs.size(), 2u * kPairs);
}

TEST_F(LeftOffSession, two_commands_do_not_measure_into_one_folder) {
  fs::create_directories(folder_ / "out/idea");
  const gpt2::Descriptor other(open((folder_ / "out/idea").c_str(), O_RDONLY | O_DIRECTORY));
  ASSERT_TRUE(gpt2::lock_as_writer(other.get(), true));
  const int arms = count("arm");
  ExperimentSession s = later();
  EXPECT_THAT(
      [&] {
        run_campaign(s, {idea_}, {folder_ / "out", folder_ / "none"});
      },
      ::testing::ThrowsMessage<stepscope::InputError>(HasSubstr("out/idea: another command measures into it")));
  EXPECT_EQ(count("arm"), arms);
}

TEST_F(LeftOffSession, the_oldest_revision_stays_the_first_whatever_came_between) {
  left_[0]->code.earlier_revisions = {"later"};
  left_[0]->code.git_revision = "between";
  EXPECT_EQ(go_on().document.code.earlier_revisions, (std::vector<std::string>{"later", "between"}));
}

TEST_F(LeftOffSession, a_command_that_is_stopped_in_its_gate_leaves_the_rounds_of_the_one_before) {
  const std::atomic<bool> stop{true};
  ExperimentSession s{few_pairs(&stop)};
  int documents = 0;
  EXPECT_TRUE(s.run(
                   {&idea_, 1}, {}, [&](size_t, const auto&) { ++documents; }, [&](size_t, const auto&) { ++documents; }, left_)
                  .empty());
  EXPECT_EQ(documents, 0) << "none replaces what is there";
}

// Two workloads, of which the first is decided and the second is not.
TEST_F(LeftOffSession, a_workload_that_waits_stands_in_every_document_with_what_it_has) {
  const Experiment two = parse_experiment(
      "question: Q\nhypothesis: H\ntrainer: fp32\nchange: {variant: {op: new}}\npredicted: {saving_ms: 0.1, arithmetic: x}\n"
      "workloads: [{model: d12, batch_size: 4, seq_len: 64}, {model: d12, batch_size: 8, seq_len: 64}]\n",
      "two.yaml");
  std::atomic<bool> stop{false};
  const auto until = [&](const std::vector<std::optional<VerdictDocument>>& left, auto enough) {
    stop = false;
    ExperimentSession s{few_pairs(&stop)};
    return s
        .run(
            {&two, 1}, {}, {}, [&](size_t, const VerdictDocument& d) { stop = stop || enough(d); }, left)
        .front()
        .document;
  };
  // Stopped between the two: the second has nothing, and says so.
  const VerdictDocument first = until({}, [](const VerdictDocument& d) { return !was_cut_short(d.workloads[0]); });
  ASSERT_EQ(first.workloads.size(), 2u);
  EXPECT_EQ(first.workloads[1].reason, reason::kInterrupted);
  EXPECT_TRUE(first.workloads[1].runs.empty());
  EXPECT_TRUE(was_cut_short(first));
  // Then in the second, then before it goes on.
  const VerdictDocument second = until({first}, [](const VerdictDocument& d) { return !d.workloads[1].runs.empty(); });
  const size_t runs = second.workloads[1].runs.size();
  ASSERT_GE(runs, 2u);
  ASSERT_LT(runs, 2u * kPairs);
  EXPECT_EQ(second.workloads[0].runs.size(), 2u * kPairs);
  size_t fewest = 99;
  const VerdictDocument third = until({second}, [&](const VerdictDocument& d) {
    fewest = std::min(fewest, d.workloads[1].runs.size());
    return false;
  });
  EXPECT_EQ(fewest, runs) << "in every document that a kill would leave";
  EXPECT_FALSE(was_cut_short(third));
  EXPECT_EQ(third.workloads[1].runs.size(), 2u * kPairs);
}

TEST_F(LeftOffSession, what_was_decided_before_is_corrected_with_the_rest_of_its_campaign) {
  left_ = {go_on().document};
  VerdictDocument d = *left_[0];
  std::vector<Experiment> all{idea_, idea_};
  all[0].name = "one";
  all[1].name = "another";
  for (const Experiment& e : all) {
    d.name = e.name;
    WorkloadSection& w = d.workloads[0];
    d.verdict = w.verdict = w.statistics.verdict = Verdict::slower;
    w.statistics.p_value = w.statistics.campaign_p_value = 0.012;  // alone below the level of 0.02
    fs::create_directories(folder_ / "out" / e.name);
    save_verdict(folder_ / "out" / e.name / "verdict.json", d);
  }
  CampaignOptions o{folder_ / "out", folder_ / "none"};
  o.go_on = true;
  ExperimentSession s = later();
  EXPECT_EQ(run_campaign(s, {all[0]}, o), 1) << "it is decided, and slower";
  EXPECT_EQ(run_campaign(s, all, o), 4);
  EXPECT_EQ(load_verdict(folder_ / "out/one/verdict.json").verdict, Verdict::undecided);
  // A file that cannot be read stops its own experiment, and is the answer of the command.
  std::ofstream(folder_ / "out/another/verdict.json") << "{";
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run_campaign(s, all, o), 2);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("one: is decided, and left out"));
  EXPECT_THAT(said, HasSubstr("; delete it, or leave --continue out"));
}

TEST_F(LeftOffSession, a_verdict_of_another_plan_or_of_other_workloads_does_not_stand) {
  const VerdictDocument whole = go_on().document;
  const std::atomic<bool> stop{true};
  const auto said_of = [&](const VerdictDocument& d, SessionOptions o) {
    fs::create_directories(folder_ / "out/idea");
    save_verdict(folder_ / "out/idea/verdict.json", d);
    CampaignOptions c{folder_ / "out", folder_ / "none"};
    c.go_on = true;
    o.git_revision = "later";
    ExperimentSession s(std::move(o));
    ::testing::internal::CaptureStderr();
    run_campaign(s, {idea_}, c);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said_of(whole, few_pairs(&stop)), HasSubstr("idea: is decided, and left out"));
  SessionOptions longer = few_pairs(&stop);
  longer.plan.thresholds.looks = extended_looks(9, 9);
  EXPECT_THAT(said_of(whole, std::move(longer)),
              HasSubstr("idea: its verdict is of another plan: looks after 3 pairs for 0.3%, now looks after 9"));
  SessionOptions more_seconds = few_pairs(&stop);
  more_seconds.plan.alone.measure_s = 0.5;
  EXPECT_THAT(said_of(whole, std::move(more_seconds)), HasSubstr("idea: its verdict is of another --measure-s: 0.03 s, now 0.5 s"));
  VerdictDocument another = whole;
  another.workloads[0].workload = "another";
  EXPECT_THAT(said_of(whole, few_pairs(&stop)), HasSubstr("idea: is decided, and left out")) << "beside an attempt that measured nothing";
  fs::remove(folder_ / "out/idea/last-attempt.json");
  EXPECT_THAT(said_of(another, few_pairs(&stop)), HasSubstr("idea: its verdict is of other workloads: it is measured from the start"));
}

TEST(AskedForAgain, AreWholeWordsOfAWorkload) {
  const std::string_view workload = "d12 B=64 T=1024 2 GPUs";
  for (const char* words : {"B=64", "d12", "2 GPUs", "B=64 T=1024", "d12 B=64 T=1024 2 GPUs"})
    EXPECT_TRUE(asks_for(words, workload)) << words;
  for (const char* words : {"B=6", "=64", "4 T", "GPU", "B=4", "", " ", "d24"}) EXPECT_FALSE(asks_for(words, workload)) << words;
  EXPECT_TRUE(asks_for("B=4", "d12 B=4 T=1024")) << "of a text in which B=4 stands at the first place";
  EXPECT_TRUE(asks_for("4", "B=4 4")) << "not the first place, but a later one";
}

// Of the mixed trainer at B=64 two ranks exchange all layers at once by now, which at B=4 they do not.
TEST_F(LeftOffSession, continue_measures_only_the_workloads_anew_whose_ranks_exchange_other_pieces) {
  const Experiment ranks = parse_experiment(
      "question: Q\nhypothesis: H\ntrainer: fp32\nchange: {variant: {op: new}}\npredicted: {saving_ms: 0.1, arithmetic: x}\n"
      "workloads: [{model: d12, batch_size: 4, seq_len: 1024, gpus: 2}, {model: d12, batch_size: 64, seq_len: 1024, gpus: 2}]\n",
      "idea.yaml");
  VerdictDocument before = go_on().document;
  before.experiment->file_sha256 = ranks.file_sha256;
  before.workloads.push_back(before.workloads[0]);
  for (size_t i = 0; i < 2; ++i) before.workloads[i].workload = ranks.workloads[i].text();
  fs::create_directories(folder_ / "out/idea");
  save_verdict(folder_ / "out/idea/verdict.json", before);
  const std::atomic<bool> stop{true};
  CampaignOptions c{folder_ / "out", folder_ / "none"};
  c.go_on = true;
  ExperimentSession s{few_pairs(&stop)};
  ::testing::internal::CaptureStderr();
  run_campaign(s, {ranks}, c);
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      HasSubstr("idea: d12 B=64 T=1024 2 GPUs: ranks exchanged other pieces of gradients (in arm A 25 MiB, now 297; in arm B 25 MiB, "
                "now 297): measured anew; its other workloads stand"));
  const VerdictDocument now = load_verdict(folder_ / "out/idea/last-attempt.json");
  ASSERT_EQ(now.workloads.size(), 2u);
  EXPECT_EQ(now.workloads[0].runs.size(), before.workloads[0].runs.size());
  EXPECT_EQ(now.workloads[0].verdict, before.workloads[0].verdict);
  EXPECT_TRUE(now.workloads[1].runs.empty());
  EXPECT_EQ(now.workloads[1].reason, reason::kInterrupted);
  // What stands can be asked for again: then nothing of this verdict does, and of one whose ranks exchange what they did then the other.
  const auto said_again = [&](const Experiment& e, const VerdictDocument& stood, const char* words) {
    fs::remove(folder_ / "out/idea/last-attempt.json");
    save_verdict(folder_ / "out/idea/verdict.json", stood);
    CampaignOptions again = c;
    again.again = {words};
    ExperimentSession session{few_pairs(&stop)};
    ::testing::internal::CaptureStderr();
    run_campaign(session, {e}, again);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(said_again(ranks, before, "B=4"), HasSubstr("idea: d12 B=4 T=1024 2 GPUs: asked for again, d12 B=64 T=1024 2 GPUs: ranks"));
  const Experiment alone = parse_experiment(
      "question: Q\nhypothesis: H\ntrainer: fp32\nchange: {variant: {op: new}}\npredicted: {saving_ms: 0.1, arithmetic: x}\n"
      "workloads: [{model: d12, batch_size: 4, seq_len: 1024}, {model: d12, batch_size: 64, seq_len: 1024}]\n",
      "idea.yaml");
  VerdictDocument one_gpu = before;
  one_gpu.experiment->file_sha256 = alone.file_sha256;
  for (size_t i = 0; i < 2; ++i) one_gpu.workloads[i].workload = alone.workloads[i].text();
  EXPECT_THAT(said_again(alone, one_gpu, "B=64"),
              HasSubstr("idea: d12 B=64 T=1024: asked for again: measured anew; its other workloads stand"));
  const VerdictDocument asked = load_verdict(folder_ / "out/idea/last-attempt.json");
  ASSERT_EQ(asked.workloads.size(), 2u);
  EXPECT_EQ(asked.workloads[0].verdict, one_gpu.workloads[0].verdict);
  EXPECT_EQ(asked.workloads[1].reason, reason::kInterrupted);
  save_verdict(folder_ / "out/idea/verdict.json", before);
  // Of another plan nothing stands.
  fs::remove(folder_ / "out/idea/last-attempt.json");
  SessionOptions longer = few_pairs(&stop);
  longer.plan.thresholds.looks = extended_looks(9, 9);
  ExperimentSession other(std::move(longer));
  ::testing::internal::CaptureStderr();
  EXPECT_NO_THROW(run_campaign(other, {ranks}, c));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("now looks after 9 pairs for 0.3%: it is measured from the start"));
  EXPECT_TRUE(load_verdict(folder_ / "out/idea/last-attempt.json").workloads[0].runs.empty());
}

// In a tree of its own whose step is one file; `build` stands in for the build of its arm.
class PatchedSession : public Session {
 protected:
  PatchedSession() {
    tree_of_one_file();
    fs::create_directories(other_ / "experiments/gate");
    fs::copy(folder_ / "fp32", other_ / "fp32", fs::copy_options::recursive);
    std::ofstream(folder_ / "idea.patch") << "some lines";
    program(gate_answer(true), arm());
  }
  void other_program(const std::string& step, const std::string& gate) {
    std::ofstream(other_ / "fp32/step.cpp") << step;
    std::ofstream(other_ / "program") << "#!/bin/sh\necho other \"$@\" >>" << (folder_ / "log").string() << "\ncase \"$1\" in\ngate) "
                                      << gate << ";;\narm) exec " BINARY_DIR "/bin/fake_arm good 0.9e6;;\nesac\n";
    chmod((other_ / "program").c_str(), 0755);
  }
  ordered_json run(const Experiment& e, const std::string& no_gpu = "") {
    SessionOptions o = options();
    o.built_here = true;
    o.gpu.why_not = no_gpu;
    o.build = [&](const BuildOptions& build, const Sources& sources) {
      builds_.push_back(fmt::format("{} + {}{}", build.root == folder_ ? "tree" : build.root.string(), sources.patch.filename().string(),
                                    sources.revision));
      build.check(other_);
      return BuiltProgram{other_, other_ / "program", sources.revision.empty() ? "" : "c0ffee", {}};
    };
    return to_json(ExperimentSession(std::move(o)).run(e, {}));
  }
  Experiment patched() const {
    Experiment e = experiment();
    e.change = {};
    e.patch = folder_ / "idea.patch";
    e.change_text = "patch idea.patch";
    return e;
  }
  fs::path other_ = folder_ / "arms/idea";
  std::vector<std::string> builds_;
};

TEST_F(PatchedSession, builds_arm_b_once_and_gates_and_times_that_program) {
  other_program("patched", gate_answer(true));
  Experiment e = patched();
  e.workloads.push_back(e.workloads.front());
  e.workloads.back().batch_size = 64;
  const ordered_json d = run(e);
  EXPECT_THAT(builds_, ::testing::ElementsAre("tree + idea.patch"));
  EXPECT_EQ(d["verdict"], "faster") << d["workloads"][0]["sentence"];
  EXPECT_EQ(count("gate"), 1);
  EXPECT_EQ(count("other gate"), 1);
  EXPECT_EQ(count("other arm"), 20);  // ten of each workload
  EXPECT_EQ(d["code"]["patch_sha256"], gpt2::sha256_text("some lines"));
  EXPECT_FALSE(d["code"].contains("a_revision"));
  EXPECT_NE(d["code"]["a_sources_sha256"], d["code"]["b_sources_sha256"]);
  EXPECT_NE(d["workloads"][0]["a"]["program_sha256"], d["workloads"][0]["b"]["program_sha256"]);
}

TEST_F(PatchedSession, an_arm_that_does_not_pass_its_own_gate_is_not_timed) {
  other_program("patched", gate_answer(false));
  const ordered_json d = run(patched());
  EXPECT_EQ(d["verdict"], "invalid");
  EXPECT_EQ(count("other arm") + count("arm"), 0);
}

TEST_F(PatchedSession, a_gate_that_the_patch_changes_is_named) {
  other_program("patched", gate_answer(true));
  std::ofstream(other_ / "experiments/gate/budgets.cpp") << "x";
  EXPECT_THAT(run(patched())["workloads"][0]["b"]["gate"]["sentence"].get<std::string>(),
              HasSubstr("the gate differs between the arms: experiments/gate/budgets.cpp"));
}

TEST_F(PatchedSession, a_patch_beside_the_step_is_refused_before_anything_runs) {
  other_program("here", gate_answer(true));
  try {
    run(patched());
    FAIL();
  } catch (const SameStep& error) {
    EXPECT_THAT(error.what(), HasSubstr("patch idea.patch: nothing differs that a step of the fp32 trainer is compiled from"));
  }
  EXPECT_EQ(log(), "");
}

TEST_F(PatchedSession, an_arm_that_needs_a_gpu_is_not_compiled_without_one) {
  other_program("patched", gate_answer(true));
  try {
    run(patched(), "none is here");
    FAIL();
  } catch (const stepscope::MachineError& error) {
    EXPECT_STREQ(error.what(), "--trainer fp32 needs a GPU: none is here");
  }
  EXPECT_THAT(builds_, ::testing::IsEmpty());
}

TEST_F(PatchedSession, a_flag_that_the_other_program_refuses_is_that_arms_fault) {
  other_program("patched", "echo stepscope: no variant op=new >&2; exit 2");
  try {
    run(patched());
    FAIL();
  } catch (const stepscope::InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("arm B (patch idea.patch): no variant op=new"));
  }
}

TEST_F(PatchedSession, since_a_revision_arm_a_is_the_other_program) {
  other_program("older", gate_answer(true));
  Experiment e = patched();
  e.patch.clear();
  e.file.clear();
  e.since = "HEAD~1";
  e.flags = {"--trainer", "fp32", "--model", "d12"};
  const ordered_json d = run(e);
  EXPECT_THAT(builds_, ::testing::ElementsAre("tree + HEAD~1"));
  EXPECT_EQ(d["verdict"], "slower") << d["workloads"][0]["sentence"];
  EXPECT_EQ(d["code"]["a_revision"], "c0ffee");
  EXPECT_FALSE(d["experiment"].contains("prediction"));
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

}  // namespace
}  // namespace experiments

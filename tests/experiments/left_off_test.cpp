// Commands that go on where one before them was stopped, and what of a decided verdict stands then.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "base/sha256.h"
#include "experiments/session/campaign_run.h"
#include "experiments/session/session.h"
#include "experiments/verdict/campaign.h"
#include "experiments/verdict/ledger.h"
#include "experiments/verdict/page.h"
#include "gpt2/reference/reference_trainer.h"
#include "tests/experiments/session_fixture.h"

namespace experiments {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using ::testing::HasSubstr;

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

// The next command asked the gate again, because the document named the driver of the command before.
TEST_F(LeftOffSession, rounds_are_of_the_driver_under_which_they_run) {
  left_[0]->environment.driver = "1.2";
  std::vector<std::string> drivers;
  later().run(
      {&idea_, 1}, {}, {}, [&](size_t, const VerdictDocument& d) { drivers.push_back(d.environment.driver); }, left_);
  EXPECT_THAT(drivers, ::testing::AllOf(::testing::Not(::testing::IsEmpty()), ::testing::Each("")));
}

// 0.9% is written as 0.9000000000000001%, because it is a ratio in between.
TEST_F(LeftOffSession, a_minimum_effect_is_the_same_after_it_was_written) {
  Experiment e = idea_;
  e.minimum_effect_pct = 0.9;
  left_[0]->thresholds.minimum_effect_pct = 100 * (e.minimum_effect_pct / 100);
  ASSERT_NE(left_[0]->thresholds.minimum_effect_pct, e.minimum_effect_pct);
  EXPECT_EQ(later().differs_from(*left_[0], e), "");
  e.minimum_effect_pct = 0.91;
  EXPECT_THAT(later().differs_from(*left_[0], e),
              HasSubstr("another plan: looks after 3 pairs for 0.9%, now looks after 3 pairs for 0.91%"));
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
  EXPECT_THAT(refusal_of(ExperimentSession(std::move(o))), HasSubstr("of another flag of both arms: (none), now --serial"));
  left_[0]->workloads[0].a.command.push_back("--clip");
  EXPECT_THAT(refusal_of(later()), HasSubstr("of another command of arm A: arm --trainer fp32"));
  left_[0]->workloads[0].a.command.pop_back();
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

// Its disk may be full. A campaign ended at the first word that it took no more, and what was left of it was not measured.
TEST_F(LeftOffSession, a_stderr_that_takes_nothing_ends_no_campaign) {
  fs::create_directories(folder_ / "out/idea");
  save_verdict(folder_ / "out/idea/verdict.json", go_on().document);
  CampaignOptions o{folder_ / "out", folder_ / "none"};
  o.go_on = true;
  ExperimentSession s = later();
  const int err = dup(STDERR_FILENO), full = open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  dup2(full, STDERR_FILENO);
  EXPECT_NO_THROW(run_campaign(s, {idea_}, o));  // it is decided, and says so
  dup2(err, STDERR_FILENO);
  for (const int fd : {full, err}) close(fd);
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
  SessionOptions serial = few_pairs(&stop);
  serial.serial = true;
  EXPECT_THAT(said_of(whole, std::move(serial)), HasSubstr("idea: its verdict is of another flag of both arms: (none), now --serial"));
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
  // The same words again, where a round of it was measured meanwhile, go on with that round.
  VerdictDocument stopped = one_gpu;
  stopped.workloads[1] = left_[0]->workloads[0];
  stopped.workloads[1].workload = alone.workloads[1].text();
  save_verdict(folder_ / "out/idea/last-attempt.json", stopped);
  CampaignOptions same_words = c;
  same_words.again = {"B=64"};
  ExperimentSession goes_on{few_pairs(&stop)};
  run_campaign(goes_on, {alone}, same_words);
  EXPECT_EQ(load_verdict(folder_ / "out/idea/last-attempt.json").workloads[1].runs.size(), left_[0]->workloads[0].runs.size());
  // Beside an attempt that measured nothing, as one that was stopped in its gate, the verdict's other workload stands too.
  VerdictDocument nothing = one_gpu;
  for (WorkloadSection& w : nothing.workloads) w.runs.clear();
  save_verdict(folder_ / "out/idea/last-attempt.json", nothing);
  ExperimentSession beside{few_pairs(&stop)};
  run_campaign(beside, {alone}, same_words);
  EXPECT_EQ(load_verdict(folder_ / "out/idea/last-attempt.json").workloads[0].runs.size(), one_gpu.workloads[0].runs.size());
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

// One that stood entered again with every workload that was measured beside it, and one of a command that was stopped only if another went on.
TEST_F(LeftOffSession, a_comparison_of_identical_code_enters_the_ledger_once_and_when_it_is_measured) {
  // The second workload waits until it may go on. A step is no faster than the products of the profile can be.
  program(gate_answer(true), "case \"$*\" in *batch-size\\ 8*) touch " + (folder_ / "second").string() + "; while [ ! -e " +
                                 (folder_ / "go").string() +
                                 " ]; do sleep 0.01; done;; esac; exec " BINARY_DIR "/bin/fake_arm good 5e6;;\n" +
                                 "profile) for word; do [ \"$before\" = --out ] && cp " SOURCE_DIR
                                 "/tests/profiler/data/gpu.profile.json \"$word\"; before=$word; done");
  const Experiment two = parse_experiment(
      "question: Q\nhypothesis: H\ntrainer: fp32\nchange: {variant: {op: new}}\npredicted: {saving_ms: 0.1, arithmetic: x}\n"
      "workloads: [{model: d12, batch_size: 4, seq_len: 64}, {model: d12, batch_size: 8, seq_len: 64}]\n",
      "two.yaml");
  CampaignOptions o{folder_ / "out", folder_ / "none"};
  const auto entries = [&] {
    std::vector<std::string> out;
    for (const LedgerEntry& e : read_ledger(ledger_file(folder_ / "out"))) out.push_back(e.what);
    return out;
  };
  const std::string first = two.workloads[0].text(), second = two.workloads[1].text();
  std::atomic<bool> stop{false};
  {
    const std::jthread stopper([&](const std::stop_token& ended) {
      while (!fs::exists(folder_ / "second") && !ended.stop_requested()) usleep(1000);
      stop = true;
    });
    ExperimentSession s{few_pairs(&stop)};
    run_campaign(s, {two}, o);
  }
  const WorkloadSection decided = load_verdict(folder_ / "out/two/verdict.json").workloads[0];
  ASSERT_EQ(decided.reason, reason::kSameCode) << decided.waterfall_absent;
  ASSERT_TRUE(was_cut_short(load_verdict(folder_ / "out/two/verdict.json")));
  EXPECT_EQ(entries(), std::vector{first});
  std::ofstream(folder_ / "go") << "";
  o.go_on = true;
  ExperimentSession goes_on{few_pairs()}, once_more{few_pairs()};
  run_campaign(goes_on, {two}, o);
  ASSERT_FALSE(was_cut_short(load_verdict(folder_ / "out/two/verdict.json")));
  EXPECT_EQ(entries(), (std::vector{first, second}));
  o.again = {"B=8"};
  run_campaign(once_more, {two}, o);
  EXPECT_EQ(entries(), (std::vector{first, second, second}));
}

}  // namespace
}  // namespace experiments

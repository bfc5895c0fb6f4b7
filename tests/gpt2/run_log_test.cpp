#include "gpt2/run_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "tests/gpt2/files.h"

namespace gpt2 {
namespace {
using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
using ::testing::ThrowsMessage;

const std::string kRun =
    R"({"event":"run","schema":"stepscope.log/1","settings":{"trainer":"reference","learning_rate":0.5,"tokens_per_step":8}})";
std::string step(int n, const std::string& loss = "1.5") {
  return R"({"event":"step","step":)" + std::to_string(n) + R"(,"loss":)" + loss + R"(,"grad_norm":2,"learning_rate":0.25,"time_ns":1e6})";
}
std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const std::filesystem::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

TEST(RunLog, HoldsWhatTheLinesSay) {
  const RunLog log =
      parse_run_log(kRun + "\n" + step(1) + "\n" + step(2, "1.25") + "\n" + R"({"event":"validation","step":2,"loss":3})" + "\n" +
                        R"({"event":"eval","step":2,"accuracy":0.5})" + "\n" + R"({"event":"note","step":2,"text":"hm"})" + "\n" +
                        R"({"event":"of a later version"})" + "\n" + R"({"event":"end","step":2,"stopped":"why"})" + "\n",
                    "x");
  ASSERT_EQ(log.steps.size(), 2u);
  EXPECT_EQ(log.steps[1].step, 2);
  EXPECT_EQ(log.steps[1].loss, 1.25);
  EXPECT_EQ(log.steps[1].grad_norm, 2);
  EXPECT_EQ(log.steps[1].learning_rate, 0.25);
  EXPECT_EQ(log.steps[1].time_ns, 1e6);
  EXPECT_EQ(log.trainer, "reference");
  EXPECT_EQ(log.peak_learning_rate, 0.5);
  EXPECT_EQ(log.tokens_per_step, 8);
  EXPECT_EQ(log.ranks, 1);
  ASSERT_EQ(log.validations.size(), 1u);
  EXPECT_EQ(log.validations[0].value, 3);
  ASSERT_EQ(log.accuracies.size(), 1u);
  EXPECT_EQ(log.accuracies[0].value, 0.5);
  EXPECT_EQ(log.notes, std::vector<std::string>{"hm"});
  EXPECT_TRUE(log.ended);
  EXPECT_EQ(log.stopped, "why");
}

TEST(RunLog, ALineThatIsBeingWrittenIsLeftOut) {
  const RunLog log = parse_run_log(kRun + "\n" + step(1) + "\n" + step(2).substr(0, 20), "x");
  EXPECT_EQ(log.steps.size(), 1u);
  EXPECT_FALSE(log.ended);
}

TEST(RunLog, ARunThatWasResumedHasNotEndedYet) {
  const std::string ended = R"({"event":"end","step":1,"stopped":"interrupted after step 1"})";
  const std::string resumed = R"({"event":"run","schema":"stepscope.log/1","settings":{},"resumed_after":1})";
  const RunLog log = parse_run_log(kRun + "\n" + step(1) + "\n" + ended + "\n" + resumed + "\n" + step(2) + "\n", "x");
  EXPECT_EQ(log.resumed_after, std::vector<int64_t>{1});
  EXPECT_FALSE(log.ended);
  EXPECT_EQ(log.stopped, "");
}

TEST(RunLog, DamageIsNamedWithItsLine) {
  const auto refused = [](const std::string& text, const std::string& where, const std::string& why) {
    EXPECT_THAT([&] { parse_run_log(text, "run.jsonl"); },
                ThrowsMessage<stepscope::InputError>(AllOf(HasSubstr(where), HasSubstr(why), HasSubstr("expected"))))
        << text;
  };
  refused("", "run.jsonl", "not one whole line");
  refused("{}\n", "run.jsonl:1", "\"event\"");
  refused(step(1) + "\n", "run.jsonl:1", "not the first line of a run's log");
  refused(kRun + "\n" + step(1) + "\n" + R"({"event":"end","step":1})" + "\n" + step(2) + "\n", "run.jsonl:4",
          "step 2 stands behind the run's end");
  refused(R"({"event":"run","schema":"stepscope.log/2"})"
          "\n",
          "run.jsonl:1", "stepscope.log/1");
  refused(kRun + "\nx\n", "run.jsonl:2", "no JSON object");
  refused(kRun + "\n[]\n", "run.jsonl:2", "no JSON object");
  refused(kRun + "\n" + step(1) + "\n" + step(1) + "\n", "run.jsonl:3", "step 1 stands behind step 1");
  refused(kRun + "\n" + step(-1) + "\n", "run.jsonl:2", "\"step\" is -1");
  refused(kRun + "\n" + step(1, "\"a\"") + "\n", "run.jsonl:2", "\"loss\" is \"a\"");
  refused(kRun + "\n" + step(1, "1e999") + "\n", "run.jsonl:2", "expected");
  for (const char* name : {"grad_norm", "learning_rate", "time_ns"}) {
    std::string below = step(1);
    below.insert(below.find(':', below.find(name)) + 1, "-");
    refused(kRun + "\n" + below + "\n", "run.jsonl:2", std::string("\"") + name + "\" is -");
  }
  refused(kRun + "\n" +
              R"({"event":"step","step":18446744073709551615})"
              "\n",
          "run.jsonl:2", "\"step\" is 18446744073709551615");
  refused(kRun + "\n" +
              R"({"event":"validation","step":0})"
              "\n",
          "run.jsonl:2", "no \"loss\"");
  refused(kRun + "\n" + R"({"event":"eval","step":0,"accuracy":1.5})" + "\n", "run.jsonl:2", "\"accuracy\" is 1.5, expected 0 to 1");
  refused(kRun + "\n" + R"({"event":"note","text":"a","text":"b"})" + "\n", "run.jsonl:2",
          "column 28: \"text\" stands twice in one object");
  // A message with the value in it would be made by a function that calls itself once a level.
  refused(kRun + "\n" + R"({"event":)" + std::string(200'000, '[') + std::string(200'000, ']') + "}\n", "run.jsonl:2",
          "column 509: a value more than 500 levels deep");
  for (const auto& [setting, found] : {std::pair("\"learning_rate\":-5", "\"learning_rate\" is -5, expected 0 or more"),
                                       std::pair("\"tokens_per_step\":1e300", "\"tokens_per_step\" is 1e+300, expected a whole number"),
                                       std::pair("\"trainer\":7", "\"trainer\" is 7, expected a text")})
    refused(R"({"event":"run","schema":"stepscope.log/1","settings":{)" + std::string(setting) + "}}\n", "run.jsonl:1: settings: ", found);
}

// What a log of these lines is refused for; "" = it is read.
std::string refusal_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  try {
    parse_run_log(text, "run.jsonl");
  } catch (const stepscope::InputError& e) {
    return e.what();
  }
  return "";
}
std::string event(const std::string& name, int n, const std::string& rest = "") {
  return R"({"event":")" + name + R"(","step":)" + std::to_string(n) + rest + "}";
}
std::string run(int resumed_after, const std::string& settings = "") {
  return R"({"event":"run","schema":"stepscope.log/1","settings":{)" + settings + "}" +
         (resumed_after ? R"(,"resumed_after":)" + std::to_string(resumed_after) : "") + "}";
}
const std::string kLoss = R"(,"loss":1)";

TEST(RunLog, AStepThatIsNotTheNextIsRefused) {
  EXPECT_EQ(refusal_of({run(0), step(1), step(3)}), "run.jsonl:3: step 3 stands behind step 1, expected step 2");
  EXPECT_EQ(refusal_of({run(0), step(2)}), "run.jsonl:2: step 2 stands behind the run's beginning, expected step 1");
  EXPECT_EQ(refusal_of({run(5), step(1)}),
            "run.jsonl:2: step 1 stands behind the beginning of a run that was resumed after step 5, expected step 6");
  EXPECT_EQ(refusal_of({run(0), step(1), run(2), step(4)}),
            "run.jsonl:4: step 4 stands behind the beginning of a run that was resumed after step 2, expected step 3");
}

TEST(RunLog, ARunThatBeginsBeforeTheStepsBehindWhichItStandsIsRefused) {
  EXPECT_EQ(refusal_of({run(0), step(1), step(2), run(1), step(2)}),
            "run.jsonl:4: a run that was resumed after step 1 stands behind step 2, expected 2 or more");
  for (const std::string& first : {run(0), run(5)})
    EXPECT_EQ(refusal_of({first, run(0), step(1)}),
              "run.jsonl:2: a run that begins at step 1 stands behind another run, expected \"resumed_after\", or a log for each");
  EXPECT_EQ(refusal_of({run(0, R"("seed":1,"batch_size":4)"), step(1), run(1, R"("seed":2,"batch_size":4)")}),
            "run.jsonl:3: settings: \"seed\" is 2, expected 1, as in the run that goes on here");
}

TEST(RunLog, WhatIsSaidOfAnotherStepThanTheOneBeforeItIsRefused) {
  for (const auto& [name, rest] : {std::pair("validation", kLoss), std::pair("eval", std::string(R"(,"accuracy":0.5)")),
                                   std::pair("sample", std::string(R"(,"text":"a")")), std::pair("note", std::string(R"(,"text":"a")")),
                                   std::pair("end", std::string())})
    for (const int n : {1, 3})
      EXPECT_EQ(refusal_of({run(0), step(1), step(2), event(name, n, rest)}),
                "run.jsonl:4: the " + std::string(name) + " of step " + std::to_string(n) + " stands behind step 2, expected step 2");
  EXPECT_EQ(refusal_of({run(0), event("validation", 4, kLoss)}),
            "run.jsonl:2: the validation of step 4 stands before step 1, expected it behind its step");
}

TEST(RunLog, WhatStandsThereTwiceOrBehindTheEndIsRefused) {
  for (const auto& [name, rest] : {std::pair("validation", kLoss), std::pair("eval", std::string(R"(,"accuracy":0.5)")),
                                   std::pair("sample", std::string(R"(,"text":"a")"))}) {
    const std::string line = event(name, 1, rest);
    EXPECT_EQ(refusal_of({run(0), step(1), line, line}),
              "run.jsonl:4: the " + std::string(name) + " of step 1 stands there twice, expected it once");
    EXPECT_EQ(refusal_of({run(0), step(1), line, step(2), event(name, 2, rest)}), "");
    EXPECT_EQ(refusal_of({run(0), step(1), event("end", 1), line}),
              "run.jsonl:4: the " + std::string(name) +
                  " of step 1 stands behind the run's end, expected a line of event \"run\" "
                  "between the two");
  }
  EXPECT_THAT(refusal_of({run(0), step(1), event("end", 1), event("end", 1)}), HasSubstr("run.jsonl:4: the end of step 1 stands behind"));
}

TEST(RunLog, CountsThatContradictTheAccuracyBesideThemAreRefused) {
  const auto error = [](const std::string& counts) { return refusal_of({run(0), step(1), event("eval", 1, "," + counts)}); };
  EXPECT_EQ(error(R"("examples":10,"correct":3,"accuracy":0.9)"), "run.jsonl:3: \"accuracy\" is 0.9, expected 0.3000: 3 of 10 examples");
  EXPECT_EQ(error(R"("examples":10,"correct":3,"accuracy":0.3,"correct_by_sum":4,"accuracy_by_sum":0.3)"),
            "run.jsonl:3: \"accuracy_by_sum\" is 0.3, expected 0.4000: 4 of 10 examples");
  EXPECT_EQ(error(R"("examples":10,"correct":11,"accuracy":1)"), "run.jsonl:3: \"correct\" is 11, expected at most 10, the examples");
  EXPECT_EQ(error(R"("examples":0,"correct":0,"accuracy":0)"), "run.jsonl:3: \"examples\" is 0, expected 1 or more");
  EXPECT_EQ(error(R"("examples":3,"correct":1,"accuracy":0.3333,"correct_by_sum":3,"accuracy_by_sum":1)"), "");
}

TEST(RunLog, SettingsThatTheStepsOrEachOtherContradictAreRefused) {
  const std::string of_two = run(0, R"("steps":2)");
  EXPECT_EQ(refusal_of({of_two, step(1), step(2), event("end", 2)}), "");
  EXPECT_EQ(refusal_of({of_two, step(1), step(2), step(3)}),
            "run.jsonl:4: step 3 of a run whose settings say 2 steps, expected no step behind it");
  EXPECT_EQ(refusal_of({of_two, step(1), event("end", 1)}),
            "run.jsonl:3: the run ends at step 1 of 2 and does not say why, expected \"stopped\", or the last step");
  EXPECT_EQ(refusal_of({of_two, step(1), event("end", 1, R"(,"stopped":"interrupted after step 1")")}), "");
  EXPECT_EQ(refusal_of({of_two, step(1), step(2), event("end", 2), run(2, R"("steps":3)"), step(3), event("end", 3)}), "");
  EXPECT_EQ(refusal_of({run(0, R"("batch_size":4,"seq_len":8,"accumulation":2,"tokens_per_step":32)")}),
            "run.jsonl:1: settings: \"tokens_per_step\" is 32, expected 64: batch_size x seq_len x accumulation");
  EXPECT_EQ(refusal_of({run(0, R"("world":{"size":0})")}), "run.jsonl:1: settings: world: \"size\" is 0, expected 1 or more");
}

TEST(RunLog, ARateAboveThePeakOfItsRunIsRefused) {
  const auto at_rate = [](int n, const std::string& rate) {
    return event("step", n, R"(,"loss":1,"grad_norm":2,"learning_rate":)" + rate + R"(,"time_ns":1e6)");
  };
  const std::string of_peak = R"("learning_rate":0.0006)";
  EXPECT_EQ(refusal_of({run(0, of_peak), at_rate(1, "0.0003"), at_rate(2, "0.0007")}),
            "run.jsonl:3: \"learning_rate\" is 0.0007, expected 0.0006 or less, the peak that the settings say");
  EXPECT_EQ(refusal_of({run(0, of_peak), at_rate(1, "0.0006000000284984708")}), "") << "the float of 0.0006";
  EXPECT_EQ(refusal_of({run(0, R"("learning_rate":0)"), at_rate(1, "0")}), "");
  EXPECT_EQ(refusal_of({run(0, of_peak), at_rate(1, "0.0006"), run(1, R"("learning_rate":0.001)"), at_rate(2, "0.001")}), "")
      << "resumed with another peak";
  EXPECT_EQ(refusal_of({run(0, of_peak), at_rate(1, "0.0006"), run(1), at_rate(2, "0.001")}), "") << "this run names none";
}

TEST(RunLog, ALossBelow0IsRefused) {
  EXPECT_EQ(refusal_of({run(0), step(1, "-0.5")}), "run.jsonl:2: \"loss\" is -0.5, expected 0 or more but for rounding");
  EXPECT_EQ(refusal_of({run(0), step(1), event("validation", 1, R"(,"loss":-2)")}),
            "run.jsonl:3: \"loss\" is -2, expected 0 or more but for rounding");
  for (const char* learned : {"0", "-0.0", "-0.001"}) EXPECT_EQ(refusal_of({run(0), step(1, learned)}), "");
}

// --log may be given only from a resumption on, or not to the run in the middle.
TEST(RunLog, StepsThatWentToNoLogAreNamed) {
  const auto not_logged = [](const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    return parse_run_log(text, "x").not_logged;
  };
  using Pairs = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(not_logged({run(0), step(1), run(1), event("note", 1, R"(,"text":"resumed")"), step(2)}), Pairs{});
  EXPECT_EQ(not_logged({run(5), step(6)}), (Pairs{{1, 5}}));
  EXPECT_EQ(not_logged({run(0), step(1), run(4), step(5), run(6), step(7)}), (Pairs{{2, 4}, {6, 6}}));
  EXPECT_EQ(not_logged({run(0), step(1), event("end", 1), run(4)}), (Pairs{{2, 4}}));
  EXPECT_EQ(not_logged({run(0), step(1), run(4), run(1), step(2)}), Pairs{}) << "the checkpoint of step 4 did not load any more";
}

TEST(RunLog, AMarkOfAnEditorAtItsBeginningIsNoText) {
  const std::string marked = "\xEF\xBB\xBF" + kRun + "\n" + step(1) + "\n";
  EXPECT_TRUE(is_run_log(marked));
  EXPECT_EQ(parse_run_log(marked, "x").steps.size(), 1u);
}

TEST(RunLogWriter, DropsWhatIsAboutToHappenAgain) {
  TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  const std::string kept = kRun + "\n" + step(1) + "\n" + step(2) + "\n" + R"({"event":"note","step":2,"text":"a"})" + "\n";
  write(path, kept + step(3) + "\n" + R"({"event":"validation","step":3,"loss":1})" + "\n" + step(4).substr(0, 9));
  RunLogWriter writer(path, 2);
  EXPECT_EQ(text_of(path), kept);
  writer.write({{"event", "note"}, {"text", "b"}});
  EXPECT_EQ(text_of(path), kept + R"({"event":"note","text":"b"})" + "\n") << "flushed";
}

// A checkpoint that a run was resumed from, and that does not load any more.
TEST(RunLogWriter, DropsARunThatWasResumedFromALaterStep) {
  TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  const std::string kept = run(0) + "\n" + step(1) + "\n" + run(1) + "\n";
  write(path, kept + step(2) + "\n" + run(2) + "\n" + step(3) + "\n");
  RunLogWriter(path, 1);
  EXPECT_EQ(text_of(path), kept);
}

// A disk that is full for a moment: what a run says at its end must not stand behind half a line.
TEST(RunLogWriter, ALineThatDoesNotFitLeavesNothing) {
  TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  RunLogWriter writer(path, 0);
  writer.write({{"event", "run"}});
  const std::string before = text_of(path);
  rlimit was{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &was), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{before.size() + 10, was.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_ANY_THROW(writer.write({{"event", "step"}, {"step", 1}}));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &was), 0);
  std::signal(SIGXFSZ, handler);
  writer.write({{"event", "end"}});
  EXPECT_EQ(text_of(path), before + "{\"event\":\"end\"}\n");
}

TEST(RunLogWriter, ARunFromItsFirstStepBeginsANewLog) {
  TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  write(path, kRun + "\n" + step(1) + "\n");
  RunLogWriter writer(path, 0);
  EXPECT_EQ(text_of(path), "");
}

// A mistyped --checkpoints holds no checkpoint, and the run that so began at step 1 emptied the log of the one that was meant.
TEST(RunLogWriter, ARunFromItsFirstStepLeavesTheStepsOfAnotherFolderAlone) {
  TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  const std::string of_ckpt = R"({"event":"run","schema":"stepscope.log/1","settings":{},"checkpoints":"/ckpt"})"
                              "\n";
  for (const auto& [log, said] : {std::pair(of_ckpt + step(1) + "\n" + step(2) + "\n", "2 steps of a run with its checkpoints in /ckpt"),
                                  std::pair(kRun + "\n" + step(1) + "\n", "1 step of a run without --checkpoints")}) {
    write(path, log);
    EXPECT_THAT([&] { RunLogWriter(path, 0, "", "/typo"); },
                ThrowsMessage<stepscope::InputError>(AllOf(HasSubstr(said), HasSubstr("/typo holds no checkpoint"))));
    EXPECT_EQ(text_of(path), log);
  }
  write(path, of_ckpt);
  RunLogWriter(path, 0, "", "/typo");
  EXPECT_EQ(text_of(path), "") << "no step is lost";
  write(path, of_ckpt + step(1) + "\n");
  RunLogWriter(path, 0, "", "/ckpt");
  EXPECT_EQ(text_of(path), "") << "ended before its first checkpoint";
  write(path, of_ckpt + step(1) + "\n");
  RunLogWriter(path, 1, "", "/moved");
  EXPECT_EQ(text_of(path), of_ckpt + step(1) + "\n") << "a folder that was moved has its checkpoints";
}

// The log of a long run was cut off behind the last checkpoint of a short one with the same settings.
TEST(RunLogWriter, ARunThatGoesOnDropsNoStepsOfAnotherFolder) {
  TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  const std::string log = R"({"event":"run","schema":"stepscope.log/1","settings":{},"checkpoints":"/long"})"
                          "\n" +
                          step(1) + "\n" + step(2) + "\n" + step(3) + "\n";
  write(path, log);
  EXPECT_THAT([&] { RunLogWriter(path, 1, "", "/short"); },
              ThrowsMessage<stepscope::InputError>(
                  AllOf(HasSubstr("2 steps behind step 1 of a run with its checkpoints in /long"), HasSubstr("from /short"))));
  EXPECT_EQ(text_of(path), log);
  const std::string cut_off = log + step(4).substr(0, 9);
  write(path, cut_off);
  RunLogWriter(path, 3, "", "/moved");
  EXPECT_EQ(text_of(path), log) << "half a line is no step";
  RunLogWriter(path, 2, "", "/long");
  EXPECT_EQ(text_of(path), log.substr(0, log.find(step(3))));
}

TEST(RunLogWriter, ALogOfAnotherRunIsRefusedAndStays) {
  TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  const std::string log =
      R"({"event":"run","schema":"stepscope.log/1","settings":{"seed":-1,"model":{"layers":2},"batch_size":4,"learning_rate":1}})"
      "\n" +
      step(1) + "\n";
  write(path, log);
  for (const auto& [settings, found] :
       {std::pair(R"({"seed":7})", "run.jsonl:1: the log of a run with seed -1, this one has 7, expected another file"),
        std::pair(R"({"model":{"layers":3}})", R"(model {"layers":2}, this one has {"layers":3})"),
        std::pair(R"({"batch_size":8})", "batch_size 4, this one has 8")})
    for (const int64_t done : {0, 1}) {
      const char* of_another_run = settings;  // clang 16 and 17 cannot capture a structured binding with -fopenmp
      EXPECT_THAT([&] { RunLogWriter(path, done, of_another_run); }, ThrowsMessage<stepscope::InputError>(HasSubstr(found)));
      EXPECT_EQ(text_of(path), log);
    }
  RunLogWriter(path, 1, R"({"seed":18446744073709551615,"model":{"layers":2},"batch_size":4,"learning_rate":2,"seq_len":64})");
  EXPECT_EQ(text_of(path), log) << "another learning rate is no other run";
}

TEST(RunLogWriter, TwoRunsDoNotShareALog) {
  TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  RunLogWriter writer(path, 0);
  EXPECT_THAT([&] { RunLogWriter other(path, 0); }, ThrowsMessage<stepscope::InputError>(HasSubstr("another run is writing it")));
}

// A run went on behind a damaged line, and `report` refused all that it logged.
TEST(CheckRunLog, WhatReportRefusesNoRunGoesOnWith) {
  TemporaryFolder folder;
  const auto path = folder.path() / "run.jsonl";
  for (const std::vector<std::string>& lines :
       {std::vector{run(0), step(1), step(3)}, std::vector{run(0), step(1, "-1")}, std::vector{run(0), step(1), event("end", 1), step(2)},
        std::vector{run(0, R"("steps":1)"), step(1), step(2)}, std::vector{run(0), run(0)}}) {
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    const std::string found = refusal_of(lines).substr(std::string("run.jsonl").size());
    ASSERT_FALSE(found.empty());
    write(path, text);
    EXPECT_THAT([&] { check_run_log(path, true); }, ThrowsMessage<stepscope::InputError>(::testing::Eq("--log " + path.string() + found)));
    for (const int64_t done : {0, 1}) EXPECT_THROW(RunLogWriter(path, done), stepscope::InputError) << text;
    EXPECT_EQ(text_of(path), text);
  }
}

TEST(CheckRunLog, LeavesOtherFilesAlone) {
  TemporaryFolder folder;
  const auto path = folder.path() / "precious";
  for (const std::string& text : {std::string("a\nb\n"), std::string("no line end"), std::string("{}"), std::string(40, '\0')}) {
    write(path, text);
    for (const bool resume : {false, true}) EXPECT_THROW(check_run_log(path, resume), stepscope::InputError) << text;
    EXPECT_THROW(RunLogWriter(path, 0), stepscope::InputError);
    EXPECT_EQ(text_of(path), text);
  }
  write(path, kRun + "\n");
  EXPECT_THAT([&] { check_run_log(path, false); }, ThrowsMessage<stepscope::InputError>(HasSubstr("--resume")));
  EXPECT_NO_THROW(check_run_log(path, true));
  write(path, kRun + "\n" + R"({"event":"of a later version"})" + "\n" + step(1) + "\n");
  EXPECT_NO_THROW(check_run_log(path, true)) << "report passes over this event";
  write(path, kRun.substr(0, 12));  // a run that died while it wrote its first line
  EXPECT_NO_THROW(check_run_log(path, true));
  EXPECT_THROW(check_run_log(folder.path() / "no" / "folder", false), stepscope::InputError);
}

}  // namespace
}  // namespace gpt2

// `train --log`, `--eval` and `--sweep-learning-rates` as a user calls them, and `report` on what they logged.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "gpt2/data/eval_set.h"
#include "tests/cli/in_a_folder.h"
#include "tests/cli/page_or_package.h"
#include "tests/golden.h"

namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

class TrainingCli : public InAFolder {
 protected:
  Outcome train(const std::string& arguments) const {
    return stepscope("train --trainer reference --model " TEST_DATA "/golden/tiny.bin --batch-size 1 --seq-len 64 --lr-total-steps 8 " +
                     arguments);
  }
  std::vector<json> lines(const std::string& name) const {
    std::vector<json> out;
    std::istringstream in(slurp(file(name)));
    for (std::string line; std::getline(in, line);) out.push_back(json::parse(line));
    return out;
  }
  // What happened at which step, without times: two runs that did the same have the same.
  std::vector<std::string> story(const std::string& name) const {
    std::vector<std::string> out;
    for (json j : lines(name)) {
      if (j["event"] == "run" || j["event"] == "end" || j["event"] == "note") continue;
      j.erase("time_ns");
      out.push_back(j.dump());
    }
    return out;
  }
  // Four questions for a vocabulary of 509 or more.
  void write_set() const {
    std::vector<gpt2::EvalExample> set;
    for (uint16_t i = 0; i < 4; ++i)
      set.push_back({i % 2, {static_cast<uint16_t>(i + 1), 7}, {{static_cast<uint16_t>(40 * i)}, {3, static_cast<uint16_t>(9 + i)}}});
    gpt2::write_eval_set(folder_ / "set.bin", set);
  }
};

TEST_F(TrainingCli, the_log_holds_every_step_validation_and_evaluation) {
  write_set();
  const Outcome o = train("--steps 4 --val-every 2 --eval " + file("set.bin") + " --eval-every 2 --log " + file("run.jsonl") + " --json");
  ASSERT_EQ(o.exit_code, 0) << o.err;
  std::vector<std::string> events;
  for (const json& j : lines("run.jsonl"))
    events.push_back(j["event"].get<std::string>() + (j.contains("step") ? " " + j["step"].dump() : ""));
  EXPECT_THAT(events,
              ElementsAre("run", "step 1", "step 2", "validation 2", "eval 2", "step 3", "step 4", "validation 4", "eval 4", "end 4"));
  const std::vector<json> all = lines("run.jsonl");
  EXPECT_EQ(all.front()["settings"]["steps"], 4);
  EXPECT_EQ(stepscope("report " + file("run.jsonl")).exit_code, 0) << "what train writes is no contradiction";
  EXPECT_EQ(all[0]["schema"], "stepscope.log/1");
  EXPECT_EQ(all[0]["settings"]["batch_size"], 1);
  EXPECT_EQ(all[0]["settings"]["trainer"], "reference");
  const json first = json::parse(o.out.substr(0, o.out.find('\n')));  // what --json printed of step 1
  for (const char* field : {"loss", "grad_norm", "time_ns", "learning_rate"}) EXPECT_EQ(all[1][field], first[field]) << field;
  EXPECT_EQ(all[4]["examples"], 4);
  EXPECT_EQ(all[4]["accuracy"], all[4]["correct"].get<double>() / 4);
  EXPECT_FALSE(all.back().contains("stopped"));
}

// Words and order; a figure is #, also the one thread of a machine with one core or of a build without OpenMP.
std::string words_of(const std::string& text) {
  const std::string figures = std::regex_replace(text, std::regex("-?[0-9][0-9.]*(e[-+]?[0-9]+)?"), "#");
  return std::regex_replace(std::regex_replace(figures, std::regex(" +"), " "), std::regex("# thread:"), "# threads:");
}

TEST_F(TrainingCli, what_a_run_prints) {
  write_set();
  const std::string all = "--steps 3 --val-every 2 --eval " + file("set.bin") + " --eval-every 2";
  const Outcome shown = train(all), quiet = train(all + " --quiet"), checkpoints = train("--steps 1 --checkpoints " + file("kept"));
  std::string text = "$ train\n" + shown.out + "# stderr\n" + shown.err + "$ train --quiet\n" + quiet.out + "# stderr\n" + quiet.err +
                     "$ train --checkpoints\n" + checkpoints.out + "# stderr\n" + checkpoints.err;
  const Outcome sweep = train("--steps 4 --val-every 4 --sweep-learning-rates 1e-6,1e-3,1e30"),
                silent = train("--steps 4 --sweep-learning-rates 1e-6,1e-3 --quiet");
  text += "$ train --sweep-learning-rates\n" + sweep.out + "# stderr\n" + sweep.err + "$ train --sweep-learning-rates --quiet\n" +
          silent.out + "# stderr\n" + silent.err;
  for (size_t at; (at = text.find(folder_.string())) != std::string::npos;) text.replace(at, folder_.string().size(), "FOLDER");
  expect_golden("cli/data/train.txt", words_of(text));
}

// Validations and samples stood between the objects as text.
TEST_F(TrainingCli, json_is_json_on_every_line) {
  const std::string run =
      "train --trainer reference --model tiny --batch-size 1 --seq-len 32 --steps 2 --val-every 1 --sample-every 2 --sample-tokens 3 ";
  const Outcome o = stepscope(run + "--json");
  ASSERT_EQ(o.exit_code, 0) << o.err;
  std::istringstream lines(o.out);
  std::map<std::string, int> events;
  for (std::string line; std::getline(lines, line);) {
    const json j = json::parse(line, nullptr, false);
    ASSERT_FALSE(j.is_discarded()) << line;
    ++events[j.value("event", "step")];
  }
  EXPECT_EQ(events, (std::map<std::string, int>{{"step", 2}, {"validation", 2}, {"sample", 1}}));
  // A token may be part of a letter: bytes that are no UTF-8 ended the run where they were printed.
  std::ofstream tokenizer(file("bytes.bin"), std::ios::binary);
  std::array<int32_t, 256> header{20240328, 2, 512, 511};
  tokenizer.write(reinterpret_cast<const char*>(header.data()), sizeof header);
  for (int i = 0; i < 512; ++i) tokenizer.write("\x01\xff", 2);
  tokenizer.close();
  const Outcome bytes = stepscope(run + "--json --tokenizer " + file("bytes.bin"));
  EXPECT_EQ(bytes.exit_code, 0) << bytes.err;
  EXPECT_THAT(bytes.out, HasSubstr("\"text\":\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""));
  const Outcome both = stepscope(run + "--json --quiet");
  EXPECT_EQ(both.exit_code, 2) << both.out;
}

// The median of `train` and that of `report` are of the same steps.
TEST_F(TrainingCli, a_report_leaves_the_first_steps_out_of_the_median_as_the_summary_does) {
  const std::string log = (folder_ / "steps.jsonl").string();
  ASSERT_EQ(train("--steps 6 --log " + log).exit_code, 0);
  std::string text;
  std::ifstream in(log);
  int step = 0;
  for (std::string line; std::getline(in, line);) {
    json j = json::parse(line);
    if (j.at("event") == "step") j["time_ns"] = ++step == 1 ? 9e6 : step * 1e6;  // 9, then 2 to 6: 4 without the first, 4.5 with it
    text += j.dump() + "\n";
  }
  in.close();
  std::ofstream(log) << text;
  EXPECT_THAT(stepscope("report " + log).out, HasSubstr("median 4.000 ms a step"));
}

TEST_F(TrainingCli, accuracy_is_that_of_eval_on_the_checkpoint) {
  write_set();
  ASSERT_EQ(train("--steps 3 --eval " + file("set.bin") + " --log " + file("run.jsonl") + " --checkpoints " + file("kept")).exit_code, 0);
  const Outcome o = stepscope("eval " + file("kept/step-00000003/model.bin") + " " + file("set.bin") + " --trainer reference --json");
  ASSERT_EQ(o.exit_code, 0) << o.err;
  json logged;
  for (const json& j : lines("run.jsonl"))
    if (j["event"] == "eval") logged = j;
  EXPECT_EQ(logged["step"], 3);
  EXPECT_EQ(logged["correct"], json::parse(o.out)["correct"]);
  EXPECT_EQ(logged["correct_by_sum"], json::parse(o.out)["correct_by_sum"]);
}

TEST_F(TrainingCli, evaluation_changes_nothing_of_the_training) {
  write_set();
  const auto steps = [&](const std::string& name) {
    std::vector<std::string> out;
    for (const std::string& line : story(name))
      if (line.find("\"eval\"") == std::string::npos) out.push_back(line);
    return out;
  };
  ASSERT_EQ(train("--steps 4 --log " + file("a.jsonl")).exit_code, 0);
  ASSERT_EQ(train("--steps 4 --eval-every 1 --eval " + file("set.bin") + " --log " + file("b.jsonl")).exit_code, 0);
  EXPECT_EQ(steps("a.jsonl"), steps("b.jsonl"));
}

// The log of a run that died behind its checkpoint, and of one that was never interrupted, tell the same story.
TEST_F(TrainingCli, a_resumed_run_logs_no_step_twice) {
  const std::string often = " --val-every 2 --checkpoint-every 3 --checkpoints ";
  ASSERT_EQ(train("--steps 8" + often + file("whole") + " --log " + file("whole.jsonl")).exit_code, 0);
  ASSERT_EQ(train("--steps 5" + often + file("cut") + " --log " + file("cut.jsonl")).exit_code, 0);
  fs::remove_all(folder_ / "cut" / "step-00000005");  // so that steps 4 and 5 happen again
  {
    std::ofstream(file("cut.jsonl"), std::ios::app) << R"({"event":"step","st)";  // and a crash in the middle of a line
  }
  const Outcome o = train("--steps 8" + often + file("cut") + " --resume --log " + file("cut.jsonl"));
  ASSERT_EQ(o.exit_code, 0) << o.err;
  // The shorter run also validated at its last step, 5, which is dropped; both validated after 2, 4, 6 and 8.
  EXPECT_EQ(story("cut.jsonl"), story("whole.jsonl"));
  const Outcome read = stepscope("report " + file("cut.jsonl"));
  EXPECT_EQ(read.exit_code, 0) << read.err;
  EXPECT_THAT(read.out, Not(HasSubstr("lacks")));
  json resumed;
  for (const json& j : lines("cut.jsonl"))
    if (j.contains("resumed_after")) resumed = j;
  EXPECT_EQ(resumed["resumed_after"], 3);
  // A finished run leaves its log as it is.
  const std::string before = slurp(file("cut.jsonl"));
  EXPECT_EQ(train("--steps 8" + often + file("cut") + " --resume --log " + file("cut.jsonl")).exit_code, 0);
  EXPECT_EQ(slurp(file("cut.jsonl")), before);
}

TEST_F(TrainingCli, the_log_of_another_run_is_not_touched) {
  ASSERT_EQ(train("--steps 1 --log " + file("run.jsonl")).exit_code, 0);
  const std::string before = slurp(file("run.jsonl"));
  const Outcome o = train("--steps 1 --log " + file("run.jsonl"));
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("--log"), HasSubstr("run.jsonl"), HasSubstr("expected --resume, or another file")));
  EXPECT_EQ(slurp(file("run.jsonl")), before);
}

TEST_F(TrainingCli, the_log_of_a_longer_run_with_the_same_settings_is_not_cut_off) {
  ASSERT_EQ(train("--steps 4 --checkpoints " + file("long") + " --log " + file("run.jsonl")).exit_code, 0);
  ASSERT_EQ(train("--steps 2 --checkpoints " + file("short")).exit_code, 0);
  const std::string before = slurp(file("run.jsonl"));
  const Outcome o = train("--steps 3 --resume --checkpoints " + file("short") + " --log " + file("run.jsonl"));
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("2 steps behind step 2 of a run with its checkpoints in "), HasSubstr("/long"), HasSubstr("/short")));
  EXPECT_EQ(slurp(file("run.jsonl")), before);
}

TEST_F(TrainingCli, a_run_does_not_go_on_behind_a_log_that_report_refuses) {
  const std::string kept = " --checkpoints " + file("kept"), log = file("run.jsonl");
  ASSERT_EQ(train("--steps 2" + kept + " --log " + log).exit_code, 0);
  std::vector<json> damaged = lines("run.jsonl");
  const auto first = std::find_if(damaged.begin(), damaged.end(), [](const json& j) { return j["event"] == "step"; });
  ASSERT_NE(first, damaged.end());
  damaged.erase(first);
  std::string text;
  for (const json& j : damaged) text += j.dump() + "\n";
  std::ofstream(log, std::ios::trunc) << text;
  const Outcome o = train("--steps 4" + kept + " --resume --log " + log);
  EXPECT_EQ(o.exit_code, 2);
  const std::string found = "run.jsonl:2: step 2 stands behind the run's beginning, expected step 1";
  EXPECT_THAT(o.err, AllOf(HasSubstr("--log "), HasSubstr(found)));
  EXPECT_THAT(stepscope("report " + log).err, HasSubstr(found));
  EXPECT_EQ(slurp(log), text);
  EXPECT_FALSE(fs::exists(file("kept/step-00000004")));
}

TEST_F(TrainingCli, the_log_says_why_a_run_stopped) {
  const Outcome o = train("--steps 8 --lr 1e30 --log " + file("run.jsonl"));
  EXPECT_EQ(o.exit_code, 1) << o.err;
  const json end = lines("run.jsonl").back();
  EXPECT_EQ(end["event"], "end");
  EXPECT_THAT(end["stopped"].get<std::string>(), HasSubstr("training stopped"));
  EXPECT_THAT(stepscope("report " + file("run.jsonl"), "COLUMNS=400").out, HasSubstr("stopped: step"));
}

// With --resume an empty folder of a mistyped name would look like a run.
TEST_F(TrainingCli, what_is_refused_leaves_no_folder_behind) {
  for (const std::string arguments : {"--steps 1 --gpus 2 --communicator peer", "--steps 1 --log /dev/full",
                                      "--steps 1 --resume --log /dev/full", "--steps 1 --gpus 2 --nccl-blocks 3"}) {
    const Outcome o = train(arguments + " --checkpoints " + file("new/of/it"));
    EXPECT_EQ(o.exit_code, 2) << arguments << o.err;
    EXPECT_FALSE(fs::exists(file("new"))) << arguments;
  }
  fs::create_directory(file("mine"));
  EXPECT_EQ(train("--steps 1 --log /dev/full --checkpoints " + file("mine")).exit_code, 2);
  EXPECT_TRUE(fs::exists(file("mine"))) << "it was there before";
  ASSERT_EQ(train("--steps 1 --checkpoints " + file("new/of/it") + " --run-json " + file("r.json")).exit_code, 0);
  EXPECT_TRUE(fs::exists(file("new/of/it/step-00000001")));
  EXPECT_EQ(train("--steps 1 --run-json " + file("r.json")).exit_code, 0) << "a run.json of before may be replaced";
}

// The log had them, run.json did not.
TEST_F(TrainingCli, a_run_that_ends_because_no_checkpoint_can_be_written_keeps_its_steps_in_run_json) {
  // As of a full disk: no file may be larger than 32 KB.
  const Outcome o =
      stepscope("train --trainer reference --model " TEST_DATA "/golden/tiny.bin -b 1 -t 64 --steps 4 --checkpoint-every 2 --checkpoints " +
                    file("c") + " --run-json " + file("r.json"),
                "trap '' XFSZ; ulimit -f 64; CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=2");
  EXPECT_EQ(o.exit_code, 2) << o.err;
  EXPECT_THAT(o.err, HasSubstr("File too large"));
  const json run = json::parse(slurp(file("r.json")));
  EXPECT_EQ(run["steps"].size(), 2u) << run;
  EXPECT_THAT(run["stopped"].get<std::string>(), AllOf(HasSubstr("ended after step 2: "), HasSubstr("File too large")));
  EXPECT_FALSE(fs::exists(file("c"))) << "no checkpoint came into it";
}

// The steps since the last checkpoint were lost for a line of the log.
TEST_F(TrainingCli, a_run_that_ends_because_its_log_takes_no_more_saves_where_it_is) {
  const std::string log = file("log"), run = file("c"), record = file("r.json");
  ASSERT_EQ(::mkfifo(log.c_str(), 0600), 0);
  const Outcome o = stepscope(
      "train --trainer reference --model tiny -b 1 -t 8 --steps 1000000 --checkpoints " + run + " --run-json " + record + " --log " + log,
      "run() { head -n 4 <" + log + " >/dev/null & OMP_NUM_THREADS=1 \"$@\"; }; run");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("--log " + log + ": cannot write: Broken pipe"));
  const json was = json::parse(slurp(record));
  EXPECT_THAT(was["stopped"].get<std::string>(), AllOf(HasSubstr("ended after step "), HasSubstr("cannot write: Broken pipe")));
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "step-%08zu", was["steps"].size());
  EXPECT_TRUE(fs::exists(run + "/" + name.data() + "/model.bin")) << name.data();
}

// Its end named a step that it did not have, and `report` and --resume refused all of it.
TEST_F(TrainingCli, a_log_that_takes_no_more_can_be_read) {
  // The end of a run is half as long as a step: of four disks that are full after other numbers of bytes, one at least has room for it.
  int ends = 0;
  for (const std::string blocks : {"8", "9", "10", "11"}) {
    const std::string name = blocks + ".l";
    const Outcome o = stepscope("train --trainer reference --model tiny -b 1 -t 8 --steps 1000 --quiet --log " + name,
                                "cd " + folder_.string() + "; trap '' XFSZ; ulimit -f " + blocks + "; OMP_NUM_THREADS=1");
    EXPECT_EQ(o.exit_code, 2);
    EXPECT_THAT(o.err, HasSubstr("--log " + name + ": cannot write: File too large"));
    const Outcome read = stepscope("report " + file(name));
    EXPECT_EQ(read.exit_code, 0) << read.err;
    ends += lines(name).back()["event"] == "end";
  }
  EXPECT_GT(ends, 0);
}

TEST_F(TrainingCli, a_run_json_may_be_named_in_a_new_folder_of_checkpoints) {
  const std::string run = file("r1");
  const Outcome o = train("--steps 1 --checkpoints " + run + " --run-json " + run + "/run.json");
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_TRUE(fs::exists(run + "/run.json"));
  EXPECT_EQ(train("--steps 1 --log /dev/full --checkpoints " + file("r2") + " --run-json " + file("r2/run.json")).exit_code, 2);
  EXPECT_FALSE(fs::exists(file("r2"))) << "it was refused";
}

TEST_F(TrainingCli, validation_data_that_is_not_there_ends_before_the_first_step) {
  const Outcome o = train("--steps 1 --val-every 1 --val-data " + file("none.bin"));
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("none.bin"));
}

TEST_F(TrainingCli, bad_evaluation_sets_end_before_the_first_step) {
  gpt2::write_eval_set(folder_ / "set.bin", std::vector<gpt2::EvalExample>{{0, std::vector<uint16_t>(64, 1), {{1}, {2, 3}}}});
  const Outcome too_long = train("--steps 1 --eval " + file("set.bin"));
  EXPECT_EQ(too_long.exit_code, 2);
  EXPECT_THAT(too_long.err, AllOf(HasSubstr("--eval " + file("set.bin")), HasSubstr("--seq-len 64"), HasSubstr("65")));
  EXPECT_EQ(train("--steps 1 --eval-every 1").exit_code, 2);
  EXPECT_EQ(train("--steps 1 --eval " + file("none.bin")).exit_code, 2);
}

TEST_F(TrainingCli, sweep_names_the_best_rate_and_survives_divergence) {
  const Outcome o = train("--steps 6 --sweep-learning-rates 1e-6,1e-3,1e30 --log " + file("s.jsonl"));
  ASSERT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("best learning rate 1e-3 by training loss"), HasSubstr("diverged")));
  const json j = json::parse(train("--steps 6 --sweep-learning-rates 1e-6,1e-3,1e30 --val-every 6 --json").out);
  ASSERT_EQ(j["runs"].size(), 3u);
  EXPECT_EQ(j["best_learning_rate"], 1e-3);
  EXPECT_LT(j["runs"][1]["validation_loss"], j["runs"][0]["validation_loss"]);
  EXPECT_TRUE(j["runs"][2].contains("diverged"));
  EXPECT_FALSE(j["runs"][2].contains("final_loss"));
  // Each rate is the run that `--lr` makes.
  ASSERT_EQ(train("--steps 6 --lr 1e-3 --log " + file("one.jsonl")).exit_code, 0);
  EXPECT_EQ(story("one.jsonl"), story("s-1e-3.jsonl"));
  EXPECT_EQ(lines("s-1e-3.jsonl").back(), lines("one.jsonl").back());
  EXPECT_EQ(lines("s-1e30.jsonl").back()["event"], "end");
  EXPECT_THAT(lines("s-1e30.jsonl").back()["stopped"].get<std::string>(), HasSubstr("training stopped"));
}

TEST_F(TrainingCli, sweep_takes_steps_of_the_total_batch) {
  const Outcome o = train("--steps 2 --total-batch 128 --sweep-learning-rates 1e-4,1e-3 --log " + file("s.jsonl"));
  ASSERT_EQ(o.exit_code, 0) << o.err;
  EXPECT_EQ(lines("s-1e-4.jsonl").front()["settings"]["tokens_per_step"], 128);
  ASSERT_EQ(train("--steps 2 --accumulation 2 --lr 1e-3 --log " + file("one.jsonl")).exit_code, 0);
  EXPECT_EQ(story("s-1e-3.jsonl"), story("one.jsonl"));
}

TEST_F(TrainingCli, sweep_says_when_the_best_rate_is_an_outer_one) {
  EXPECT_THAT(train("--steps 4 --sweep-learning-rates 1e-7,1e-3").out, HasSubstr("it is the largest rate tried"));
  EXPECT_THAT(train("--steps 4 --sweep-learning-rates 1e-3,1e30").out, HasSubstr("it is the smallest rate tried"));
}

TEST_F(TrainingCli, bad_sweeps) {
  const auto refused = [&](const std::string& arguments, const std::string& why) {
    const Outcome o = train("--steps 2 " + arguments);
    EXPECT_EQ(o.exit_code, 2) << arguments;
    EXPECT_THAT(o.err, HasSubstr(why));
  };
  refused("--sweep-learning-rates 1e-3", "at least two");
  refused("--sweep-learning-rates 1e-3,0.001", "stands there twice");
  refused("--sweep-learning-rates 1e-3,x", "--sweep-learning-rates");
  for (const char* list : {"1e-4,,1e-3", "1e-4,1e-3,", ",1e-4,1e-3"})
    refused(std::string("--sweep-learning-rates ") + list, "found '" + std::string(list) + "', expected a value on both sides of a comma");
  refused("--sweep-learning-rates 1e-3,0", "--sweep-learning-rates");
  refused("--sweep-learning-rates 1e-3,1e-2 --checkpoints " + file("c"), "--checkpoints");
  ASSERT_EQ(train("--steps 1 --lr 1e-2 --log " + file("s-1e-2.jsonl")).exit_code, 0);
  refused("--sweep-learning-rates 1e-3,1e-2 --log " + file("s.jsonl"), "s-1e-2.jsonl");
  EXPECT_FALSE(fs::exists(file("s-1e-3.jsonl"))) << "refused before the first rate";
  const Outcome all = train("--steps 4 --sweep-learning-rates 1e30,1e31");
  EXPECT_EQ(all.exit_code, 1);
  EXPECT_THAT(all.err, HasSubstr("every rate diverged"));
}

class LogReport : public TrainingCli {
 protected:
  // 25 steps of made-up numbers; the loss of step n is `loss` - n / 100.
  void write_log(const std::string& name, double loss, int steps = 25) const {
    std::ofstream out(file(name));
    out << json{{"event", "run"},
                {"schema", "stepscope.log/1"},
                {"settings",
                 {{"trainer", "fp32"}, {"device", "toy"}, {"model_name", "</script>"}, {"learning_rate", 1e-3}, {"tokens_per_step", 64}}}}
               .dump()
        << "\n";
    for (int n = 1; n <= steps; ++n) {
      out << json{{"event", "step"},       {"step", n},     {"loss", loss - n / 100.0}, {"grad_norm", 1.0 * n},
                  {"learning_rate", 1e-3}, {"time_ns", 2e6}}
                 .dump()
          << "\n";
      if (n % 10 == 0) out << json{{"event", "validation"}, {"step", n}, {"loss", 7.75 - n / 40.0}}.dump() << "\n";
    }
    out << json{{"event", "end"}, {"step", steps}}.dump() << "\n";
  }
};

TEST_F(LogReport, means_of_the_rows_and_the_summary) {
  write_log("a.jsonl", 5);
  const Outcome o = stepscope("report " + file("a.jsonl") + " --top 5", "COLUMNS=120");
  ASSERT_EQ(o.exit_code, 0) << o.err;
  // 25 steps: the last tenth is 2 of them, 4.76 and 4.75. Rows of 5 steps; the first has the mean 4.97.
  EXPECT_THAT(
      o.out, AllOf(HasSubstr("25 steps, final loss 4.755000, lowest validation loss 7.250000"),
                   HasSubstr("median 2.000 ms a step, 32000 tokens/s; ended"), HasSubstr("  1-5 4.9700"),
                   HasSubstr(" 6-10 4.9200     7.5000  8.000 1.00e-03"), HasSubstr("21-25 4.7700"), Not(HasSubstr("validation accuracy"))));
}

// The second part of three wrote no log.
TEST_F(LogReport, steps_that_went_to_no_log_are_named) {
  const std::string kept = " --checkpoints " + file("kept"), log = " --log " + file("run.jsonl");
  ASSERT_EQ(train("--steps 2" + kept + log).exit_code, 0);
  ASSERT_EQ(train("--steps 4 --resume" + kept).exit_code, 0);
  ASSERT_EQ(train("--steps 5 --resume" + kept + log).exit_code, 0);
  const Outcome o = stepscope("report " + file("run.jsonl") + " --report " + file("x.md") + " --report " + file("x.json"), "COLUMNS=400");
  ASSERT_EQ(o.exit_code, 0) << o.err;
  const std::string said =
      "note: the log lacks steps 3 to 4: the run was resumed after step 4 and had written them to another log or to none\n";
  EXPECT_THAT(o.out, AllOf(HasSubstr(": reference trainer"), HasSubstr("3 steps, "), HasSubstr("; ended"), HasSubstr(said)));
  EXPECT_THAT(slurp(file("x.md")), HasSubstr(said));
  EXPECT_EQ(json::parse(slurp(file("x.json")))["logs"][0]["not_logged"], json::parse(R"([{"from": 3, "to": 4}])"));
}

TEST_F(LogReport, a_log_that_contradicts_itself_is_refused) {
  write_log("a.jsonl", 5);
  std::string text = slurp(file("a.jsonl"));
  text.replace(text.rfind("25"), 2, "30");
  write("a.jsonl", text);
  const Outcome o = stepscope("report " + file("a.jsonl"));
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("a.jsonl:29: the end of step 30 stands behind step 25, expected step 25\n"));
  EXPECT_EQ(o.out, "");
}

TEST_F(LogReport, two_logs_stand_side_by_side) {
  write_log("a.jsonl", 5);
  write_log("b.jsonl", 6, 12);
  const Outcome o = stepscope("report " + file("a.jsonl") + " " + file("b.jsonl") + " --top 5 --report " + file("x.md") + " --csv " +
                              file("x.csv") + " --report " + file("x.json"));
  ASSERT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("loss 1"), HasSubstr("loss 2"), HasSubstr("4.9700 5.9700")));
  EXPECT_THAT(slurp(file("x.md")), AllOf(HasSubstr("| 1-5 | 4.9700 | 5.9700 |"), HasSubstr("| 21-25 | 4.7700 | - |")));
  std::istringstream csv(slurp(file("x.csv")));
  std::vector<std::string> rows;
  for (std::string line; std::getline(csv, line);) rows.push_back(line);
  ASSERT_EQ(rows.size(), 26u);
  EXPECT_EQ(rows[0],
            "step,loss,grad_norm,learning_rate,time_ns,validation_loss,accuracy,loss_2,grad_norm_2,learning_rate_2,time_ns_2,validation_"
            "loss_2,accuracy_2");
  EXPECT_EQ(rows[10], "10,4.9,10,0.001,2000000,7.5,,5.9,10,0.001,2000000,7.5,");
  EXPECT_EQ(rows[25], "25,4.75,25,0.001,2000000,,,,,,,,");
  EXPECT_EQ(json::parse(slurp(file("x.json")))["logs"][1]["steps"], 12);
}

// Two logs of other lengths, one stopped early with a note and accuracies; at two widths, as Markdown, CSV and JSON.
TEST_F(LogReport, texts_of_one_and_of_two_logs) {
  write_log("a.jsonl", 5);
  write_log("b.jsonl", 6, 12);
  std::string stopped = slurp(file("b.jsonl"));
  stopped = stopped.substr(0, stopped.rfind('{'));
  for (const json& line : {json{{"event", "eval"}, {"step", 12}, {"examples", 4}, {"correct", 3}, {"accuracy", 0.75}},
                           json{{"event", "note"}, {"step", 12}, {"text", "a | note"}},
                           json{{"event", "end"}, {"step", 12}, {"stopped", "step 12: loss is nan: training stopped"}}})
    stopped += line.dump() + "\n";
  write("b.jsonl", stopped);
  const auto text_of = [&](const std::string& arguments, const std::string& environment) {
    const Outcome o = stepscope("report " + arguments, "cd " + folder_.string() + " && " + environment);
    EXPECT_EQ(o.exit_code, 0) << o.err;
    return o.out;
  };
  expect_golden("cli/data/log_one.txt", text_of("a.jsonl --top 4", "COLUMNS=100"));
  expect_golden("cli/data/log_two.txt", text_of("a.jsonl b.jsonl --top 4", "COLUMNS=200"));
  expect_golden("cli/data/log_two_narrow.txt", text_of("a.jsonl b.jsonl --top 4", "COLUMNS=48"));
  text_of("a.jsonl b.jsonl --top 4 --report x.md --report x.csv --report x.json", "");
  for (const char* ending : {"md", "csv", "json"})
    expect_golden(std::string("cli/data/log_two.") + ending, slurp(file(std::string("x.") + ending)));
}

// ctrl-C, and what a batch system sends before it kills.
TEST_F(LogReport, a_run_that_is_interrupted_saves_where_it_is_and_goes_on_there) {
  for (const std::string signal : {"INT", "TERM"}) {
    const std::string run = file("run-" + signal), out = file("out-" + signal), record = file(signal + ".json"),
                      log = file(signal + ".jsonl");
    const std::string line = "train --trainer reference --model tiny -b 1 -t 8 --lr-schedule constant --checkpoints " + run;
    // A shell waits until steps are printed. What it starts in the background ignores SIGINT, unless told.
    const Outcome o = stepscope(line + " --steps 1000000 --run-json " + record + " --log " + log,
                                "run() { OMP_NUM_THREADS=1 env --default-signal=INT \"$@\" >" + out + " & while [ $(wc -l <" + out +
                                    ") -lt 9 ]; do sleep 0.02; done; kill -" + signal + " $!; wait $!; }; touch " + out + "; run");
    EXPECT_EQ(o.exit_code, 130) << o.err;
    EXPECT_THAT(o.err, ::testing::AllOf(HasSubstr("interrupted after step "), HasSubstr(run + " holds it")));
    const int64_t steps = json::parse(slurp(record))["steps"].size();
    EXPECT_GE(steps, 2);
    EXPECT_THAT(slurp(log), HasSubstr("\"stopped\":\"interrupted after step " + std::to_string(steps)));
    const Outcome resumed = stepscope(line + " --resume --steps " + std::to_string(steps + 1));
    EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_THAT(resumed.err, HasSubstr("resumed after step " + std::to_string(steps) + " from"));
  }
}

// It ended without a word.
TEST_F(TrainingCli, a_gate_that_is_interrupted_says_so) {
  const std::string answers = file("answers");  // there when the gate begins
  const Outcome o = stepscope("gate --trainer reference --seeds 1000 --oracle-answers " + answers,
                              "run() { OMP_NUM_THREADS=1 env --default-signal=INT \"$@\" & while [ ! -e " + answers +
                                  " ]; do sleep 0.02; done; sleep 0.2; kill -INT $!; wait $!; }; run");
  EXPECT_EQ(o.exit_code, 130) << o.err;
  EXPECT_THAT(o.err, HasSubstr("stepscope: interrupted before the answer was there"));
}

// `train | tee log` and ctrl-C, which ends tee first; or `train | head`.
TEST_F(LogReport, a_run_whose_reader_is_gone_saves_where_it_is) {
  for (const std::string ranks : {"", " --gpus 2"})
    for (const std::string streams : {"", " 2>&1"}) {
      SCOPED_TRACE(ranks + streams);
      const std::string name = (streams.empty() ? "apart" : "together") + ranks.substr(0, ranks.find(' ', 1)), run = file("run-" + name),
                        log = file(name + ".jsonl");
      const Outcome o =
          stepscope("train --trainer reference --model tiny -b 1 -t 8 --steps 1000000" + ranks + " --checkpoints \"" + run + "\" --log \"" +
                        log + "\"",
                    "run() { { OMP_NUM_THREADS=1 \"$@\"" + streams + "; echo $? >" + file("code") + "; } | head -n 4; }; run");
      EXPECT_EQ(slurp(file("code")), "130\n") << o.err;
      EXPECT_THAT(slurp(log), HasSubstr("\"stopped\":\"interrupted after step "));
      EXPECT_FALSE(fs::is_empty(run)) << "no checkpoint";
      if (streams.empty()) {
        EXPECT_THAT(o.err, ::testing::AllOf(HasSubstr("nobody reads the steps any more: the run stops"), HasSubstr(run + " holds it")));
      }
    }
}

// Its notes did not fit on a full disk, and the run ended there: exit 2, and no run.json.
TEST_F(LogReport, a_run_whose_notes_nobody_takes_saves_where_it_is) {
  const std::string run = file("run"), out = file("out"), record = file("r.json"), log = file("run.jsonl");
  const Outcome o = stepscope("train --trainer reference --model tiny -b 1 -t 8 --json --steps 1000000 --checkpoints " + run +
                                  " --run-json " + record + " --log " + log,
                              "run() { OMP_NUM_THREADS=1 env --default-signal=INT \"$@\" >" + out + " 2>/dev/full & while [ $(wc -l <" +
                                  out + ") -lt 9 ]; do sleep 0.02; done; kill -INT $!; wait $!; }; touch " + out + "; run");
  EXPECT_EQ(o.exit_code, 130);
  EXPECT_FALSE(fs::is_empty(run)) << "no checkpoint";
  EXPECT_THAT(slurp(record), HasSubstr("\"stopped\": \"interrupted after step "));
  EXPECT_THAT(slurp(log), HasSubstr("\"stopped\":\"interrupted after step "));
}

// Its window was closed, or the connection to its machine: what is printed from then on is an error (EIO), and SIGHUP comes.
TEST_F(LogReport, a_run_whose_terminal_is_closed_saves_where_it_is) {
  for (const char* quiet : {"", "--quiet"}) {
    SCOPED_TRACE(quiet);
    const std::string name = *quiet ? "quiet" : "shown", run = file("run-" + name), record = file(name + ".json"),
                      log = file(name + ".jsonl");
    int terminal = -1;
    const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
    if (child == 0) {
      const std::string line = "exec env --default-signal=HUP CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 " + stepscope_program() +
                               " train --trainer reference --model tiny -b 1 -t 8 --steps 1000000 " + quiet + " --checkpoints " + run +
                               " --run-json " + record + " --log " + log;
      ::execl("/bin/bash", "bash", "-c", line.c_str(), nullptr);
      ::_exit(127);
    }
    ASSERT_GT(child, 0);
    // That it trains is seen in its log, as --quiet shows no step; what it shows must be read meanwhile.
    ::fcntl(terminal, F_SETFL, O_NONBLOCK);
    std::array<char, 4096> text{};
    for (int tries = 0; tries < 3000 && (!fs::exists(log) || fs::file_size(log) < text.size()); ++tries)
      if (::read(terminal, text.data(), text.size()) <= 0) ::usleep(10'000);
    ::close(terminal);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 130);
    EXPECT_FALSE(fs::is_empty(run)) << "no checkpoint";
    EXPECT_THAT(slurp(record), HasSubstr("\"stopped\": \"interrupted after step "));
    EXPECT_THAT(slurp(log), HasSubstr("\"stopped\":\"interrupted after step "));
  }
}

// The terminal's ctrl-C reaches the whole group: tee is gone, and rank 0 says so beside the launcher's wish, which must not be the second one.
TEST_F(LogReport, ctrl_c_of_ranks_behind_tee_saves_where_they_are) {
  const std::string run = file("run"), text = file("text");
  const Outcome o = stepscope("train --trainer reference --model tiny -b 1 -t 8 --steps 1000000 --gpus 2 --checkpoints " + run,
                              "run() { setsid env --default-signal=INT OMP_NUM_THREADS=1 bash -c '\"$@\" | tee " + text +
                                  "' x \"$@\" & while [ $(wc -l <" + text +
                                  ") -lt 9 ]; do sleep 0.02; done; kill -s INT -- -$!; wait $!; }; touch " + text + "; run");
  EXPECT_THAT(o.err, HasSubstr(run + " holds it"));
  EXPECT_FALSE(fs::is_empty(run)) << "no checkpoint: " << o.err;
}

TEST_F(LogReport, a_sweep_that_is_interrupted_ends_its_log_and_chooses_no_rate) {
  const std::string log = file("s-1e-4.jsonl");
  const Outcome o = stepscope(
      "train --trainer reference --model tiny -b 1 -t 8 --steps 1000000 --sweep-learning-rates 1e-4,1e-3 --log " + file("s.jsonl"),
      "run() { OMP_NUM_THREADS=1 env --default-signal=INT \"$@\" & while [ $(wc -l <" + log +
          ") -lt 9 ]; do sleep 0.02; done; kill -INT $!; wait $!; }; touch " + log + "; run");
  EXPECT_EQ(o.exit_code, 130) << o.err;
  EXPECT_THAT(o.err, HasSubstr("with the rate 1e-4; no rate is chosen"));
  EXPECT_THAT(slurp(log), HasSubstr("\"stopped\":\"interrupted after step "));
  EXPECT_FALSE(fs::exists(file("s-1e-3.jsonl")));
}

TEST_F(LogReport, a_signal_that_is_ignored_stays_ignored) {
  const std::string out = file("out");
  const Outcome o = stepscope("train --trainer reference --model tiny -b 1 -t 8 --steps 60 --run-json " + file("r.json"),
                              "run() { trap '' HUP; \"$@\" >" + out + " & while [ $(wc -l <" + out +
                                  ") -lt 9 ]; do sleep 0.02; done; kill -HUP $!; wait $!; }; touch " + out + "; run");
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_EQ(json::parse(slurp(file("r.json")))["steps"].size(), 60u);
}

TEST_F(LogReport, the_page_holds_the_curves) {
  write_log("a.jsonl", 5);
  const Outcome o = stepscope("report " + file("a.jsonl") + " -o " + file("x.html"));
  if (!draws_pages()) {
    expect_the_package_named(o, file("x.html"));
    EXPECT_FALSE(fs::exists(file("x.html")));
    GTEST_SKIP() << "built without Chart.js (libjs-chart.js)";
  }
  ASSERT_EQ(o.exit_code, 0) << o.err;
  const std::string page = slurp(file("x.html"));
  EXPECT_EQ(page.rfind("<!DOCTYPE html>", 0), 0u);
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const size_t at = page.find(begin) + begin.size();
  const json data = json::parse(page.substr(at, page.find("</script>", at) - at));  // the model's name does not end the element
  EXPECT_EQ(data["logs"][0]["loss"].size(), 25u);
  EXPECT_EQ(data["logs"][0]["loss"][4], json({5, 4.95}));
  EXPECT_EQ(data["logs"][0]["validation"], json({{10, 7.5}, {20, 7.25}}));
  EXPECT_THAT(data["logs"][0]["what"].get<std::string>(), HasSubstr("</script>"));
}

TEST_F(LogReport, flags_and_files_that_do_not_fit) {
  write_log("a.jsonl", 5);
  const auto refused = [&](const std::string& arguments, const std::string& why) {
    const Outcome o = stepscope("report " + arguments);
    EXPECT_EQ(o.exit_code, 2) << arguments;
    EXPECT_THAT(o.err, HasSubstr(why));
  };
  const std::string a = file("a.jsonl");
  refused(a + " --by op", "a run's log has neither kernels nor launches");
  refused(a + " -o " + file("x.trace.json"), "a run's log has neither kernels nor launches");
  refused(a + " " + file("missing.jsonl"), "missing.jsonl");
  std::ofstream(file("p.json")) << "{}";
  refused(a + " " + file("p.json"), "p.json: no run's log");
  refused(file("p.json") + " " + file("p.json"), "one profile document alone; `stepscope diff A B` compares two documents\n");
  std::ofstream(file("a.jsonl"), std::ios::app) << "x\n";
  refused(a, "a.jsonl:30: no JSON object");
}

}  // namespace

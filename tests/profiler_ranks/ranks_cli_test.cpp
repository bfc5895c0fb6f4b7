// Two real processes, without a GPU: the CPU reference on two ranks becomes one document; a sweep between them, and a prediction from both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/run_stepscope.h"

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace {

class TwoRanks : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = fresh_folder();
    std::ofstream(folder_ / "r.jsonl") << "of a run before";
    outcome_ = stepscope("profile --trainer reference --gpus 2 --steps 8 --warmup 2 --traced-steps 2 --out " + file("p.json") +
                         " --trace " + file("t.json") + " --keep-recording " + file("r.jsonl"));
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }
  static std::string file(const std::string& name) { return (folder_ / name).string(); }
  static inline std::filesystem::path folder_;
  static inline Outcome outcome_;
};

TEST_F(TwoRanks, become_one_document_with_both_and_with_what_they_exchanged) {
  ASSERT_EQ(outcome_.exit_code, 0) << outcome_.err;
  const json d = json::parse(slurp(folder_ / "p.json"));
  EXPECT_EQ(d["world"]["size"], 2);
  EXPECT_EQ(d["world"]["clock"], "shared");
  ASSERT_EQ(d["ranks"].size(), 2u);
  // Norm and loss in one gather, the gradients in one sum; nothing of a CPU runs beside them.
  ASSERT_EQ(d["collectives"].size(), 2u);
  EXPECT_EQ(d["collectives"][0]["op"], "norm_gather");
  EXPECT_EQ(d["collectives"][1]["op"], "reduce_gradients");
  // And each says what it is: two losses and two norms, and a gradient of every parameter.
  EXPECT_EQ(d["collectives"][0]["kind"], "all_gather");
  EXPECT_EQ(d["collectives"][0]["bytes"], 4 * 8);
  EXPECT_FALSE(d["collectives"][0].contains("bucket"));
  EXPECT_EQ(d["collectives"][1]["kind"], "all_reduce");
  EXPECT_EQ(d["collectives"][1]["bytes"], 4 * 495104);
  EXPECT_EQ(d["collectives"][1]["bucket"], 0);
  EXPECT_EQ(d["world"]["hidden_ns"], 0.0);
  for (const json& r : d["ranks"]) {
    EXPECT_GT(r["exposed_ns"].get<double>(), 0);
    EXPECT_NEAR(r["work_ns"].get<double>() + r["exposed_ns"].get<double>() + r["idle_ns"].get<double>(), r["device_ns"].get<double>(), 1);
    EXPECT_GT(r["step_time_ns"].get<double>(), 0);
  }
  EXPECT_DOUBLE_EQ(d["world"]["tokens_per_s"].get<double>(), 2 * d["timing"]["tokens_per_s"].get<double>());
  double passes = 0;
  for (const json& p : d["passes"]) passes += p["time_ns"].get<double>();
  const json& t = d["totals"];
  EXPECT_NEAR(passes + t["unattributed_ns"].get<double>() + t["idle_ns"].get<double>(), t["time_ns"].get<double>(),
              0.005 * t["time_ns"].get<double>());
}

TEST_F(TwoRanks, have_a_process_each_in_the_trace_and_a_row_each_in_the_table) {
  const json trace = json::parse(slurp(folder_ / "t.json"));
  int processes = 0;
  for (const json& e : trace["traceEvents"]) processes += e["name"] == "process_name";
  EXPECT_EQ(processes, 2);
  EXPECT_THAT(outcome_.out, HasSubstr("2 ranks on one host"));
  const Outcome again = stepscope("report " + file("p.json"));
  EXPECT_EQ(again.out, outcome_.out);
}

TEST_F(TwoRanks, files_that_are_named_by_the_rank_are_no_other_file) {
  std::ofstream(folder_ / "tokens.rank1.json") << "mine";
  for (const std::string& line : {"train --gpus 2 --run-json " + file("tokens.json") + " --data " + file("tokens.rank1.json"),
                                  "train --gpus 2 --run-json " + file("x.json") + " --log " + file("x.rank1.json"),
                                  "profile --gpus 2 --keep-recording " + file("k.json") + " --out " + file("k.rank0.json")}) {
    const Outcome o = stepscope(line + " --trainer reference --model tiny --steps 3");
    EXPECT_EQ(o.exit_code, 2) << line;
    EXPECT_THAT(o.err, HasSubstr("expected a file for each")) << line;
  }
  EXPECT_EQ(slurp(folder_ / "tokens.rank1.json"), "mine");
}

// `--keep-recording r.jsonl` removed r.jsonl, which no rank writes.
TEST_F(TwoRanks, leave_the_file_alone_whose_name_they_put_their_rank_into) { EXPECT_EQ(slurp(folder_ / "r.jsonl"), "of a run before"); }

TEST_F(TwoRanks, are_joined_with_the_run_json_that_is_kept_beside_their_recordings) {
  const Outcome both = stepscope("join " + file("r.rank0.jsonl") + " " + file("r.rank1.jsonl") + " --out " + file("again.json") +
                                 " --run-json " + file("r.run.json") + " --first-timed-step 2 --timed-steps 8");
  ASSERT_EQ(both.exit_code, 0) << both.err;
  const json again = json::parse(slurp(folder_ / "again.json")), first = json::parse(slurp(folder_ / "p.json"));
  for (const char* section : {"timing", "ops", "world"}) EXPECT_EQ(again[section], first[section]) << section;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "r.run.rank1.json"));
}

TEST_F(TwoRanks, can_be_joined_again_from_their_recordings_but_not_with_one_missing) {
  const Outcome both = stepscope("join " + file("r.rank1.jsonl") + " " + file("r.rank0.jsonl") + " --out " + file("joined.json"));
  EXPECT_EQ(both.exit_code, 0) << both.err;
  const json joined = json::parse(slurp(folder_ / "joined.json")), first = json::parse(slurp(folder_ / "p.json"));
  EXPECT_EQ(joined["collective_ranks"], first["collective_ranks"]);
  // Not the line of the child that recorded, with its temporary files.
  EXPECT_THAT(both.out, StartsWith("CPU | stepscope train | reference | tiny | B 4 T 64\n"));
  EXPECT_THAT(joined["run"]["command"], HasSubstr("join "));
  // A run.json of another rank or run has steps and floors that are not of these recordings.
  const std::string recordings = "join " + file("r.rank0.jsonl") + " " + file("r.rank1.jsonl") + " -o " + file("refused.json");
  const Outcome train = stepscope("train --gpus 2 --trainer reference --model tiny --steps 3 --run-json " + file("run.json"));
  ASSERT_EQ(train.exit_code, 0) << train.err;
  ASSERT_EQ(stepscope("train --trainer reference --model tiny --steps 3 --run-json " + file("alone.json")).exit_code, 0);
  for (const auto& [flags, why] :
       {std::pair(" --run-json " + file("run.rank1.json"), std::string("run.rank1.json: written by rank 1, expected rank 0's")),
        std::pair(" --run-json " + file("alone.json"),
                  std::string("alone.json: a run of 1 rank, expected one of 2, as the recordings are")),
        std::pair(" --first-timed-step 2 --timed-steps 2 --run-json " + file("run.json"),
                  "--first-timed-step 2 and --timed-steps 2: " + file("run.json") + " has 3 steps"),
        std::pair(" --run-json " + file("run.json"),
                  std::string("run.json: a run of 3 steps, of which none is said to be timed, expected --timed-steps N with it")),
        std::pair(std::string(" --timed-steps 2"), std::string("--timed-steps: expected --run-json with it"))}) {
    const Outcome refused = stepscope(recordings + flags);
    EXPECT_EQ(refused.exit_code, 2) << flags;
    EXPECT_THAT(refused.err, HasSubstr(why));
    EXPECT_FALSE(std::filesystem::exists(folder_ / "refused.json"));
  }
  const Outcome with = stepscope(recordings + " --first-timed-step 1 --timed-steps 2 --run-json " + file("run.json"));
  EXPECT_EQ(with.exit_code, 0) << with.err;
  // Recordings may be of another program than the one that joins them.
  const json run = json::parse(slurp(folder_ / "refused.json"))["run"];
  EXPECT_EQ(run["trainer"], "reference");
  EXPECT_FALSE(run.contains("git_revision"));
  EXPECT_FALSE(run.contains("build_type"));
  const Outcome foreign = stepscope(recordings + " --ceilings " TEST_DATA "/links/h200-x2-nccl.json");
  EXPECT_EQ(foreign.exit_code, 2);
  EXPECT_THAT(foreign.err, HasSubstr("h200-x2-nccl.json: measured on NVIDIA H200, " + file("r.rank0.jsonl") + " is of "));
  const Outcome one = stepscope("join " + file("r.rank1.jsonl") + " --out " + file("one.json"));
  EXPECT_EQ(one.exit_code, 2);
  EXPECT_THAT(one.err, HasSubstr("no recording of rank 0 of 2; --partial"));
  const Outcome partial = stepscope("join " + file("r.rank1.jsonl") + " --partial --out " + file("one.json"));
  EXPECT_EQ(partial.exit_code, 1) << "a severe row of `missing` is an answer of no";
  EXPECT_THAT(partial.out, HasSubstr("rank_missing"));
  std::string in_one_line = partial.out;
  for (size_t at; (at = in_one_line.find("\n  ")) != std::string::npos;) in_one_line.replace(at, 3, " ");
  EXPECT_THAT(in_one_line, HasSubstr("the recording of one rank tells nothing of the others' clocks"));
}

// What `profile` asks of ranks on GPUs whose steps it counts.
TEST_F(TwoRanks, end_well_though_they_exchanged_nothing_in_some_steps) {
  const std::string train = "train --gpus 2 --trainer reference --model tiny --steps 6 --json --direct-from 3 --direct-steps 2";
  const auto losses = [](const Outcome& o) {
    std::vector<double> list;
    std::istringstream lines(o.out);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("{") && json::parse(line).contains("loss")) list.push_back(json::parse(line)["loss"].get<double>());
    return list;
  };
  const Outcome talking = stepscope(train), silent = stepscope(train + " --direct-in-silence");
  ASSERT_EQ(silent.exit_code, 0) << silent.err;
  ASSERT_EQ(losses(silent).size(), 6u) << silent.out;
  EXPECT_EQ(losses(silent)[1], losses(talking)[1]);
  EXPECT_NE(losses(silent)[2], losses(talking)[2]) << "rank 0's own loss, not that of both";
}

// What tests/device/ranks_evidence.py asks of ranks whose steps it holds those of others against.
TEST_F(TwoRanks, that_exchange_nothing_print_each_its_own_steps_and_are_profiled) {
  const std::string train = "train --trainer reference --model tiny --steps 4 --exchange-nothing";
  const Outcome both = stepscope(train + " --gpus 2");
  ASSERT_EQ(both.exit_code, 0) << both.err;
  std::vector<std::string> own, other;
  std::istringstream lines(both.out + both.err);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("step ") || line.starts_with("[rank 1] step "))
      (line[0] == 's' ? own : other).push_back(line.substr(line.find("loss"), 13));
  ASSERT_EQ(own.size(), 4u) << both.out;
  ASSERT_EQ(other.size(), 4u) << both.out;
  EXPECT_NE(own[0], other[0]) << "one loss of both";
  const Outcome alone = stepscope(train);
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("--exchange-nothing: expected several ranks"));
  const std::string profile = "profile --trainer reference --model tiny --steps 6 --warmup 2 --traced-steps 2 --exchange-nothing --out ";
  const Outcome profiled = stepscope(profile + file("silent.json") + " --gpus 2");
  ASSERT_EQ(profiled.exit_code, 0) << profiled.err;
  const json silent = json::parse(slurp(folder_ / "silent.json")), talking = json::parse(slurp(folder_ / "p.json"));
  EXPECT_LT(silent["world"]["exposed_ns"].get<double>(), 0.1 * talking["world"]["exposed_ns"].get<double>());
  EXPECT_EQ(stepscope(profile + file("one.json")).exit_code, 2);
}

TEST_F(TwoRanks, measure_what_lies_between_them_for_a_prediction) {
  const Outcome sweep = stepscope("doctor --gpus 2 --communicator staged --most-mib 1 --links " + file("links.json"));
  ASSERT_EQ(sweep.exit_code, 0) << sweep.err;
  const json links = json::parse(slurp(folder_ / "links.json"));
  EXPECT_EQ(links["points"].size(), 3u * 2 * 9);  // 4 KiB to 1 MiB
  EXPECT_EQ(links["fits"].size(), 6u);
  EXPECT_EQ(links["points"][0]["communicator"], "staged");
  EXPECT_EQ(links["schema"], "stepscope.links/2");
  const Outcome one = stepscope("profile --trainer reference --steps 8 --warmup 2 --traced-steps 2 --out " + file("single.json"));
  ASSERT_EQ(one.exit_code, 0) << one.err;
  const Outcome scaling = stepscope("scaling " + file("single.json") + " --ceilings " + file("links.json") + " --gpus 1,2,1 --json");
  ASSERT_EQ(scaling.exit_code, 0) << scaling.err;
  const json steps = json::parse(scaling.out)["steps"];
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_DOUBLE_EQ(steps[0]["efficiency_pct"].get<double>(), 100);
  EXPECT_GT(steps[1]["tail_ns"].get<double>(), 0);
  EXPECT_EQ(steps[1]["communicator"], "staged");
  EXPECT_GT(steps[1]["collectives"].size(), 3u);
  EXPECT_THAT(scaling.err, HasSubstr("links.json does not say what work beside communication loses"));
  const Outcome by_hand = stepscope("scaling " + file("single.json") + " --ceilings " + file("links.json") + " --gpus 2 --inflation 10");
  EXPECT_EQ(by_hand.err,
            "stepscope: " + file("single.json") + " and " + file("links.json") + " are of a CPU, so this predicts nothing about GPUs\n")
      << "and what work loses was told by hand";
  const std::string strong = "scaling " + file("single.json") + " --ceilings " + file("links.json") + " --strong --inflation 0 ";
  const Outcome shares = stepscope(strong + "--gpus 1,2,4 --global-tokens 2048 --json");
  ASSERT_EQ(shares.exit_code, 0) << shares.err;
  const json strong_steps = json::parse(shares.out);
  EXPECT_EQ(strong_steps["batch"], "strong");
  EXPECT_EQ(strong_steps["profile"], file("single.json"));
  EXPECT_TRUE(strong_steps["steps"][0]["communicator"].is_null());
  EXPECT_DOUBLE_EQ(strong_steps["steps"][0]["efficiency_pct"].get<double>(), 100) << "one that computes the batch of all";
  const Outcome half_a_row = stepscope(strong + "--gpus 512 --global-tokens 2048");
  EXPECT_EQ(half_a_row.exit_code, 2);
  EXPECT_THAT(half_a_row.err, HasSubstr("--strong --gpus 512: 2048 tokens for all are 0.0625 sequences of 64 for each; expected 32768"));
  EXPECT_EQ(stepscope(strong + "--json --markdown --global-tokens 2048").exit_code, 2);
  const std::string h200 = " --ceilings " TEST_DATA "/links/h200-x2-nccl.json";
  EXPECT_THAT(stepscope("scaling " + file("single.json") + h200).err, HasSubstr("so this is no prediction of either"));
  json at_the_limit = json::parse(slurp(folder_ / "single.json")), with_awake = links;
  at_the_limit["environment"].update({{"throttle_reasons", {"power_cap"}},
                                      {"samples", 3},
                                      {"throttled_samples", 2},
                                      {"sm_clock_mhz_median", 1785},
                                      {"sm_clock_mhz_max", 1980}});
  with_awake["awake"] = {{"ranks", 2}, {"asleep_ns", 100}, {"awake_ns", 102}};
  std::ofstream(folder_ / "limit.json") << at_the_limit.dump();
  std::ofstream(folder_ / "awake.json") << with_awake.dump();
  const std::string limited = "scaling " + file("limit.json") + " --gpus 2 --inflation 0 --json --ceilings ";
  EXPECT_THAT(stepscope(limited + file("links.json")).err, HasSubstr("links.json does not say what the power of its links takes from it"));
  const Outcome powered = stepscope(limited + file("awake.json"));
  EXPECT_THAT(powered.err, ::testing::Not(HasSubstr("the power of its links")));
  const json with_power = json::parse(powered.out)["steps"][0];
  // On a busy machine a step has stretches in which links would sleep: all work beyond 50 ms, at most.
  const double awake_ns = with_power["awake_ns"], work_ns = with_power["work_ns"];
  EXPECT_LE(awake_ns, 0.02 * work_ns + 1);
  EXPECT_GE(awake_ns, 0.02 * std::min(work_ns, 50e6) - 1);
  at_the_limit["environment"]["sm_clock_mhz_median"] = 1965;
  std::ofstream(folder_ / "limit.json") << at_the_limit.dump();
  const Outcome bit_alone = stepscope(limited + file("awake.json"));
  EXPECT_EQ(json::parse(bit_alone.out)["steps"][0]["awake_ns"], 0.0);
  EXPECT_THAT(bit_alone.err, HasSubstr("limit.json reports power_cap, but"));
  json of_another_gpu = json::parse(slurp(folder_ / "single.json"));
  of_another_gpu["collection"]["producer"] = "cupti";
  of_another_gpu["environment"]["gpu"] = "NVIDIA H100 80GB HBM3";
  std::ofstream(folder_ / "h100.json") << of_another_gpu.dump();
  const Outcome mixed_up = stepscope("scaling " + file("h100.json") + h200);
  EXPECT_EQ(mixed_up.exit_code, 2);
  EXPECT_THAT(mixed_up.err, HasSubstr("measured on NVIDIA H200, " + file("h100.json") + " is of NVIDIA H100"));
  const Outcome refused = stepscope("scaling " + file("p.json") + " --ceilings " + file("links.json"));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("of several ranks"));
  const Outcome diff = stepscope("diff " + file("single.json") + " " + file("p.json"));
  EXPECT_EQ(diff.exit_code, 0) << diff.err;
  EXPECT_THAT(diff.out, HasSubstr("1 rank -> 2 ranks"));
}

// A profile of the CPU that says it is of an H200, and a sweep of two H200s: what `scaling` refuses, and what it says.
class Scaling : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = fresh_folder();
    const Outcome o = stepscope("profile --trainer reference --steps 4 --warmup 1 --traced-steps 2 --out " + file("cpu.json"));
    ASSERT_EQ(o.exit_code, 0) << o.err;
    profile_ = json::parse(slurp(folder_ / "cpu.json"));
    profile_["collection"]["producer"] = "cupti";
    profile_["environment"]["gpu"] = "NVIDIA H200";
    links_ = json::parse(slurp(TEST_DATA "/links/h200-x2-nccl.json"));
    links_["schema"] = "stepscope.links/2";
    for (json& p : links_["points"]) p["communicator"] = "nccl";
    for (json p : json(links_["points"])) {
      p["communicator"] = "peer";
      links_["points"].push_back(p);
    }
    links_["beside"] = json::array();
    for (const char* kind : {"reduce_scatter", "all_gather"})
      for (const char* communicator : {"nccl", "peer"})
        links_["beside"].push_back({{"communicator", communicator},
                                    {"kind", kind},
                                    {"type", "fp32"},
                                    {"ranks", 2},
                                    {"bytes", 1 << 20},
                                    {"work", "product"},
                                    {"rows", 256},
                                    {"alone_ns", 20e3},
                                    {"time_ns", 30e3},
                                    {"slowed_ns", 5e3}});
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }
  static std::string file(const std::string& name) { return (folder_ / name).string(); }

  static Outcome scaling(const std::string& flags, const json& profile = profile_, const json& links = links_) {
    std::ofstream(folder_ / "one.json") << profile.dump();
    std::ofstream(folder_ / "links.json") << links.dump();
    return stepscope("scaling " + file("one.json") + " --ceilings " + file("links.json") + " " + flags);
  }
  static void expect_refused(const Outcome& o, const std::string& words) {
    EXPECT_EQ(o.exit_code, 2) << o.out;
    EXPECT_EQ(o.out, "");
    EXPECT_THAT(o.err, HasSubstr(words));
  }

  static inline std::filesystem::path folder_;
  static inline json profile_, links_;
};

TEST_F(Scaling, two_gpus_of_two_nodes_need_the_network_and_are_no_faster_than_it) {
  const Outcome one_node = scaling("--gpus 2 --communicator nccl --json");
  ASSERT_EQ(one_node.exit_code, 0) << one_node.err;
  expect_refused(scaling("--gpus 2 --gpus-per-node 1"), "--network-gb-s");
  const Outcome apart = scaling("--gpus 2 --gpus-per-node 1 --network-gb-s 1 --json");
  ASSERT_EQ(apart.exit_code, 0) << apart.err;
  const json near = json::parse(one_node.out)["steps"][0], far = json::parse(apart.out)["steps"][0];
  EXPECT_EQ(far["communicator"], "nccl");
  double moved = 0;
  for (const json& c : far["collectives"]) moved += c["bytes"].get<double>() / 2;
  EXPECT_GT(far["communication_ns"].get<double>(), moved) << "ns of as many bytes at 1 GB/s";
  EXPECT_LT(near["communication_ns"].get<double>(), moved);
}

TEST_F(Scaling, copies_reach_sixteen_gpus_of_one_node) {
  EXPECT_EQ(scaling("--communicator peer --gpus 16 --gpus-per-node 32").exit_code, 0);
  expect_refused(scaling("--communicator peer --gpus 17 --gpus-per-node 32"), "--communicator peer: 17 GPUs; expected at most 16, or nccl");
  expect_refused(scaling("--communicator peer --gpus 16 --gpus-per-node 8 --network-gb-s 50"),
                 "--communicator peer: 16 GPUs are more than the 8 of one node");
}

TEST_F(Scaling, a_sweep_of_anything_but_the_profiles_gpu_is_refused) {
  for (const char* device : {"host memory", "", "NVIDIA H100 80GB HBM3"}) {
    json links = links_;
    links["device"] = device;
    expect_refused(scaling("--gpus 2", profile_, links),
                   std::string("links.json: measured on ") + (*device ? device : "a device without a name"));
  }
  json nameless = profile_;
  nameless["environment"].erase("gpu");
  expect_refused(scaling("--gpus 2", nameless), "one.json: environment.gpu is missing, expected the GPU of");
  json cpu = profile_, host = links_;
  cpu["collection"]["producer"] = "cpu";
  host["device"] = "host memory";
  const Outcome tried = scaling("--gpus 2", cpu, host);
  EXPECT_EQ(tried.exit_code, 0) << "to try the command with";
  EXPECT_THAT(tried.err, HasSubstr("one.json and " + file("links.json") + " are of a CPU, so this predicts nothing about GPUs"));
  host["device"] = "";
  EXPECT_THAT(scaling("--gpus 2", cpu, host).err, HasSubstr("of a device without a name, so this is no prediction of either"));
}

TEST_F(Scaling, says_of_which_collectives_it_does_not_know_what_work_beside_them_loses) {
  EXPECT_EQ(scaling("--gpus 2 --communicator nccl").err, "");
  EXPECT_THAT(scaling("--gpus 2 --communicator nccl --communication all_reduce_overlapped").err,
              HasSubstr("links.json does not say what work beside all_reduce by nccl loses, so the prediction leaves that out"));
  EXPECT_EQ(scaling("--gpus 2 --communicator nccl --communication all_reduce_overlapped --inflation 5").err, "") << "told by hand";
  json links = links_;
  for (json& b : links["beside"]) b["communicator"] = "nccl";
  const std::string both = scaling("--gpus 2,4", profile_, links).err;
  EXPECT_THAT(both, HasSubstr("work beside reduce_scatter, all_gather, all_gather_in_place by peer loses"));
  EXPECT_THAT(both, ::testing::Not(HasSubstr("by nccl")));
}

TEST_F(Scaling, of_a_step_of_several_micro_batches_each_has_whole_sequences) {
  json twice = profile_;  // 4 x 64 tokens as two micro-batches of 2 x 64
  twice["run"].update({{"batch_size", 2}, {"accumulation", 2}});
  const Outcome weak = scaling("--gpus 2 --json", twice);
  ASSERT_EQ(weak.exit_code, 0) << weak.err;
  EXPECT_LT(json::parse(weak.out)["steps"][0]["hidden_ns"].get<double>(),
            json::parse(scaling("--gpus 2 --json").out)["steps"][0]["hidden_ns"].get<double>() + 1);
  EXPECT_EQ(scaling("--gpus 2 --strong", twice).exit_code, 0);
  EXPECT_EQ(scaling("--gpus 4 --strong").exit_code, 0);
  expect_refused(
      scaling("--gpus 4 --strong", twice),
      "--strong --gpus 4: 256 tokens for all are 0.5 sequences of 64 for each of 2 micro-batches; expected 512 or another multiple of 512");
}

TEST_F(Scaling, numbers_and_rows_that_no_step_has_are_refused_with_the_file_and_their_name) {
  for (const auto& [field, value] : {std::pair("tokens_per_step", int64_t{0}), std::pair("batch_size", int64_t{0}),
                                     std::pair("batch_size", INT64_MAX), std::pair("layers", int64_t{1'000'000'000})}) {
    json odd = profile_;
    odd["run"][field] = value;
    expect_refused(scaling("--gpus 2", odd), std::string("one.json: run.") + field + ": found " + std::to_string(value));
  }
  json cut = profile_;
  cut["layers"].erase(0);
  cut["launches"] = json::array();  // which would be in that row
  expect_refused(scaling("--gpus 2", cut), "one.json: layers: no row of layer 0");
}

}  // namespace

// `profile --steps N` without a GPU: the CPU reference goes through the same document, table and trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/run_stepscope.h"

using nlohmann::json;
using ::testing::HasSubstr;

namespace {

class CpuProfile : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = fresh_folder();
    outcome_ = stepscope("profile --steps 12 --warmup 2 --out " + (folder_ / "p.json").string() + " --trace " +
                         (folder_ / "t.json").string() + " --csv " + (folder_ / "k.csv").string());
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }
  static inline std::filesystem::path folder_;
  static inline Outcome outcome_;
};

TEST_F(CpuProfile, works_says_that_it_is_the_cpu_and_marks_counters_as_missing) {
  ASSERT_EQ(outcome_.exit_code, 0) << outcome_.err;
  EXPECT_THAT(outcome_.err, HasSubstr("no GPU"));
  const json d = json::parse(slurp(folder_ / "p.json"));
  EXPECT_EQ(d["schema"], "stepscope.profile/1");
  bool said = false;
  for (const json& m : d["missing"]) said |= m["name"] == "no_gpu_counters";
  EXPECT_TRUE(said);
  for (const json& k : d["kernels"]) EXPECT_FALSE(k.contains("dram_read_bytes")) << k;
}

TEST_F(CpuProfile, times_exactly_the_steps_asked_for) {
  const json d = json::parse(slurp(folder_ / "p.json"));
  EXPECT_EQ(d["timing"]["step_time_ns"]["samples"].size(), 12u);
  EXPECT_EQ(d["run"]["first_timed_step"], 2);
  EXPECT_EQ(d["run"]["timed_steps"], 12);
  EXPECT_EQ(d["run"]["steps"], 2 + 12 + 5);
  EXPECT_EQ(d["collection"]["traced_steps"], 5);
  const std::string out = (folder_ / "p.json").string();
  EXPECT_TRUE(d["run"]["command"].get<std::string>().starts_with(stepscope_program() + " profile --steps 12 --warmup 2 --out " + out))
      << d["run"]["command"];
  EXPECT_GT(d["timing"]["step_time_ns"]["median"].get<double>(), 0.0);
  EXPECT_GT(d["timing"]["tokens_per_s"].get<double>(), 0.0);
}

TEST_F(CpuProfile, an_interrupted_one_says_so_and_leaves_nothing_behind) {
  const std::string temporary = folder_ / "tmp", out = folder_ / "none.json";
  std::filesystem::create_directory(temporary);
  // A shell waits until steps are recorded. What it starts in the background ignores SIGINT, unless told.
  const Outcome o = stepscope("profile --trainer reference --model tiny -b 1 -t 8 --steps 1000000 --out " + out,
                              "run() { TMPDIR=" + temporary + " env --default-signal=INT \"$@\" & until grep -qs step " + temporary +
                                  "/*/files/recording.jsonl; do sleep 0.02; done; kill -INT $!; wait $!; }; run");
  EXPECT_EQ(o.exit_code, 130) << o.err;
  EXPECT_THAT(o.err, HasSubstr("stepscope: interrupted; no profile was written"));
  EXPECT_TRUE(std::filesystem::is_empty(temporary));
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(CpuProfile, attributes_all_time_and_conserves_it) {
  const json d = json::parse(slurp(folder_ / "p.json"));
  double passes = 0;
  for (const json& p : d["passes"]) passes += p["time_ns"].get<double>();
  const json& t = d["totals"];
  EXPECT_EQ(t["unattributed_ns"].get<double>(), 0.0);
  EXPECT_NEAR(passes + t["idle_ns"].get<double>(), t["time_ns"].get<double>(), 0.005 * t["time_ns"].get<double>());
}

TEST_F(CpuProfile, writes_a_trace_and_a_csv_that_parse) {
  const json trace = json::parse(slurp(folder_ / "t.json"));
  EXPECT_GT(trace["traceEvents"].size(), 20u);
  EXPECT_THAT(slurp(folder_ / "k.csv"), HasSubstr("attention"));
}

TEST_F(CpuProfile, a_file_without_rows_says_why) {
  json d = json::parse(slurp(folder_ / "p.json"));
  const std::string whole = folder_ / "p.json", cut = folder_ / "cut.json", csv = folder_ / "rows.csv", trace = folder_ / "rows.trace.json";
  d["launches"] = json::array();
  json row = d["missing"][0];
  row["name"] = "record_reduced";
  d["missing"].push_back(row);
  std::ofstream(cut) << d;
  const auto said = [](const std::string& arguments) {
    const Outcome o = stepscope("report " + arguments);
    EXPECT_EQ(o.exit_code, 0) << o.err;
    return o.err;
  };
  EXPECT_EQ(said(cut + " --csv-rows launch --csv " + csv),
            "stepscope: " + csv + " has no rows: this document was cut down to its sums (record_reduced)\nrows: " + csv + "\n");
  EXPECT_EQ(said(cut + " -o " + trace),
            "stepscope: " + trace + " shows no launch: this document was cut down to its sums (record_reduced)\ntrace: " + trace + "\n");
  EXPECT_EQ(said(whole + " --csv-rows rank -o " + csv),
            "stepscope: " + csv + " has no rows: this document holds none of them\nrows: " + csv + "\n");
  EXPECT_EQ(said(whole + " --csv-rows launch --csv " + csv + " --trace " + trace), "rows: " + csv + "\ntrace: " + trace + "\n");
}

TEST_F(CpuProfile, report_prints_the_same_table_from_the_document) {
  const Outcome again = stepscope("report " + (folder_ / "p.json").string());
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.out, outcome_.out);
}

// Every rank ran to its end and then looked for a file that none of them writes.
TEST(RankProfile, one_that_mpirun_started_keeps_its_recording_for_join) {
  const auto folder = fresh_folder();
  for (const char* file : {"r.rank1.jsonl", "r.jsonl"}) std::ofstream(folder / file) << "of a run before";
  const Outcome o =
      stepscope("profile --trainer reference --model tiny -b 1 -t 8 --steps 3 --warmup 1 --keep-recording r.jsonl",
                "cd " + folder.string() +
                    "; run() { for r in 0 1; do CUDA_VISIBLE_DEVICES= OMP_NUM_THREADS=1 OMPI_COMM_WORLD_RANK=$r "
                    "OMPI_COMM_WORLD_LOCAL_RANK=$r OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=$$ "
                    "\"$@\" & all=\"$all $!\"; done; code=0; for p in $all; do wait $p || code=$?; done; return $code; }; run");
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("recording: r.rank0.jsonl (rank 0 of 2; `stepscope join`"));
  EXPECT_THAT(o.err, HasSubstr("recording: r.rank1.jsonl (rank 1 of 2;"));
  EXPECT_FALSE(std::filesystem::exists(folder / "profile.json"));
  EXPECT_EQ(slurp(folder / "r.jsonl"), "of a run before") << "no rank writes it";
  const std::string out = folder / "both.json";
  // Rank 0's run.json, which was lost with a temporary folder.
  EXPECT_THAT(o.err, HasSubstr("run.json: r.run.json (`join --run-json r.run.json --first-timed-step 1 --timed-steps 3`)"));
  const Outcome joined = stepscope("join " + (folder / "r.rank0.jsonl").string() + " " + (folder / "r.rank1.jsonl").string() + " --out " +
                                   out + " --run-json " + (folder / "r.run.json").string() + " --first-timed-step 1 --timed-steps 3");
  EXPECT_EQ(joined.exit_code, 0) << joined.err;
  const json both = json::parse(slurp(out));
  EXPECT_EQ(both["ranks"].size(), 2u);
  EXPECT_EQ(both["run"]["trainer"], "reference");
  EXPECT_EQ(both["timing"]["step_time_ns"]["samples"].size(), 3u);
  std::filesystem::remove_all(folder);
}

TEST(RankProfile, one_that_would_show_nothing_is_refused_before_it_runs) {
  const auto refused = [](const std::string& flags) {
    const Outcome o = stepscope("profile --trainer reference --model tiny --steps 1000000 " + flags,
                                "CUDA_VISIBLE_DEVICES= OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2");
    EXPECT_EQ(o.exit_code, 2) << flags;
    return o.err;
  };
  EXPECT_THAT(refused(""), HasSubstr("--keep-recording: expected a file, because this process is rank 1 of 2; `join` makes one document"));
  for (const char* flag : {"--csv k.csv", "--out p.json", "--sustained"})
    EXPECT_THAT(
        refused(std::string("--keep-recording r.jsonl ") + flag),
        HasSubstr(std::string(flag).substr(0, std::string(flag).find(' ')) + ": this process is rank 1 of 2, which only keeps its"));
}

}  // namespace

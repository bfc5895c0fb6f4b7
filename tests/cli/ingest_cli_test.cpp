// `stepscope ingest` as a user calls it. The readers have their own tests in tests/ingest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/in_a_folder.h"

namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

const std::string kData = SOURCE_DIR "/tests/ingest/data/";

class IngestCli : public InAFolder {
 protected:
  Outcome ingest(const std::string& arguments) const { return stepscope("ingest " + arguments + " --out " + file("doc.json")); }
};

TEST_F(IngestCli, shows_a_report_in_our_tables_and_writes_the_document) {
  const Outcome o = ingest(kData + "mixed_nvtx.ncu-rep --metrics-csv " + file("m.csv"));
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("NVIDIA H200"), HasSubstr("8 kernels, each measured alone by Nsight Compute"), HasSubstr("\nforward "),
                           HasSubstr("Times are sums over the report; headroom")));
  const auto d = nlohmann::json::parse(slurp(file("doc.json")));
  EXPECT_EQ(d["schema"], "stepscope.profile/1");
  EXPECT_EQ(d["launches"].size(), 8u);
  EXPECT_EQ(d["collection"]["producer"], "ncu");
  EXPECT_THAT(slurp(file("m.csv")), HasSubstr("\"gpu__time_duration.sum\""));
  EXPECT_EQ(stepscope("report " + file("doc.json") + " --by op").exit_code, 0);
}

TEST_F(IngestCli, reads_every_form_of_a_report) {
  for (const char* form : {"mixed_nvtx.raw.base.csv", "mixed_nvtx.raw.auto.csv", "mixed_nvtx.details.auto.csv"})
    EXPECT_EQ(ingest(kData + form).exit_code, 0) << form;
}

TEST_F(IngestCli, what_is_no_report_is_refused_with_what_was_expected) {
  write("empty", "");
  EXPECT_THAT(ingest(file("empty")).err, HasSubstr("the file is empty"));
  write("text", "hello");
  Outcome o = ingest(file("text"));
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("neither an Nsight Compute report"));
  EXPECT_EQ(ingest(file("absent")).exit_code, 2);
  EXPECT_EQ(stepscope("ingest").exit_code, 2);
  EXPECT_FALSE(fs::exists(file("doc.json")));
}

TEST_F(IngestCli, a_damaged_report_shows_what_came_before_and_exits_2) {
  const std::string whole = slurp(kData + "fp32_nvtx.ncu-rep");
  write("cut.ncu-rep", whole.substr(0, whole.size() - 50));
  const Outcome o = ingest(file("cut.ncu-rep"));
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.out, AllOf(HasSubstr("severe report_damaged"), HasSubstr("5 kernels")));
  EXPECT_THAT(o.err, AllOf(HasSubstr("cut.ncu-rep: the report is damaged: at byte"), HasSubstr("the 5 results before it are shown")));
  EXPECT_EQ(stepscope("report " + file("doc.json")).exit_code, 1) << "the document itself is whole";
  const std::string csv = slurp(kData + "mixed_nvtx.raw.base.csv");
  write("cut.csv", csv.substr(0, csv.size() - 5000));
  const Outcome row = ingest(file("cut.csv"));
  EXPECT_EQ(row.exit_code, 2);
  EXPECT_THAT(row.out, HasSubstr("severe report_damaged"));
  EXPECT_THAT(row.err, AllOf(HasSubstr("cut.csv: the report is damaged: line "), HasSubstr("results before it are shown")));
  const std::string without_ranges = slurp(kData + "fp32_basic.raw.base.csv");
  const size_t end_of_first_row = without_ranges.find('\n', without_ranges.find('\n', without_ranges.find('\n') + 1) + 1) + 1;
  write("one.csv", without_ranges.substr(0, end_of_first_row) + "\"cut");
  const Outcome one = ingest(file("one.csv"));
  EXPECT_EQ(one.exit_code, 2);
  EXPECT_THAT(one.err, HasSubstr("the one result before it is shown"));
  EXPECT_THAT(one.out, AllOf(HasSubstr("1 kernel, each measured alone"), HasSubstr("1 kernel launch, 0 copies")));
  write("head.ncu-rep", whole.substr(0, 300));
  const Outcome head = ingest(file("head.ncu-rep"));
  EXPECT_EQ(head.exit_code, 2);
  EXPECT_THAT(head.err, HasSubstr("at byte"));
}

// Each of these exited 0 or blamed something else.
TEST_F(IngestCli, a_table_that_lies_is_refused_with_file_line_and_column) {
  const std::string csv = slurp(kData + "mixed_nvtx.raw.base.csv");
  const size_t first_row = csv.find('\n', csv.find('\n') + 1) + 1;  // after titles and units
  const auto refused = [&](const std::string& text, const std::vector<std::string>& words) {
    write("t.csv", text);
    const Outcome o = ingest(file("t.csv"));
    EXPECT_EQ(o.exit_code, 2) << words.front();
    for (const std::string& w : words) EXPECT_THAT(o.err, HasSubstr(w));
    EXPECT_EQ(o.out, "");
    EXPECT_FALSE(fs::exists(file("doc.json")));
  };
  refused(csv + csv, {"t.csv: line ", "column 1 ('ID')", "stands in line"});
  refused("\xFF\xFE" + csv, {"t.csv: the text is UTF-16, expected UTF-8", "iconv"});
  std::string zero_byte = csv;
  zero_byte[first_row + 40] = '\0';
  refused(zero_byte, {"t.csv: line 3, byte 41", "zero byte"});
  std::string twice = csv;
  const size_t bytes_title = twice.find("\"dram__bytes_read.sum\"");
  ASSERT_NE(bytes_title, std::string::npos);
  twice.replace(bytes_title, 22, "\"gpu__time_duration.sum\"");
  refused(twice, {"t.csv: line 1, column", "('gpu__time_duration.sum')", "stands twice"});
}

// ncu takes some percentages as the difference of two counters. `report` refused the document that held one below 0.
TEST_F(IngestCli, a_percentage_slightly_below_0_makes_a_document_that_can_be_read) {
  write("t.csv",
        "\"ID\",\"Process ID\",\"Process Name\",\"Kernel Name\",\"Context\",\"Stream\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\","
        "\"gpu__time_duration.sum\",\"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed\"\n"
        "\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"ns\",\"%\"\n"
        "\"0\",\"100\",\"prog\",\"a\",\"1\",\"7\",\"(256, 1, 1)\",\"(200, 1, 1)\",\"0\",\"9.0\",\"10000\",\"50\"\n"
        "\"1\",\"100\",\"prog\",\"b\",\"1\",\"7\",\"(256, 1, 1)\",\"(200, 1, 1)\",\"0\",\"9.0\",\"10000\",\"-0.02\"\n");
  EXPECT_EQ(ingest(file("t.csv")).exit_code, 0);
  EXPECT_EQ(nlohmann::json::parse(slurp(file("doc.json")))["launches"][1]["tensor_active_pct"], 0);
  const Outcome o = stepscope("report " + file("doc.json"));
  EXPECT_EQ(o.exit_code, 0) << o.err;
}

// Each name was a row of its own, and in the file two rows had one name, which `report` refused.
TEST_F(IngestCli, names_that_only_differ_in_bytes_that_are_no_text_are_one_row) {
  std::string csv =
      "\"ID\",\"Process ID\",\"Process Name\",\"Kernel Name\",\"Context\",\"Stream\",\"Block Size\",\"Grid Size\",\"Device\",\"CC\","
      "\"gpu__time_duration.sum\"\n\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"\",\"ns\"\n";
  for (const char* row : {"\"0\",\"100\",\"prog\",\"k\xFF\"", "\"1\",\"100\",\"prog\",\"k\xFE\"", "\"2\",\"100\",\"prog\",\"k\xC3\xA9\""})
    csv += std::string(row) + ",\"1\",\"7\",\"(256, 1, 1)\",\"(200, 1, 1)\",\"0\",\"9.0\",\"10000\"\n";
  write("t.csv", csv);
  EXPECT_EQ(ingest(file("t.csv")).exit_code, 0);
  const Outcome o = stepscope("report " + file("doc.json"));
  EXPECT_EQ(o.exit_code, 0) << o.err;
  const auto d = nlohmann::json::parse(slurp(file("doc.json")));
  ASSERT_EQ(d["kernels"].size(), 2u);
  EXPECT_EQ(d["kernels"][0]["name"], "k\uFFFD");
  EXPECT_EQ(d["kernels"][0]["launches"], 2);
  EXPECT_EQ(d["kernels"][1]["name"], "k\u00E9");
}

TEST_F(IngestCli, rules_are_a_name_or_a_file) {
  EXPECT_THAT(ingest(kData + "fp32_basic.ncu-rep --rules nothing").err, HasSubstr("(llm.c)"));
  write("r.yaml", "schema: stepscope.rules/1\nname: mine\nrules:\n- {kernel: ., pass: forward, op: qkv}\n");
  const Outcome o = ingest(kData + "fp32_basic.ncu-rep --rules " + file("r.yaml"));
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_THAT(o.out, HasSubstr("passes_from_rules x 5: rules 'mine'"));
}

// "15 kernels, each measured alone" was said of a file of four.
TEST_F(IngestCli, kernels_that_a_rule_multiplies_are_counted_as_the_report_has_them) {
  write("r.yaml", "schema: stepscope.rules/1\nname: mine\nrules:\n- {kernel: ., pass: forward, op: qkv, times: 12}\n");
  const Outcome o = ingest(kData + "fp32_basic.ncu-rep --rules " + file("r.yaml"));
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_THAT(o.out, AllOf(HasSubstr("\n5 kernels, each measured alone by Nsight Compute, shown as 60 launches\n"),
                           HasSubstr("launches_multiplied x 5")));
  EXPECT_EQ(nlohmann::json::parse(slurp(file("doc.json")))["collection"]["measured_kernels"], 5);
  EXPECT_THAT(stepscope("report " + file("doc.json")).out, HasSubstr("5 kernels, each measured alone by Nsight Compute, shown as 60"));
}

std::string without(std::string text, const std::string& words) {
  for (size_t at = 0; (at = text.find(words, at)) != std::string::npos;) text.replace(at, words.size(), "another__word");
  return text;
}

// "0 kernels" and "run more steps" were said of a report of five kernels.
TEST_F(IngestCli, a_report_without_times_says_which_metric_to_collect) {
  const std::string csv = slurp(kData + "fp32_basic.raw.base.csv");
  write("t.csv", without(csv, "gpu__time_duration"));
  const Outcome o = ingest(file("t.csv"));
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_THAT(o.out, AllOf(HasSubstr("5 kernels, each measured alone"), HasSubstr("severe results_without_time x 5: of 5 results"),
                           HasSubstr("--metrics"), HasSubstr("gpu__time_duration.sum"), Not(HasSubstr("more steps")),
                           Not(HasSubstr("phases_not_traced")), Not(HasSubstr("0 kernels"))));
  EXPECT_THAT(stepscope("ingest --help").out, HasSubstr("1: shown, but something severe is missing (kernels without a time)"));
}

// 11046% of a DRAM ceiling of another GPU was shown without a word.
TEST_F(IngestCli, ceilings_for_a_report_that_names_no_gpu_are_taken_with_a_notice) {
  const std::string profile = SOURCE_DIR "/tests/profiler/data/gpu.profile.json";
  write("t.csv", without(slurp(kData + "mixed_nvtx.raw.base.csv"), "device__attribute_display_name"));
  const Outcome o = ingest(file("t.csv") + " --ceilings " + profile + " --report " + file("t.md"));
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("notice ceilings_of_unknown_gpu: measured on Test GPU; the report names no GPU"));
  EXPECT_THAT(slurp(file("doc.json")), HasSubstr("ceilings_of_unknown_gpu"));
  EXPECT_THAT(ingest(file("t.csv")).out, Not(HasSubstr("ceilings_of_unknown_gpu")));
}

// The revision of the stepscope that read the report is not that of the code that was measured.
TEST_F(IngestCli, a_document_of_a_report_names_no_code) {
  ASSERT_EQ(ingest(kData + "mixed_nvtx.ncu-rep").exit_code, 0);
  const auto run = nlohmann::json::parse(slurp(file("doc.json")))["run"];
  EXPECT_FALSE(run.contains("git_revision")) << run;
  EXPECT_FALSE(run.contains("build_type")) << run;
  auto older = nlohmann::json::parse(slurp(file("doc.json")));
  older["run"]["git_revision"] = "0000000000000000000000000000000000000000";
  older["run"]["build_type"] = "Debug";
  std::ofstream(file("older.json")) << older;
  const Outcome o = stepscope("diff " + file("older.json") + " " + file("doc.json"));
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, Not(HasSubstr("not the same")));
}

TEST_F(IngestCli, prints_the_command_that_collects_what_it_reads) {
  const Outcome o = stepscope("ingest --metrics-command");
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_THAT(o.out, AllOf(HasSubstr("ncu "), HasSubstr("dram__bytes_read.sum"), HasSubstr("gpu__time_duration.sum"), HasSubstr("--nvtx")));
}

TEST_F(IngestCli, bad_numbers_are_refused) {
  EXPECT_EQ(ingest(kData + "fp32_basic.ncu-rep --first -1").exit_code, 2);
  EXPECT_EQ(ingest(kData + "fp32_basic.ncu-rep --first 5").exit_code, 2);
  EXPECT_EQ(ingest(kData + "fp32_basic.ncu-rep --count 0").exit_code, 2);
  EXPECT_EQ(ingest(kData + "fp32_basic.ncu-rep --process 1").exit_code, 2);
  EXPECT_EQ(ingest(kData + "fp32_basic.ncu-rep --ceilings " + kData + "fp32_basic.ncu-rep").exit_code, 2);
}

// A flag that would do nothing, and a range that is not there: both were taken without a word.
TEST_F(IngestCli, a_step_range_that_cannot_be_found_is_refused) {
  const Outcome ncu = ingest(kData + "fp32_basic.ncu-rep --step-range step");
  EXPECT_EQ(ncu.exit_code, 2);
  EXPECT_THAT(ncu.err,
              AllOf(HasSubstr("--step-range step: expected an SQLite export of Nsight Systems; "), HasSubstr("fp32_basic.ncu-rep")));
  if (ingest(kData + "two_steps.sqlite").exit_code == 3) GTEST_SKIP() << "built without SQLite";
  const Outcome absent = ingest(kData + "two_steps.sqlite --step-range stepp");
  EXPECT_EQ(absent.exit_code, 2);
  EXPECT_THAT(absent.err, HasSubstr("two_steps.sqlite: --step-range stepp: no CUDA work was launched in a range of this name"));
}

// Some operations of a step look like a step that lost the others.
TEST_F(IngestCli, steps_of_an_export_are_taken_whole) {
  if (ingest(kData + "two_steps.sqlite").exit_code == 3) GTEST_SKIP() << "built without SQLite";
  for (const char* flags : {" --first 1", " --count 2"}) {
    const Outcome o = ingest(kData + "two_steps.sqlite" + flags);
    EXPECT_EQ(o.exit_code, 2) << flags;
    EXPECT_THAT(o.err, HasSubstr("expected a report without steps; this export has 2 ranges 'step'"));
  }
}

TEST_F(IngestCli, more_results_left_out_than_there_are_blames_the_flag) {
  const Outcome o = ingest(kData + "fp32_basic.ncu-rep --first 100000");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, ::testing::ContainsRegex("stepscope: --first 100000: .*fp32_basic.ncu-rep holds [0-9]+ results"));
}

TEST_F(IngestCli, an_export_of_nsys_is_titled_with_its_own_name) {
  const Outcome o = ingest(kData + "two_steps.sqlite");
  if (o.exit_code == 3) GTEST_SKIP() << "built without SQLite";
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, ::testing::StartsWith("Test GPU | two_steps.sqlite\n"));
}

// The recording names one GPU, and the kernels of the other were rated by the same ceilings.
TEST_F(IngestCli, ceilings_are_refused_for_a_report_of_two_gpus_of_which_one_is_another) {
  std::string text = slurp(kData + "mixed_nvtx.raw.base.csv");
  text.replace(text.find("NVIDIA H200"), 11, "Test GPU");  // of the first kernel, whose GPU the document names
  write("t.csv", text);
  const Outcome o = ingest(file("t.csv") + " --ceilings " SOURCE_DIR "/tests/profiler/data/gpu.profile.json");
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("measured on Test GPU, the report is of NVIDIA H200"));
  EXPECT_EQ(ingest(file("t.csv") + " --count 1 --ceilings " SOURCE_DIR "/tests/profiler/data/gpu.profile.json").exit_code, 0)
      << "what ran on the other is left out";
}

TEST_F(IngestCli, ceilings_of_another_device_are_refused_with_the_file_that_has_them) {
  const std::string profile = SOURCE_DIR "/tests/profiler/data/gpu.profile.json";
  const Outcome o = ingest(kData + "mixed_nvtx.ncu-rep --ceilings " + profile);
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("--ceilings " + profile + ": measured on Test GPU, the report is of NVIDIA H200"));
}

// ---- diff -----------------------------------------------------------------------------------------------------
TEST_F(IngestCli, diff_of_two_documents_sums_and_answers_by_exit_code) {
  ASSERT_EQ(ingest(kData + "mixed_nvtx.ncu-rep --count 6").exit_code, 0);
  fs::rename(file("doc.json"), file("a.json"));
  ASSERT_EQ(ingest(kData + "mixed_nvtx.ncu-rep").exit_code, 0);
  const std::string both = file("a.json") + " " + file("doc.json");
  const Outcome o = stepscope("diff " + both + " -o " + file("d.md") + " -o " + file("d.json"));
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("kernel time"), HasSubstr("\nsum ")));
  EXPECT_THAT(slurp(file("d.md")), HasSubstr("| kernel | where |"));
  const auto j = nlohmann::json::parse(slurp(file("d.json")));
  double sum = 0;
  for (const auto& k : j["kernels"]) sum += k["delta_ns"].get<double>();
  EXPECT_NEAR(sum, j["device"]["b_ns"].get<double>() - j["device"]["a_ns"].get<double>(), 1);
  EXPECT_EQ(stepscope("diff " + both + " --fail-if-slower 1").exit_code, 1);
  EXPECT_EQ(stepscope("diff " + both + " --fail-if-slower 1000").exit_code, 0);
  EXPECT_EQ(stepscope("diff " + file("doc.json") + " " + file("a.json") + " --fail-if-slower 1").exit_code, 0);
}

TEST_F(IngestCli, diff_names_programs_that_are_no_trainers) {
  const std::string measured = SOURCE_DIR "/python/measured/profile_";
  const Outcome o = stepscope("diff " + measured + "eager.json " + measured + "replaced.json --json");
  EXPECT_EQ(o.exit_code, 0) << o.err;
  const auto different = nlohmann::json::parse(o.out)["not_the_same"];
  ASSERT_FALSE(different.empty());
  EXPECT_EQ(different[0]["what"], "program");
  EXPECT_EQ(different[0]["a"], "python3 python/tools/measure.py step --batch 16 --steps 30");
  auto d = nlohmann::json::parse(slurp(measured + "eager_now.json"));
  d["run"]["command"] = "stepscope profile --step-range epoch -- ./another";
  d["collection"]["program"] = "./another";
  std::ofstream(file("b.json")) << d;
  EXPECT_THAT(stepscope("diff " + measured + "eager_now.json " + file("b.json")).out,
              AllOf(HasSubstr("not the same: program"), HasSubstr("-> ./another"), HasSubstr("--step-range epoch")));
}

// A step against kernels alone passed a gate, or failed it by 14,900%.
TEST_F(IngestCli, diff_judges_steps_by_steps_only) {
  ASSERT_EQ(ingest(kData + "mixed_nvtx.ncu-rep").exit_code, 0);
  const std::string kernels = file("doc.json"), steps = SOURCE_DIR "/tests/profiler/data/gpu.profile.json", slower = file("slower.json");
  for (const std::string& both : {kernels + " " + steps, steps + " " + kernels}) {
    const Outcome o = stepscope("diff " + both + " --fail-if-slower 1000000");
    EXPECT_EQ(o.exit_code, 2) << o.out;
    EXPECT_THAT(o.err, AnyOf(HasSubstr("has timed steps, so no step can be compared"), HasSubstr("the two runs cannot be compared")));
  }
  EXPECT_EQ(stepscope("diff " + kernels + " " + steps).exit_code, 0);
  auto d = nlohmann::json::parse(slurp(steps));
  auto& timing = d["timing"]["step_time_ns"];
  for (auto& [name, value] : timing.items())
    if (name != "samples") value = value.get<double>() * 1.01;
  for (auto& sample : timing["samples"]) sample = sample.get<double>() * 1.01;
  for (const char* rate : {"tokens_per_s", "model_flops_per_s", "of_matmul_ceiling_pct"})
    d["timing"][rate] = d["timing"][rate].get<double>() / 1.01;
  std::ofstream(slower) << d;
  EXPECT_EQ(stepscope("diff " + steps + " " + slower + " --fail-if-slower 1").exit_code, 0);  // and not "1.00% slower; allowed is 1%"
  const Outcome judged = stepscope("diff " + steps + " " + slower + " --fail-if-slower 0.9");
  EXPECT_EQ(judged.exit_code, 1);
  EXPECT_THAT(judged.err, HasSubstr("B's median step is 1.00% slower than A's; allowed is 0.9%"));
  d["timing"]["state"] = "warm";
  d["timing"]["states"] = nlohmann::json::array();
  std::ofstream(slower) << d;
  const Outcome states = stepscope("diff " + steps + " " + slower + " --fail-if-slower 50");
  EXPECT_EQ(states.exit_code, 2) << "a cool step and a warm one";
  EXPECT_THAT(states.err, AllOf(HasSubstr("--fail-if-slower: A's timed steps ran on a cool device and B's on a warm one"),
                                HasSubstr("`profile --sustained`")));
  timing = {{"samples", nlohmann::json::array()}};
  std::ofstream(slower) << d;
  auto lost = nlohmann::json::parse(slurp(steps));
  auto& row = lost["missing"].emplace_back(nlohmann::json::object());
  for (const char* word : {"stage", "detail", "advice"}) row[word] = "";
  row["name"] = "records_lost_in_step";
  row["severity"] = "severe";
  row["count"] = 1;
  std::ofstream(file("lost.json")) << lost;
  const Outcome severe = stepscope("diff " + steps + " " + file("lost.json") + " --fail-if-slower 1000");
  EXPECT_EQ(severe.exit_code, 2);
  EXPECT_THAT(severe.err, HasSubstr("--fail-if-slower: B holds a severe records_lost_in_step"));
  const Outcome half = stepscope("diff " + slower + " " + steps + " --fail-if-slower 1");
  EXPECT_EQ(half.exit_code, 2) << half.out;
  EXPECT_THAT(half.err, HasSubstr("only B has timed steps, so no step can be compared"));
}

TEST_F(IngestCli, a_trace_of_kernels_measured_alone_says_that_it_is_empty) {
  const Outcome o = ingest(kData + "mixed_nvtx.ncu-rep --trace " + file("t.trace.json"));
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("t.trace.json shows no launch: each kernel was measured alone"));
}

TEST_F(IngestCli, an_output_that_cannot_be_written_is_blamed_on_the_flag_that_was_typed) {
  ASSERT_EQ(ingest(kData + "fp32_basic.ncu-rep").exit_code, 0);
  const std::string report = "report " + file("doc.json");
  const auto error = [&](const std::string& arguments) {
    const Outcome o = stepscope(arguments);
    EXPECT_EQ(o.exit_code, 2) << arguments;
    return o.err;
  };
  EXPECT_THAT(error(report + " -o /nowhere/x.md"), AllOf(HasSubstr("-o/--out: "), HasSubstr("/nowhere"), Not(HasSubstr("--report"))));
  EXPECT_THAT(error(report + " --report /nowhere/x.csv"), AllOf(HasSubstr("--report: "), Not(HasSubstr("--out"))));
  EXPECT_THAT(error(report + " -o x.txt"), AllOf(HasSubstr("-o/--out 'x.txt'"), HasSubstr(".html")));
  EXPECT_THAT(error(report + " --csv /nowhere/x.csv"), HasSubstr("--csv: "));
  EXPECT_THAT(error(report + " --trace /nowhere/x.json"), HasSubstr("--trace: "));
  EXPECT_THAT(error("diff " + file("doc.json") + " " + file("doc.json") + " -o /nowhere/x.md"), HasSubstr("-o/--out: "));
  const Outcome both = stepscope(report + " -o " + file("a.csv") + " --report " + file("b.md"));
  EXPECT_EQ(both.exit_code, 0) << both.err;
  EXPECT_TRUE(fs::exists(file("a.csv")) && fs::exists(file("b.md")));
  EXPECT_EQ(both.err, "report: " + file("b.md") + "\nrows: " + file("a.csv") + "\n");
  const Outcome diff = stepscope("diff " + file("doc.json") + " " + file("doc.json") + " -o " + file("d.md") + " -o " + file("d.json"));
  EXPECT_EQ(diff.err, "report: " + file("d.md") + "\ndocument: " + file("d.json") + "\n");
}

TEST_F(IngestCli, diff_refuses_what_it_cannot_compare) {
  write("text", "hello");
  EXPECT_EQ(stepscope("diff " + file("text") + " " + file("text")).exit_code, 2);
  EXPECT_EQ(stepscope("diff " + file("absent")).exit_code, 2);
  ASSERT_EQ(ingest(kData + "fp32_basic.ncu-rep").exit_code, 0);
  const std::string same = file("doc.json") + " " + file("doc.json");
  EXPECT_EQ(stepscope("diff " + same + " --by nothing").exit_code, 2);
  EXPECT_EQ(stepscope("diff " + same + " --top 0").exit_code, 2);
  EXPECT_EQ(stepscope("diff " + same + " -o " + file("x.txt")).exit_code, 2);
  EXPECT_EQ(stepscope("diff " + same + " --fail-if-slower -1").exit_code, 2);
}

}  // namespace

// From a run to what people and scripts read: document, page, index, ledger, staleness.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/errors.h"
#include "base/sha256.h"
#include "experiments/gate/source_scan.h"
#include "experiments/verdict/campaign.h"
#include "experiments/verdict/index.h"
#include "experiments/verdict/ledger.h"
#include "experiments/verdict/page.h"
#include "experiments/verdict/stale.h"
#include "experiments/verdict/words.h"
#include "tests/experiments/made_verdict.h"
#include "tests/temporary_folder.h"

namespace experiments {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(verdict_document, says_what_was_saved_with_its_interval_beside_what_was_predicted) {
  const ordered_json d = to_json(document({result(-2, 0.2)}));
  const ordered_json& w = d["workloads"][0];
  EXPECT_EQ(d["schema"], "stepscope.verdict/2");
  EXPECT_EQ(w["procedure"], "in_turns");
  EXPECT_EQ(d["verdict"], "faster");
  EXPECT_NEAR(w["saved_ms"].get<double>(), 0.2, 1e-4);  // 2% of 10 ms
  EXPECT_LT(w["saved_ms_interval"][0].get<double>(), w["saved_ms"].get<double>());
  EXPECT_GT(w["saved_ms_interval"][1].get<double>(), w["saved_ms"].get<double>());
  EXPECT_EQ(w["predicted_saving_ms"], 0.2);
  EXPECT_EQ(w["memory"]["delta_bytes"], -30);
  EXPECT_EQ(w["environment"]["power_capped_blocks"], 12);
  EXPECT_EQ(w["environment"]["throttled_blocks"], 0);
  EXPECT_EQ(w["pairs"].size(), 12u);
}

TEST(verdict_document, gives_a_block_no_reading_that_is_not_its_own) {
  WorkloadResult r = result(-2, 0.2);
  r.log.pairs[0].blocks[1].environment->samples = 0;  // carried over from an earlier block
  r.log.pairs[1].blocks[0].steps = 100;               // 1 s: as long as NVML's power looks back
  r.log.pairs[1].blocks[1].steps = 99;
  const WorkloadSection w = document({r}).workloads[0];
  const BlockRow &sampled = w.pairs[0].blocks[0], &carried = w.pairs[0].blocks[1];
  EXPECT_EQ(sampled.sm_clock_mhz, 1980);
  EXPECT_FALSE(sampled.power_w) << "a block of milliseconds has no power of its own";
  EXPECT_FALSE(carried.sm_clock_mhz || carried.power_w || carried.temperature_c || carried.throttle_reasons || carried.samples);
  EXPECT_EQ(w.pairs[1].blocks[0].power_w, 600);
  EXPECT_FALSE(w.pairs[1].blocks[1].power_w);
  EXPECT_EQ(w.environment.sampled_blocks, 23);
}

TEST(verdict_document, says_the_highest_temperature_whenever_it_was) {
  WorkloadResult r = result(-2, 0.2);
  r.log.pairs[3].blocks[0].environment->temperature_c = 71;
  EXPECT_EQ(document({r}).workloads[0].environment.temperature_c_max, 71);
  r.log.pairs.back().blocks[1].environment->temperature_c = 65;
  EXPECT_EQ(document({r}).workloads[0].environment.temperature_c_first, 60) << "of the first block, not of the last";
}

TEST(verdict_document, has_no_part_of_which_one_half_is_unknown) {
  WorkloadResult r = result(-2, 0.2);
  r.log.b_info = ordered_json::object();
  r.log.environment_absent = "no NVML here";
  const WorkloadSection w = document({r}).workloads[0];
  EXPECT_FALSE(w.memory);
  EXPECT_EQ(w.environment.absent, "no NVML here");
  EXPECT_FALSE(w.environment.blocks) << "blocks whose samples are not believed";
  r.log.a_info = ordered_json::object();
  r.log.b_info = result(-2, 0.2).log.b_info;
  EXPECT_FALSE(document({r}).workloads[0].memory);
}

TEST(verdict_document, of_same_code_is_same_unless_it_was_measured_different) {
  const SameCode same{true, "one program file, 834 identical launches a step"};
  WorkloadResult r = result(0.4, 0.2);
  for (PairRecord& p : r.log.pairs) p.time.log_ratio *= 0.5;
  r.log.decision = decide(pair_values(r.log), {}, 1);
  r.same_code = same;
  EXPECT_EQ(document({r}).verdict, Verdict::same);
  EXPECT_EQ(document({r}).workloads[0].reason, "same_code");
  EXPECT_THAT(document({r}).workloads[0].sentence, HasSubstr("the statistics said"));
  r = result(-2, 0.2);
  r.same_code = same;
  EXPECT_EQ(document({r}).verdict, Verdict::undecided);
  EXPECT_THAT(document({r}).workloads[0].sentence, HasSubstr("and yet measured faster"));
  r.planted_pct = 1;  // a slowdown of the host shows in no launch
  EXPECT_EQ(document({r}).verdict, Verdict::faster);
}

TEST(overall_verdict, is_the_worst_of_the_workloads) {
  EXPECT_EQ(overall({Verdict::faster, Verdict::slower}), Verdict::slower);
  EXPECT_EQ(overall({Verdict::faster, Verdict::undecided}), Verdict::undecided);
  EXPECT_EQ(overall({Verdict::same, Verdict::faster}), Verdict::faster);
  EXPECT_EQ(overall({Verdict::slower, Verdict::invalid}), Verdict::invalid);
  EXPECT_EQ(overall({}), Verdict::undecided);
}

TEST(exit_codes, are_those_of_the_contract) {
  EXPECT_EQ(exit_code_of(Verdict::faster), 0);
  EXPECT_EQ(exit_code_of(Verdict::same), 0);
  EXPECT_EQ(exit_code_of(Verdict::slower), 1);
  EXPECT_EQ(exit_code_of(Verdict::invalid), 1);
  EXPECT_EQ(exit_code_of(Verdict::undecided), 4);
}

TEST(regression, is_a_verdict_that_became_worse) {
  const VerdictDocument faster = document({result(-2, 0.2)}), same = document({result(0, 0.2)}), slower = document({result(2, 0.2)});
  VerdictDocument invalid = slower;
  invalid.verdict = Verdict::invalid;
  EXPECT_TRUE(is_regression(faster, same));
  EXPECT_TRUE(is_regression(same, slower));
  EXPECT_TRUE(is_regression(slower, invalid));
  EXPECT_TRUE(is_regression(std::nullopt, invalid));
  EXPECT_FALSE(is_regression(slower, slower));
  EXPECT_FALSE(is_regression(faster, faster));
  // Nothing to be worse than: a new idea, another device, another question, a run without an answer.
  EXPECT_FALSE(is_regression(std::nullopt, slower));
  VerdictDocument elsewhere = faster, asked_otherwise = faster, alone = faster;
  elsewhere.environment.device = "NVIDIA A100";
  asked_otherwise.experiment->file_sha256 = "0";
  alone.workloads[0].procedure = Procedure::alone;  // another quantity
  for (const VerdictDocument& before : {elsewhere, asked_otherwise, invalid, alone}) EXPECT_FALSE(is_regression(before, slower));
}

// How much slower B is than before is the quotient of its ratios, wherever they lie.
TEST(regression, against_a_frozen_baseline_is_of_the_quotient_of_the_ratios) {
  int worse = 0;
  for (const double ratio : {0.2, 0.4, 0.8, 1.0, 1.25, 2.0})
    for (const double change : {0.99, 1.0, 1.001, 1.002, 1.004, 1.009, 1.05}) {
      VerdictDocument before = document({result(100 * (ratio - 1), 0.2)}), now = document({result(100 * (ratio * change - 1), 0.2)});
      for (VerdictDocument* d : {&before, &now}) {
        d->experiment->baseline = "fp32-v1";
        d->workloads[0].verdict = Verdict::slower;  // a word that changes would be a regression by itself
      }
      const bool expected = change - 1 >= 0.003;
      EXPECT_EQ(is_regression(before, now), expected) << ratio << " x " << change;
      worse += expected;
    }
  EXPECT_EQ(worse, 18);
}

TEST(regression, against_a_frozen_baseline_is_also_a_saving_that_shrank) {
  VerdictDocument before = document({result(-4, 0.2)}), now = document({result(-2, 0.2)}), alike = document({result(-3.9, 0.2)});
  EXPECT_FALSE(is_regression(before, now)) << "A may have become faster";
  for (VerdictDocument* d : {&before, &now, &alike}) d->experiment->baseline = "fp32-v1";
  EXPECT_TRUE(is_regression(before, now));
  EXPECT_FALSE(is_regression(now, before));
  EXPECT_FALSE(is_regression(before, alike)) << "less than the minimum effect";
  VerdictDocument wide = before;
  wide.workloads[0].statistics.ratio_interval = Range{0.95, 0.99};
  EXPECT_FALSE(is_regression(wide, now)) << "its interval reaches over the one of now";
  VerdictDocument without = before;
  without.workloads[0].statistics.ratio_interval.reset();
  EXPECT_FALSE(is_regression(without, now)) << "there is no interval to lie above";
  now.workloads[0].verdict = Verdict::undecided;
  EXPECT_FALSE(is_regression(before, now)) << "undecided is no answer";
}

TEST(page, says_when_the_arms_alone_differ_by_something_else_than_in_turns) {
  VerdictDocument d = document({result(-2, 0.2)});      // of schema 1, which had one process of each arm alone
  d.workloads[0].solo = SoloSection{10e6, 9.82e6, 20};  // -1.8%, within the minimum effect of -2%
  EXPECT_THAT(page_of(d), Not(HasSubstr("One process of each alone gave")));
  d.workloads[0].solo = SoloSection{10e6, 9.93e6, 20};
  EXPECT_THAT(page_of(d), HasSubstr("**One process of each alone gave B / A -0.70%, in turns -2.00%.**"));
}

TEST(verdict_document, is_decided_again_from_its_pairs) {
  VerdictDocument d = document({result(-2, 0.2)});
  const VerdictDocument first = d;
  decide_again(d);
  EXPECT_EQ(to_json(d), to_json(first));
  // What a correction took back is only as good as the campaign that it was made for.
  d.verdict = d.workloads[0].verdict = Verdict::undecided;
  d.workloads[0].reason = "not_after_holm";
  decide_again(d);
  EXPECT_EQ(to_json(d), to_json(first));
  // A verdict that its pairs do not carry.
  d.workloads[0].statistics.ratio = 0.5;
  decide_again(d);
  EXPECT_EQ(to_json(d), to_json(first));
  VerdictDocument cut = document({result(-2, 0.2)});
  cut.workloads[0].statistics.reason = cut.workloads[0].reason = "interrupted";
  cut.workloads[0].verdict = Verdict::undecided;
  const ordered_json kept = to_json(cut)["workloads"];
  decide_again(cut);
  EXPECT_EQ(to_json(cut)["workloads"], kept);
  EXPECT_TRUE(was_cut_short(cut));
  cut.workloads[0].reason = reason::kForeignProcess;
  EXPECT_TRUE(was_cut_short(cut));
  EXPECT_FALSE(was_cut_short(first));
}

TEST(campaign_documents, lose_a_claim_that_holm_does_not_keep) {
  // t = 3.2 with 11 degrees of freedom: p = .0085, a claim alone but not beside another one.
  WorkloadResult weak = result(-0.5, 0.05);
  const Estimate graded = estimate(std::vector<double>{-5.5, -4.5, -3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5}).value();
  for (size_t i = 0; i < 12; ++i)
    weak.log.pairs[i].time.log_ratio = -0.005 * (1 + (static_cast<double>(i) - 5.5) / graded.sd * std::sqrt(12.0) / 3.2);
  weak.log.decision = decide(pair_values(weak.log), {}, 1);
  ASSERT_EQ(weak.log.decision.verdict, Verdict::faster) << weak.log.decision.sentence;
  std::vector<VerdictDocument> both{document({weak}, "weak"), document({weak}, "weak-too"), document({result(-2, 0.2)}, "strong")};
  EXPECT_EQ(correct_campaign(both, {}), (std::vector<bool>{true, true, false}));
  EXPECT_EQ(both[0].verdict, Verdict::undecided);
  EXPECT_EQ(both[0].workloads[0].reason, "not_after_holm");
  EXPECT_EQ(both[2].verdict, Verdict::faster);

  // Claims about another device are another family: neither takes the other's back.
  std::vector<VerdictDocument> two{document({weak}, "weak"), document({weak}, "weak-too"), document({result(-2, 0.2)}, "strong")};
  two[1].environment.device = "CPU, 2 threads";
  EXPECT_EQ(correct_campaign(two, {}), (std::vector<bool>{false, false, false}));
  two.push_back(document({weak}, "weak-as-well"));
  EXPECT_EQ(correct_campaign(two, {}), (std::vector<bool>{true, false, false, true}));
  EXPECT_THAT(two[0].workloads[0].sentence, HasSubstr("3 tests of this campaign"));
  EXPECT_EQ(two[1].verdict, Verdict::faster);

  // What is the same code claims nothing, whatever its statistics said: it does not count.
  WorkloadResult identical = result(-2, 0.2);
  identical.same_code = SameCode{true, "one program file"};
  std::vector<VerdictDocument> one{document({weak}, "weak"), document({identical}, "identical")};
  EXPECT_EQ(correct_campaign(one, {}), (std::vector<bool>{false, false}));
  EXPECT_EQ(one[0].verdict, Verdict::faster);
  // Nor does one whose p leaves Holm's first level to the other.
  identical.log = result(0, 0.2).log;
  one = {document({weak}, "weak"), document({identical}, "identical")};
  ASSERT_GT(one[1].workloads[0].statistics.campaign_p_value.value_or(0), 0.1);
  EXPECT_EQ(correct_campaign(one, {}), (std::vector<bool>{false, false}));
  EXPECT_EQ(one[0].verdict, Verdict::faster);
}

class Files : public ::testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }
  static std::string content(const fs::path& file) {
    std::ifstream in(file);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  std::vector<std::string> stale(const VerdictDocument& verdict, const Experiment& e, const std::string& device) const {
    SourceHashes sources(folder_);
    return stale_reasons(verdict, e, sources, device);
  }
  fs::path folder_ = fresh_test_folder();
};

TEST(verdict_words, what_a_few_pairs_cannot_exclude_is_not_written_with_18_digits) {
  EXPECT_EQ(change_pct(0.9846), "-1.54%");
  EXPECT_EQ(change_pct(11), "+1000.00%");
  EXPECT_EQ(change_pct(2.9e14), "above +1000%");
  EXPECT_EQ(effect_pct(0.3), "0.30%");
  EXPECT_EQ(effect_pct(4e16), "above 1000%");
}

TEST(verdict_words, a_prediction_inside_the_interval_of_the_saving_is_not_off) {
  WorkloadSection w;
  w.saved_ms = -0.010;
  w.predicted_saving_ms = 0.010;
  EXPECT_TRUE(prediction_is_off(w)) << "nothing says how far the measurement may be from the truth";
  w.saved_ms_interval = Range{-0.065, 0.044};
  EXPECT_FALSE(prediction_is_off(w));
  for (const double inside : {-0.065, 0.044}) {
    w.predicted_saving_ms = inside;
    EXPECT_FALSE(prediction_is_off(w)) << inside;
  }
  for (const double outside : {-0.066, 0.045}) {
    w.predicted_saving_ms = outside;
    EXPECT_TRUE(prediction_is_off(w)) << outside;
  }
  w.saved_ms = 0.9;
  w.saved_ms_interval = Range{0.88, 0.92};
  w.predicted_saving_ms = 1;
  EXPECT_FALSE(prediction_is_off(w)) << "by 10%, which is near enough";
}

TEST_F(Files, verdict_is_read_back_and_another_schema_is_refused) {
  const VerdictDocument d = document({result(-2, 0.2)});
  save_verdict(folder_ / "a" / "verdict.json", d);
  EXPECT_EQ(to_json(load_verdict(folder_ / "a" / "verdict.json")), to_json(d));
  put("b/verdict.json", R"({"schema": "stepscope.verdict/3"})");
  EXPECT_THROW(load_verdict(folder_ / "b/verdict.json"), NoVerdict);
  put("b/verdict.json", "{");
  EXPECT_THROW(load_verdict(folder_ / "b/verdict.json"), NoVerdict);
  EXPECT_THROW(load_verdict(folder_ / "nowhere.json"), NoVerdict);
  // The hash of its content would be made by a function that calls itself once a level.
  put("b/verdict.json", R"({"schema": "stepscope.verdict/2", "name": )" + std::string(200'000, '[') + std::string(200'000, ']') + "}");
  EXPECT_THROW(load_verdict(folder_ / "b/verdict.json"), NoVerdict);
}

TEST_F(Files, page_shows_the_answer_and_keeps_what_was_written_by_hand) {
  const fs::path page = folder_ / "idea.md";
  write_page(page, document({result(-2, 0.2)}));
  const std::string first = content(page);
  for (const char* part :
       {"**faster**", "**Question.** Q?", "Predicted saving +0.200 ms, measured +0.200 ms", "| gone | -0.900 |", "| new | +0.850 |",
        "| idle | -0.020 |", "| rest | +0.007 |", "40 checks passed", "0 of 59",
        "of 24 blocks 24 were sampled, 12 of them at the power cap", "| step, at one clock (in turns), ms | 10.000 | 9.800 | -2.00% [",
        "| step, sustained, ms | - | - | not measured |"})
    EXPECT_THAT(first, HasSubstr(part));
  EXPECT_THAT(first, Not(HasSubstr("differ by more than 30%")));
  EXPECT_THAT(first, HasSubstr("prediction not shown to be earlier"));
  const size_t mark = first.find(kHandWritten);
  ASSERT_NE(mark, std::string::npos);
  std::ofstream(page) << first.substr(0, mark) << kHandWritten << "\n\nBecause of the cache.\n";
  write_page(page, document({result(+2, 0.2)}));
  EXPECT_THAT(content(page), HasSubstr("**slower**"));
  EXPECT_THAT(content(page), HasSubstr("Because of the cache."));
  EXPECT_THAT(content(page), HasSubstr("differ by more than 30%"));
}

// Bytes that nobody counted were shown as 0.
TEST_F(Files, page_shows_a_dash_where_a_kernel_of_an_arm_was_not_counted) {
  WorkloadResult r = result(-2, 0.2);
  for (profiler::WaterfallRow& k : r.waterfall->kernels) {
    if (k.kernel == "layernorm") {
      k.a.dram_read_bytes = 100e6;
      k.a.dram_write_bytes = 13e6;
    }
    if (k.kernel == "bias") {
      k.a.dram_read_bytes = 20e6;
      k.a.dram_write_bytes = 0;
    }
  }
  write_page(folder_ / "idea.md", document({r}));
  const std::string page = content(folder_ / "idea.md");
  EXPECT_THAT(page, HasSubstr("| 113 → - |"));
  EXPECT_THAT(page, HasSubstr("| 20 → 0 |"));  // B does not run it
}

TEST_F(Files, index_replaces_only_its_own_table) {
  save_verdict(folder_ / "x" / "verdict.json", document({result(-2, 0.2)}, "x"));
  save_verdict(folder_ / "y" / "verdict.json", document({result(-2, 0.5)}, "y"));
  const std::string table = index_table(read_verdicts(folder_), "../../experiments/studies");
  EXPECT_THAT(table,
              HasSubstr("| [x](../../experiments/studies/x/README.md) | `--variant zero_grad=memset` | d12 B=4 T=1024 tf32 | faster | "
                        "- | -2.00% [-2.01%, -1.99%] | - | - | - | - | +0.200 (not shown to be earlier) | +0.200 | NVIDIA H200 |"));
  EXPECT_THAT(table, HasSubstr("| +0.500 (not shown to be earlier) | +0.200 (off) |"));
  const std::string once = with_index("# Study\n\nBefore.\n", table);
  const std::string twice = with_index(once + "\nAfter.\n", "| new table |\n");
  EXPECT_THAT(twice, HasSubstr("Before."));
  EXPECT_THAT(twice, HasSubstr("After."));
  EXPECT_THAT(twice, HasSubstr("| new table |"));
  EXPECT_THAT(twice, Not(HasSubstr("[x](../")));
  EXPECT_EQ(with_index(twice, "| new table |\n"), twice) << "the same table again changes nothing";
  const std::string block = fmt::format("{}\n| new table |\n{}\n", kIndexBegin, kIndexEnd);
  EXPECT_EQ(with_index("", "| new table |\n"), block);
  EXPECT_EQ(with_index("Before.\n", "| new table |\n"), "Before.\n\n" + block);
  EXPECT_EQ(with_index(block + "After.\n", "| new table |\n"), block + "After.\n");
}

TEST(verdict_document, has_of_every_measure_of_the_audit_the_pair_nearest_to_its_limit) {
  WorkloadResult r = result(-2, 0.2);
  for (size_t i = 0; i < r.log.pairs.size(); ++i)
    r.log.pairs[i].audits = {{'A', {"clock", "own clock", i == 5 ? 0.9 : 0.1, 1, ""}},
                             {'B', {"clock", "own clock", i == 7 ? 0.8 : 0.2, 1, ""}}};
  const auto audit = document({r}).workloads[0].audit;
  ASSERT_TRUE(audit);
  ASSERT_EQ(audit->worst.size(), 2u);
  EXPECT_EQ(audit->worst[0].arm, 'A');
  EXPECT_EQ(audit->worst[0].value, 0.9);
  EXPECT_EQ(audit->worst[1].arm, 'B');
  EXPECT_EQ(audit->worst[1].value, 0.8);
}

TEST_F(Files, ledger_counts_claims_about_identical_code_and_bounds_their_rate) {
  const fs::path ledger = folder_ / "studies" / "aa-ledger.jsonl";
  EXPECT_THAT(summarize(read_ledger(ledger), "").text(), HasSubstr("no comparison"));
  for (int i = 0; i < 59; ++i)
    append_to_ledger(ledger, {"now", "H200", "d12", 0, i == 0 ? Verdict::undecided : Verdict::same, 12, 0, 0.001, "", 0.3});
  append_to_ledger(ledger, {"now", "H200", "d12", 1.0, Verdict::slower, 12, 0.01, 0.001, "", 0.3});  // planted: no false claim
  append_to_ledger(ledger, {"now", "other", "d12", 0, Verdict::slower, 12, 0.01, 0.001, "", 0.3});
  const LedgerSummary s = summarize(read_ledger(ledger), "H200");
  EXPECT_EQ(s.trials, 59);
  EXPECT_EQ(s.false_claims, 0);
  EXPECT_NEAR(s.bound_95_pct, 4.95, 0.005);
  EXPECT_EQ(summarize(read_ledger(ledger), "").trials, 0);
  EXPECT_EQ(summarize(read_ledger(ledger), "other").false_claims, 1);
  // Trials that could not have claimed anything prove nothing.
  append_to_ledger(ledger, {"now", "H200", "d12", 0, Verdict::undecided, 5, 0, 0.001, "", 0.3});
  append_to_ledger(ledger, {"now", "H200", "d12", 0, Verdict::same, 12, 0, 0.001, "", 50});
  EXPECT_EQ(summarize(read_ledger(ledger), "H200").trials, 59);
  // Six pairs and a minimum effect of 1% are enough.
  append_to_ledger(ledger, {"now", "H200", "d12", 0, Verdict::same, 6, 0, 0.001, "", 0.3});
  append_to_ledger(ledger, {"now", "H200", "d12", 0, Verdict::same, 12, 0, 0.001, "", 1});
  EXPECT_EQ(summarize(read_ledger(ledger), "H200").trials, 61);
  // A line of before the member was there is of the minimum effect of then, 0.3%.
  put("old",
      R"({"at":"then","device":"H200","what":"d12","planted_pct":0,"verdict":"same","pairs":12,"log_ratio_mean":0,"log_ratio_sd":1e-3})"
      "\n");
  EXPECT_EQ(summarize(read_ledger(folder_ / "old"), "H200").trials, 1);
  put("broken", "{\"at\": 1}\n");
  const std::string entry =
      R"({"at":"then","device":"H200","what":"d12","planted_pct":0,"verdict":"same","pairs":12,"log_ratio_mean":0,"log_ratio_sd":1e-3})";
  for (const auto& [from, to, message] :
       {std::tuple(R"("pairs":12)", R"("pairs":"12")", R"(broken:2: "pairs" is "12", expected a number)"),
        std::tuple(R"("pairs":12)", R"("pairs":1.5)", R"(broken:2: "pairs" is 1.5, expected a whole number)"),
        std::tuple(R"("at":"then",)", "", R"(broken:2: "at" is missing, expected a text)"),
        std::tuple(R"("verdict":"same")", R"("verdict":"even")", R"(broken:2: "verdict" is "even", expected faster, slower, same, )"),
        std::tuple(R"("what":"d12")", R"("what":d12)", "broken:2: no entry of the ledger: column 37: no JSON from here on"),
        std::tuple(R"("what":"d12")", R"("what":"d12","what":"d24")", "stands twice in one object")}) {
    std::string bad = entry;
    put("broken", entry + "\n" + bad.replace(bad.find(from), std::string(from).size(), to) + "\n");
    try {
      read_ledger(folder_ / "broken");
      ADD_FAILURE() << to;
    } catch (const stepscope::InputError& e) {
      EXPECT_THAT(e.what(), HasSubstr(message));
    }
  }
  put("without-an-end", entry);
  append_to_ledger(folder_ / "without-an-end", {"now", "H200", "d12", 0, Verdict::same, 12, 0, 0.001, "", 0.3});
  EXPECT_EQ(read_ledger(folder_ / "without-an-end").size(), 2u);
}

TEST_F(Files, a_source_newer_than_the_program_is_named) {
  put("fp32/k.cu", "#include \"gpt2/a.h\"\n");
  put("fp32/CMakeLists.txt", "stepscope_stage(fp32_trainer RANK 20 SOURCES k.cu)");
  put("gpt2/a.h", "one");
  put("gpt2/data/tokenizer.h", "two");
  put("bin/stepscope", "program");
  const auto now = fs::last_write_time(folder_ / "bin/stepscope");
  for (const char* file : {"fp32/k.cu", "gpt2/a.h"}) fs::last_write_time(folder_ / file, now - std::chrono::seconds(10));
  for (const char* file : {"fp32/CMakeLists.txt", "gpt2/data/tokenizer.h"})
    fs::last_write_time(folder_ / file, now + std::chrono::seconds(10));
  EXPECT_EQ(newer_source(folder_, "fp32", folder_ / "bin/stepscope"), "");
  fs::last_write_time(folder_ / "gpt2/a.h", now + std::chrono::seconds(10));
  EXPECT_EQ(newer_source(folder_, "fp32", folder_ / "bin/stepscope"), "gpt2/a.h");
}

TEST(Stale, every_shared_kernel_is_a_source_of_a_trainer) {
  const fs::path root = SOURCE_DIR;
  std::vector<std::string> sources = trainer_sources(root, "fp32");
  for (const std::string& file : trainer_sources(root, "mixed")) sources.push_back(file);
  for (const auto& file : fs::directory_iterator(root / "gpt2/ops"))
    if (file.path().extension() != ".cmake") {
      EXPECT_THAT(sources, ::testing::Contains("gpt2/ops/" + file.path().filename().string()));
    }
}

// `train` takes 297 MiB at a time by itself for d12 at B=64, where it took 25 before.
TEST(Stale, where_ranks_exchange_other_pieces_of_gradients) {
  const auto asked = [](const std::string& change, const std::string& gpus, const std::string& common = "") {
    return parse_experiment("question: Q\nhypothesis: H\ntrainer: mixed\n" + common + "change: {" + change +
                                "}\npredicted: {saving_ms: 0.1, arithmetic: x}\nworkloads: [{model: d12, batch_size: 4, seq_len: 1024" +
                                gpus + "}, {model: d12, batch_size: 64, seq_len: 1024" + gpus + "}]\n",
                            "e.yaml");
  };
  const auto section = [](const Experiment& e, size_t i, std::optional<int64_t> a = {}, std::optional<int64_t> b = {}) {
    WorkloadSection w;
    w.workload = e.workloads[i].text();
    w.a.bucket_mib = a;
    w.b.bucket_mib = b;
    return w;
  };
  const Experiment variant = asked("variant: {moments: fp32}", ", gpus: 2");
  EXPECT_EQ(other_buckets(section(variant, 0), variant), "") << "25 as ever";
  EXPECT_EQ(other_buckets(section(variant, 1), variant),
            "d12 B=64 T=1024 2 GPUs: ranks exchanged other pieces of gradients (in arm A 25 MiB, now 297; in arm B 25 MiB, now 297)");
  EXPECT_EQ(other_buckets(section(variant, 1, 297, 297), variant), "");
  EXPECT_THAT(other_buckets(section(variant, 0, 297, 25), variant), HasSubstr("(in arm A 297 MiB, now 25)"));
  const Experiment nccl = asked("flags: {communicator: nccl}", ", gpus: 2");
  EXPECT_THAT(other_buckets(section(nccl, 1), nccl), HasSubstr("(in arm A 25 MiB, now 297)")) << "NCCL's stay";
  const Experiment size = asked("flags: {bucket-mib: 1000}", ", gpus: 2", "common: {flags: {bucket-mib: 25}}\n");
  EXPECT_EQ(other_buckets(section(size, 1), size), "") << "both say it";
  const Experiment gpus = asked("flags: {gpus: 2}", "");
  EXPECT_THAT(other_buckets(section(gpus, 1), gpus), HasSubstr("(in arm B 25 MiB, now 297)"));
  Experiment cpu = variant;
  cpu.trainer = "reference";
  EXPECT_EQ(other_buckets(section(cpu, 1), cpu), "") << "in host memory";
  const Experiment one = asked("variant: {moments: fp32}", "");
  EXPECT_EQ(other_buckets(section(one, 1), one), "");
}

TEST_F(Files, verdict_is_stale_when_code_file_or_device_changed) {
  put("gpt2/a.h", "#include \"gpt2/b.h\"\n");
  put("gpt2/b.h", "int b();");
  put("gpt2/b.cpp", "int b() { return 1; }");
  put("gpt2/data/tokenizer.h", "one");
  put("gpt2/reference/r.cpp", "#include \"gpt2/b.h\"\n");
  put("gpt2/reference/CMakeLists.txt", "stepscope_stage(gpt2_reference RANK 12 SOURCES r.cpp)");
  put("fp32/k.cu", "  #  include \"gpt2/a.h\"\n");
  put("fp32/CMakeLists.txt", "stepscope_stage(fp32_trainer RANK 20 SOURCES k.cu)\nset(CMAKE_CUDA_FLAGS -O3)\n");
  put("mixed/k.cu", "three");
  put("profiler/p.cpp", "four");
  const Experiment e = experiment();
  VerdictDocument d = document({result(-2, 0.2)});
  d.code.a_sources_sha256 = hash_trainer_sources(folder_, "fp32");
  EXPECT_THAT(stale(d, e, "NVIDIA H200"), ::testing::IsEmpty());
  EXPECT_THAT(stale(d, e, ""), ::testing::IsEmpty());  // nothing to run it on here
  EXPECT_THAT(stale(d, e, "NVIDIA B200"), ::testing::ElementsAre(HasSubstr("here is NVIDIA B200")));
  EXPECT_THAT(trainer_sources(folder_, "fp32"), ::testing::ElementsAre("fp32/k.cu", "gpt2/a.h", "gpt2/b.cpp", "gpt2/b.h"));
  EXPECT_THAT(trainer_sources(folder_, "reference"), ::testing::ElementsAre("gpt2/b.cpp", "gpt2/b.h", "gpt2/reference/r.cpp"));
  EXPECT_THAT(trainer_sources(folder_, "mixed"), ::testing::IsEmpty());  // no target of that name
  put("mixed/k.cu", "changed");
  put("profiler/p.cpp", "changed");
  put("gpt2/data/tokenizer.h", "changed");
  EXPECT_THAT(stale(d, e, ""), ::testing::IsEmpty());
  for (const char* file : {"fp32/k.cu", "fp32/CMakeLists.txt", "gpt2/b.cpp", "gpt2/a.h"}) {
    const std::string before = content(folder_ / file);
    put(file, before + (std::string(file).ends_with("txt") ? "set(CMAKE_CUDA_FLAGS -O2)\n" : "int more;"));
    EXPECT_THAT(stale(d, e, ""), ::testing::ElementsAre(HasSubstr("fp32 trainer changed"))) << file;
    put(file, before + "  // a comment is no change");
    EXPECT_THAT(stale(d, e, ""), ::testing::IsEmpty()) << file;
    put(file, before);
  }
  // As verdicts up to 2026-12-01 have it, of whole files.
  VerdictDocument of_bytes = d;
  gpt2::Sha256 hash;
  for (const auto& [file, content] : gate::hash_step_sources(folder_, "fp32", gate::HashOf::bytes))
    hash.update(file + "\n" + content + "\n");
  of_bytes.code.a_sources_sha256 = hash.hex();
  EXPECT_NE(of_bytes.code.a_sources_sha256, d.code.a_sources_sha256);
  EXPECT_THAT(stale(of_bytes, e, ""), ::testing::IsEmpty());
  put("gpt2/b.h", "int b();  // a comment");
  EXPECT_THAT(stale(of_bytes, e, ""), ::testing::ElementsAre(HasSubstr("fp32 trainer changed")));
  put("gpt2/b.h", "int b();");
  Experiment patched = e;
  patched.patch = folder_ / "idea.patch";
  put("idea.patch", "one line");
  d.code.patch_sha256 = gpt2::sha256_text("one line");
  EXPECT_THAT(stale(d, patched, ""), ::testing::IsEmpty());
  put("idea.patch", "another line");
  EXPECT_THAT(stale(d, patched, ""), ::testing::ElementsAre("the patch changed"));
  EXPECT_THAT(stale(d, e, ""), ::testing::ElementsAre("the patch changed"));  // there is none any more
  d.code.patch_sha256.clear();
  Experiment other = e;
  other.file_sha256 = "0";
  EXPECT_THAT(stale(d, other, ""), ::testing::ElementsAre(HasSubstr("experiment file")));
  for (const auto& [verdict, why] : {std::pair(Verdict::invalid, reason::kArmFailed), {Verdict::undecided, reason::kInterrupted}}) {
    VerdictDocument unanswered = d;
    unanswered.workloads[0].verdict = verdict;
    unanswered.workloads[0].reason = why;
    EXPECT_THAT(stale(unanswered, e, ""), ::testing::ElementsAre(fmt::format("the last run did not end in an answer ({})", why)));
  }
  // A tree without the trainer proves nothing.
  d.code.a_sources_sha256.clear();
  fs::remove_all(folder_ / "fp32");
  EXPECT_THAT(stale(d, e, ""), ::testing::ElementsAre(HasSubstr("fp32 trainer changed")));
}

}  // namespace
}  // namespace experiments

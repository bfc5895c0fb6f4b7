// Verdict files that cannot drift: their field list and its page, files of schema 1, edits by hand, and the proof that a prediction is
// older than its measurement.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/errors.h"
#include "base/sha256.h"
#include "experiments/statistics/decision.h"
#include "experiments/verdict/campaign.h"
#include "experiments/verdict/check.h"
#include "experiments/verdict/fields.h"
#include "experiments/verdict/index.h"
#include "experiments/verdict/page.h"
#include "experiments/verdict/prediction.h"
#include "experiments/verdict/words.h"
#include "tests/temporary_folder.h"

namespace experiments {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string content(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string error_of(const Json& json) {
  try {
    verdict_from_json(json, "v.json");
  } catch (const stepscope::InputError& e) {
    return e.what();
  }
  return "";
}

class VerdictFiles : public ::testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }
  void put(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  // Runs git in the folder with a fixed author, at a given time. Returns the new revision.
  std::string commit(const std::string& date) const {
    const std::string git = "cd " + folder_.string() + " && GIT_AUTHOR_DATE=" + date + " GIT_COMMITTER_DATE=" + date +
                            " git -c user.name=n -c user.email=e@x -c init.defaultBranch=m -c commit.gpgsign=false ";
    EXPECT_EQ(
        std::system((git + "init -q . && git add -A && " + git.substr(git.find("GIT_AUTHOR")) + "commit -q --allow-empty -m c").c_str()),
        0);
    EXPECT_EQ(std::system((git + "rev-parse HEAD > ../" + folder_.filename().string() + ".rev").c_str()), 0);
    const fs::path revision = folder_.string() + ".rev";
    std::string out = content(revision);
    fs::remove(revision);
    out.pop_back();
    return out;
  }
  fs::path folder_ = fresh_test_folder();
};

TEST(verdict_fields, page_of_the_document_is_not_stale) {
  const fs::path page = SOURCE_DIR "/docs/verdict-document.md";
  if (std::getenv("STEPSCOPE_WRITE_GOLDEN")) std::ofstream(page) << verdict_schema_markdown();
  EXPECT_TRUE(content(page) == verdict_schema_markdown()) << "run this test once with STEPSCOPE_WRITE_GOLDEN=1 and commit the page";
}

TEST(verdict_fields, every_field_says_what_it_means) {
  Sections sections;
  describe_row<VerdictDocument>("", sections);
  EXPECT_GT(sections.size(), 25u);
  for (const SectionText& s : sections)
    for (const FieldText& f : s.fields) {
      EXPECT_FALSE(f.help.empty()) << s.path << "." << f.name;
      EXPECT_FALSE(f.help.starts_with("of ")) << s.path << "." << f.name;
      // A number with a unit in its name has that unit.
      for (const auto& [suffix, unit] :
           {std::pair("_ns", "ns"), std::pair("_mhz", "MHz"), std::pair("_pct", "%"), std::pair("_bytes", "bytes")}) {
        if (!f.name.ends_with(suffix)) continue;
        EXPECT_EQ(f.unit, unit) << s.path << "." << f.name;
      }
    }
}

TEST(verdict_fields, the_committed_verdicts_are_as_they_were_written_and_say_what_their_measurements_say) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(SOURCE_DIR "/experiments/studies")) {
    const fs::path file = entry.path() / "verdict.json";
    if (!fs::exists(file)) continue;
    ++files;
    const VerdictDocument d = load_verdict(file);
    EXPECT_EQ(d.schema, kVerdictSchema) << file << ": `stepscope experiment index` writes it anew";
    EXPECT_THAT(contradictions(d), IsEmpty()) << file;
    EXPECT_TRUE(content(entry.path() / kPageName).starts_with(page_of(d)))
        << file << ": its page is another one; run `stepscope experiment index`";
  }
  EXPECT_GE(files, 11);
  const std::string readme = content(SOURCE_DIR "/docs/study/README.md");
  EXPECT_EQ(with_index(readme, index_table(read_verdicts(SOURCE_DIR "/experiments/studies"), "../../experiments/studies")), readme)
      << "run `stepscope experiment index`";
}

// A verdict of schema 1, cut down to a pair of four blocks, one of which has a sample of its own if `sampled`.
Json first_schema(bool sampled) {
  Json blocks = Json::array();
  for (const char* arm : {"A", "B", "B", "A"})
    blocks.push_back({{"arm", arm},
                      {"quad", 0},
                      {"at_s", 1.0},
                      {"step_ns", arm[0] == 'A' ? 1e7 : 0.98e7},
                      {"steps", 2},
                      {"loss", 7.0},
                      {"sm_clock_mhz", 1830.0},
                      {"power_w", 698.0},
                      {"temperature_c", 49.0},
                      {"throttle_reasons", 4}});
  if (sampled)
    for (Json& b : blocks) b["samples"] = 1;
  Json pairs = Json::array();
  for (int i = 0; i < 12; ++i) {
    pairs.push_back({{"log_ratio", std::log(0.98)}, {"started_first", "A"}, {"stationary", true}, {"seconds", 5.0}, {"blocks", blocks}});
    if (sampled) pairs.back()["log_ratio_cycles"] = -0.02;
  }
  const Json statistics{
      {"verdict", "faster"},   {"reason", "interval_excludes_zero"}, {"sentence", "s"}, {"look", 1}, {"ratio", 0.98}, {"alpha", 0.02},
      {"process_modes", false}};
  const Json arm{
      {"command", {"stepscope", "arm"}}, {"gate", {{"checked", true}, {"passed", true}, {"sentence", "g"}}}, {"launches_absent", "none"}};
  Json w{{"workload", "d12 B=4 T=1024"},
         {"model", "d12"},
         {"batch_size", 4},
         {"seq_len", 1024},
         {"verdict", "faster"},
         {"reason", "interval_excludes_zero"},
         {"sentence", "s"},
         {"statistics", statistics},
         {"statistics_in_cycles", statistics},
         {"a_step_ns", 1e7},
         {"b_step_ns", 0.98e7},
         {"seed", 7},
         {"a", arm},
         {"b", arm},
         {"waterfall_absent", "none"},
         {"environment",
          {{"blocks", 48},
           {"sampled_blocks", 48},
           {"power_capped_blocks", 48},
           {"throttled_blocks", 0},
           {"temperature_c_first", 49.0},
           {"temperature_c_max", 53.0},
           {"power_w_max", 703.0},
           {"a_sm_clock_mhz_median", 1860.0},
           {"b_sm_clock_mhz_median", 1860.0}}},
         {"pairs", pairs}};
  return {{"schema", "stepscope.verdict/1"},
          {"name", "old"},
          {"at", "2026-11-21T08:06:54Z"},
          {"verdict", "faster"},
          {"command", "stepscope experiment run old"},
          {"code", {{"git_revision", "0"}}},
          {"environment", {{"device", "NVIDIA H200"}}},
          {"thresholds",
           {{"looks", {{{"pairs", 12}, {"alpha", 0.02}, {"equivalence_alpha", 0.05}}}},
            {"alpha", 0.02},
            {"minimum_effect_pct", 0.3},
            {"equivalence_bound_pct", 0.5},
            {"power", 0.8}}},
          {"ledger", {{"trials", 1}, {"false_claims", 0}, {"bound_95_pct", 95.0}, {"sentence", "l"}}},
          {"workloads", {w}}};
}

TEST(first_schema, is_read_as_a_ratio_at_one_clock) {
  const VerdictDocument d = verdict_from_json(first_schema(false), "old.json");
  const WorkloadSection& w = d.workloads[0];
  EXPECT_EQ(w.procedure, Procedure::in_turns);
  EXPECT_EQ(estimand(w), "at one clock (in turns)");
  EXPECT_EQ(w.sustained_statistics(), nullptr);
  EXPECT_EQ(w.verdict, Verdict::faster);
  EXPECT_THAT(page_of(d), HasSubstr("this is the ratio at one clock"));
  Json program = first_schema(false);
  program["workloads"][0]["a"]["said"] = {{"command", {"baseline"}}};
  EXPECT_EQ(estimand(verdict_from_json(program, "old.json").workloads[0]), "in turns, whole programs (a burst)");
}

TEST(first_schema, loses_what_its_blocks_had_borrowed_and_keeps_what_was_sampled_in_them) {
  const WorkloadSection borrowed = verdict_from_json(first_schema(false), "old.json").workloads[0];
  const BlockRow& b = borrowed.pairs[0].blocks[0];
  EXPECT_FALSE(b.sm_clock_mhz || b.power_w || b.temperature_c || b.throttle_reasons);
  EXPECT_FALSE(borrowed.statistics_in_cycles || borrowed.environment.power_capped_blocks || borrowed.environment.a_sm_clock_mhz_median);
  EXPECT_EQ(borrowed.environment.sampled_blocks, 0);
  EXPECT_EQ(borrowed.environment.power_w_max, 703.0);
  const WorkloadSection sampled = verdict_from_json(first_schema(true), "old.json").workloads[0];
  EXPECT_EQ(sampled.pairs[0].blocks[0].sm_clock_mhz, 1830.0);
  EXPECT_FALSE(sampled.pairs[0].blocks[0].power_w) << "a block of 20 ms has no power of its own";
  EXPECT_EQ(sampled.pairs[0].log_ratio_cycles, -0.02);
  EXPECT_TRUE(sampled.statistics_in_cycles);
  EXPECT_EQ(sampled.environment.power_capped_blocks, 48);
}

TEST(first_schema, is_written_as_the_second_and_read_back_unchanged) {
  VerdictDocument d = verdict_from_json(first_schema(true), "old.json");
  decide_again(d);
  const Json written = to_json(d);
  EXPECT_EQ(written["schema"], kVerdictSchema);
  EXPECT_EQ(to_json(verdict_from_json(written, "new.json")), written);
  EXPECT_THAT(contradictions(verdict_from_json(written, "new.json")), IsEmpty());
}

TEST(first_schema, without_a_part_is_refused_with_a_sentence) {
  for (const char* key : {"workloads", "thresholds", "ledger", "name"}) {
    Json d = first_schema(false);
    d.erase(key);
    EXPECT_THAT(error_of(d), HasSubstr("v.json")) << key;
    EXPECT_THAT(error_of(d), HasSubstr(key)) << key;
  }
  Json d = first_schema(false);
  d["workloads"][0]["pairs"][3]["log_ratio"] = "fast";
  EXPECT_EQ(error_of(d), "v.json: workloads[0].pairs[3].log_ratio: expected a number");
  d = first_schema(false);
  d["workloads"][0]["pairs"][3]["blocks"][0]["steps"] = uint64_t{1} << 63;  // was read as -2^63
  EXPECT_EQ(error_of(d), "v.json: workloads[0].pairs[3].blocks[0].steps: expected an integer below 2^63");
  d = first_schema(false);
  d["workloads"][0]["speed"] = 1;
  EXPECT_EQ(error_of(d), "v.json: workloads[0]: unknown field 'speed'");
  d = first_schema(false);
  d["verdict"] = "good";
  EXPECT_EQ(error_of(d), "v.json: verdict: unknown word 'good'");
}

VerdictDocument decided(VerdictDocument d = verdict_from_json(first_schema(true), "old.json")) {
  decide_again(d);
  d.workloads[0].saved_ms = -std::expm1(*d.workloads[0].statistics.log_ratio_mean) * 10;
  return d;
}

// Its third look reaches the level of 0.0085 with a p value that times three looks is above the 0.02 of all looks together.
VerdictDocument decided_at_the_third_look() {
  VerdictDocument d = verdict_from_json(first_schema(true), "old.json");
  d.thresholds.looks.clear();
  for (const Look& l : sequential_looks()) d.thresholds.looks.push_back({l.pairs, l.alpha, l.equivalence_alpha, l.sign_flip_alpha});
  WorkloadSection& w = d.workloads[0];
  w.statistics.look = 3;
  for (PairRow& p : w.pairs) {
    p.log_ratio = &p == &w.pairs[0] ? -0.003 * 6.31 : -0.003;
    for (BlockRow& b : p.blocks)
      if (b.arm == 'B') b.step_ns = 1e7 * std::exp(p.log_ratio);
  }
  w.b_step_ns = 1e7 * std::exp(-0.003);
  return decided(std::move(d));
}

TEST(says_the_same, forgives_the_last_digits_of_numbers_and_nothing_else) {
  const Json good = to_json(decided());
  const auto with = [&](const char* pointer, const Json& value) {
    Json d = good;
    d[Json::json_pointer(pointer)] = value;
    return d;
  };
  const double ratio = good["workloads"][0]["statistics"]["ratio"];
  const char* const at = "/workloads/0/statistics/ratio";
  EXPECT_TRUE(says_the_same(good, good));
  EXPECT_TRUE(says_the_same(good, with(at, ratio * (1 + 1e-12))));
  EXPECT_TRUE(says_the_same(good, with("/content_sha256", "another")));
  EXPECT_FALSE(says_the_same(good, with(at, ratio * (1 + 1e-7))));
  EXPECT_FALSE(says_the_same(good, with(at, -ratio)));
  EXPECT_FALSE(says_the_same(good, with(at, nullptr)));
  EXPECT_FALSE(says_the_same(good, with("/workloads/0/statistics/look", 2)));
  EXPECT_FALSE(says_the_same(good, with("/workloads/0/sentence", "another")));
  EXPECT_FALSE(says_the_same(good, with("/workloads/0/b/new", 1)));
  EXPECT_FALSE(says_the_same(with("/workloads/0/b/new", 1), with("/workloads/0/b/other", 1)));
  EXPECT_FALSE(says_the_same(good, with("/workloads/1", good["workloads"][0])));
}

// A long text stands on one line; what holds objects does not, however deep they lie.
TEST(verdict_text, breaks_lines_between_objects_and_not_inside_rows) {
  const std::string text(700, 'x');
  const Json row{{"curve", {1, 2}}, {"text", text}};
  const Json nested{{"inner", {{"curve", 1}}}, {"text", text}};
  EXPECT_EQ(verdict_text({{"row", row}}), "{\n \"row\": {\"curve\":[1,2],\"text\":\"" + text + "\"}\n}");
  EXPECT_EQ(verdict_text({{"nested", nested}}), "{\n \"nested\": {\n  \"inner\": {\"curve\":1},\n  \"text\": \"" + text + "\"\n }\n}");
}

TEST(edited_by_hand, a_changed_number_is_refused_when_the_file_is_read) {
  const Json good = to_json(decided());
  ASSERT_EQ(error_of(good), "");
  Json d = good;
  d["workloads"][0]["statistics"]["ratio"] = 0.97;
  EXPECT_THAT(error_of(d), HasSubstr("changed by hand"));
  d = good;
  d["code"]["a_sources_sha256"] = std::string(64, '0');
  EXPECT_THAT(error_of(d), HasSubstr("changed by hand"));
  d = good;
  d["content_sha256"] = std::string(64, '0');
  EXPECT_THAT(error_of(d), HasSubstr("changed by hand"));
  d = good;
  d.erase("content_sha256");
  EXPECT_THAT(error_of(d), HasSubstr("changed by hand"));
}

// Each of these ended `experiment check` with a sentence of Boost or of std::vector that named no file, and the files behind it were not read.
TEST(edited_by_hand, a_plan_with_which_nothing_can_be_decided_is_refused_when_the_file_is_read) {
  const auto error_with = [](const char* pointer, const Json& value) {
    Json d = first_schema(false);
    d[Json::json_pointer(pointer)] = value;
    return error_of(d);
  };
  EXPECT_EQ(error_with("/workloads/0/statistics/look", 2),
            "v.json: workloads[0].statistics.look: found 2, expected one of thresholds.looks, from 1");
  EXPECT_THAT(error_with("/workloads/0/statistics/look", 0), HasSubstr("statistics.look: found 0"));
  EXPECT_THAT(error_with("/workloads/0/statistics/look", -1), HasSubstr("statistics.look: found -1"));
  EXPECT_EQ(error_with("/thresholds/looks/0/alpha", 0.0), "v.json: thresholds.looks[0].alpha: expected a number above 0 and below 1");
  EXPECT_THAT(error_with("/thresholds/looks/0/equivalence_alpha", 1.5), HasSubstr("looks[0].equivalence_alpha: expected"));
  EXPECT_THAT(error_with("/thresholds/looks/0/sign_flip_alpha", -0.1), HasSubstr("looks[0].sign_flip_alpha: expected"));
  EXPECT_THAT(error_with("/thresholds/looks/0/pairs", -12), HasSubstr("looks[0].pairs: expected at least 2"));
  EXPECT_THAT(error_with("/thresholds/alpha", 2), HasSubstr("thresholds.alpha: expected"));
  EXPECT_THAT(error_with("/thresholds/power", 1.0), HasSubstr("thresholds.power: expected"));
  EXPECT_THAT(error_with("/thresholds/minimum_effect_pct", -200), HasSubstr("minimum_effect_pct: expected 0 or more"));
}

TEST(edited_by_hand, a_number_that_those_below_it_do_not_carry_is_found_whatever_the_hash_says) {
  ASSERT_THAT(contradictions(decided()), IsEmpty());
  const auto found = [](void (*edit)(VerdictDocument&)) {
    VerdictDocument d = decided();
    edit(d);
    const auto sentences = contradictions(verdict_from_json(to_json(d), "x"));
    return sentences.empty() ? std::string() : sentences[0];
  };
  EXPECT_THAT(found([](VerdictDocument& d) { d.workloads[0].statistics.ratio = 0.9; }),
              HasSubstr("statistics.ratio is not what its pairs say"));
  EXPECT_THAT(found([](VerdictDocument& d) { *d.workloads[0].statistics.ratio += 1e-6; }), HasSubstr("statistics.ratio"));
  EXPECT_THAT(found([](VerdictDocument& d) { d.workloads[0].statistics.ratio_interval = Range{0.9, 0.99}; }), HasSubstr("ratio_interval"));
  EXPECT_THAT(found([](VerdictDocument& d) { (*d.workloads[0].statistics.ratio_interval)[1] += 1e-6; }), HasSubstr("ratio_interval"));
  EXPECT_THAT(found([](VerdictDocument& d) { d.workloads[0].pairs[2].log_ratio = -0.5; }), HasSubstr("pairs[2].log_ratio"));
  EXPECT_THAT(found([](VerdictDocument& d) { d.workloads[0].pairs[2].blocks[1].step_ns = 5e6; }), HasSubstr("pairs[2].log_ratio"));
  EXPECT_THAT(found([](VerdictDocument& d) { d.workloads[0].saved_ms = 3; }), HasSubstr("saved_ms"));
  EXPECT_THAT(found([](VerdictDocument& d) { d.workloads[0].verdict = Verdict::same; }), HasSubstr("its verdict is same"));
  EXPECT_THAT(found([](VerdictDocument& d) { *d.workloads[0].b_step_ns *= 0.99; }), HasSubstr("b_step_ns is not what its blocks say"));
  EXPECT_THAT(found([](VerdictDocument& d) { d.workloads[0].saved_ms_interval = Range{0.1, 0.2}; }), HasSubstr("saved_ms_interval is not"));
  EXPECT_THAT(found([](VerdictDocument& d) { d.workloads[0].b.gate.passed = false; }),
              HasSubstr("its verdict is faster, and arm B did not pass the gate"));
  EXPECT_THAT(found([](VerdictDocument& d) { *d.workloads[0].statistics.log_ratio_sd += 0.5; }),
              HasSubstr("workloads[0].statistics.log_ratio_sd is "));
  EXPECT_THAT(found([](VerdictDocument& d) { d.workloads[0].sentence = "B / A = -9%"; }),
              HasSubstr("workloads[0].sentence is \"B / A = -9%\", its measurements make it \"B / A = "));
  EXPECT_THAT(found([](VerdictDocument& d) { d.workloads[0].statistics.p_value.reset(); }), HasSubstr("p_value"));
  EXPECT_THAT(found([](VerdictDocument& d) { d.workloads[0].statistics.minimum_detectable_effect_pct.reset(); }),
              HasSubstr("workloads[0].statistics.minimum_detectable_effect_pct is left out"));
  EXPECT_THAT(found([](VerdictDocument& d) { d.verdict = Verdict::same; }), HasSubstr("its workloads make it faster"));
  EXPECT_THAT(found([](VerdictDocument& d) { d.thresholds.equivalence_bound_pct = 9; }),
              HasSubstr("thresholds.equivalence_bound_pct is 9, its minimum_effect_pct makes it 0.5"));
  // What gave no answer claims none.
  EXPECT_THAT(found([](VerdictDocument& d) { d.workloads[0].statistics.verdict = Verdict::invalid; }),
              HasSubstr("its verdict is faster, its statistics make it invalid"));
  EXPECT_THAT(found([](VerdictDocument& d) { d.workloads[0].statistics.reason = reason::kInterrupted; }),
              HasSubstr("statistics.verdict is faster, and its reason is interrupted"));
  EXPECT_THAT(found([](VerdictDocument& d) {
                d.workloads[0].statistics.reason = reason::kInterrupted;
                d.workloads[0].statistics.verdict = Verdict::undecided;
              }),
              HasSubstr("its verdict is faster, its statistics make it undecided"));
}

// Until 2026-11-30 what is now at most the level of all looks was the smallest p times the looks: those verdicts were measured and stand.
TEST(edited_by_hand, a_campaigns_p_of_an_older_verdict_of_several_looks_is_no_edit) {
  const VerdictDocument now = decided_at_the_third_look();
  const Statistics& s = now.workloads[0].statistics;
  ASSERT_EQ(now.verdict, Verdict::faster) << s.sentence;
  ASSERT_EQ(s.campaign_p_value, 0.02);
  ASSERT_GT(3 * *s.p_value, 0.0222);
  ASSERT_THAT(contradictions(now), IsEmpty());
  const auto with = [](VerdictDocument d, double p) {
    d.workloads[0].statistics.campaign_p_value = p;
    return contradictions(d);
  };
  EXPECT_THAT(with(now, 3 * *s.p_value), IsEmpty());
  // No version had a number below the level there, nor one above 1.
  EXPECT_THAT(with(now, 0.019), ElementsAre(HasSubstr("campaign_p_value is 0.019, its measurements make it 0.02")));
  EXPECT_THAT(with(now, 1.5), ElementsAre(HasSubstr("campaign_p_value is 1.5, its measurements make it 0.02")));
  // Where the measurements do not make it the level, every version had the same.
  EXPECT_THAT(with(decided(), 0.03), ElementsAre(HasSubstr("campaign_p_value is 0.03")));
}

TEST_F(VerdictFiles, a_prediction_is_earlier_only_when_the_measured_revision_holds_it) {
  const std::string words = "predicted: 1\n", sha256 = gpt2::sha256_text(words);
  put("experiments/studies/x.yaml", words);
  const std::string first = commit("2026-11-20T10:00:00Z");
  put("code.cpp", "int x;");
  const std::string second = commit("2026-11-20T11:00:00Z");
  const fs::path file = folder_ / "experiments/studies/x.yaml";
  const auto prove = [&](const std::string& hash, const std::string& revision, const std::string& at) {
    return prove_prediction(folder_, file, hash, revision, at);
  };
  const PredictionProof good = prove(sha256, second, "2026-11-20T12:00:00Z");
  EXPECT_TRUE(good.shown_earlier) << good.sentence;
  EXPECT_EQ(good.commit, first);
  EXPECT_TRUE(prove(sha256, second + "-dirty", "2026-11-20T12:00:00Z").shown_earlier) << "what the revision names was committed";
  EXPECT_TRUE(prove(sha256, second, "2026-11-20T10:00:00Z").shown_earlier) << "times are of whole seconds";
  // Measured before it was committed.
  EXPECT_THAT(prove(sha256, second, "2026-11-20T09:00:00Z").sentence, HasSubstr("is not older than the measurement"));
  // A prediction that came after the measured revision, as one made from the result does.
  put("experiments/studies/x.yaml", "predicted: 2\n");
  const std::string third = commit("2026-11-20T13:00:00Z");
  const std::string later = gpt2::sha256_text("predicted: 2\n");
  const PredictionProof bad = prove(later, second, "2026-11-20T14:00:00Z");
  EXPECT_FALSE(bad.shown_earlier);
  EXPECT_THAT(bad.sentence, HasSubstr("prediction not shown to be earlier: no commit up to the measured revision"));
  EXPECT_TRUE(prove(later, third, "2026-11-20T14:00:00Z").shown_earlier);
  // Rounds of an earlier command count too, so that one's revision must hold it.
  VerdictDocument d = decided();
  d.name = "x";
  d.at = "2026-11-20T14:00:00Z";
  d.code.git_revision = third;
  d.experiment.emplace().file_sha256 = later;
  EXPECT_TRUE(renew_prediction_proof(d, folder_, folder_ / "experiments/studies"));
  EXPECT_TRUE(d.experiment->prediction->shown_earlier);
  d.code.earlier_revisions = {second};
  EXPECT_TRUE(renew_prediction_proof(d, folder_, folder_ / "experiments/studies"));
  EXPECT_FALSE(d.experiment->prediction->shown_earlier);
  // The file of the measurement need not be that of today.
  EXPECT_EQ(prove(sha256, third, "2026-11-20T14:00:00Z").commit, first);
  EXPECT_FALSE(prove(gpt2::sha256_text("never committed"), third, "2026-11-20T14:00:00Z").shown_earlier);
  EXPECT_THAT(prove(sha256, "unknown", "2026-11-20T14:00:00Z").sentence, HasSubstr("no history here"));
  EXPECT_THAT(prove(sha256, std::string(40, '0'), "2026-11-20T14:00:00Z").sentence, HasSubstr("no history here"));
}

TEST_F(VerdictFiles, a_prediction_whose_lines_end_as_on_windows_is_shown_too) {
  const std::string words = "predicted:\r\n  saving_ms: 1\r\n";
  put("x.yaml", words);
  const std::string revision = commit("2026-11-20T10:00:00Z");
  const PredictionProof proof = prove_prediction(folder_, folder_ / "x.yaml", gpt2::sha256_text(words), revision, "2026-11-20T14:00:00Z");
  EXPECT_TRUE(proof.shown_earlier) << proof.sentence;
}

TEST_F(VerdictFiles, without_git_nothing_is_shown_and_a_recorded_proof_stays) {
  put("x.yaml", "predicted: 1\n");
  const PredictionProof none =
      prove_prediction(folder_, folder_ / "x.yaml", gpt2::sha256_text("predicted: 1\n"), std::string(40, 'a'), "2026-11-20T14:00:00Z");
  EXPECT_FALSE(none.shown_earlier);
  EXPECT_THAT(none.sentence, HasSubstr("prediction not shown to be earlier"));
  VerdictDocument d = decided();
  d.experiment.emplace();
  d.experiment->prediction = PredictionProof{true, "shown on another machine", "c", "then"};
  EXPECT_FALSE(renew_prediction_proof(d, folder_, folder_));
  EXPECT_EQ(d.experiment->prediction->sentence, "shown on another machine");
  d.experiment->prediction.reset();
  EXPECT_TRUE(renew_prediction_proof(d, folder_, folder_));
  EXPECT_FALSE(d.experiment->prediction->shown_earlier);
}

}  // namespace
}  // namespace experiments

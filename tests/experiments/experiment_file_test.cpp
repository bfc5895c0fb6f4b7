#include "experiments/plan/experiment_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/errors.h"
#include "tests/temporary_folder.h"

namespace experiments {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kGood = R"(question: Is it faster?
hypothesis: One pass less over memory.
trainer: fp32
change:
  variant: {zero_grad: memset}
predicted:
  saving_ms: 0.4
  arithmetic: 1 GB / 2.5 TB/s
workloads:
  - {model: d12, batch_size: 4, seq_len: 1024, matmul: tf32}
  - {model: d24, batch_size: 2, seq_len: 512, saving_ms: 1.5}
)";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), by);
}

std::string error_of(const std::string& yaml) {
  try {
    parse_experiment(yaml, "x.yaml");
  } catch (const stepscope::InputError& e) {
    return e.what();
  }
  return "";
}

TEST(experiment_file, says_question_change_prediction_and_workloads) {
  const Experiment e = parse_experiment(kGood, "studies/fp32-idea.yaml");
  EXPECT_EQ(e.name, "fp32-idea");
  EXPECT_EQ(e.change_text, "--variant zero_grad=memset");
  EXPECT_EQ(e.workloads[0].text(), "d12 B=4 T=1024 tf32");
  EXPECT_EQ(*e.workloads[0].predicted_saving_ms, 0.4);
  EXPECT_EQ(*e.workloads[1].predicted_saving_ms, 1.5);
  EXPECT_EQ(e.minimum_effect_pct, 0.3);
}

TEST(experiment_file, gives_only_arm_b_the_change) {
  const Experiment e = parse_experiment(kGood + "common: {variant: {adamw: per_tensor}, flags: {no-shuffle: true}}\n", "x.yaml");
  const std::vector<std::string> a = trainer_arguments(e, e.workloads[0], 'A'), b = trainer_arguments(e, e.workloads[0], 'B');
  const std::vector<std::string> common{"--trainer", "fp32", "--model",      "d12",       "--batch-size",    "4", "--seq-len", "1024",
                                        "--matmul",  "tf32", "--no-shuffle", "--variant", "adamw=per_tensor"};
  EXPECT_EQ(a, common);
  EXPECT_EQ(std::vector<std::string>(b.begin(), b.begin() + static_cast<std::ptrdiff_t>(common.size())), common);
  EXPECT_EQ(b.back(), "zero_grad=memset");
}

TEST(experiment_file, a_change_of_a_common_flag_or_variant_takes_its_place) {
  const Experiment e =
      parse_experiment(replaced(kGood, "variant: {zero_grad: memset}", "variant: {zero_grad: memset}\n  flags: {clip: 7}") +
                           "common: {variant: {zero_grad: overwrite}, flags: {clip: 5}}\ncompound: true\n",
                       "x.yaml");
  const std::vector<std::string> b = trainer_arguments(e, e.workloads[0], 'B');
  EXPECT_THAT(b, ::testing::Contains("7"));
  EXPECT_THAT(b, ::testing::Not(::testing::Contains("5")));
  EXPECT_THAT(b, ::testing::Contains("zero_grad=memset"));
  EXPECT_THAT(b, ::testing::Not(::testing::Contains("zero_grad=overwrite")));
}

TEST(experiment_file, a_patch_beside_it_is_a_change_of_arm_b) {
  const std::filesystem::path folder = fresh_test_folder(), file = folder / "idea.yaml";
  std::ofstream(folder / "idea.patch") << "x";
  const std::string patched = replaced(kGood, "variant: {zero_grad: memset}", "patch: idea.patch");
  const Experiment e = parse_experiment(patched, file);
  EXPECT_EQ(e.change_text, "patch idea.patch");
  EXPECT_EQ(sources_of(e, 'B').patch, folder / "idea.patch");
  EXPECT_TRUE(sources_of(e, 'A').here());
  EXPECT_EQ(trainer_arguments(e, e.workloads[0], 'A'), trainer_arguments(e, e.workloads[0], 'B'));
  const auto refusal = [&](const std::string& yaml) -> std::string {
    try {
      parse_experiment(yaml, file);
    } catch (const stepscope::InputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(replaced(patched, "idea.patch", "other.patch")), HasSubstr("idea.yaml:5: change.patch: there is no file"));
  EXPECT_THAT(refusal(replaced(patched, "idea.patch", "../idea.patch")), HasSubstr("expected the name of a file beside this one"));
  EXPECT_THAT(refusal(patched + "baseline: fp32-v1\ncompound: true\n"), HasSubstr("expected `baseline: defaults`"));
  EXPECT_THAT(refusal(replaced(patched, "idea.patch", "idea.patch\n  flags: {trainer: mixed}")), HasSubstr("no flag 'trainer'"));
  const std::string both = replaced(patched, "idea.patch", "idea.patch\n  variant: {op: new}");
  EXPECT_THAT(refusal(both), HasSubstr("2 changes (patch idea.patch, --variant op=new)"));
  EXPECT_EQ(refusal(both + "compound: true\n"), "");
  EXPECT_THAT(refusal(kGood + "common: {patch: idea.patch}\n"), HasSubstr("common: unknown key 'patch'"));
  std::filesystem::remove_all(folder);
}

TEST(experiment_file, a_minimum_effect_is_a_percentage_up_to_50) {
  EXPECT_EQ(error_of(kGood + "minimum_effect_pct: 50\n"), "");
  EXPECT_THAT(error_of(kGood + "minimum_effect_pct: 51\n"), ::testing::HasSubstr("expected 0.01 to 50"));
  EXPECT_THAT(error_of(kGood + "minimum_effect_pct: 0.009\n"), ::testing::HasSubstr("expected 0.01 to 50"));
}

// With "--deterministic false" a trainer would refuse its command line.
TEST(experiment_file, leaves_out_a_flag_that_is_false) {
  const Experiment e = parse_experiment(kGood + "common: {flags: {no-shuffle: true, deterministic: false}}\n", "x.yaml");
  const std::vector<std::string> a = trainer_arguments(e, e.workloads[0], 'A');
  EXPECT_THAT(a, ::testing::Contains("--no-shuffle"));
  EXPECT_THAT(a, ::testing::Not(::testing::Contains("--deterministic")));
  EXPECT_THAT(a, ::testing::Not(::testing::Contains("false")));
}

TEST(experiment_file, may_change_the_trainer_itself) {
  const Experiment e = parse_experiment(replaced(kGood, "variant: {zero_grad: memset}", "flags: {trainer: mixed}"), "x.yaml");
  EXPECT_EQ(trainer_of(e, 'A'), "fp32");
  EXPECT_EQ(trainer_of(e, 'B'), "mixed");
}

TEST(experiment_file, with_two_changes_is_refused_unless_it_says_compound) {
  const std::string two = replaced(kGood, "{zero_grad: memset}", "{zero_grad: memset, adamw: per_tensor}");
  EXPECT_THAT(error_of(two), HasSubstr("one experiment changes one thing"));
  const std::string variant_and_flag = replaced(kGood, "change:\n", "change:\n  flags: {accumulation: 2}\n");
  EXPECT_THAT(error_of(variant_and_flag), HasSubstr("2 changes"));
  EXPECT_EQ(error_of(two + "compound: true\n"), "");
}

TEST(experiment_file, against_a_frozen_baseline_is_compound) {
  EXPECT_THAT(error_of(kGood + "baseline: fp32-v1\n"), HasSubstr("compound: true"));
  EXPECT_TRUE(parse_experiment(kGood + "baseline: fp32-v1\ncompound: true\n", "x.yaml").frozen_baseline());
}

// They reached arm B alone, and the page called them common.
TEST(experiment_file, has_nothing_in_common_with_a_frozen_baseline_that_it_does_not_take) {
  const std::string frozen = kGood + "baseline: fp32-v1\ncompound: true\n";
  EXPECT_EQ(error_of(frozen + "common: {flags: {clip: 0}, variant: {adamw: per_tensor}}\n"),
            "x.yaml:14: common: the frozen fp32-v1 takes no --clip, --variant adamw=per_tensor: expected them under `change`, since arm B "
            "alone would have them");
  EXPECT_EQ(error_of(frozen + "common: {flags: {matmul: tf32}}\n"), "");
  EXPECT_EQ(error_of(kGood + "common: {flags: {clip: 0}}\n"), "");
}

TEST(experiment_file, may_ask_for_several_gpus_for_both_arms_or_as_the_change) {
  const Experiment both = parse_experiment(replaced(kGood, "matmul: tf32}", "matmul: tf32, gpus: 2}"), "x.yaml");
  EXPECT_EQ(both.workloads[0].text(), "d12 B=4 T=1024 tf32 2 GPUs");
  EXPECT_EQ(gpus_of(both, both.workloads[0], 'A'), 2);
  EXPECT_EQ(gpus_of(both, both.workloads[0], 'B'), 2);
  EXPECT_EQ(gpus_of(both, both.workloads[1], 'A'), 1);
  const Experiment change = parse_experiment(replaced(kGood, "variant: {zero_grad: memset}", "flags: {gpus: 2}"), "x.yaml");
  EXPECT_EQ(gpus_of(change, change.workloads[0], 'A'), 1);
  EXPECT_EQ(gpus_of(change, change.workloads[0], 'B'), 2);
  // The gate and an arm that steps on command know one GPU.
  for (const char arm : {'A', 'B'})
    EXPECT_THAT(trainer_arguments(change, change.workloads[0], arm), ::testing::Not(::testing::Contains("--gpus")));
  EXPECT_THAT(error_of(replaced(kGood, "variant: {zero_grad: memset}", "flags: {gpus: two}")), HasSubstr("gpus is 'two'"));
  for (const char* flag :
       {"bucket-mib: abc", "bucket-mib: 12x", "bucket-mib: 99999999", "accumulation: four", "accumulation: 0", "grad-accumulation: -1"})
    EXPECT_THAT(error_of(replaced(kGood, "variant: {zero_grad: memset}", "flags: {" + std::string(flag) + "}")),
                HasSubstr("': expected a whole number, at least"))
        << flag;
  EXPECT_THAT(error_of(replaced(kGood, "matmul: tf32}", "matmul: tf32, gpus: 0}")), HasSubstr("x.yaml:10: gpus is 0: expected at least 1"));
  EXPECT_THAT(error_of(kGood + "common: {flags: {gpus: 2}}\n"), HasSubstr("'gpus' belongs to the workloads"));
}

TEST(experiment_file, that_is_wrong_is_refused_with_file_line_and_key) {
  EXPECT_THAT(error_of(replaced(kGood, "question", "questoin")), HasSubstr("x.yaml:1: experiment: unknown key 'questoin'"));
  EXPECT_THAT(error_of(replaced(kGood, "hypothesis: One pass less over memory.\n", "")), HasSubstr("'hypothesis' is missing"));
  EXPECT_THAT(error_of(replaced(kGood, "  arithmetic: 1 GB / 2.5 TB/s\n", "")), HasSubstr("'arithmetic' is missing"));
  EXPECT_THAT(error_of(replaced(kGood, "  saving_ms: 0.4\n", "")), HasSubstr("x.yaml:9"));
  EXPECT_THAT(error_of(replaced(kGood, "saving_ms: 0.4", "saving_ms: .nan")), HasSubstr("finite"));
  EXPECT_THAT(error_of(replaced(kGood, "batch_size: 4", "batch_size: four")), HasSubstr("whole number"));
  EXPECT_THAT(error_of(replaced(kGood, "batch_size: 4", "batch_size: 0")), HasSubstr("at least 1"));
  EXPECT_THAT(error_of(replaced(kGood, "variant: {zero_grad: memset}", "variant: {}")), HasSubstr("both arms would be the same"));
  EXPECT_THAT(error_of(replaced(kGood, "variant: {zero_grad: memset}", "flags: {batch-size: 8}")), HasSubstr("workloads"));
  EXPECT_THAT(error_of(kGood + "common: {variant: {zero_grad: memset}}\n"), HasSubstr("nothing would change"));
  EXPECT_THAT(error_of(kGood + "trainer: fp32\n"), HasSubstr("twice"));
  EXPECT_THAT(error_of("question: [unclosed"), HasSubstr("x.yaml:1"));
  EXPECT_THAT(error_of(""), HasSubstr("expected key: value"));
}

// yaml-cpp makes the text "null" of each.
TEST(experiment_file, with_a_key_and_nothing_behind_it_is_refused) {
  EXPECT_EQ(error_of(replaced(kGood, "Is it faster?", "\"\"")), "x.yaml:1: 'question' is empty");
  for (const std::string nothing : {"", "~", "null", "# a remark"}) {
    EXPECT_EQ(error_of(replaced(kGood, "Is it faster?", nothing)), "x.yaml:1: 'question' is empty") << nothing;
    EXPECT_EQ(error_of(replaced(kGood, "One pass less over memory.", nothing)), "x.yaml:2: 'hypothesis' is empty") << nothing;
    EXPECT_EQ(error_of(replaced(kGood, "1 GB / 2.5 TB/s", nothing)), "x.yaml:8: 'arithmetic' is empty") << nothing;
  }
  EXPECT_EQ(error_of(replaced(kGood, "trainer: fp32", "trainer:")), "x.yaml:3: 'trainer' is empty");
  EXPECT_EQ(error_of(replaced(kGood, "{zero_grad: memset}", "{zero_grad: }")), "x.yaml:5: 'zero_grad' is empty");
  EXPECT_EQ(error_of(kGood + "common: {flags: {~: 3}}\n"), "x.yaml:12: common.flags: expected keys that are words");
  EXPECT_EQ(error_of(kGood + "compound:\n"), "x.yaml:12: 'compound' is empty");
  EXPECT_EQ(parse_experiment(replaced(kGood, "Is it faster?", "\"null\""), "x.yaml").question, "null") << "a text in quotes is one";
}

TEST(experiment_file, holds_one_document) {
  EXPECT_EQ(error_of("---\n" + kGood + "...\n"), "");
  EXPECT_EQ(error_of(kGood + "---\nminimum_effect_pct: 9\n"),
            "x.yaml:13: a second YAML document begins behind `---`; expected one, since nothing would read it");
  EXPECT_THAT(error_of(kGood + "---\n---\nminimum_effect_pct: 9\n"), HasSubstr("x.yaml:13: a second YAML document"));
  EXPECT_THAT(error_of(kGood + "---\n[unclosed"), HasSubstr("x.yaml:13"));
}

// yaml-cpp calls each an illegal map value.
TEST(experiment_file, with_a_tab_or_a_colon_in_a_text_is_told_what_to_write) {
  EXPECT_THAT(error_of(replaced(kGood, "  saving_ms", "\tsaving_ms")),
              HasSubstr("x.yaml:7: illegal map value: a tab stands before the text of this line, expected spaces alone"));
  EXPECT_THAT(error_of(replaced(kGood, "Is it faster?", "Fused: is it faster?")),
              HasSubstr("x.yaml:1: illegal map value: expected a text with `: ` in it in quotes or behind `>-`"));
  EXPECT_EQ(error_of(replaced(kGood, "Is it faster?", "\"Fused: is it faster?\"")), "");
}

// A verdict of it could not be written: nlohmann's JSON ends the command at such a byte.
TEST(experiment_file, is_utf8) {
  EXPECT_EQ(
      error_of(replaced(kGood, "One pass", "Une passe d\xe9j\xe0")),
      "x.yaml:2: bytes that are no UTF-8, expected UTF-8; `iconv -f LATIN1 -t UTF-8 x.yaml > NEW` converts letters of Western Europe");
  std::string wide = "\xFF\xFE";
  for (const char c : kGood) (wide += c) += '\0';
  EXPECT_THAT(error_of(wide), HasSubstr("x.yaml: the text is UTF-16, expected UTF-8"));
  EXPECT_EQ(error_of("\xEF\xBB\xBF" + replaced(kGood, "One pass", "Une passe d\xC3\xA9j\xC3\xA0")), "");
}

TEST(experiment_file, names_a_trainer_that_an_arm_can_run) {
  for (const char* none : {"foo", "auto"})
    EXPECT_EQ(error_of(replaced(kGood, "trainer: fp32", std::string("trainer: ") + none)),
              std::string("x.yaml:3: unknown trainer '") + none + "': expected mixed, fp32 or reference");
  EXPECT_EQ(error_of(replaced(kGood, "variant: {zero_grad: memset}", "flags:\n    trainer: auto")),
            "x.yaml:6: unknown trainer 'auto': expected mixed, fp32 or reference");
  EXPECT_THAT(error_of(kGood + "common: {flags: {trainer: mixed}}\n"), HasSubstr("x.yaml:12: common.flags: 'trainer' belongs"));
}

TEST(experiment_files, are_files_and_an_unknown_name_is_told_which_there_are) {
  const auto folder = fresh_test_folder();
  const auto sentence = [&](const std::string& name) {
    try {
      find_experiment(folder, name);
    } catch (const stepscope::InputError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(sentence("other"), "no experiment 'other' in " + folder.string() + "; known: none");
  for (const char* name : {"b.yaml", "a.yaml", "a.patch"}) std::ofstream(folder / name) << kGood;
  std::filesystem::create_directory(folder / "folder.yaml");
  EXPECT_EQ(sentence("other"), "no experiment 'other' in " + folder.string() + "; known: a, b");
  EXPECT_EQ(read_experiments(folder).size(), 2u);
  std::ofstream(folder / "broken.yaml") << "question: Q?\n";
  EXPECT_EQ(sentence("other"), "no experiment 'other' in " + folder.string() + "; known: a, b, broken");
  EXPECT_EQ(sentence("borken"), "no experiment 'borken' in " + folder.string() + "; the nearest is broken; known: a, b, broken");
  std::ofstream(folder / "other.yml") << kGood;
  for (const char* name : {"other", "other.yml"})
    EXPECT_THAT(sentence(name), HasSubstr("; other.yml is there, expected the ending .yaml; known: a, b")) << name;
  std::filesystem::remove_all(folder);
}

TEST(experiment_files, of_this_tree_are_all_readable) {
  const auto all = read_experiments(SOURCE_DIR "/experiments/studies");
  EXPECT_GE(all.size(), 2u);
  EXPECT_THROW(find_experiment(SOURCE_DIR "/experiments/studies", "no-such"), stepscope::InputError);
}

// Experiments of one command share the processes of arm A where its text is the same (ExperimentSession::run). Those of the mixed trainer
// are asked at two batch sizes, where the answer may have two signs, and mixed-deterministic at B=16 too, where bits that repeat cost most.
// Those of several GPUs (ranks-*) have arms of their own.
TEST(experiment_files, of_the_mixed_trainer_have_one_arm_A_for_each_batch_size) {
  std::map<int64_t, std::set<std::string>> arms;
  int files = 0;
  for (const Experiment& e : read_experiments(SOURCE_DIR "/experiments/studies")) {
    if (e.trainer != "mixed" || e.frozen_baseline() || e.name.starts_with("ranks-")) continue;
    ++files;
    std::set<int64_t> sizes;
    for (const Workload& w : e.workloads) {
      sizes.insert(w.batch_size);
      arms[w.batch_size].insert(fmt::format("{}", fmt::join(trainer_arguments(e, w, 'A'), " ")));
    }
    EXPECT_EQ(sizes, (e.name == "mixed-deterministic" ? std::set<int64_t>{4, 16, 64} : std::set<int64_t>{4, 64})) << e.name;
  }
  EXPECT_GE(files, 14);
  for (const auto& [batch_size, texts] : arms)
    EXPECT_THAT(texts, ElementsAre(fmt::format("--trainer mixed --model d12 --batch-size {} --seq-len 1024", batch_size)));
}

// What of the ranks' work could be another way: each with its prediction before anybody has run it.
TEST(experiment_files, of_several_gpus_ask_about_every_part_of_the_exchange) {
  std::set<std::string> changed;
  for (const Experiment& e : read_experiments(SOURCE_DIR "/experiments/studies")) {
    if (!e.name.starts_with("ranks-")) continue;
    for (const auto& [key, value] : e.change.flags) changed.insert(key);
    for (const auto& [key, value] : e.change.variants) changed.insert(key);
    for (const Workload& w : e.workloads) {
      EXPECT_EQ(gpus_of(e, w, 'B'), 2) << e.name;
      EXPECT_TRUE(w.predicted_saving_ms) << e.name;
    }
  }
  EXPECT_THAT(changed, ElementsAre("bucket-mib", "communication", "communicator", "gpus", "masters", "moments", "nccl-blocks",
                                   "residual_gradient", "weight_gradients"));
}

}  // namespace
}  // namespace experiments

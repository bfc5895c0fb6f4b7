// `stepscope experiment`: its subcommands and their flags; `list` and `index`, which only read and write files.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/read_file.h"
#include "cli/commands.h"
#include "cli/experiment_aa.h"
#include "cli/experiment_campaign.h"
#include "cli/experiment_coverage.h"
#include "cli/gpu.h"
#include "cli/say.h"
#include "cli/trainer_flags.h"
#include "cli/values.h"
#include "experiments/session/built_program.h"
#include "experiments/session/campaign_run.h"
#include "experiments/verdict/campaign.h"
#include "experiments/verdict/check.h"
#include "experiments/verdict/index.h"
#include "experiments/verdict/page.h"
#include "experiments/verdict/prediction.h"
#include "experiments/verdict/stale.h"
#include "experiments/verdict/words.h"

namespace cli {
namespace {

namespace fs = std::filesystem;

const std::string kExits =
    "Exit 0: faster or the same. 1: slower, or invalid (gate, crash). 4: undecided. 2: the input is wrong. 3: something is missing here.\n";
using experiments::Experiment;
using experiments::VerdictDocument;
using nlohmann::ordered_json;
using stepscope::InputError;

// A verdict whose experiment's file is gone or renamed: no command runs it again, and the table still has it.
// False: there is one.
bool name_verdicts_without_a_file(const fs::path& folder) {
  bool none = true;
  for (const fs::path& file : experiments::verdict_files(folder))
    if (const std::string yaml = file.parent_path().string() + ".yaml"; !fs::exists(yaml)) {
      say(fmt::format("{}: a verdict without an experiment, expected {}", file.string(), yaml));
      none = false;
    }
  return none;
}

// All that can be read; says on stderr which cannot.
std::vector<Experiment> known_experiments(const fs::path& folder, int& exit_code) {
  std::vector<Experiment> known;
  for (const fs::path& file : experiments::experiment_files(folder)) {
    try {
      known.push_back(experiments::read_experiment(file));
    } catch (const InputError& error) {  // the others are listed all the same
      say(error.what());
      exit_code = 2;
    }
  }
  return known;
}

// An experiment in the list.
struct Listed {
  const Experiment& experiment;
  std::optional<VerdictDocument> verdict;  // the last one
  std::string unreadable;                  // why it is there and not `verdict`
  std::vector<std::string> stale;          // why it no longer holds
  std::string no_patch;                    // why the patch does not apply to this tree
  std::string refused;                     // why `run` would refuse it
};

std::string why_refused(const Experiment& e) {
  try {
    check_arguments(e);
  } catch (const InputError& error) {
    const std::string sentence = error.what(), file = e.file.string() + ": ";
    return sentence.starts_with(file) ? sentence.substr(file.size()) : sentence;
  }
  return "";
}

// Throws stepscope::InputError where its verdict cannot be read.
std::optional<VerdictDocument> last_verdict_in_its_folder(const Experiment& e, const fs::path& folder) {
  auto verdict = experiments::last_verdict(e.name, folder, folder);
  const fs::path file = folder / e.name / "verdict.json";
  if (const std::string why = verdict ? experiments::why_in_the_wrong_folder(*verdict, file) : ""; !why.empty())
    throw InputError(fmt::format("{}: {}", file.string(), why));
  return verdict;
}

Listed look_up(const Experiment& e, const fs::path& root, experiments::SourceHashes& sources, const std::string& device) {
  Listed out{e, std::nullopt, "", {}, e.patch.empty() ? "" : experiments::why_not_applicable(root, e.patch), why_refused(e)};
  try {
    out.verdict = last_verdict_in_its_folder(e, studies(root));
  } catch (const InputError& error) {
    out.unreadable = error.what();
  }
  if (out.verdict) out.stale = experiments::stale_reasons(*out.verdict, e, sources, device);
  return out;
}

ordered_json json_row(const Listed& l) {
  ordered_json row{{"name", l.experiment.name}, {"question", l.experiment.question}, {"change", l.experiment.change_text}};
  if (l.verdict) {
    row.update({{"verdict", name(l.verdict->verdict)}, {"at", l.verdict->at}, {"stale", l.stale}, {"workloads", ordered_json::array()}});
    for (const experiments::WorkloadSection& w : l.verdict->workloads)
      row["workloads"].push_back({{"workload", w.workload}, {"verdict", name(w.verdict)}, {"sentence", w.sentence}});
  }
  if (!l.no_patch.empty()) row["patch_does_not_apply"] = l.no_patch;
  if (!l.refused.empty()) row["refused"] = l.refused;
  if (!l.unreadable.empty()) row["unreadable"] = l.unreadable;
  return row;
}

void print(const Listed& l) {
  fmt::print("{}\n  {}\n  change: {}\n", l.experiment.name, l.experiment.question, l.experiment.change_text);
  if (!l.no_patch.empty()) fmt::print("  the patch does not apply to this tree: {}\n", l.no_patch);
  if (!l.refused.empty()) fmt::print("  it cannot run: {}\n", l.refused);
  if (!l.verdict) {
    fmt::print("  {}\n", l.unreadable.empty() ? "never run" : "its verdict cannot be read");
    return;
  }
  for (const experiments::WorkloadSection& w : l.verdict->workloads)
    fmt::print("  {}: {} ({}, {})\n", w.workload, name(w.verdict), w.sentence, experiments::estimand(w));
  fmt::print("  {}{}\n", l.verdict->at, l.stale.empty() ? "" : fmt::format("; STALE: {}", fmt::join(l.stale, "; ")));
}

void list(bool json, int& exit_code) {
  const fs::path root = root_with_studies();
  const GpuStatus gpu = gpu_status();
  experiments::SourceHashes sources(root);
  ordered_json all = ordered_json::array();
  for (const Experiment& e : known_experiments(studies(root), exit_code)) {
    const Listed l = look_up(e, root, sources, gpu.present ? gpu.name : "");
    if (!l.unreadable.empty()) {
      say(l.unreadable);
      exit_code = 2;
    }
    if (json)
      all.push_back(json_row(l));
    else
      print(l);
  }
  if (json) fmt::print("{}\n", all.dump(1));
  if (const std::string why = why_no_variants(); !why.empty()) say("the variants of these experiments were not checked: " + why);
  name_verdicts_without_a_file(studies(root));
}

// Verdicts of before typed() say where their machine kept files. Only what was joined without quotes can be taken apart at its blanks.
void leave_folders_out(VerdictDocument& v) {
  if (v.command.find('\'') != std::string::npos) return;
  std::istringstream in(v.command);
  std::vector<std::string> words{std::istream_iterator<std::string>(in), {}};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  v.command = typed({argv.data(), static_cast<int>(argv.size())});
}

void index() {
  const fs::path root = root_with_studies(), page = root / "docs" / "study" / "README.md";
  auto verdicts = experiments::read_verdicts(studies(root));
  // All that is shown in one table is one campaign, however many commands measured it.
  for (VerdictDocument& v : verdicts) {
    experiments::decide_again(v);
    experiments::renew_prediction_proof(v, root, studies(root));
    leave_folders_out(v);
  }
  experiments::correct_campaign(verdicts, {});
  for (const VerdictDocument& v : verdicts) {
    const fs::path file = studies(root) / v.name / "verdict.json";
    if (!experiments::says_the_same(ordered_json::parse(stepscope::read_file(file)), experiments::to_json(v)))
      experiments::save_verdict(file, v);
    experiments::write_page(studies(root) / v.name / experiments::kPageName, v);
  }
  const std::string before = stepscope::read_file_if_there(page).value_or("");
  fs::create_directories(page.parent_path());
  gpt2::write_file_atomically(page, experiments::with_index(before, experiments::index_table(verdicts, "../../experiments/studies")));
  fmt::print("{}: {} experiments\n", page.string(), verdicts.size());
  name_verdicts_without_a_file(studies(root));
}

// Says of each verdict file whether it is as it was written and what its measurements say. A file that is none, or cannot be read, is bad
// input and no false verdict; the others are checked all the same.
void check(std::vector<std::string> files, int& exit_code) {
  const bool of_the_tree = files.empty();
  if (of_the_tree)
    for (const fs::path& file : experiments::verdict_files(studies(root_with_studies()))) files.push_back(file.string());
  if (files.empty()) fmt::print("no verdict.json in the folders of {}\n", studies(source_root()).string());
  std::error_code absent;
  for (std::string& file : files)  // the folder that `run` names
    if (fs::is_directory(file, absent)) file = (fs::path(file) / "verdict.json").string();
  std::sort(files.begin(), files.end());
  bool all_are_verdicts = true, all_hold = true;
  for (const std::string& file : files) {
    std::vector<std::string> found;
    std::string note;
    try {
      const VerdictDocument v = experiments::load_verdict(file);
      found = experiments::contradictions(v);
      if (const std::string why = experiments::why_in_the_wrong_folder(v, file); of_the_tree && !why.empty()) found.push_back(why);
      if (v.content_sha256.empty()) note = ", but schema 1 has no hash of its content (`experiment index` writes one)";
    } catch (const experiments::NoVerdict& error) {
      say(error.what());
      all_are_verdicts = false;
      continue;
    } catch (const InputError& error) {
      const std::string sentence = error.what();  // it begins with the file
      found.push_back(sentence.starts_with(file + ": ") ? sentence.substr(file.size() + 2) : sentence);
    }
    for (const std::string& sentence : found) fmt::print("{}: {}\n", file, sentence);
    if (found.empty()) fmt::print("{}: as it was written{}\n", file, note);
    all_hold = all_hold && found.empty();
  }
  if (of_the_tree && !name_verdicts_without_a_file(studies(source_root()))) all_hold = false;
  exit_code = !all_are_verdicts ? 2 : all_hold ? 0 : 1;
}

}  // namespace

void add_experiment_command(Command& app, const CommandLine& line, int& exit_code) {
  Command* c = app.add_subcommand("experiment", "Decide whether a change made the step faster: a gate, pairs of processes, a verdict");
  c->require_subcommand(1);

  auto json = std::make_shared<bool>(false);
  Command* l = c->add_subcommand("list", "List all experiments and their last verdicts; say which verdicts no longer hold");
  l->add_flag("--json", *json, "print JSON");
  l->callback([json, &exit_code] { list(*json, exit_code); });

  auto r = std::make_shared<RunFlags>();
  Command* run_command = c->add_subcommand("run", "Gate both arms, measure, decide, write verdict.json and a page");
  run_command->add_option("name", r->names, "run these experiments, by name or file");
  run_command->add_flag("--all", r->all, "run every experiment");
  run_command->add_flag("--changed", r->changed,
                        "run only experiments whose code, file or device changed; exit 1 only if a verdict became worse");
  run_command->add_flag(
      "--continue", r->go_on,
      "go on where an earlier command of these flags, device and sources was stopped: decided experiments and workloads stand, "
      "and whole rounds count");
  run_command->add_option(
      "--again", r->again,
      "with --continue: measure this workload anew though it is decided, by words of its name such as \"B=64\" (repeatable)");
  run_command->add_option("--a", r->a, "compare commands instead of an experiment: the command of arm A");
  run_command->add_option(
      "--b", r->b,
      "the command of arm B; each run takes a command to its end. {steps} in a command becomes the steps that the seconds need");
  run_command->add_option("--step-regex", r->step_regex,
                          "regular expression that finds the step times in a command's output; its first group is the milliseconds");
  run_command->add_option("--skip-steps", r->skip_steps, "first steps of each run to ignore (default: 10%, 1 to 10)")
      ->check(whole(0, 1 << 30));
  run_command->add_flag(
      "--recorded", r->recorded,
      "with --a and --b: the commands print times that were recorded elsewhere, so steps that take longer than their command "
      "are no mistake of units");
  run_command->add_option("--gate-command", r->gate_command, "with --a and --b: a command that exits 0 if both compute the right thing");
  run_command
      ->add_option("--command-steps", r->command_steps,
                   "steps of a whole program where nothing says how long they take: with --quick, and the first run")
      ->check(whole(1, 1 << 30))
      ->capture_default_str();
  run_command->add_option("--keep-profiles", r->keep_profiles, "keep the profile documents of both arms in this folder");
  add_verdict_flags(
      *run_command, *r, PairsOf::experiments,
      "write verdicts, pages and the ledger to this folder (default: experiments/studies; of --a and --b nothing is kept without it)");
  run_command->footer(kExits +
                      "Examples:\n"
                      "  stepscope experiment run fp32-zero-grad-memset\n"
                      "  stepscope experiment run --all --changed\n"
                      "  stepscope experiment run --a './train_gpt2cu -x 40' --b './mine --steps 40' --step-regex '([0-9.]+) "
                      "ms'");
  run_command->callback([r, line, &exit_code] { run_experiments(*r, line, exit_code); });

  auto since = std::make_shared<SinceFlags>();
  Command* since_command =
      c->add_subcommand("since", "Decide whether what you changed since a revision made the step faster, and is still right");
  since_command
      ->add_option("revision", since->revision,
                   "a commit, tag or branch, which arm A is built from; a notice tells where HEAD does not contain it")
      ->required();
  add_trainer_flags(*since_command, since->trainer);
  add_verdict_flags(*since_command, *since, PairsOf::arms,
                    "write verdict.json and its page to this folder (default: print the verdict only)");
  since_command->footer(
      "Arm A is built from the revision with this build's flags, in the build folder's arms/revision; arm B is this program.\n" + kExits +
      "Examples:\n"
      "  stepscope experiment since HEAD\n"
      "  stepscope experiment since main --trainer mixed --batch-size 64 --sequential");
  since_command->callback([since, line, &exit_code] { run_since(*since, line, exit_code); });

  auto a = std::make_shared<AaFlags>();
  Command* aa_command = c->add_subcommand("aa", "Test the procedure on itself: compare identical code, or find a planted slowdown");
  add_trainer_flags(*aa_command, a->trainer);
  add_measure_flags(*aa_command, a->measure, PairsOf::arms);
  Argument* trials = aa_command->add_option("--trials", a->trials, "run this many whole experiments, one after the other")
                         ->check(whole(1, 1 << 20))
                         ->capture_default_str();
  aa_command->add_option("--alone", a->alone, "record this many fresh processes of identical code, one after the other, instead of trials")
      ->check(whole(4, 1 << 16))  // two pairs: one has no spread
      ->excludes(trials);
  aa_command->add_option("--record", a->record, "keep the pairs of all trials (without a plant) for `experiment resample`");
  aa_command->add_option("--out", a->out, "write the ledger to this folder (default: experiments/studies)");
  aa_command->add_flag("--no-gate", a->no_gate, "skip the gate, which identical code does not need")
      ->excludes(a->measure.gate_answers_option);
  aa_command->footer(
      "Exit 0: no false alarm. 1: a false alarm, an invalid trial, or a planted 1% that more than one trial in ten missed.\n"
      "Examples:\n"
      "  stepscope experiment aa --trainer fp32 --model d12 --trials 10 --record aa.json\n"
      "  stepscope experiment aa --trainer mixed --model d12 --alone 60 --record alone.json\n"
      "  stepscope experiment aa --trainer fp32 --model d12 --trials 10 --plant 1");
  aa_command->callback([a, line, &exit_code] { run_aa(*a, line, exit_code); });

  auto v = std::make_shared<CoverageFlags>();
  Command* coverage_command = c->add_subcommand(
      "coverage", "Test the procedure on itself: do its intervals hold what long runs say of work that is planted into one arm?");
  coverage_command
      ->add_option("plant", v->plants,
                   "work after every step, in percent of a step: tensor:PCT, dram:PCT or idle:PCT on the GPU, host:PCT: the host waits")
      ->required();
  add_trainer_flags(*coverage_command, v->trainer);
  add_alone_flags(*coverage_command, v->measure, PairsOf::processes_alone);
  coverage_command->add_option("--truth-rounds", v->truth_rounds, "rounds of long processes that say what a plant really costs")
      ->check(whole(2, 1000))
      ->capture_default_str();
  coverage_command->add_option("--truth-s", v->truth_s, "seconds of a long process: the second half counts")
      ->check(real(0.002, 86400))
      ->capture_default_str();
  coverage_command->add_option("--record", v->record, "keep intervals, truths and processes in this file, renewed after every round");
  coverage_command->footer(
      "Every plant is an arm B of its own; all share the processes of arm A, which runs the same code. No gate runs.\n"
      "Exit 0: at most one interval in twelve misses. 1: more miss, or a run was invalid. 4: not every plant could be judged.\n"
      "Examples:\n"
      "  stepscope experiment coverage tensor:0.5 tensor:3 dram:0.5 dram:3 host:1 --sequential --record coverage.json\n"
      "  stepscope experiment coverage dram:1 --trainer mixed --batch-size 64 --truth-rounds 16");
  coverage_command->callback([v, line, &exit_code] { run_coverage(*v, line, exit_code); });

  auto files = std::make_shared<std::vector<std::string>>();
  auto m = std::make_shared<MeasureFlags>();
  Command* resample_command = c->add_subcommand("resample", "Compute the procedure's error rates from recorded A/A pairs");
  resample_command->add_option("file", *files, "files that `experiment aa --record` wrote")->required();
  add_decision_flags(*resample_command, *m, PairsOf::recordings);
  resample_command->callback([files, m] { resample_recordings(*files, *m); });

  Command* index_command = c->add_subcommand(
      "index",
      "Decide again from the recorded pairs of all verdict files, as one campaign; write them, their pages and the table of docs/study");
  index_command->callback([] { index(); });
  auto checked = std::make_shared<std::vector<std::string>>();
  Command* check_command = c->add_subcommand("check", "Refuse verdict files that were edited by hand or contradict their own measurements");
  check_command->add_option("file", *checked, "verdict files, or folders with a verdict.json (default: all in experiments/studies)");
  check_command->footer("Exit 0: every file says what its measurements say. 1: one does not. 2: one cannot be read, or is no verdict.");
  check_command->callback([checked, &exit_code] { check(*checked, exit_code); });
  c->footer(
      "Examples:\n  stepscope experiment list\n  stepscope experiment run NAME\n  stepscope experiment aa "
      "--trials 10");
}

}  // namespace cli

#include "cli/experiment_campaign.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <set>

#include "base/errors.h"
#include "base/made_folders.h"
#include "cli/catch_interrupt.h"
#include "cli/gpu.h"
#include "cli/say.h"
#include "cli/train_ranks.h"
#include "cli/trainer_flags.h"
#include "experiments/session/campaign_run.h"
#include "experiments/verdict/ledger.h"
#include "experiments/verdict/page.h"
#include "gpt2/train_loop.h"

namespace cli {
namespace {

namespace fs = std::filesystem;
using experiments::Experiment;
using experiments::VerdictDocument;
using stepscope::InputError;

std::vector<Experiment> chosen(const RunFlags& f, const fs::path& folder, const fs::path& root, const std::string& device) {
  std::vector<Experiment> out;
  if (f.all) {
    if (!f.names.empty()) throw InputError("--all and names exclude each other");
    out = experiments::read_experiments(studies(root));
  }
  for (const std::string& name : f.names) out.push_back(experiments::find_experiment(studies(root), name));
  if (f.changed) experiments::keep_changed(out, folder, root, studies(root), device);
  return out;
}

// Where a verdict that is no study's goes: --out, or nowhere. The ledger is then the studies'.
struct Results {
  fs::path folder;
  std::vector<experiments::LedgerEntry> ledger;
};
Results results_of(const VerdictFlags& f, const fs::path& root) {
  const fs::path folder = f.out.empty() ? fs::path() : results_folder(f.out, root);
  return {folder, experiments::read_ledger(experiments::ledger_file(f.out.empty() ? studies(root) : folder))};
}

// Where it is kept; before a word is printed, because a pipe that nobody reads ends the command.
void keep(const VerdictDocument& document, const Results& results) {
  if (!results.folder.empty()) experiments::save_verdict(results.folder / "verdict.json", document);
}

void tell(const VerdictDocument& document, const VerdictFlags& f, int& exit_code) {
  fmt::print("{}", f.json ? experiments::to_json(document).dump(1) + "\n" : experiments::summary_of(document));
  std::fflush(stdout);
  exit_code = experiments::exit_code_of(document.verdict);
}

// Runs two commands to their end. The flags of stepping arms mean nothing here.
void run_commands(const RunFlags& f, experiments::ExperimentSession& session, const fs::path& root, int& exit_code) {
  const Results results = results_of(f, root);
  const VerdictDocument document = session.run_commands({f.a, f.b, f.step_regex, f.skip_steps, f.recorded, f.gate_command}, results.ledger);
  keep(document, results);
  tell(document, f, exit_code);
}

// Such arms are started with a number of steps and run to their end.
void say_what_whole_programs_ignore(const RunFlags& f, const std::vector<Experiment>& experiments) {
  std::vector<std::string> flags, names;
  for (const Argument* a : f.measure.of_stepping_arms)
    if (a->count() > 0) flags.push_back(a->name());
  for (const Experiment& e : experiments)
    if (std::ranges::any_of(e.workloads, [&](const auto& w) { return as_whole_programs(e, w); })) names.push_back(e.name);
  if (!flags.empty() && !names.empty())
    say(fmt::format("{}: without effect for {}, whose arms run as whole programs", fmt::join(flags, ", "), fmt::join(names, ", ")));
}

void check_again(const std::string& words, const std::vector<Experiment>& experiments) {
  std::set<std::string> workloads;
  for (const Experiment& e : experiments)
    for (const experiments::Workload& w : e.workloads) workloads.insert(w.text());
  if (std::none_of(workloads.begin(), workloads.end(), [&](const std::string& w) { return experiments::asks_for(words, w); }))
    throw InputError(fmt::format("--again '{}': these experiments have no such workload; they have {}", words, fmt::join(workloads, ", ")));
}

}  // namespace

void check_arguments(const Experiment& e) {
  std::vector<std::string> idle;  // why variants of the arm that was settled last have no effect
  const auto settled = [&](const experiments::Workload& w, char arm) {
    Command parser;
    TrainerFlags flags;
    add_trainer_flags(parser, flags);
    ExchangeFlags exchange;
    add_exchange_flags(parser, exchange);
    const int64_t gpus = experiments::gpus_of(e, w, arm);
    const bool several = gpus > 1;
    try {
      parser.parse(experiments::trainer_arguments(e, w, arm));
      if (!several) only_these(exchange.arguments, {}, "this arm trains on one GPU; expected a workload with `gpus: 2` or more");
      settle(flags);
      if (several) check_exchange(exchange, flags.trainer);
      gpt2::check_run(trainer_options(flags), loop_options(flags));
    } catch (const InputError& error) {
      throw InputError(fmt::format("{}: arm {}, {}: {}", e.file.string(), arm, w.text(), error.what()));
    }
    idle = leave_out_idle_variants(flags, gpus);
    std::vector<std::string> all = as_arguments(flags, flags.steps);
    if (flags.trainer != "mixed") std::erase(all, "--deterministic");  // the others repeat bit for bit with and without it
    if (several) {
      const std::vector<std::string> of_ranks = as_arguments(exchange);
      all.insert(all.end(), of_ranks.begin(), of_ranks.end());
      all.insert(all.end(), {"--gpus", std::to_string(gpus)});
    }
    return all;
  };
  std::set<std::string> workloads;
  for (const experiments::Workload& w : e.workloads) {
    if (!workloads.insert(w.text()).second) throw InputError(fmt::format("{}: the workload {} is there twice", e.file.string(), w.text()));
    const auto a = settled(w, 'A');
    // Another program's flags and variants are that program's to refuse; its gate comes before its first step.
    if (!experiments::sources_of(e, 'B').here()) continue;
    const auto b = settled(w, 'B');
    if (!e.frozen_baseline() && a == b)
      throw InputError(fmt::format("{}: `{}` changes nothing{}: both arms would run `stepscope {}`", e.file.string(), e.change_text,
                                   idle.empty() ? "" : fmt::format(" ({})", fmt::join(idle, ", ")), fmt::join(b, " ")));
  }
}

void add_verdict_flags(Command& c, VerdictFlags& f, PairsOf of, const std::string& out_help) {
  c.add_option("--out", f.out, out_help);
  c.add_flag("--no-profile", f.no_profile, "do not profile the arms: the verdict has no waterfall and does not recognize identical code");
  c.add_flag("--json", f.json, "print the verdict document");
  add_measure_flags(c, f.measure, of);
}

void run_since(const SinceFlags& f, const CommandLine& line, int& exit_code) {
  refuse_flags_of_the_loop(f.trainer);
  TrainerFlags flags = f.trainer;
  if (const auto notice = settle(flags)) say(*notice);
  gpt2::check_run(trainer_options(flags), loop_options(flags));
  Experiment e;
  e.name = "since " + f.revision;
  e.question = fmt::format("What do the changes since {} do to the step?", f.revision);
  e.change_text = fmt::format("everything since {}", f.revision);
  e.since = f.revision;
  e.compound = true;
  e.trainer = flags.trainer;
  e.flags = arguments_beyond_defaults(flags);
  e.workloads.push_back({flags.model, flags.batch_size, flags.seq_len, flags.matmul, std::nullopt});
  if (f.measure.minimum_effect_pct > 0) e.minimum_effect_pct = f.measure.minimum_effect_pct;
  const CatchInterrupt guard;
  experiments::SessionOptions options = session_options(f.measure, line);
  options.profile = !f.no_profile;
  experiments::ExperimentSession session(std::move(options));
  const Results results = results_of(f, source_root());
  VerdictDocument document;
  try {
    document = session.run(e, results.ledger);
  } catch (const experiments::SameStep& same) {  // a commit that changes no step is no slower
    fmt::print("{}\n", f.json ? experiments::Json{{"verdict", "same"}, {"reason", "same_sources"}, {"sentence", same.what()}}.dump(1)
                              : fmt::format("same: {}", same.what()));
    return;
  }
  keep(document, results);
  if (!results.folder.empty()) experiments::write_page(results.folder / experiments::kPageName, document);
  tell(document, f, exit_code);
}

void run_experiments(const RunFlags& f, const CommandLine& line, int& exit_code) {
  const fs::path root = source_root();
  const bool commands = !f.a.empty() || !f.b.empty();
  if (commands && (f.a.empty() || f.b.empty())) throw InputError("--a CMD and --b CMD go together");
  if (commands && (f.all || !f.names.empty())) throw InputError("--a and --b exclude names and --all");
  if (commands && f.measure.plants()) throw InputError("--plant: nothing can be planted into a command; plant it there yourself");
  if (commands) only_these(f.measure.of_stepping_arms, {}, "needs trainers that step on command; a block runs a command once, to its end");
  if (commands && !f.measure.gate_answers.empty())
    throw InputError("--gate-answers: an experiment's gate keeps them; what --a and --b run is checked by --gate-command alone");
  if (commands && !f.keep_profiles.empty())
    throw InputError("--keep-profiles: --a and --b are not profiled; `stepscope profile -- CMD` profiles one");
  if (commands && f.changed) throw InputError("--changed chooses among experiments: two commands are always run");
  if (!commands)
    for (const auto& [given, flag] : {std::pair(!f.step_regex.empty(), "--step-regex"), std::pair(f.skip_steps >= 0, "--skip-steps"),
                                      std::pair(f.recorded, "--recorded"), std::pair(!f.gate_command.empty(), "--gate-command")})
      if (given) throw InputError(fmt::format("{}: goes with --a CMD and --b CMD; an experiment knows its trainers", flag));
  if (!f.again.empty() && !f.go_on)
    throw InputError("--again: goes with --continue, by which the other workloads stand; without it every workload is measured anew");
  if (f.go_on) {
    if (commands) throw InputError("--continue: an experiment's folder holds what was left; two commands have none");
    if (f.measure.quick) throw InputError("--continue: processes alone can be counted later; pairs in turns (--quick) share one process");
    if (f.changed) throw InputError("--continue: goes on with what is unfinished; --changed measures anew. Leave one of the two out");
    if (f.measure.plants()) throw InputError("--continue: what is planted is no verdict to go on with");
  }
  if (!commands && !f.all && f.names.empty())
    throw InputError("expected NAME…, --all, or --a CMD --b CMD; `stepscope experiment list` shows the names");
  const CatchInterrupt guard;
  experiments::SessionOptions options = session_options(f.measure, line);
  options.profile = !f.no_profile;
  options.keep_profiles = f.keep_profiles;
  if (!f.keep_profiles.empty() && f.no_profile)
    throw InputError("--keep-profiles: with --no-profile there are none; leave one of the two out");
  if (!f.keep_profiles.empty()) stepscope::check_folder_usable(f.keep_profiles, "--keep-profiles");
  options.command_steps = f.command_steps;
  // A command's block is a whole process: one quad of four makes a pair, unless told otherwise.
  if (commands && f.measure.quads_option->count() == 0) options.plan.quads = 1;
  experiments::ExperimentSession session(std::move(options));
  if (commands) return run_commands(f, session, root, exit_code);

  root_with_studies();
  const fs::path folder = f.out.empty() ? studies(root) : fs::path(f.out);
  std::vector<Experiment> experiments_to_run = chosen(f, folder, root, session.gpu().present ? session.gpu().name : "");
  if (f.measure.minimum_effect_pct > 0)
    for (Experiment& e : experiments_to_run) e.minimum_effect_pct = f.measure.minimum_effect_pct;
  std::vector<std::string> left_out;
  if (session.gpu().present)  // without one, its own message says so
    left_out = experiments::keep_those_with_enough_gpus(experiments_to_run, gpu_status().count);
  if (!f.all && !left_out.empty()) throw stepscope::MachineError(left_out.front());
  for (const std::string& why : left_out) say(fmt::format("left out: {}", why));
  if (experiments_to_run.empty()) {
    if (f.json)
      fmt::print("[]\n");
    else
      fmt::print("nothing to run: {}\n", !left_out.empty() ? "nothing that this machine has the GPUs for"
                                         : f.changed       ? "every verdict still holds"
                                                           : "there is no experiment");
    return;
  }
  std::set<std::string> names;
  for (const Experiment& e : experiments_to_run) {
    if (!names.insert(e.name).second) throw InputError(fmt::format("{}: given twice, and an experiment has one folder of results", e.name));
    check_arguments(e);
  }
  say_what_whole_programs_ignore(f, experiments_to_run);
  for (const std::string& words : f.again) check_again(words, experiments_to_run);
  results_folder(f.out, root);  // made for experiments that can run, not for a name that is none
  exit_code = experiments::run_campaign(session, experiments_to_run,
                                        {folder, studies(root), f.measure.plants(), f.changed, f.go_on, f.json, f.again});
}

}  // namespace cli

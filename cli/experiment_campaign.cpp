#include "cli/experiment_campaign.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "cli/trainer_flags.h"
#include "experiments/verdict/campaign.h"
#include "experiments/verdict/ledger.h"
#include "experiments/verdict/page.h"
#include "experiments/verdict/stale.h"
#include "gpt2/train_loop.h"

namespace cli {
namespace {

namespace fs = std::filesystem;
using experiments::Experiment;
using experiments::VerdictDocument;
using nlohmann::ordered_json;
using stepscope::InputError;

// Same code that was measured says how often the procedure is wrong.
void record_same_code(const VerdictDocument& document, const fs::path& folder) {
  for (const experiments::WorkloadSection& w : document.workloads) {
    if (w.reason != experiments::reason::kSameCode) continue;
    const experiments::Decision d = experiments::decision_of(w.statistics);
    if (!d.log_ratio) continue;
    experiments::append_to_ledger(ledger_file(folder), {document.at, document.environment.device, w.workload, 0, d.verdict, d.log_ratio->n,
                                                        d.log_ratio->mean, d.log_ratio->sd, "", document.thresholds.minimum_effect_pct});
  }
}

// One that cannot be read stands for nothing, and is measured anew.
std::optional<VerdictDocument> standing_verdict(const std::string& name, const fs::path& folder, const fs::path& root) {
  try {
    return last_verdict(name, folder, root);
  } catch (const InputError& error) {
    fmt::print(stderr, "stepscope: {}\n", error.what());
    return std::nullopt;
  }
}

std::vector<Experiment> chosen(const RunFlags& f, const fs::path& folder, const fs::path& root, const std::string& device) {
  std::vector<Experiment> out;
  if (f.all) {
    if (!f.names.empty()) throw InputError("--all and names exclude each other");
    out = experiments::read_experiments(studies(root));
  }
  for (const std::string& name : f.names) out.push_back(experiments::find_experiment(studies(root), name));
  if (!f.changed) return out;
  std::erase_if(out, [&](const Experiment& e) {
    const auto verdict = standing_verdict(e.name, folder, root);
    return verdict && experiments::stale_reasons(*verdict, e, root, device).empty();
  });
  return out;
}

// Runs two commands to their end. The flags of stepping arms mean nothing here.
void run_commands(const RunFlags& f, experiments::ExperimentSession& session, const fs::path& root, int& exit_code) {
  const fs::path folder = f.out.empty() ? fs::path() : results_folder(f.out, root);
  const auto ledger = experiments::read_ledger(ledger_file(f.out.empty() ? studies(root) : folder));
  const VerdictDocument document = session.run_commands(f.a, f.b, f.step_regex, f.skip_steps, f.gate_command, ledger);
  fmt::print("{}", f.json ? experiments::to_json(document).dump(1) + "\n" : experiments::summary_of(document));
  std::fflush(stdout);
  if (!folder.empty()) experiments::save_verdict(folder / "verdict.json", document);
  exit_code = experiments::exit_code_of(document.verdict);
}

// Refuses flags that the `train` command would refuse, and a change that changes nothing, before any arm is gated.
void check_arguments(const Experiment& e) {
  const auto settled = [&](const experiments::Workload& w, char arm) {
    Command parser;
    TrainerFlags flags;
    add_trainer_flags(parser, flags);
    try {
      parser.parse(experiments::trainer_arguments(e, w, arm));
      settle(flags);
      gpt2::check_run(trainer_options(flags), loop_options(flags));
    } catch (const InputError& error) {
      throw InputError(fmt::format("{}: arm {}, {}: {}", e.file.string(), arm, w.text(), error.what()));
    }
    return as_arguments(flags, flags.steps);
  };
  std::set<std::string> workloads;
  for (const experiments::Workload& w : e.workloads) {
    if (!workloads.insert(w.text()).second) throw InputError(fmt::format("{}: the workload {} is there twice", e.file.string(), w.text()));
    const auto a = settled(w, 'A'), b = settled(w, 'B');
    if (!e.frozen_baseline() && a == b)
      throw InputError(
          fmt::format("{}: `{}` changes nothing: both arms would run `stepscope {}`", e.file.string(), e.change_text, fmt::join(b, " ")));
  }
}

struct Ran {
  const Experiment* experiment = nullptr;
  std::optional<VerdictDocument> before;  // the verdict that stood
  VerdictDocument document;
  bool kept_before = false;  // the run was cut short, so the verdict before it stands
};

// Several experiments in one command are one campaign. One that cannot be run here does not keep the others from running.
class Campaign {
 public:
  Campaign(const RunFlags& f, experiments::ExperimentSession& session, fs::path root, fs::path folder)
      : f_(f), session_(session), root_(std::move(root)), folder_(std::move(folder)) {}

  // Returns the exit code.
  int run(const std::vector<Experiment>& experiments) {
    for (const Experiment& e : experiments) {
      check_arguments(e);
      gpt2::check_folder_writable(folder_ / e.name, "the verdict's folder");
    }
    int worst = 0;
    const auto worse = [&](const Experiment& e, const std::exception& error, int code) {
      fmt::print(stderr, "stepscope: {}: {}\n", e.name, error.what());
      worst = std::max(worst, code);
    };
    // Kept as soon as it is decided: the rest may take hours, and not end well.
    session_.run(experiments, experiments::read_ledger(ledger_file(folder_)),
                 [&](size_t i, const experiments::ExperimentSession::Outcome& o) {
                   const Experiment& e = experiments[i];
                   try {
                     if (o.failure) std::rethrow_exception(o.failure);
                     keep(e, o.document);
                   } catch (const InputError& error) {
                     if (experiments.size() == 1) throw;
                     worse(e, error, 2);
                   } catch (const stepscope::MachineError& error) {
                     if (experiments.size() == 1) throw;
                     worse(e, error, 3);
                   }
                 });
    correct();
    if (f_.json) {
      ordered_json all = ordered_json::array();
      for (const Ran& r : ran_) all.push_back(experiments::to_json(r.document));
      fmt::print("{}\n", all.dump(1));
    }
    return worst > 0 ? worst : exit_code();
  }

 private:
  bool planted() const { return f_.measure.plant_pct > 0 || !f_.measure.plant_gpu.empty(); }
  fs::path page_of(const std::string& name) const { return folder_ / name / experiments::kPageName; }
  fs::path verdict_of(const std::string& name) const { return folder_ / name / "verdict.json"; }

  void keep(const Experiment& e, const VerdictDocument& document) {
    Ran r;
    r.experiment = &e;
    r.before = standing_verdict(e.name, folder_, root_);
    r.document = document;
    r.kept_before = experiments::was_cut_short(r.document) && r.before && !experiments::was_cut_short(*r.before);
    if (!f_.json) fmt::print("{}\n", experiments::summary_of(r.document));
    std::fflush(stdout);
    save(r);
    // A planted slowdown is a test of the procedure.
    if (!planted() && !experiments::was_cut_short(r.document)) record_same_code(r.document, folder_);
    ran_.push_back(std::move(r));
  }

  void save(const Ran& r) const {
    const std::string& name = r.experiment->name;
    if (planted()) {
      experiments::save_verdict(folder_ / name / "planted.json", r.document);
    } else if (r.kept_before) {
      const fs::path file = folder_ / name / "last-attempt.json";
      experiments::save_verdict(file, r.document);
      fmt::print(stderr, "stepscope: {}: cut short, so the verdict of {} stands; this attempt is {}\n", name, r.before->at, file.string());
    } else {
      experiments::save_verdict(verdict_of(name), r.document);
      experiments::write_page(page_of(name), r.document);
    }
  }

  void correct() {
    std::vector<VerdictDocument> documents;
    for (const Ran& r : ran_) documents.push_back(r.document);
    const std::vector<bool> corrected = experiments::correct_campaign(documents, {});
    for (size_t i = 0; i < ran_.size(); ++i) {
      if (!corrected[i]) continue;
      ran_[i].document = documents[i];
      if (!f_.json) fmt::print("corrected for {} experiments:\n{}\n", documents.size(), experiments::summary_of(documents[i]));
      save(ran_[i]);
    }
  }

  int exit_code() const {
    int worst = 0;
    for (const Ran& r : ran_) {
      int code = experiments::exit_code_of(r.document.verdict);
      // Of experiments that are run again: an idea that never helped is no regression.
      if (f_.changed && experiments::is_regression(r.before, r.document))
        code = 1;
      else if (f_.changed && code == 1)
        code = 0;
      if (code == 1 || (code == 4 && worst == 0)) worst = code;
    }
    return worst;
  }

  const RunFlags& f_;
  experiments::ExperimentSession& session_;
  fs::path root_, folder_;
  std::vector<Ran> ran_;
};

}  // namespace

void run_experiments(const RunFlags& f, const CommandLine& line, int& exit_code) {
  const fs::path root = source_root();
  const bool commands = !f.a.empty() || !f.b.empty();
  if (commands && (f.a.empty() || f.b.empty())) throw InputError("--a CMD and --b CMD go together");
  if (commands && (f.all || !f.names.empty())) throw InputError("--a and --b exclude names and --all");
  if (commands && (f.measure.plant_pct > 0 || !f.measure.plant_gpu.empty()))
    throw InputError("--plant: nothing can be planted into a command; plant it there yourself");
  if (commands)
    for (const Argument* o : f.measure.of_stepping_arms)
      if (o->count() > 0)
        throw InputError(fmt::format("{}: needs trainers that step on command; a block runs a command once, to its end", o->name()));
  if (commands && f.changed) throw InputError("--changed chooses among experiments: two commands are always run");
  if (!commands)
    for (const auto& [given, flag] : {std::pair(!f.step_regex.empty(), "--step-regex"), std::pair(f.skip_steps >= 0, "--skip-steps"),
                                      std::pair(!f.gate_command.empty(), "--gate-command")})
      if (given) throw InputError(fmt::format("{}: goes with --a CMD and --b CMD; an experiment knows its trainers", flag));
  if (!commands && !f.all && f.names.empty())
    throw InputError("expected NAME…, --all, or --a CMD --b CMD; `stepscope experiment list` shows the names");
  const CatchInterrupt guard;
  experiments::SessionOptions options = session_options(f.measure, line);
  options.profile = !f.no_profile;
  options.keep_profiles = f.keep_profiles;
  if (!f.keep_profiles.empty()) gpt2::check_folder_writable(f.keep_profiles, "--keep-profiles");
  options.command_steps = f.command_steps;
  // A command's block is a whole process: one quad of four makes a pair, unless told otherwise.
  if (commands && f.measure.quads_option->count() == 0) options.plan.quads = 1;
  experiments::ExperimentSession session(std::move(options));
  if (commands) return run_commands(f, session, root, exit_code);

  const fs::path folder = results_folder(f.out, root);
  std::vector<Experiment> experiments_to_run = chosen(f, folder, root, session.gpu().present ? session.gpu().name : "");
  if (f.measure.minimum_effect_pct > 0)
    for (Experiment& e : experiments_to_run) e.minimum_effect_pct = f.measure.minimum_effect_pct;
  if (experiments_to_run.empty()) {
    if (f.json)
      fmt::print("[]\n");
    else
      fmt::print("nothing to run: {}\n", f.changed ? "every verdict still holds" : "there is no experiment");
    return;
  }
  exit_code = Campaign(f, session, root, folder).run(experiments_to_run);
}

}  // namespace cli

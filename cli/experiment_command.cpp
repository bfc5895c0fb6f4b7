// `stepscope experiment`: list, run, aa, resample, index. What runs and decides is in experiment_session.cpp
// and experiments/; here are flags, files and exit codes.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "build_info.inc"
#include "cli/commands.h"
#include "cli/experiment_session.h"
#include "cli/trainer_flags.h"
#include "experiments/runner/run_log.h"
#include "experiments/statistics/error_rate.h"
#include "experiments/verdict/index.h"
#include "experiments/verdict/page.h"
#include "experiments/verdict/stale.h"
#include "gpt2/atomic_file.h"
#include "gpt2/errors.h"

namespace cli {
namespace {

namespace fs = std::filesystem;
using experiments::Experiment;
using experiments::Verdict;
using nlohmann::ordered_json;
using stepscope::InputError;

constexpr const char* kRecordingSchema = "stepscope.aa/1";
constexpr int64_t kResampledTrials = 1000;

std::atomic<bool> interrupted{false};

// The first ctrl-C ends the measurement and keeps it; another one, a second or more later, ends the program. Sooner it may be
// the same one: `timeout` signals a program and then its group.
std::atomic<int64_t> interrupted_at_ns{0};

void on_interrupt(int number) {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  const int64_t now = int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  if (!interrupted.exchange(true)) {
    interrupted_at_ns = now;
  } else if (now - interrupted_at_ns > 1'000'000'000) {
    signal(number, SIG_DFL);
    raise(number);
  }
}

class CatchInterrupt {
 public:
  CatchInterrupt() {
    struct sigaction action = {};
    action.sa_handler = on_interrupt;
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &before_[i]);
  }
  ~CatchInterrupt() {
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  CatchInterrupt(const CatchInterrupt&) = delete;
  CatchInterrupt& operator=(const CatchInterrupt&) = delete;

 private:
  static constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};  // a closed terminal too
  struct sigaction before_[std::size(kSignals)];
};

struct MeasureFlags {
  experiments::PairPlan plan;
  int pairs = 12;
  bool no_extension = false, sequential = false, seed_given = false, serial = false;
  double plant_pct = 0, minimum_effect_pct = 0;  // 0 = the file's, or 0.3
  CLI::Option* quads_option = nullptr;
  std::vector<CLI::Option*> of_stepping_arms;  // without meaning for commands
};

struct RunFlags {
  MeasureFlags measure;
  std::vector<std::string> names;
  bool all = false, changed = false, no_profile = false, json = false;
  std::string a, b, step_regex, gate_command, out, keep_profiles;
  int skip_steps = -1, command_steps = 40;
};

struct AaFlags {
  MeasureFlags measure;
  TrainerFlags trainer;
  int trials = 1;
  bool no_gate = false;
  std::string record, out;
};

// "stepscope experiment run …", wherever this machine keeps the program.
std::string typed(const CommandLine& line) {
  const std::string text = line.text();
  const size_t space = text.find(' ');
  return "stepscope" + (space == std::string::npos ? "" : text.substr(space));
}

std::string now_utc() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

fs::path source_root() {
  const char* root = std::getenv("STEPSCOPE_ROOT");
  return root && *root ? fs::path(root) : fs::path(kSourceDir);
}
fs::path studies(const fs::path& root) { return root / "experiments" / "studies"; }
fs::path ledger_file(const fs::path& folder) { return folder / "aa-ledger.jsonl"; }

// Results go to the studies of the source tree, or to --out, whose ledger goes on from the tree's.
fs::path results_folder(const std::string& out, const fs::path& root) {
  const fs::path folder = out.empty() ? studies(root) : fs::path(out);
  gpt2::check_folder_writable(folder, "--out");
  if (!out.empty() && !fs::exists(ledger_file(folder)) && fs::exists(ledger_file(studies(root))))
    fs::copy_file(ledger_file(studies(root)), ledger_file(folder));
  return folder;
}

void add_measure_flags(CLI::App& c, MeasureFlags& f) {
  c.add_option("--pairs", f.pairs,
               "pairs of fresh processes; extended once to twice as many if they decide nothing")
      ->capture_default_str();
  CLI::Option* fixed = c.add_flag("--no-extension", f.no_extension, "only the first look");
  c.add_flag("--sequential", f.sequential,
             "look at a half, three quarters and all of the pairs (6, 9, 12) at stricter levels and stop "
             "when one decides")
      ->excludes(fixed);
  f.quads_option =
      c.add_option("--quads", f.plan.quads,
                   "ABBA or BAAB quads in a pair, fewer where they would take longer than --pair-s")
          ->capture_default_str();
  f.of_stepping_arms.push_back(
      c.add_option(
           "--solo-s", f.plan.solo_s,
           "where the device was at its power cap, run each arm alone for so long afterwards; 0: never")
          ->capture_default_str());
  f.of_stepping_arms.push_back(
      c.add_option("--pair-s", f.plan.pair_s, "measured seconds of a pair, if 4 quads fit")
          ->capture_default_str());
  f.of_stepping_arms.push_back(
      c.add_option("--block-s", f.plan.block_s,
                   "a block takes so many seconds, or --block-steps if that is longer")
          ->capture_default_str());
  f.of_stepping_arms.push_back(c.add_option("--block-steps", f.plan.block_steps)->capture_default_str());
  f.of_stepping_arms.push_back(
      c.add_option("--warmup-s", f.plan.warmup_s,
                   "interleaved, thrown away; longer until the step time has settled")
          ->capture_default_str());
  f.of_stepping_arms.push_back(
      c.add_option("--start-timeout-s", f.plan.start_timeout_s, "until an arm is ready")
          ->capture_default_str());
  c.add_option("--block-timeout-s", f.plan.block_timeout_s, "of one block, or 20 times its expected time")
      ->capture_default_str();
  c.add_option("--minimum-effect", f.minimum_effect_pct,
               "percent that matter (default: the experiment file's, else 0.3)")
      ->check(CLI::Range(0.01, 50.0));
  c.add_option("--plant", f.plant_pct, "make every step of B so many percent longer: would it be seen?")
      ->check([](const std::string& text) {
        double pct = 0;
        return CLI::detail::lexical_cast(text, pct) && pct >= 0 && pct <= 1000
                   ? ""
                   : "expected a percentage from 0 to 1000";
      });
  f.of_stepping_arms.push_back(
      c.add_flag("--serial", f.serial, "steps do not overlap (always so with --plant)"));
  c.add_option("--order-seed", f.plan.seed,
               "of the order of starts and blocks; default: new each time, recorded")
      ->each([&f](const std::string&) { f.seed_given = true; });
}

// Plans that could never say faster or slower are refused before an hour is spent on them.
std::vector<experiments::Look> planned_looks(const MeasureFlags& f) {
  const int most = f.no_extension || f.sequential ? 26 : 13;  // the exact test enumerates 2^pairs
  if (f.pairs < 4 || f.pairs > most)
    throw InputError(fmt::format("--pairs is {}: expected 4 to {}{}", f.pairs, most,
                                 most == 13 ? " (twice that with the extension)" : ""));
  const auto looks = f.sequential
                         ? experiments::sequential_looks(f.pairs)
                         : experiments::extended_looks(f.pairs, f.no_extension ? f.pairs : 2 * f.pairs);
  if (std::ldexp(1.0, 1 - looks.back().pairs) > looks.back().sign_flip_alpha)
    throw InputError(fmt::format(
        "--pairs is {}: {} signs cannot be rarer than p = {:.3g}, and {} is needed to call anything "
        "different",
        f.pairs, looks.back().pairs, std::ldexp(1.0, 1 - looks.back().pairs), looks.back().sign_flip_alpha));
  return looks;
}

SessionOptions session_options(const MeasureFlags& f, const CommandLine& line) {
  SessionOptions o;
  o.root = source_root();
  o.program = line.program();
  o.built_here = fs::path(o.root) == fs::path(kSourceDir);
  o.command = typed(line);
  o.plan = f.plan;
  o.plan.thresholds.looks = planned_looks(f);
  if (f.minimum_effect_pct > 0) o.plan.thresholds.minimum_effect = f.minimum_effect_pct / 100;
  o.seed_given = f.seed_given;
  o.plant_pct = f.plant_pct;
  o.serial = f.serial;
  o.stop = &interrupted;
  o.progress = isatty(STDERR_FILENO);
  return o;
}

std::optional<ordered_json> last_verdict(const std::string& name, const fs::path& folder,
                                         const fs::path& root) {
  for (const fs::path& f : {folder / name / "verdict.json", studies(root) / name / "verdict.json"})
    if (fs::exists(f)) return experiments::load_verdict(f);
  return std::nullopt;
}

Verdict verdict_in(const ordered_json& document) {
  return experiments::verdict_from_name(document.at("verdict").get<std::string>()).value_or(Verdict::invalid);
}

// Same code that was measured says how often the procedure is wrong.
void record_same_code(const ordered_json& document, const fs::path& folder) {
  for (const ordered_json& w : document.at("workloads")) {
    if (w.at("reason") != experiments::reason::kSameCode) continue;
    const experiments::Decision d = experiments::decision_from_json(w.at("statistics"), "statistics");
    if (!d.log_ratio) continue;
    experiments::append_to_ledger(
        ledger_file(folder), {document.at("at"), document.at("environment").at("device"), w.at("workload"), 0,
                              d.verdict, d.log_ratio->n, d.log_ratio->mean, d.log_ratio->sd, "",
                              document.at("thresholds").at("minimum_effect_pct").get<double>()});
  }
}

std::vector<Experiment> chosen(const RunFlags& f, const fs::path& folder, const fs::path& root,
                               const std::string& device) {
  std::vector<Experiment> out;
  if (f.all) {
    if (!f.names.empty()) throw InputError("--all and names exclude each other");
    out = experiments::read_experiments(studies(root));
  }
  for (const std::string& name : f.names) out.push_back(experiments::find_experiment(studies(root), name));
  if (!f.changed) return out;
  std::erase_if(out, [&](const Experiment& e) {
    const auto verdict = last_verdict(e.name, folder, root);
    return verdict && experiments::stale_reasons(*verdict, e, root, device).empty();
  });
  return out;
}

// Two commands are run to their end: what concerns stepping arms has no meaning there.
void run_commands(const RunFlags& f, ExperimentSession& session, const fs::path& root, int& exit_code) {
  const fs::path folder = f.out.empty() ? fs::path() : results_folder(f.out, root);
  const auto ledger = experiments::read_ledger(ledger_file(f.out.empty() ? studies(root) : folder));
  const ordered_json document =
      session.run_commands(f.a, f.b, f.step_regex, f.skip_steps, f.gate_command, ledger);
  fmt::print("{}", f.json ? document.dump(1) + "\n" : experiments::summary_of(document));
  std::fflush(stdout);
  if (!folder.empty()) experiments::save_verdict(folder / "verdict.json", document);
  exit_code = experiments::exit_code_of(verdict_in(document));
}

// What the trainers' own command would refuse is refused before anything is gated; so is a change that is none.
void check_arguments(const Experiment& e) {
  const auto settled = [&](const experiments::Workload& w, char arm) {
    CLI::App parser;
    TrainerFlags flags;
    add_trainer_flags(parser, flags);
    std::vector<std::string> arguments = experiments::trainer_arguments(e, w, arm);
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
    try {
      parser.parse(arguments);
      settle(flags);
      gpt2::check_run(trainer_options(flags), loop_options(flags));
    } catch (const CLI::ParseError& error) {
      throw InputError(fmt::format("{}: arm {}, {}: {}", e.file.string(), arm, w.text(), error.what()));
    } catch (const InputError& error) {
      throw InputError(fmt::format("{}: arm {}, {}: {}", e.file.string(), arm, w.text(), error.what()));
    }
    return as_arguments(flags, flags.steps);
  };
  std::set<std::string> workloads;
  for (const experiments::Workload& w : e.workloads) {
    if (!workloads.insert(w.text()).second)
      throw InputError(fmt::format("{}: the workload {} is there twice", e.file.string(), w.text()));
    const auto a = settled(w, 'A'), b = settled(w, 'B');
    if (!e.frozen_baseline() && a == b)
      throw InputError(fmt::format("{}: `{}` changes nothing: both arms would run `stepscope {}`",
                                   e.file.string(), e.change_text, fmt::join(b, " ")));
  }
}

struct Ran {
  const Experiment* experiment = nullptr;
  std::optional<ordered_json> before;  // the verdict that stood
  ordered_json document;
  bool kept_before = false;  // the run was cut short, and what stood stands
};

// Several experiments in one command are one campaign. One that cannot be run here does not keep the others from running.
class Campaign {
 public:
  Campaign(const RunFlags& f, ExperimentSession& session, fs::path root, fs::path folder)
      : f_(f), session_(session), root_(std::move(root)), folder_(std::move(folder)) {}

  // Returns the exit code.
  int run(const std::vector<Experiment>& experiments) {
    for (const Experiment& e : experiments) {
      check_arguments(e);
      gpt2::check_folder_writable(folder_ / e.name, "the verdict's folder");
      if (!planted()) gpt2::check_folder_writable(page_of(e.name).parent_path(), "the page's folder");
    }
    int worst = 0;
    for (const Experiment& e : experiments) {
      if (session_.interrupted() && !ran_.empty()) break;
      try {
        measure(e);
      } catch (const InputError& error) {
        if (experiments.size() == 1) throw;
        fmt::print(stderr, "stepscope: {}: {}\n", e.name, error.what());
        worst = std::max(worst, 2);
      } catch (const stepscope::MachineError& error) {
        if (experiments.size() == 1) throw;
        fmt::print(stderr, "stepscope: {}: {}\n", e.name, error.what());
        worst = std::max(worst, 3);
      }
    }
    correct();
    if (f_.json) {
      ordered_json all = ordered_json::array();
      for (const Ran& r : ran_) all.push_back(r.document);
      fmt::print("{}\n", all.dump(1));
    }
    return worst > 0 ? worst : exit_code();
  }

 private:
  bool planted() const { return f_.measure.plant_pct > 0; }
  fs::path page_of(const std::string& name) const {
    return f_.out.empty() ? root_ / "docs" / "study" / (name + ".md") : folder_ / (name + ".md");
  }
  fs::path verdict_of(const std::string& name) const { return folder_ / name / "verdict.json"; }

  void measure(const Experiment& e) {
    Ran r;
    r.experiment = &e;
    r.before = last_verdict(e.name, folder_, root_);
    r.document = session_.run(e, experiments::read_ledger(ledger_file(folder_)));
    r.kept_before =
        experiments::was_cut_short(r.document) && r.before && !experiments::was_cut_short(*r.before);
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
      fmt::print(stderr, "stepscope: {}: cut short, so the verdict of {} stands; this attempt is {}\n", name,
                 r.before->value("at", "before"), file.string());
    } else {
      experiments::save_verdict(verdict_of(name), r.document);
      experiments::write_page(page_of(name), r.document);
    }
  }

  void correct() {
    std::vector<ordered_json> documents;
    for (const Ran& r : ran_) documents.push_back(r.document);
    const std::vector<bool> corrected = experiments::correct_campaign(documents, {});
    for (size_t i = 0; i < ran_.size(); ++i) {
      if (!corrected[i]) continue;
      ran_[i].document = documents[i];
      if (!f_.json)
        fmt::print("corrected for {} experiments:\n{}\n", documents.size(),
                   experiments::summary_of(documents[i]));
      save(ran_[i]);
    }
  }

  int exit_code() const {
    int worst = 0;
    for (const Ran& r : ran_) {
      int code = experiments::exit_code_of(verdict_in(r.document));
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
  ExperimentSession& session_;
  fs::path root_, folder_;
  std::vector<Ran> ran_;
};

void run(const RunFlags& f, const CommandLine& line, int& exit_code) {
  const fs::path root = source_root();
  const bool commands = !f.a.empty() || !f.b.empty();
  if (commands && (f.a.empty() || f.b.empty())) throw InputError("--a CMD and --b CMD go together");
  if (commands && (f.all || !f.names.empty())) throw InputError("--a and --b exclude names and --all");
  if (commands && f.measure.plant_pct > 0)
    throw InputError("--plant: nothing can be planted into a command; plant it there yourself");
  if (commands)
    for (const CLI::Option* o : f.measure.of_stepping_arms)
      if (o->count() > 0)
        throw InputError(fmt::format(
            "{}: only of trainers that step on command; a command is run to its end once per block",
            o->get_name()));
  if (!commands && !f.all && f.names.empty())
    throw InputError(
        "expected NAME…, --all, or --a CMD --b CMD; `stepscope experiment list` shows the names");
  const CatchInterrupt guard;
  SessionOptions options = session_options(f.measure, line);
  options.profile = !f.no_profile;
  options.keep_profiles = f.keep_profiles;
  if (!f.keep_profiles.empty()) gpt2::check_folder_writable(f.keep_profiles, "--keep-profiles");
  options.command_steps = f.command_steps;
  // A command's block is a whole process: one quad of four makes a pair, unless told otherwise.
  if (commands && f.measure.quads_option->count() == 0) options.plan.quads = 1;
  ExperimentSession session(std::move(options));
  if (commands) return run_commands(f, session, root, exit_code);

  const fs::path folder = results_folder(f.out, root);
  std::vector<Experiment> experiments_to_run =
      chosen(f, folder, root, session.gpu().present ? session.gpu().name : "");
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

std::string resampled(const std::vector<experiments::PairValue>& pairs,
                      const experiments::Thresholds& thresholds) {
  std::string out;
  for (const double planted_pct : {0.0, 0.3, 1.0, 5.0}) {
    const auto r = experiments::resample_trials(pairs, thresholds, kResampledTrials,
                                                std::log1p(planted_pct / 100), 20261121);
    if (!r)
      return fmt::format("{} pairs are too few to resample {} of them\n", pairs.size(),
                         thresholds.looks.front().pairs);
    out += fmt::format(
        "  {} resampled trials, {:.1f}% planted: called different {:.1f}%, same {:.1f}%, undecided {:.1f}%\n",
        r->trials, planted_pct, 100 * r->rate(),
        100 * static_cast<double>(r->same) / static_cast<double>(r->trials),
        100 * static_cast<double>(r->undecided) / static_cast<double>(r->trials));
  }
  std::vector<double> values;
  for (const auto& p : pairs) values.push_back(p.log_ratio);
  if (const auto e = experiments::estimate(values))
    out += fmt::format("  {} pairs: mean {:+.3f}%, sd {:.3f}%; bias of the procedure: p = {:.2f}\n", e->n,
                       experiments::ratio_pct(e->mean), 100 * e->sd,
                       experiments::slot_bias_p_value(pairs).value_or(1));
  return out;
}

// As the ledger keeps it: trials of different plans are different tests.
std::string procedure_of(const experiments::PairPlan& p) {
  std::vector<int> looks;
  for (const experiments::Look& l : p.thresholds.looks) looks.push_back(l.pairs);
  return fmt::format("looks at {} pairs, {} quads of {} s and {} steps", fmt::join(looks, "/"), p.quads,
                     p.block_s, p.block_steps);
}

void aa(const AaFlags& f, const CommandLine& line, int& exit_code) {
  if (f.trials < 1) throw InputError(fmt::format("--trials is {}: expected at least 1", f.trials));
  if (!f.record.empty()) gpt2::check_file_writable(f.record, "--record");
  const fs::path root = source_root(), folder = results_folder(f.out, root);
  const CatchInterrupt guard;
  TrainerFlags flags = f.trainer;
  if (const auto notice = settle(flags)) fmt::print(stderr, "stepscope: {}\n", *notice);
  std::vector<std::string> arguments = as_arguments(flags, flags.steps);
  arguments.erase(arguments.begin());  // "train"
  const experiments::Workload workload{flags.model, flags.batch_size, flags.seq_len, flags.matmul,
                                       std::nullopt};
  const std::string what = fmt::format("{} {}", flags.trainer, workload.text());
  SessionOptions options = session_options(f.measure, line);
  options.plan.solo_s = 0;  // identical code heats itself alike
  const experiments::Thresholds thresholds = options.plan.thresholds;
  const std::string procedure = procedure_of(options.plan);
  ExperimentSession session(std::move(options));
  if (!f.no_gate) {
    experiments::GateSummary gate;
    try {
      gate = session.gate(arguments);
    } catch (const experiments::Interrupted&) {
      fmt::print(stderr, "stepscope: interrupted in the gate; nothing was measured\n");
      exit_code = 4;
      return;
    }
    if (!gate.passed)
      throw std::runtime_error(
          fmt::format("the trainer did not pass the gate and is not timed: {}", gate.sentence));
  }
  ordered_json pairs = ordered_json::array();
  int faster = 0, slower = 0, same = 0, undecided = 0;
  const double planted = f.measure.plant_pct;
  bool failed = false;
  for (int trial = 1; trial <= f.trials && !session.interrupted() && !failed; ++trial) {
    const experiments::RunLog log = session.run_identical(arguments);
    const experiments::Decision& d = log.decision;
    double seconds = 0;
    for (const auto& p : log.pairs) seconds += p.seconds;
    fmt::print("trial {:2}: {} | {} | {:.0f} s\n", trial, name(d.verdict), d.sentence, seconds);
    std::fflush(stdout);
    if (d.reason == experiments::reason::kInterrupted) break;  // it was no trial
    faster += d.verdict == Verdict::faster;
    slower += d.verdict == Verdict::slower;
    same += d.verdict == Verdict::same;
    undecided += d.verdict == Verdict::undecided;
    failed = d.verdict == Verdict::invalid;
    if (planted == 0)
      for (ordered_json& p : experiments::pairs_to_json(log)) pairs.push_back(std::move(p));
    if (d.log_ratio && d.verdict != Verdict::invalid)
      experiments::append_to_ledger(
          ledger_file(folder),
          {now_utc(), session.device(), what, planted, d.verdict, d.log_ratio->n, d.log_ratio->mean,
           d.log_ratio->sd, procedure, 100 * thresholds.minimum_effect});
    if (!f.record.empty() && planted == 0)
      gpt2::write_file_atomically(f.record, ordered_json{{"schema", kRecordingSchema},
                                                         {"at", now_utc()},
                                                         {"device", session.device()},
                                                         {"what", what},
                                                         {"command", typed(line)},
                                                         {"git_revision", kGitRevision},
                                                         {"pairs", pairs}}
                                                    .dump() +
                                                "\n");
  }
  fmt::print("{} on {}, planted {}%: {} faster, {} slower, {} same, {} undecided\n", what, session.device(),
             planted, faster, slower, same, undecided);
  if (planted == 0) {
    experiments::Thresholds
        standard;  // however the pairs were recorded, it is the plan of an experiment that is resampled
    standard.minimum_effect = thresholds.minimum_effect;
    fmt::print("{}", resampled(experiments::pair_values_from_json(pairs, "pairs"), standard));
  }
  fmt::print("{}\n",
             experiments::summarize(experiments::read_ledger(ledger_file(folder)), session.device()).text());
  const int trials = faster + slower + same + undecided;
  if (failed || faster > 0 || (planted == 0 && slower > 0))
    exit_code = 1;
  else if (session.interrupted())
    exit_code = 4;
  else if (planted >= 1 && 10 * slower < 9 * trials)
    exit_code = 1;
}

void resample(const std::vector<std::string>& files, const MeasureFlags& measure) {
  experiments::Thresholds t = measure.plan.thresholds;
  t.looks = planned_looks(measure);
  if (measure.minimum_effect_pct > 0) t.minimum_effect = measure.minimum_effect_pct / 100;
  for (const std::string& file : files) {
    std::ifstream in(file, std::ios::binary);
    if (!in) throw InputError(fmt::format("{}: cannot be read", file));
    const ordered_json d =
        ordered_json::parse(std::string{std::istreambuf_iterator<char>(in), {}}, nullptr, false);
    if (!d.is_object() || !d.contains("schema") || d["schema"] != kRecordingSchema || !d.contains("pairs"))
      throw InputError(fmt::format("{}: expected a {} document, as `experiment aa --record` writes it", file,
                                   kRecordingSchema));
    const auto pairs = experiments::pair_values_from_json(d.at("pairs"), file);
    if (static_cast<int>(pairs.size()) < t.looks.front().pairs)
      throw InputError(fmt::format("{}: {} pairs are too few to resample {} of them", file, pairs.size(),
                                   t.looks.front().pairs));
    fmt::print("{}: {} on {}, {}\n{}", file, d.value("what", ""), d.value("device", ""), d.value("at", ""),
               resampled(pairs, t));
  }
}

void list(bool json) {
  const fs::path root = source_root();
  const GpuStatus gpu = gpu_status();
  ordered_json all = ordered_json::array();
  for (const Experiment& e : experiments::read_experiments(studies(root))) {
    std::optional<ordered_json> verdict;
    std::vector<std::string> stale;
    try {
      verdict = last_verdict(e.name, studies(root), root);
    } catch (const InputError& error) {  // the others are listed all the same
      fmt::print(stderr, "stepscope: {}\n", error.what());
    }
    if (verdict) stale = experiments::stale_reasons(*verdict, e, root, gpu.present ? gpu.name : "");
    if (json) {
      ordered_json row{{"name", e.name}, {"question", e.question}, {"change", e.change_text}};
      if (verdict)
        row.update({{"verdict", (*verdict)["verdict"]}, {"at", (*verdict)["at"]}, {"stale", stale}});
      all.push_back(row);
      continue;
    }
    fmt::print("{}\n  {}\n  change: {}\n", e.name, e.question, e.change_text);
    if (!verdict) {
      fmt::print("  never run\n");
      continue;
    }
    for (const ordered_json& w : verdict->at("workloads"))
      fmt::print("  {}: {} ({})\n", w.at("workload").get<std::string>(), w.at("verdict").get<std::string>(),
                 w.at("sentence").get<std::string>());
    fmt::print("  {}{}\n", verdict->at("at").get<std::string>(),
               stale.empty() ? "" : fmt::format("; STALE: {}", fmt::join(stale, "; ")));
  }
  if (json) fmt::print("{}\n", all.dump(1));
}

void index() {
  const fs::path root = source_root(), page = root / "docs" / "study" / "README.md";
  auto verdicts = experiments::read_verdicts(studies(root));
  // All that is shown in one table is one campaign, however many commands measured it.
  for (ordered_json& v : verdicts) experiments::decide_again(v);
  experiments::correct_campaign(verdicts, {});
  for (const ordered_json& v : verdicts) {
    const std::string name = v.at("name").get<std::string>();
    experiments::save_verdict(studies(root) / name / "verdict.json", v);
    experiments::write_page(root / "docs" / "study" / (name + ".md"), v);
  }
  std::ifstream in(page, std::ios::binary);
  const std::string before{std::istreambuf_iterator<char>(in), {}};
  gpt2::write_file_atomically(page, experiments::with_index(before, experiments::index_table(verdicts)));
  fmt::print("{}: {} experiments\n", page.string(), verdicts.size());
}

}  // namespace

void add_experiment_command(CLI::App& app, const CommandLine& line, int& exit_code) {
  CLI::App* c = app.add_subcommand(
      "experiment", "Did a change make the step faster? A gate, pairs of processes, a verdict");
  c->require_subcommand(1);

  auto json = std::make_shared<bool>(false);
  CLI::App* l =
      c->add_subcommand("list", "All experiments, their last verdicts, and which of them no longer hold");
  l->add_flag("--json", *json);
  l->callback([json] { list(*json); });

  auto r = std::make_shared<RunFlags>();
  CLI::App* run_command =
      c->add_subcommand("run", "Gate both arms, measure, decide, write verdict.json and a page");
  run_command->add_option("name", r->names, "experiments by name or file");
  run_command->add_flag("--all", r->all, "every experiment");
  run_command->add_flag(
      "--changed", r->changed,
      "only those whose code, file or device changed; exit 1 only where a verdict became worse");
  run_command->add_option("--a", r->a, "any command instead of an experiment: arm A");
  run_command->add_option("--b", r->b, "arm B; both are run to their end once per block");
  run_command->add_option("--step-regex", r->step_regex,
                          "where a command's step times are: the first group is milliseconds");
  run_command->add_option("--skip-steps", r->skip_steps,
                          "of each command run, left out (default: a tenth, 1 to 10)");
  run_command->add_option("--gate-command", r->gate_command,
                          "with --a and --b: exits 0 when both compute the right thing");
  run_command->add_option("--command-steps", r->command_steps, "steps of a frozen baseline in a block")
      ->capture_default_str();
  run_command->add_option(
      "--out", r->out, "where verdicts, pages and the ledger go (default: experiments/studies, docs/study)");
  run_command->add_flag("--no-profile", r->no_profile,
                        "no profile of the arms: no waterfall, same code is not recognized");
  run_command->add_option("--keep-profiles", r->keep_profiles,
                          "folder for the profile documents of both arms");
  run_command->add_flag("--json", r->json);
  add_measure_flags(*run_command, r->measure);
  run_command->footer(
      "Exit 0: faster or the same. 1: slower, or invalid (gate, crash). 4: undecided.\n"
      "Examples:\n"
      "  stepscope experiment run fp32-zero-grad-memset\n"
      "  stepscope experiment run --all --changed\n"
      "  stepscope experiment run --a './train_gpt2cu -x 40' --b './mine --steps 40' --step-regex '([0-9.]+) "
      "ms'");
  run_command->callback([r, line, &exit_code] { run(*r, line, exit_code); });

  auto a = std::make_shared<AaFlags>();
  CLI::App* aa_command =
      c->add_subcommand("aa", "The procedure against itself: identical code, or a planted slowdown");
  add_trainer_flags(*aa_command, a->trainer);
  add_measure_flags(*aa_command, a->measure);
  aa_command->add_option("--trials", a->trials, "whole experiments, one after the other")
      ->capture_default_str();
  aa_command->add_option("--record", a->record,
                         "keep the pairs of all trials (without a plant) for `experiment resample`");
  aa_command->add_option("--out", a->out, "where the ledger goes (default: experiments/studies)");
  aa_command->add_flag("--no-gate", a->no_gate, "identical code needs no gate to be compared with itself");
  aa_command->footer(
      "Exit 0: nothing was called different that is not. 1: something was, or a planted 1% was missed more "
      "than once in ten.\n"
      "Examples:\n"
      "  stepscope experiment aa --trainer fp32 --model d12 --trials 10 --record aa.json\n"
      "  stepscope experiment aa --trainer fp32 --model d12 --trials 10 --plant 1");
  aa_command->callback([a, line, &exit_code] { aa(*a, line, exit_code); });

  auto files = std::make_shared<std::vector<std::string>>();
  auto m = std::make_shared<MeasureFlags>();
  CLI::App* resample_command =
      c->add_subcommand("resample", "Error rates of the procedure from recorded A/A pairs");
  resample_command->add_option("file", *files, "what `experiment aa --record` wrote")->required();
  add_measure_flags(*resample_command, *m);
  resample_command->callback([files, m] { resample(*files, *m); });

  CLI::App* index_command = c->add_subcommand("index",
                                              "Decide again from the recorded pairs of all verdict files, as "
                                              "one campaign; make their pages and the table");
  index_command->callback([] { index(); });
  c->footer(
      "Examples:\n  stepscope experiment list\n  stepscope experiment run NAME\n  stepscope experiment aa "
      "--trials 10");
}

}  // namespace cli

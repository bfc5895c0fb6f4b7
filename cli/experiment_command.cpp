// `stepscope experiment`: list, run, aa, resample, index. What runs and decides is in experiment_session.cpp
// and experiments/; here are flags, files and exit codes.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

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

// The first ctrl-C ends the measurement and keeps it; a second one ends the program.
class CatchInterrupt {
 public:
  CatchInterrupt() {
    struct sigaction action = {};
    action.sa_handler = [](int) { interrupted = true; };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(SIGINT, &action, &before_[0]);
    sigaction(SIGTERM, &action, &before_[1]);
  }
  ~CatchInterrupt() {
    sigaction(SIGINT, &before_[0], nullptr);
    sigaction(SIGTERM, &before_[1], nullptr);
  }
  CatchInterrupt(const CatchInterrupt&) = delete;
  CatchInterrupt& operator=(const CatchInterrupt&) = delete;

 private:
  struct sigaction before_[2];
};

struct MeasureFlags {
  experiments::PairPlan plan;
  int pairs = 12;
  bool no_extension = false, sequential = false, seed_given = false, serial = false;
  double plant_pct = 0, minimum_effect_pct = 0;  // 0 = the file's, or 0.3
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
  c.add_option("--pairs", f.pairs, "pairs of fresh processes; extended once to twice as many if they decide nothing")
      ->capture_default_str();
  CLI::Option* fixed = c.add_flag("--no-extension", f.no_extension, "only the first look");
  c.add_flag("--sequential", f.sequential,
             "look at a half, three quarters and all of the pairs (6, 9, 12) at stricter levels and stop when one decides")
      ->excludes(fixed);
  c.add_option("--quads", f.plan.quads, "ABBA or BAAB quads in a pair, fewer where they would take longer than --pair-s")->capture_default_str();
  c.add_option("--solo-s", f.plan.solo_s, "where the device was at its power cap, run each arm alone for so long afterwards; 0: never")->capture_default_str();
  c.add_option("--pair-s", f.plan.pair_s, "measured seconds of a pair, if 4 quads fit")->capture_default_str();
  c.add_option("--block-s", f.plan.block_s,
               "a block takes so many seconds, or --block-steps if that is longer")
      ->capture_default_str();
  c.add_option("--block-steps", f.plan.block_steps)->capture_default_str();
  c.add_option("--warmup-s", f.plan.warmup_s,
               "interleaved, thrown away; longer until the step time has settled")
      ->capture_default_str();
  c.add_option("--start-timeout-s", f.plan.start_timeout_s, "until an arm is ready")->capture_default_str();
  c.add_option("--block-timeout-s", f.plan.block_timeout_s, "of one block, or 20 times its expected time")
      ->capture_default_str();
  c.add_option("--minimum-effect", f.minimum_effect_pct,
               "percent that matter (default: the experiment file's, else 0.3)")
      ->check(CLI::Range(0.01, 50.0));
  c.add_option("--plant", f.plant_pct, "make every step of B so many percent longer: would it be seen?")
      ->check(CLI::Range(0.0, 1000.0));
  c.add_flag("--serial", f.serial, "steps do not overlap (always so with --plant)");
  c.add_option("--order-seed", f.plan.seed,
               "of the order of starts and blocks; default: new each time, recorded")
      ->each([&f](const std::string&) { f.seed_given = true; });
}

std::vector<experiments::Look> planned_looks(const MeasureFlags& f) {
  if (f.sequential) {
    if (f.pairs < 6) throw InputError(fmt::format("--pairs is {}: expected at least 6 with --sequential", f.pairs));
    return experiments::sequential_looks(f.pairs);
  }
  return experiments::extended_looks(f.pairs, f.no_extension ? f.pairs : 2 * f.pairs);
}

SessionOptions session_options(const MeasureFlags& f, const CommandLine& line) {
  SessionOptions o;
  o.root = source_root();
  o.program = line.program();
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
                              d.verdict, d.log_ratio->n, d.log_ratio->mean, d.log_ratio->sd});
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

void run(const RunFlags& f, const CommandLine& line, int& exit_code) {
  const fs::path root = source_root();
  const bool commands = !f.a.empty() || !f.b.empty();
  if (commands && (f.a.empty() || f.b.empty())) throw InputError("--a CMD and --b CMD go together");
  if (commands && (f.all || !f.names.empty())) throw InputError("--a and --b exclude names and --all");
  if (commands && f.measure.plant_pct > 0)
    throw InputError("--plant: nothing can be planted into a command; plant it there yourself");
  if (!commands && !f.all && f.names.empty())
    throw InputError(
        "expected NAME…, --all, or --a CMD --b CMD; `stepscope experiment list` shows the names");
  const CatchInterrupt guard;
  SessionOptions options = session_options(f.measure, line);
  options.profile = !f.no_profile;
  options.keep_profiles = f.keep_profiles;
  if (!f.keep_profiles.empty()) gpt2::check_folder_writable(f.keep_profiles, "--keep-profiles");
  options.command_steps = f.command_steps;
  const experiments::Thresholds thresholds = options.plan.thresholds;
  ExperimentSession session(std::move(options));

  if (commands) {
    const fs::path folder = f.out.empty() ? fs::path() : results_folder(f.out, root);
    const auto ledger = experiments::summarize(
        experiments::read_ledger(ledger_file(f.out.empty() ? studies(root) : folder)), session.device());
    const ordered_json document =
        session.run_commands(f.a, f.b, f.step_regex, f.skip_steps, f.gate_command, ledger);
    if (!folder.empty()) experiments::save_verdict(folder / "verdict.json", document);
    fmt::print("{}", f.json ? document.dump(1) + "\n" : experiments::summary_of(document));
    exit_code = experiments::exit_code_of(verdict_in(document));
    return;
  }

  const fs::path folder = results_folder(f.out, root);
  std::vector<Experiment> experiments_to_run =
      chosen(f, folder, root, session.gpu().present ? session.gpu().name : "");
  if (f.measure.minimum_effect_pct > 0)
    for (Experiment& e : experiments_to_run) e.minimum_effect_pct = f.measure.minimum_effect_pct;
  if (experiments_to_run.empty()) {
    fmt::print("nothing to run: {}\n", f.changed ? "every verdict still holds" : "there is no experiment");
    return;
  }
  std::vector<std::optional<Verdict>> before;
  std::vector<ordered_json> documents;
  const auto file_of = [&](const std::string& name) { return folder / name / "verdict.json"; };
  for (const Experiment& e : experiments_to_run) {
    if (session.interrupted() && !documents.empty()) break;
    const auto last = last_verdict(e.name, folder, root);
    before.push_back(last ? std::optional(verdict_in(*last)) : std::nullopt);
    const auto ledger =
        experiments::summarize(experiments::read_ledger(ledger_file(folder)), session.device());
    documents.push_back(session.run(e, ledger));
    // A planted slowdown is a test of the procedure: its document is shown and kept apart.
    experiments::save_verdict(f.measure.plant_pct > 0 ? folder / e.name / "planted.json" : file_of(e.name),
                              documents.back());
    if (f.measure.plant_pct == 0) record_same_code(documents.back(), folder);
    if (!f.json) fmt::print("{}\n", experiments::summary_of(documents.back()));
    std::fflush(stdout);
  }
  const std::vector<bool> corrected = experiments::correct_campaign(documents, thresholds);
  int worst = 0;
  for (size_t i = 0; i < documents.size(); ++i) {
    const std::string name = documents[i].at("name");
    if (corrected[i] && f.measure.plant_pct == 0) {
      experiments::save_verdict(file_of(name), documents[i]);
      if (!f.json)
        fmt::print("corrected for {} experiments:\n{}\n", documents.size(),
                   experiments::summary_of(documents[i]));
    }
    if (f.measure.plant_pct == 0)
      experiments::write_page(
          f.out.empty() ? root / "docs" / "study" / (name + ".md") : folder / (name + ".md"), documents[i]);
    const Verdict now = verdict_in(documents[i]);
    int code = experiments::exit_code_of(now);
    // Of experiments that are run again: an idea that never helped is no regression.
    if (f.changed && code == 1 && !experiments::is_regression(before[i], now)) code = 0;
    if (f.changed && experiments::is_regression(before[i], now)) code = 1;
    if (code == 1 || (code == 4 && worst == 0)) worst = code;
  }
  if (f.json) {
    ordered_json all = ordered_json::array();
    for (const ordered_json& d : documents) all.push_back(d);
    fmt::print("{}\n", all.dump(1));
  }
  exit_code = worst;
}

std::string resampled(const std::vector<experiments::PairValue>& pairs,
                      const experiments::Thresholds& thresholds) {
  std::string out;
  for (const double planted_pct : {0.0, 0.3, 1.0, 5.0}) {
    const auto r = experiments::resample_trials(pairs, thresholds, kResampledTrials,
                                                std::log1p(planted_pct / 100), 20261121);
    if (!r)
      return fmt::format("{} pairs are too few to resample {} of them\n", pairs.size(), thresholds.looks.front().pairs);
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
  ExperimentSession session(std::move(options));
  if (!f.no_gate) {
    const auto gate = session.gate(arguments);
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
    faster += d.verdict == Verdict::faster;
    slower += d.verdict == Verdict::slower;
    same += d.verdict == Verdict::same;
    undecided += d.verdict == Verdict::undecided;
    failed = d.verdict == Verdict::invalid;
    if (planted == 0)
      for (ordered_json& p : experiments::pairs_to_json(log)) pairs.push_back(std::move(p));
    // A trial that ctrl-C cut short was not one.
    if (d.log_ratio && d.verdict != Verdict::invalid && d.reason != experiments::reason::kInterrupted)
      experiments::append_to_ledger(ledger_file(folder),
                                    {now_utc(), session.device(), what, planted, d.verdict, d.log_ratio->n,
                                     d.log_ratio->mean, d.log_ratio->sd});
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
  if (failed || faster > 0 || (planted == 0 && slower > 0) || (planted >= 1 && 10 * slower < 9 * trials))
    exit_code = 1;
  else if (session.interrupted())
    exit_code = 4;
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
    if (!d.is_object() || d.value("schema", "") != kRecordingSchema)
      throw InputError(fmt::format("{}: expected a {} document, as `experiment aa --record` writes it", file,
                                   kRecordingSchema));
    fmt::print("{}: {} on {}, {}\n{}", file, d.value("what", ""), d.value("device", ""), d.value("at", ""),
               resampled(experiments::pair_values_from_json(d.at("pairs"), file), t));
  }
}

void list(bool json) {
  const fs::path root = source_root();
  const GpuStatus gpu = gpu_status();
  ordered_json all = ordered_json::array();
  for (const Experiment& e : experiments::read_experiments(studies(root))) {
    const auto verdict = last_verdict(e.name, studies(root), root);
    std::vector<std::string> stale;
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
  const auto verdicts = experiments::read_verdicts(studies(root));
  for (const ordered_json& v : verdicts)
    experiments::write_page(root / "docs" / "study" / (v.at("name").get<std::string>() + ".md"), v);
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

  CLI::App* index_command =
      c->add_subcommand("index", "Make the pages and the table in docs/study again from the verdict files");
  index_command->callback([] { index(); });
  c->footer(
      "Examples:\n  stepscope experiment list\n  stepscope experiment run NAME\n  stepscope experiment aa "
      "--trials 10");
}

}  // namespace cli

#include "cli/experiment_session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>
#include <set>
#include <tuple>

#include "base/errors.h"
#include "base/sha256.h"
#include "base/temporary_folder.h"
#include "base/utc.h"
#include "build_info.inc"
#include "cli/collector.h"
#include "cli/device_watch.h"
#include "experiments/baseline/manifest.h"
#include "experiments/gate/timed_steps.h"
#include "experiments/verdict/physical_floor.h"
#include "experiments/verdict/prediction.h"
#include "experiments/verdict/stale.h"
#include "profiler/document/json.h"
#include "profiler/recording/recording.h"

namespace cli {
namespace {

namespace fs = std::filesystem;
using experiments::ArmSpec;
using experiments::ChildProcessGroup;
using experiments::Experiment;
using experiments::GateSummary;
using experiments::RunLog;
using experiments::Verdict;
using experiments::Workload;
using experiments::WorkloadResult;
using nlohmann::ordered_json;
using stepscope::InputError;
using stepscope::MachineError;
using stepscope::TemporaryFolder;
using Arguments = std::vector<std::string>;

constexpr int kProfiledSteps = 10, kProfileWarmup = 10;
// Of a program with step ranges that is profiled: warm-up, timed, two counted, and traced steps with two thrown away.
constexpr int kStepsToProfile = kProfileWarmup + kProfiledSteps + 2 + 7;

struct Output {
  enum class End { ended, timeout, interrupted } end = End::ended;
  ChildProcessGroup::Ending ending;
  std::string text, last_words;
};

// Runs a program to its end and keeps what it printed to stdout.
Output run_to_end(const Arguments& argv, double timeout_s, const std::atomic<bool>* stop, bool merge_streams) {
  // Processes that it leaves behind must not run beside the next measurement.
  struct Sweep {
    std::vector<pid_t> others = experiments::children_of_this_process();
    ~Sweep() { experiments::kill_orphans(others); }
  } const sweep;
  ChildProcessGroup child({argv, {}, false, merge_streams});
  const auto deadline =
      experiments::Clock::now() + std::chrono::duration_cast<experiments::Clock::duration>(std::chrono::duration<double>(timeout_s));
  Output out;
  std::string line;
  while (true) {
    const auto read = child.read_line(line, deadline, stop);
    if (read == ChildProcessGroup::Read::line) {
      out.text += line + "\n";
      continue;
    }
    if (read == ChildProcessGroup::Read::timeout) out.end = Output::End::timeout;
    if (read == ChildProcessGroup::Read::interrupted) out.end = Output::End::interrupted;
    break;
  }
  if (out.end == Output::End::ended) {
    if (const auto ending = child.wait(deadline))
      out.ending = *ending;
    else
      out.end = Output::End::timeout;
  }
  out.last_words = child.last_words();
  return out;
}

std::string value_of(const Arguments& arguments, const std::string& flag) {
  for (size_t i = 0; i + 1 < arguments.size(); ++i)
    if (arguments[i] == flag) return arguments[i + 1];
  return "";
}

// With a value each.
const std::set<std::string> kGated{"--trainer", "--matmul", "--variant", "--recompute", "--weight-rounding"};
const std::set<std::string> kOfTheWorkload{"--model", "--batch-size", "--seq-len"};

// The arguments of an arm that the gate needs: trainer, matrix products, variants and options. The gate must check what the
// arm runs: its own default for the mixed trainer is the deterministic variants, an arm's is not.
Arguments gate_arguments(const Arguments& trainer_arguments) {
  Arguments out;
  for (size_t i = 0; i + 1 < trainer_arguments.size(); ++i)
    if (kGated.count(trainer_arguments[i])) out.insert(out.end(), {trainer_arguments[i], trainer_arguments[i + 1]});
  const bool deterministic = std::find(trainer_arguments.begin(), trainer_arguments.end(), "--deterministic") != trainer_arguments.end();
  if (!deterministic && value_of(trainer_arguments, "--trainer") == "mixed") out.emplace_back("--not-deterministic");
  return out;
}

// "; without --clip, which the gate sets itself": flags of the arm, other than its workload, that the gate does not take.
std::string flags_not_gated(const Arguments& trainer_arguments) {
  std::vector<std::string> out;
  for (const std::string& a : trainer_arguments)
    if (a.starts_with("--") && !kGated.count(a) && !kOfTheWorkload.count(a) && a != "--deterministic") out.push_back(a);
  return out.empty() ? "" : fmt::format("; without {}, which the gate does not take", fmt::join(out, ", "));
}

// Both arms of a CPU comparison live at once: OpenMP threads that spin while they wait would take the cores
// from the arm whose turn it is.
std::map<std::string, std::string> arm_environment() { return {{"OMP_WAIT_POLICY", "passive"}}; }

// A command as a reader can type it: the folder of a program on the measuring machine means nothing elsewhere.
Arguments without_folder(Arguments argv) {
  argv[0] = fs::path(argv[0]).filename().string();
  return argv;
}

// A frozen baseline's command with at least so many steps.
Arguments with_steps(Arguments argv, int least) {
  for (size_t i = 0; i + 1 < argv.size(); ++i)
    if (argv[i] == "--steps") argv[i + 1] = std::to_string(std::max(least, std::stoi(argv[i + 1])));
  return argv;
}

bool on_cpu(const Arguments& trainer_arguments) { return value_of(trainer_arguments, "--trainer") == "reference"; }

void refuse(WorkloadResult& r, std::string_view reason, std::string sentence) {
  r.log.decision.verdict = Verdict::invalid;
  r.log.decision.reason = reason;
  r.log.decision.sentence = std::move(sentence);
  r.waterfall_absent = "nothing was measured";
}

}  // namespace

ExperimentSession::ExperimentSession(SessionOptions options) : options_(std::move(options)), gpu_(gpu_status()) {
  if (gpu_.present) device_ = gpu_.name;
  if (!options_.seed_given) options_.plan.seed = (uint64_t{std::random_device{}()} << 32) | std::random_device{}();
}

const std::string& ExperimentSession::program_sha256() {
  if (program_sha256_.empty()) program_sha256_ = gpt2::sha256_file(options_.program);
  return program_sha256_;
}

GateSummary ExperimentSession::gate(const Arguments& trainer_arguments) {
  Arguments argv = gate_arguments(trainer_arguments);
  const std::string trainer = value_of(argv, "--trainer"), key = fmt::format("{}", fmt::join(argv, " "));
  if (const auto known = gates_.find(key); known != gates_.end()) {
    GateSummary g = known->second;
    g.sentence += flags_not_gated(trainer_arguments);
    return g;
  }
  // The op checks cover every variant of the trainer: once per session.
  bool ops_done = false;
  for (const auto& [other, summary] : gates_) ops_done |= other.find("--trainer " + trainer) != std::string::npos && summary.passed;
  argv.insert(argv.begin(), {options_.program, "gate"});
  argv.emplace_back("--json");
  if (ops_done) argv.emplace_back("--no-ops");
  if (options_.progress) fmt::print(stderr, "gate: {}\n", key);
  GateSummary g;
  g.checked = true;
  const Output out = run_to_end(argv, options_.gate_timeout_s, options_.stop, false);
  if (out.end == Output::End::interrupted) throw experiments::Interrupted();
  if (out.end == Output::End::timeout) {
    g.sentence = fmt::format("the gate did not end within {:.0f} s", options_.gate_timeout_s);
    return g;
  }
  if (out.ending.exited && out.ending.code == 3) throw MachineError(out.last_words);
  if (out.ending.exited && out.ending.code == 2) throw InputError(out.last_words);
  const ordered_json report = ordered_json::parse(out.text, nullptr, false);
  if (!report.is_object() || !report.contains("passed") || !report.contains("reports")) {
    g.sentence = fmt::format("the gate {} without a report; its last output: {}", out.ending.text(), out.last_words);
    return g;
  }
  int64_t checks = 0;
  std::string seed;
  for (const ordered_json& r : report["reports"]) {
    if (r.contains("seed")) seed = fmt::format(" (seed {})", r["seed"].get<uint64_t>());
    for (const ordered_json& c : r["checks"]) {
      ++checks;
      if (!c["passed"].get<bool>())
        g.failures.push_back(fmt::format("{} {}: error {} over budget {}", c["name"].get<std::string>(), c["tensor"].get<std::string>(),
                                         c["error"].dump(), c["budget"].dump()));
    }
  }
  g.passed = report["passed"] == true && out.ending.exited && out.ending.code == 0;
  g.sentence =
      g.passed ? fmt::format("{} checks passed{}", checks, seed) : fmt::format("{} of {} checks failed{}", g.failures.size(), checks, seed);
  gates_[key] = g;
  g.sentence += flags_not_gated(trainer_arguments);
  return g;
}

RunLog ExperimentSession::measure(experiments::PairPlan plan, bool uses_gpu, const std::string& what) {
  DeviceWatch watch(gpu_, uses_gpu);
  experiments::Hooks hooks;
  hooks.stop = options_.stop;
  if (!uses_gpu) plan.audit = gate::host_limits();
  watch.add_to(hooks);
  if (options_.progress)
    hooks.progress = [&](const experiments::Hooks::Progress& p) {
      fmt::print(stderr, "\r{}: pair {}/{}, B/A {:+.2f}%, {:.0f} s left   {}", what, p.pairs_done, p.pairs_planned,
                 experiments::ratio_pct(p.mean_log_ratio.value_or(0)), p.seconds_left, p.pairs_done == p.pairs_planned ? "\n" : "");
      std::fflush(stderr);
    };
  RunLog log = experiments::run_pairs(plan, hooks);
  ++options_.plan.seed;  // the next workload draws another order
  driver_ = watch.driver();
  if (log.environment_absent.empty()) log.environment_absent = watch.absent();
  for (const ordered_json* info : {&log.a_info, &log.b_info})
    if (device_.empty() || !uses_gpu)
      if (info->is_object() && info->contains("device")) device_ = (*info)["device"].get<std::string>();
  return log;
}

std::optional<std::string> ExperimentSession::profile(const Profiled& what, const std::string& out) {
  Arguments argv{options_.program, "profile"};
  argv.insert(argv.end(), what.trainer_arguments.begin(), what.trainer_arguments.end());
  argv.insert(argv.end(), {"--steps", std::to_string(kProfiledSteps), "--warmup", std::to_string(kProfileWarmup), "--out", out});
  if (!what.program.empty()) {
    argv.insert(argv.end(), {"--step-range", "step", "--"});
    argv.insert(argv.end(), what.program.begin(), what.program.end());
  }
  const Output o = run_to_end(argv, options_.profile_timeout_s, options_.stop, true);
  if (o.end == Output::End::interrupted) return "interrupted";
  if (o.end == Output::End::timeout) return fmt::format("the profile did not end within {:.0f} s", options_.profile_timeout_s);
  if (!o.ending.exited || (o.ending.code != 0 && !fs::exists(out)))
    return fmt::format("the profile {}: {}", o.ending.text(), o.last_words.substr(o.last_words.rfind('\n') + 1));
  return std::nullopt;
}

void ExperimentSession::compare_launches(WorkloadResult& r, const experiments::PairPlan& pairs) {
  const auto library = collector_library();
  std::string absent;
  if (!options_.profile)
    absent = "--no-profile";
  else if (!pairs.a.steps_on_command)
    absent = "the arms are whole programs";
  else if (!gpu_.present)
    absent = "no GPU: " + gpu_.why_not;
  else if (!library)
    absent = "the collector is not built";
  else if (interrupted())
    absent = "interrupted";
  for (const auto& [report, spec] : {std::pair(&r.a, &pairs.a), std::pair(&r.b, &pairs.b)}) {
    report->launches_absent = absent;
    if (!absent.empty()) continue;
    // Short blocks whose steps overlap, as in a pair; then the same trainer takes the steps that a fresh trainer takes again.
    constexpr int64_t kUntraced = 4;
    constexpr int kBlocks = 4, kBlockSteps = 2;
    const int64_t timed = kBlocks * (kBlockSteps + 1), checked = gate::AgainOptions().steps;
    const TemporaryFolder folder;
    profiler::CollectPlan plan;
    plan.output = folder.file("recording.jsonl");
    plan.raw_trace = folder.file("raw.jsonl");
    plan.phases = {{profiler::Phase::warmup, kUntraced}, {profiler::Phase::activity, timed - kUntraced + checked}};
    ArmSpec traced = *spec;
    traced.environment.merge(collector_environment(plan, folder.file("plan.json"), *library));
    try {
      const auto arm = experiments::make_arm(traced, options_.stop);
      arm->start();
      arm->wait_ready(pairs.start_timeout_s);
      for (int i = 0; i < kBlocks; ++i) arm->block(kBlockSteps, pairs.start_timeout_s);
      arm->steps_again(pairs.seed + 1, pairs.start_timeout_s + pairs.block_timeout_s);
      report->launches = experiments::same_launches(profiler::load_raw_trace(plan.raw_trace), timed);
    } catch (const experiments::ArmFailure& e) {
      report->launches_absent = e.what();
    } catch (const stepscope::InputError& e) {
      report->launches_absent = e.what();
    } catch (const experiments::Interrupted&) {
      report->launches_absent = "interrupted";
    }
    if (report->launches && !report->launches->same) {
      r.log.decision.verdict = Verdict::invalid;
      r.log.decision.reason = experiments::reason::kArmFailed;
      r.log.decision.sentence = fmt::format("arm {}: {}", spec->label, report->launches->sentence);
    }
  }
}

void ExperimentSession::profile_both(WorkloadResult& r, const std::string& name, const Profiled& a, const Profiled& b) {
  if (!options_.profile) {
    r.waterfall_absent = "--no-profile";
    return;
  }
  if (interrupted()) {
    r.waterfall_absent = "interrupted";
    return;
  }
  if (options_.progress) fmt::print(stderr, "profile of both arms\n");
  const TemporaryFolder folder;
  const std::string a_file = folder.file("a.json"), b_file = folder.file("b.json");
  for (const auto& [arm, what, file] : {std::tuple("A", &a, &a_file), std::tuple("B", &b, &b_file)})
    if (const auto why = profile(*what, *file)) {
      r.waterfall_absent = fmt::format("arm {}: {}", arm, *why);
      return;
    }
  if (!options_.keep_profiles.empty()) {
    std::string stem = name + " " + r.workload.text();
    std::replace(stem.begin(), stem.end(), ' ', '-');
    for (const auto& [file, arm] : {std::pair(&a_file, 'a'), std::pair(&b_file, 'b')})
      fs::copy_file(*file, options_.keep_profiles / fmt::format("{}.{}.json", stem, arm), fs::copy_options::overwrite_existing);
  }
  try {
    const auto da = profiler::load_profile(a_file), db = profiler::load_profile(b_file);
    r.waterfall = profiler::make_waterfall(da, db);
    if (!r.waterfall) r.waterfall_absent = "the profiles hold no device time of a step";
    r.same_code = experiments::same_code(da, db, r.a.program_sha256, r.b.program_sha256);
    for (const auto& [arm, document] : {std::pair('A', &da), std::pair('B', &db)})
      if (const auto step_ns = experiments::median_step_ns(r.log, arm))
        if (const auto why = experiments::below_physical_floor(*step_ns, *document)) {
          r.log.decision.verdict = Verdict::invalid;
          r.log.decision.reason = experiments::reason::kArmFailed;
          r.log.decision.sentence = fmt::format("arm {}: {}", arm, *why);
          r.same_code.reset();
        }
  } catch (const stepscope::InputError& e) {
    r.waterfall_absent = e.what();
  }
}

WorkloadResult ExperimentSession::run_workload(const Experiment& e, const Workload& w) {
  WorkloadResult r;
  r.workload = w;
  r.planted_pct = options_.plant_pct;
  const Arguments a = trainer_arguments(e, w, 'A'), b = trainer_arguments(e, w, 'B');
  r.a.trainer = trainer_of(e, 'A');
  r.b.trainer = trainer_of(e, 'B');
  r.b.program_sha256 = program_sha256();
  experiments::PairPlan plan = options_.plan;
  plan.thresholds.minimum_effect = e.minimum_effect_pct / 100;

  if (e.frozen_baseline()) {
    const fs::path folder = experiments::baseline_folder(options_.root, e.baseline);
    r.a.gate = {true, "frozen, as in its manifest", true, {}};
    if (const auto problems = experiments::verify_baseline(folder); !problems.empty()) {
      r.a.gate = {false, fmt::format("the baseline {} is not as it was frozen", e.baseline), true, problems};
      refuse(r, experiments::reason::kBaselineChanged, fmt::format("{}: {}; it was not timed", r.a.gate.sentence, problems.front()));
      r.b.gate.sentence = "not run";
      return r;
    }
    const fs::path binary = fs::path(options_.program).parent_path() / ("baseline-" + e.baseline);
    if (!fs::exists(binary))
      throw MachineError(
          fmt::format("the frozen baseline {} is not built: {} does not exist (it needs a build with CUDA)", e.baseline, binary.string()));
    plan.a.argv = {binary.string(),
                   "--model",
                   w.model,
                   "--batch-size",
                   std::to_string(w.batch_size),
                   "--seq-len",
                   std::to_string(w.seq_len),
                   "--steps",
                   std::to_string(options_.command_steps)};
    // A baseline's own default need not be the trainer's; a mixed one has no choice and no such flag.
    if (trainer_of(e, 'A') != "mixed") {
      const std::string matmul = value_of(a, "--matmul");
      plan.a.argv.insert(plan.a.argv.end(), {"--matmul", matmul.empty() ? "fp32" : matmul});
    }
    plan.b.argv = {options_.program, "train"};
    plan.b.argv.insert(plan.b.argv.end(), b.begin(), b.end());
    plan.b.argv.insert(plan.b.argv.end(), {"--steps", std::to_string(options_.command_steps)});
    plan.a.steps_on_command = plan.b.steps_on_command = false;
    plan.quads = 1;  // every block is a fresh process: the pair is one ABBA quad of four
    r.a.program_sha256 = gpt2::sha256_file(binary);
  } else {
    const auto arm_argv = [&](const Arguments& flags, bool planted) {
      Arguments argv{options_.program, "arm"};
      argv.insert(argv.end(), flags.begin(), flags.end());
      if (options_.serial || options_.plant_pct > 0) argv.emplace_back("--serial");
      if (planted && options_.plant_pct > 0) argv.insert(argv.end(), {"--plant-pct", fmt::format("{}", options_.plant_pct)});
      return argv;
    };
    plan.a.argv = arm_argv(a, false);
    plan.b.argv = arm_argv(b, true);
    r.a.program_sha256 = program_sha256();
  }
  plan.a.label = "A";
  plan.b.label = "B";
  plan.a.environment = plan.b.environment = arm_environment();
  r.a.command = without_folder(plan.a.argv);
  r.b.command = without_folder(plan.b.argv);

  // B first: it is the one in doubt, and a failed gate ends the workload before anything is timed.
  r.b.gate = gate(b);
  if (!e.frozen_baseline()) r.a.gate = gate(a);
  for (const auto& [label, arm] : {std::pair("B", &r.b), std::pair("A", &r.a)})
    if (!arm->gate.passed) {
      refuse(r, experiments::reason::kGateFailed,
             fmt::format("arm {} did not pass the gate and was not timed: {}{}", label, arm->gate.sentence,
                         arm->gate.failures.empty() ? "" : "; first: " + arm->gate.failures.front()));
      return r;
    }
  r.log = measure(plan, !on_cpu(b), fmt::format("{} {}", e.name, w.text()));
  if (r.log.decision.verdict == Verdict::invalid)
    r.waterfall_absent = "the run is invalid";
  else if (!on_cpu(b))
    compare_launches(r, plan);
  if (r.log.decision.verdict == Verdict::invalid) return r;
  Profiled profiled_a{a, {}};
  if (e.frozen_baseline()) profiled_a = {{}, with_steps(plan.a.argv, kStepsToProfile)};
  profile_both(r, e.name, profiled_a, {b, {}});
  return r;
}

experiments::RunFacts ExperimentSession::facts(const std::vector<experiments::LedgerEntry>& ledger) const {
  experiments::RunFacts f;
  f.at = stepscope::now_utc();
  f.git_revision = kGitRevision;
  f.device = device_;
  f.driver = driver_;
  f.ledger = experiments::summarize(ledger, device_);
  f.thresholds = options_.plan.thresholds;
  f.command = options_.command;
  return f;
}

experiments::VerdictDocument ExperimentSession::run(const Experiment& e, const std::vector<experiments::LedgerEntry>& ledger) {
  if (options_.built_here)
    for (const char arm : {'A', 'B'})
      if (const std::string file = experiments::newer_source(options_.root, trainer_of(e, arm), options_.program); !file.empty())
        throw InputError(
            fmt::format("{} is newer than {}: build first (`./stepscope` does), or the verdict would name "
                        "code that was not measured",
                        file, options_.program));
  // Hashed before the measurement: a change of the tree meanwhile was not measured, and must make the verdict stale.
  const std::string a_sources = e.frozen_baseline() ? "" : experiments::hash_trainer_sources(options_.root, trainer_of(e, 'A'));
  const std::string b_sources = experiments::hash_trainer_sources(options_.root, trainer_of(e, 'B'));
  std::vector<WorkloadResult> results;
  for (const Workload& w : e.workloads) {
    if (interrupted() && !results.empty()) break;
    try {
      results.push_back(run_workload(e, w));
    } catch (const experiments::Interrupted&) {  // in the gate: nothing was measured
      WorkloadResult r;
      r.workload = w;
      r.log.decision.reason = experiments::reason::kInterrupted;
      r.log.decision.sentence = "stopped before anything was measured";
      r.waterfall_absent = "interrupted";
      r.a.gate.sentence = r.b.gate.sentence = "interrupted";
      results.push_back(std::move(r));
    }
  }
  experiments::RunFacts f = facts(ledger);
  f.thresholds.minimum_effect = e.minimum_effect_pct / 100;
  f.a_sources_sha256 = a_sources;
  f.b_sources_sha256 = b_sources;
  f.prediction = experiments::prove_prediction(options_.root, e.file, e.file_sha256, f.git_revision, f.at);
  return verdict_document(e.name, e, results, f);
}

experiments::VerdictDocument ExperimentSession::run_commands(const std::string& a, const std::string& b, const std::string& step_regex,
                                                             int skip_steps, const std::string& gate_command,
                                                             const std::vector<experiments::LedgerEntry>& ledger) {
  WorkloadResult r;
  r.workload.model = "two commands";
  experiments::PairPlan plan = options_.plan;
  const auto arm = [&](const char* label, const std::string& command) {
    ArmSpec s;
    s.label = label;
    s.argv = {"/bin/sh", "-c", command};
    s.steps_on_command = false;
    s.step_regex = step_regex;
    s.skip_steps = skip_steps;
    return s;
  };
  plan.a = arm("A", a);
  plan.b = arm("B", b);
  r.a.command = {a};
  r.b.command = {b};
  r.waterfall_absent = "the arms are commands; `stepscope profile -- …` profiles one";
  r.a.gate = r.b.gate = {true, "nothing checked that it computes the right thing (--gate-command CMD)", false, {}};
  if (!gate_command.empty()) {
    const Output out = run_to_end({"/bin/sh", "-c", gate_command}, options_.gate_timeout_s, options_.stop, true);
    if (out.end == Output::End::interrupted) {
      r.log.decision.reason = experiments::reason::kInterrupted;
      r.log.decision.sentence = "stopped before anything was measured";
      r.a.gate = r.b.gate = {false, "interrupted", false, {}};
      return verdict_document("commands", std::nullopt, {r}, facts(ledger));
    }
    const bool passed = out.end == Output::End::ended && out.ending.exited && out.ending.code == 0;
    r.a.gate =
        r.b.gate = {passed,
                    fmt::format("`{}` {}", gate_command, out.end == Output::End::timeout ? "did not end in time" : out.ending.text()),
                    true,
                    {}};
    if (!passed) refuse(r, experiments::reason::kGateFailed, fmt::format("{}: nothing was timed; {}", r.b.gate.sentence, out.last_words));
  }
  if (r.b.gate.passed) r.log = measure(plan, gpu_.present, "A against B");
  return verdict_document("commands", std::nullopt, {r}, facts(ledger));
}

RunLog ExperimentSession::run_identical(const Arguments& flags) {
  experiments::PairPlan plan = options_.plan;
  Arguments argv{options_.program, "arm"};
  argv.insert(argv.end(), flags.begin(), flags.end());
  if (options_.serial || options_.plant_pct > 0) argv.emplace_back("--serial");
  plan.a.label = "A";
  plan.b.label = "B";
  plan.a.argv = plan.b.argv = argv;
  plan.a.environment = plan.b.environment = arm_environment();
  if (options_.plant_pct > 0) plan.b.argv.insert(plan.b.argv.end(), {"--plant-pct", fmt::format("{}", options_.plant_pct)});
  return measure(plan, !on_cpu(flags), options_.plant_pct > 0 ? fmt::format("planted {}%", options_.plant_pct) : "A/A");
}

}  // namespace cli

#include "experiments/session/session_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <set>
#include <tuple>

#include "base/errors.h"
#include "base/read_file.h"
#include "base/sha256.h"
#include "base/stderr_text.h"
#include "base/utc.h"
#include "experiments/baseline/manifest.h"
#include "experiments/gate/plant_spec.h"
#include "experiments/runner/alone_runner.h"
#include "experiments/session/child_output.h"
#include "experiments/session/device_watch.h"
#include "experiments/verdict/campaign.h"
#include "experiments/verdict/prediction.h"
#include "experiments/verdict/stale.h"
#include "gpt2/reference/reference_trainer.h"
#include "profiler/records/collect_plan.h"

namespace experiments {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using stepscope::InputError;
using stepscope::MachineError;
using Arguments = std::vector<std::string>;

// Of a program with step ranges that is profiled: warm-up, timed, counted, and traced steps with those that are thrown away.
constexpr int kStepsToProfile =
    kProfileWarmup + kProfiledSteps + static_cast<int>(profiler::kCountedSteps + profiler::kTracedSteps + profiler::kDiscardedSteps);

constexpr std::chrono::seconds kBetweenLines{10};

void name_arms(PairPlan& plan) {
  plan.a.label = "A";
  plan.b.label = "B";
  // Both arms of a CPU comparison live at once: OpenMP threads that spin while they wait would take the cores from the arm whose turn it is.
  plan.a.environment = plan.b.environment = {{"OMP_WAIT_POLICY", "passive"}};
}

// A frozen baseline's command with so many steps.
Arguments with_steps(Arguments argv, int least) {
  for (size_t i = 0; i + 1 < argv.size(); ++i)
    if (argv[i] == "--steps") argv[i + 1] = std::to_string(least);
  return argv;
}

// "the gate differs between the arms: experiments/gate/op_cases.cpp"; "" where both check the same. A change may need another check, and who reads its verdict
// must know.
std::string differing_gate(const fs::path& a, const fs::path& b) {
  std::set<std::string> files;
  for (const fs::path& root : {a, b})
    for (std::error_code missing; const auto& entry : fs::recursive_directory_iterator(root / "experiments/gate", missing))
      if (entry.is_regular_file()) files.insert(fs::relative(entry.path(), root).generic_string());
  std::erase_if(files, [&](const std::string& f) { return stepscope::read_file_if_there(a / f) == stepscope::read_file_if_there(b / f); });
  return files.empty() ? "" : fmt::format("the gate differs between the arms: {}", fmt::join(files, ", "));
}

// By the folder: what is built twice into one would be refused by its own lock.
std::string key_of(const Sources& sources) { return arm_folder(sources) + "|" + sources.revision; }

double planted_percent(const std::string& plant_gpu) {
  const auto spec = gate::plant_spec(plant_gpu);
  return spec ? spec->percent : 0;
}

bool on_cpu(const Arguments& trainer_arguments) { return value_of(trainer_arguments, "--trainer") == "reference"; }

void refuse_without_gpu(const std::string& trainer, const Gpu& gpu) {
  if (trainer != "reference" && !gpu.why_not.empty()) throw MachineError(fmt::format("--trainer {} needs a GPU: {}", trainer, gpu.why_not));
}

void refuse(WorkloadResult& r, std::string_view reason, std::string sentence) {
  r.make_invalid(reason, std::move(sentence));
  r.waterfall_absent = "nothing was measured";
}

// Training that runs to its end: one block is one fresh process.
void train_to_the_end(ArmSpec& spec, const std::string& program, const Arguments& flags, const Arguments& more, int steps) {
  spec.argv = {program, "train"};
  spec.argv.insert(spec.argv.end(), flags.begin(), flags.end());
  spec.argv.insert(spec.argv.end(), {"--steps", "{steps}"});
  spec.argv.insert(spec.argv.end(), more.begin(), more.end());
  spec.steps_on_command = false;
  spec.in_real_time = true;
  spec.steps = steps;
}

// The receipt of a trainer for this GPU and its driver in the tree of a program; nothing to ask for a program that was not built from its
// tree.
std::function<std::string(const std::string&)> receipts_of(const fs::path& root, const SessionOptions& o) {
  if (!o.built_here || !o.gpu.present) return {};
  return [root, gpu = o.gpu](const std::string& trainer) { return receipt_of_ops(root, trainer, gpu.name, driver_of(gpu)); };
}

// Without a GPU the CPU reference is compared: whoever edited device code would take its "same" for an answer.
std::string but_of_others(const fs::path& tree, const fs::path& root, const std::string& trainer) {
  std::vector<std::string> differ;
  for (const std::string other : {"fp32", "mixed", "reference"})
    if (other != trainer && hash_trainer_sources(tree, other) != hash_trainer_sources(root, other)) differ.push_back("--trainer " + other);
  return differ.empty() ? "" : fmt::format("; a step of {} does differ", fmt::join(differ, " and of "));
}

}  // namespace

ExperimentSession::ExperimentSession(SessionOptions options) : options_(std::move(options)), sources_(options_.root) {
  if (options_.gpu.present) device_ = options_.gpu.name;
  if (!options_.seed_given) options_.plan.seed = (uint64_t{std::random_device{}()} << 32) | std::random_device{}();
}

const std::string& ExperimentSession::sha256_of(const std::string& program) {
  std::string& sha256 = sha256_[program];
  if (sha256.empty()) sha256 = gpt2::sha256_file(program);
  return sha256;
}

// Each program answers for itself: an arm of other sources must not pass by the gate of these, nor by their receipts.
Gates& ExperimentSession::gates_of(const BuiltProgram& p) {
  return gates_
      .try_emplace(p.program.string(), p.program.string(), options_.gate_timeout_s, options_.stop, options_.progress,
                   receipts_of(p.root, options_), options_.gate_answers)
      .first->second;
}

BuiltProgram ExperimentSession::program_of(const Experiment& e, char arm) const {
  const Sources sources = sources_of(e, arm);
  return sources.here() ? BuiltProgram{options_.root, options_.program, {}, {}} : built_.at(key_of(sources)).program;
}

// Builds the arms of other sources. Throws SameStep where they compile the same one as this tree.
void ExperimentSession::build_arms(const Experiment& e) {
  for (const char arm : {'A', 'B'}) {
    const Sources sources = sources_of(e, arm);
    if (sources.here()) continue;
    const std::string trainer = trainer_of(e, arm);
    // Before minutes are spent on compiling what this machine cannot run.
    refuse_without_gpu(trainer, options_.gpu);
    const auto hash_of_other_step = [&](const fs::path& tree) {
      std::string hash = hash_trainer_sources(tree, trainer);
      if (hash == hash_trainer_sources(options_.root, trainer))
        throw SameStep(fmt::format("{}: nothing differs that a step of the {} trainer is compiled from{}", e.change_text, trainer,
                                   but_of_others(tree, options_.root, trainer)));
      return hash;
    };
    if (!built_.contains(key_of(sources))) {
      if (!options_.built_here)
        throw MachineError(
            fmt::format("{} was not built from {}: an arm of other sources of that tree would differ by more than the change",
                        options_.program, options_.root.string()));
      BuildOptions b;
      b.root = options_.root;
      b.program = options_.program;
      b.stop = options_.stop;
      b.progress = options_.progress;
      b.check = [&](const fs::path& tree) { hash_of_other_step(tree); };
      Built built;
      if (!sources.patch.empty()) built.patch_sha256 = gpt2::sha256_file(sources.patch);
      built.program = options_.build(b, sources);
      built_[key_of(sources)] = std::move(built);
    }
    Built& built = built_.at(key_of(sources));
    // One patch may change the trainers of several experiments, or only one of them.
    if (!built.sources_sha256.contains(trainer)) built.sources_sha256[trainer] = hash_of_other_step(built.program.root);
  }
}

RunLog ExperimentSession::measure(const PairPlan& plan, bool uses_gpu, const std::string& what) {
  return std::move(measure(std::vector{plan}, std::vector{what}, uses_gpu).front());
}

std::vector<RunLog> ExperimentSession::measure(std::vector<PairPlan> plans, const std::vector<std::string>& names, bool uses_gpu,
                                               const std::function<void(std::span<const RunLog>)>& round_ended) {
  DeviceWatch watch(options_.gpu, uses_gpu);
  driver_ = watch.driver();  // before the first round: its document may be the last that this command leaves
  Hooks hooks;
  hooks.round_ended = round_ended;
  hooks.stop = options_.stop;
  if (!uses_gpu)
    for (PairPlan& p : plans) {
      p.audit = gate::host_limits();
      p.alone.teardown_s = 0;
    }
  watch.add_to(hooks);
  // A terminal has one line that changes, a log a line from time to time.
  hooks.progress = [&, said = Clock::time_point()](const Hooks::Progress& p) mutable {
    const bool last = p.pairs_done == p.pairs_planned;
    if (!options_.progress && !last && Clock::now() - said < kBetweenLines) return;
    said = Clock::now();
    const std::string ratio = p.mean_log_ratio ? fmt::format("{:+.2f}%", ratio_pct(*p.mean_log_ratio)) : "-";
    stepscope::put_on_stderr(fmt::format("{}{}: pair {}/{}, B/A {}, {:.0f} s left   {}", options_.progress ? "\r" : "",
                                         names.size() == 1 ? names[0] : fmt::format("{} experiments", names.size()), p.pairs_done,
                                         p.pairs_planned, ratio, p.seconds_left, last || !options_.progress ? "\n" : ""));
  };
  std::vector<RunLog> logs =
      options_.procedure == Procedure::alone ? run_alone(plans, names, hooks) : std::vector{run_pairs(plans.front(), hooks)};
  ++options_.plan.seed;  // the next workload draws another order
  for (RunLog& log : logs) {
    if (log.environment_absent.empty()) log.environment_absent = watch.absent();
    for (const ordered_json* info : {&log.a_info, &log.b_info})
      if (device_.empty() || !uses_gpu)
        if (info->is_object() && info->contains("device")) device_ = (*info)["device"].get<std::string>();
  }
  return logs;
}

std::string driver_of(const Gpu& gpu) {
  std::string absent;
  const auto device = gpu.present ? stepscope::nvml::Device::open(absent, gpu.pci_bus_id) : std::nullopt;
  return device ? device->driver_version().value_or("") : "";
}

namespace {

void say_nothing_was_measured(WorkloadResult& r) {
  r.log.decision.reason = reason::kInterrupted;
  r.log.decision.sentence = "stopped before anything was measured";
  r.waterfall_absent = "interrupted";
  r.a.gate.sentence = r.b.gate.sentence = kGateInterrupted;
}

}  // namespace

WorkloadResult ExperimentSession::Job::as_it_was() const {
  WorkloadResult r;
  r.workload = result.workload;
  if (left_off)
    r.decided_before = *left_off;
  else
    say_nothing_was_measured(r);
  return r;
}

Arguments ExperimentSession::arm_command(const std::string& program, const Arguments& flags, bool planted) const {
  Arguments argv{program, "arm"};
  argv.insert(argv.end(), flags.begin(), flags.end());
  if (options_.serial || options_.plant_pct > 0) argv.emplace_back("--serial");
  if (planted && options_.plant_pct > 0) argv.insert(argv.end(), {"--plant-pct", fmt::format("{}", options_.plant_pct)});
  // The other arm waits for a launch after every step too.
  if (!options_.plant_gpu.empty()) argv.insert(argv.end(), {"--plant-gpu", planted ? options_.plant_gpu : "idle:0"});
  return argv;
}

// Known before an arm says it. Arms of the CPU inherit what decides how many threads they have; whole programs do not say what they run on.
std::string ExperimentSession::device_of(const Experiment& e) const {
  return trainer_of(e, 'B') == "reference" ? gpt2::reference_device() : options_.gpu.present ? options_.gpu.name : "";
}

// Arm A is a frozen baseline, which is a program that runs to its end; so is B then. False: it was touched, which ends the job.
bool ExperimentSession::make_frozen_arms(Job& job, const std::string& b_program) {
  const Experiment& e = *job.experiment;
  WorkloadResult& r = job.result;
  const Workload& w = r.workload;
  PairPlan& plan = job.plan;
  const fs::path folder = baseline_folder(options_.root, e.baseline);
  r.a.gate = {true, "frozen, as in its manifest", true, {}};
  if (const auto problems = verify_baseline(folder); !problems.empty()) {
    r.a.gate = {false, fmt::format("the baseline {} is not as it was frozen", e.baseline), true, problems};
    refuse(r, reason::kBaselineChanged, fmt::format("{}: {}; it was not timed", r.a.gate.sentence, problems.front()));
    r.b.gate.sentence = "not run";
    return false;
  }
  const fs::path binary = fs::path(options_.program).parent_path() / ("baseline-" + e.baseline);
  if (!fs::exists(binary))
    throw MachineError(
        fmt::format("the frozen baseline {} is not built: {} does not exist (it needs a build with CUDA)", e.baseline, binary.string()));
  // Alone, the runner says how many steps the seconds need.
  plan.a.argv = {binary.string(),           "--model", w.model,  "--batch-size", std::to_string(w.batch_size), "--seq-len",
                 std::to_string(w.seq_len), "--steps", "{steps}"};
  // A baseline's own default need not be the trainer's; a mixed one has no choice and no such flag.
  if (trainer_of(e, 'A') != "mixed") {
    const std::string matmul = value_of(job.a, "--matmul");
    plan.a.argv.insert(plan.a.argv.end(), {"--matmul", matmul.empty() ? "fp32" : matmul});
  }
  plan.a.steps_on_command = false;
  plan.a.in_real_time = true;
  plan.a.steps = options_.command_steps;
  train_to_the_end(plan.b, b_program, job.b, {}, options_.command_steps);
  plan.quads = 1;  // every block is a fresh process: the pair is one ABBA quad of four
  r.a.program_sha256 = gpt2::sha256_file(binary);
  return true;
}

// An arm that steps on command is one process. Several ranks are a program that runs to its end, on both sides.
void ExperimentSession::make_rank_arms(Job& job, const std::string& a_program, const std::string& b_program) {
  const Experiment& e = *job.experiment;
  WorkloadResult& r = job.result;
  r.a_gpus = gpus_of(e, r.workload, 'A');
  r.b_gpus = gpus_of(e, r.workload, 'B');
  train_to_the_end(job.plan.a, a_program, job.a, {"--gpus", std::to_string(r.a_gpus)}, options_.command_steps);
  train_to_the_end(job.plan.b, b_program, job.b, {"--gpus", std::to_string(r.b_gpus)}, options_.command_steps);
  job.plan.quads = 1;
}

// Says what the arms run. A frozen baseline that was touched ends the job here.
void ExperimentSession::make_arms(Job& job) {
  const Experiment& e = *job.experiment;
  WorkloadResult& r = job.result;
  const Workload& w = r.workload;
  r.planted_pct = options_.plant_pct > 0 ? options_.plant_pct : planted_percent(options_.plant_gpu);
  job.a = trainer_arguments(e, w, 'A');
  job.b = trainer_arguments(e, w, 'B');
  r.a.trainer = trainer_of(e, 'A');
  r.b.trainer = trainer_of(e, 'B');
  r.a.bucket_mib = bucket_mib_of(e, w, 'A');
  r.b.bucket_mib = bucket_mib_of(e, w, 'B');
  const std::string a_program = program_of(e, 'A').program.string(), b_program = program_of(e, 'B').program.string();
  r.b.program_sha256 = sha256_of(b_program);
  PairPlan& plan = job.plan = options_.plan;
  plan.thresholds.minimum_effect = e.minimum_effect_pct / 100;
  if (e.frozen_baseline()) {
    if (!make_frozen_arms(job, b_program)) return;
  } else {
    r.a.program_sha256 = sha256_of(a_program);
    if (job.several_gpus()) {
      make_rank_arms(job, a_program, b_program);
    } else {
      plan.a.argv = arm_command(a_program, job.a, false);
      plan.b.argv = arm_command(b_program, job.b, true);
    }
  }
  name_arms(plan);
  r.a.command = without_folder(plan.a.argv);
  r.b.command = without_folder(plan.b.argv);
}

// B first: it is the one in doubt, and a failed gate ends the workload before anything is timed.
void ExperimentSession::gate_arms(Job& job) {
  WorkloadResult& r = job.result;
  const Experiment& e = *job.experiment;
  // Minutes for many arms, in which a machine that is lent for minutes measures nothing.
  if (!job.gated_by.empty()) {
    const auto take = [&](GateSummary& now, const GateSummary& before) {
      now = before;
      if (now.checked_by.empty()) now.checked_by = job.gated_by;
    };
    take(r.b.gate, job.left_off->b.gate);
    if (!e.frozen_baseline()) take(r.a.gate, job.left_off->a.gate);
    return;
  }
  const auto check = [&](char arm, const Arguments& flags) {
    try {
      return gates_of(program_of(e, arm)).check(flags);
    } catch (const InputError& error) {
      if (sources_of(e, arm).here()) throw;
      throw InputError(fmt::format("arm {} ({}): {}", arm, e.change_text, error.what()));
    }
  };
  r.b.gate = check('B', job.b);
  if (!e.frozen_baseline()) r.a.gate = check('A', job.a);
  if (const std::string words = differing_gate(program_of(e, 'A').root, program_of(e, 'B').root); !words.empty())
    r.b.gate.sentence += "; " + words;
  for (const auto& [label, arm] : {std::pair("B", &r.b), std::pair("A", &r.a)})
    if (!arm->gate.passed) {
      refuse(r, reason::kGateFailed,
             fmt::format("arm {} did not pass the gate and was not timed: {}{}", label, arm->gate.sentence,
                         arm->gate.failures.empty() ? "" : "; first: " + arm->gate.failures.front()));
      return;
    }
}

void ExperimentSession::prepare(Job& job) {
  if (job.measured) return;  // by a command before this one
  try {
    build_arms(*job.experiment);
    make_arms(job);
    if (job.left_off) count_rounds_before(job);
    if (!job.invalid()) gate_arms(job);
    job.measured = job.invalid();
  } catch (const Interrupted&) {  // in the gate: nothing was measured
    if (job.left_off) return;     // what the command before left stays as it is
    say_nothing_was_measured(job.result);
    job.measured = true;
  } catch (const InputError&) {
    job.failure = std::current_exception();
  } catch (const MachineError&) {
    job.failure = std::current_exception();
  }
}

void ExperimentSession::measure(std::span<Job* const> together, const std::function<void()>& after_round) {
  std::vector<PairPlan> plans;
  std::vector<std::string> names;
  for (const Job* job : together) {
    plans.push_back(job->plan);
    names.push_back(fmt::format("{} {}", job->experiment->name, job->result.workload.text()));
  }
  std::vector<RunLog> logs = measure(plans, names, !on_cpu(together.front()->b), [&](std::span<const RunLog> so_far) {
    for (size_t i = 0; i < together.size(); ++i) {
      together[i]->result.log = so_far[i];
      together[i]->goes_on = true;
      if (const ordered_json& info = so_far[i].a_info; device_.empty() && info.is_object() && info.contains("device"))
        device_ = info["device"].get<std::string>();
    }
    after_round();
  });
  for (size_t i = 0; i < together.size(); ++i) {
    together[i]->result.log = std::move(logs[i]);
    together[i]->goes_on = false;
    together[i]->measured = true;
  }
}

// What the times alone do not say: whether timed steps launch what checked ones do, and where the difference is.
void ExperimentSession::look_closer(Job& job) {
  WorkloadResult& r = job.result;
  if (job.invalid())
    r.waterfall_absent = "the run is invalid";
  else if (!on_cpu(job.b))
    compare_launches(r, job.plan);
  if (job.invalid()) return;
  const auto on_gpus = [&](Arguments flags, char arm) {
    if (const int64_t gpus = gpus_of(*job.experiment, r.workload, arm); gpus > 1)
      flags.insert(flags.end(), {"--gpus", std::to_string(gpus)});
    return flags;
  };
  Profiled a{program_of(*job.experiment, 'A').program.string(), on_gpus(job.a, 'A'), {}};
  if (job.experiment->frozen_baseline())
    a = {options_.program, {}, with_steps(job.plan.a.argv, std::max(kStepsToProfile, options_.command_steps))};
  profile_both(r, job.experiment->name, a, {program_of(*job.experiment, 'B').program.string(), on_gpus(job.b, 'B'), {}});
}

// Stopped behind its last round: without what the profiles say of the arms' code it may claim nothing. `--continue` has all of its pairs.
void ExperimentSession::cut_short(Job& job) const {
  Decision& d = job.result.log.decision;
  if (job.invalid() || !options_.profile || options_.procedure != Procedure::alone || d.reason == reason::kInterrupted) return;
  d.verdict = Verdict::undecided;
  d.reason = reason::kInterrupted;
  d.sentence = fmt::format("stopped before its arms were profiled; all {} pairs are kept", sustained_values(job.result.log.runs).size());
}

// {arm A, arm B}; "": not hashed, a frozen baseline has its manifest. A trainer's once, before anything is measured: a change of the tree
// meanwhile was not measured, and must make the verdict stale.
std::pair<std::string, std::string> ExperimentSession::hashed_sources(const Experiment& e) {
  return {e.frozen_baseline() ? "" : sources_.of(trainer_of(e, 'A')), sources_.of(trainer_of(e, 'B'))};
}

// What arms of other sources were built from; where an interrupt came before that, nothing.
void ExperimentSession::add_other_sources(RunFacts& f, const Experiment& e) const {
  for (const auto& [arm, hash] : {std::pair('A', &f.a_sources_sha256), std::pair('B', &f.b_sources_sha256)}) {
    const Sources sources = sources_of(e, arm);
    if (sources.here()) continue;
    const auto found = built_.find(key_of(sources));
    Built built = found == built_.end() ? Built() : found->second;
    *hash = built.sources_sha256[trainer_of(e, arm)];
    (arm == 'A' ? f.a_revision : f.patch_sha256) = arm == 'A' ? built.program.commit : built.patch_sha256;
  }
}

RunFacts ExperimentSession::facts(const std::vector<LedgerEntry>& ledger, const std::string& device) const {
  RunFacts f;
  f.at = stepscope::now_utc();
  f.git_revision = options_.git_revision;
  f.device = device;
  f.driver = driver_;
  f.ledger = summarize(ledger, device);
  f.thresholds = options_.plan.thresholds;
  f.command = options_.command;
  return f;
}

// Throws stepscope::InputError when the program is older than the sources it would be named after.
void ExperimentSession::add_to(std::vector<Job>& jobs, const Experiment& e) const {
  if (options_.built_here)
    for (const char arm : {'A', 'B'})
      if (const std::string file = newer_source(options_.root, trainer_of(e, arm), options_.program); !file.empty())
        throw InputError(
            fmt::format("{} is newer than {}: build first (`./stepscope` does), or the verdict would name "
                        "code that was not measured",
                        file, options_.program));
  const bool planted = options_.plant_pct > 0 || !options_.plant_gpu.empty();
  if (!options_.plant_gpu.empty() && trainer_of(e, 'B') == "reference")
    throw InputError(
        fmt::format("--plant-gpu {}: is work on a GPU, and the reference trainer has none; expected --plant PCT", options_.plant_gpu));
  for (const Workload& w : e.workloads) {
    if (planted && as_whole_programs(e, w))
      throw InputError(fmt::format("{}, {}: --plant: the arms run as whole programs, into which nothing can be planted", e.name, w.text()));
    Job job;
    job.experiment = &e;
    job.result.workload = w;
    jobs.push_back(std::move(job));
  }
}

void ExperimentSession::run_jobs(std::vector<Job>& jobs, const std::function<void()>& after, const std::function<void()>& after_round) {
  for (Job& job : jobs)
    if (&job == &jobs.front() || !interrupted()) prepare(job);
  after();
  for (Job& first : jobs) {
    if (first.measured || first.failure || first.plan.a.argv.empty()) continue;
    if (interrupted() && (&first != &jobs.front() || first.left_off)) continue;
    std::vector<Job*> together;
    for (Job& other : jobs)
      if (!other.measured && !other.failure && !other.plan.a.argv.empty() && other.baseline() == first.baseline() &&
          (together.empty() || options_.procedure == Procedure::alone) && other.several_gpus() == first.several_gpus())
        together.push_back(&other);
    measure(together, after_round);
    for (Job* job : together) {
      look_closer(*job);
      if (interrupted()) cut_short(*job);
    }
    after();
  }
}

std::vector<ExperimentSession::Outcome> ExperimentSession::run(std::span<const Experiment> all, const std::vector<LedgerEntry>& ledger,
                                                               const std::function<void(size_t, const Outcome&)>& done,
                                                               const std::function<void(size_t, const VerdictDocument&)>& so_far,
                                                               std::span<const std::optional<VerdictDocument>> left_off) {
  std::vector<Outcome> out(all.size());
  std::vector<bool> decided(all.size(), false);
  std::vector<Job> jobs;
  std::vector<std::pair<std::string, std::string>> sources(all.size());
  std::vector<std::optional<PredictionProof>> predictions(all.size());  // asked once: git between two rounds would lengthen the rest there
  for (size_t i = 0; i < all.size(); ++i) {
    const Experiment& e = all[i];
    const size_t first = jobs.size();
    try {
      add_to(jobs, e);
      if (i < left_off.size() && left_off[i]) go_on(std::span(jobs).subspan(first), *left_off[i]);
      sources[i] = hashed_sources(e);
      // What an earlier command measured came after that command's revision, so the prediction must have been there.
      const std::string oldest = i < left_off.size() && left_off[i] ? left_off[i]->code.first_revision() : options_.git_revision;
      if (!e.file.empty()) predictions[i] = prove_prediction(options_.root, e.file, e.file_sha256, oldest, stepscope::now_utc());
    } catch (const InputError&) {
      out[i].failure = std::current_exception();
      jobs.resize(first);  // what is refused is not measured either
    }
  }
  const auto document_of = [&](size_t i) {
    const std::string device = device_of(all[i]);
    RunFacts f = facts(ledger, device.empty() ? device_ : device);
    f.thresholds.minimum_effect = all[i].minimum_effect_pct / 100;
    f.a_sources_sha256 = sources[i].first;
    f.b_sources_sha256 = sources[i].second;
    add_other_sources(f, all[i]);
    if (i < left_off.size() && left_off[i]) f.earlier_revisions = revisions_before(left_off[i]->code, options_.git_revision);
    f.prediction = predictions[i];
    std::vector<WorkloadResult> results;
    for (const Job& job : jobs)
      if (job.experiment == &all[i]) results.push_back(job.measured || job.goes_on ? job.result : job.as_it_was());
    return verdict_document(all[i].name, all[i], results, f);
  };
  // Of experiments with nothing left to wait for; at the end also of those that an interrupt cut short, if anything is new.
  const auto decide_all = [&](bool at_the_end) {
    for (size_t i = 0; i < all.size(); ++i) {
      if (decided[i]) continue;
      bool waits = false, has_news = false;
      for (const Job& job : jobs) {
        if (job.experiment != &all[i]) continue;
        if (job.failure && !out[i].failure) out[i].failure = job.failure;
        waits = waits || !job.measured;
        has_news = has_news || (job.measured && !job.result.decided_before);
      }
      if (!out[i].failure && waits && !(at_the_end && has_news)) continue;
      decided[i] = true;
      if (!out[i].failure) out[i].document = document_of(i);
      if (done) done(i, out[i]);
    }
  };
  const auto tell_so_far = [&] {
    for (size_t i = 0; so_far && i < all.size(); ++i) {
      const bool has_begun = std::any_of(jobs.begin(), jobs.end(), [&](const Job& job) {
        return job.experiment == &all[i] && !job.failure && (job.measured || job.goes_on);
      });
      if (!decided[i] && has_begun) so_far(i, document_of(i));
    }
  };
  const auto after = [&] {
    decide_all(false);
    tell_so_far();
  };
  run_jobs(jobs, after, tell_so_far);
  decide_all(true);
  // Those that an interrupt kept from beginning.
  while (!out.empty() && !decided.back()) {
    out.pop_back();
    decided.pop_back();
  }
  return out;
}

VerdictDocument ExperimentSession::run(const Experiment& e, const std::vector<LedgerEntry>& ledger) {
  std::vector<Outcome> outcome = run(std::span(&e, 1), ledger);
  if (outcome.front().failure) std::rethrow_exception(outcome.front().failure);
  return std::move(outcome.front().document);
}

VerdictDocument ExperimentSession::run_commands(const TwoCommands& commands, const std::vector<LedgerEntry>& ledger) {
  WorkloadResult r;
  r.workload.model = "two commands";
  PairPlan plan = options_.plan;
  const auto arm = [&](const char* label, const std::string& command) {
    ArmSpec s;
    s.label = label;
    s.argv = {"/bin/sh", "-c", command};
    s.steps_on_command = false;
    s.steps = options_.command_steps;
    s.in_real_time = !commands.recorded;
    s.step_regex = commands.step_regex;
    s.skip_steps = commands.skip_steps;
    return s;
  };
  plan.a = arm("A", commands.a);
  plan.b = arm("B", commands.b);
  r.a.command = {commands.a};
  r.b.command = {commands.b};
  r.waterfall_absent = "the arms are commands; `stepscope profile -- …` profiles one";
  r.a.gate = r.b.gate = {true, "nothing checked that it computes the right thing (--gate-command CMD)", false, {}};
  if (!commands.gate_command.empty()) {
    const ChildOutput out = run_to_end({"/bin/sh", "-c", commands.gate_command}, options_.gate_timeout_s, options_.stop, true);
    if (out.end == ChildOutput::End::interrupted) {
      r.log.decision.reason = reason::kInterrupted;
      r.log.decision.sentence = "stopped before anything was measured";
      r.a.gate = r.b.gate = {false, kGateInterrupted, false, {}};
      return verdict_document("commands", std::nullopt, {r}, facts(ledger, device_));
    }
    const bool passed = out.end == ChildOutput::End::ended && out.ending.exited && out.ending.code == 0;
    r.a.gate = r.b.gate = {
        passed,
        fmt::format("`{}` {}", commands.gate_command, out.end == ChildOutput::End::timeout ? "did not end in time" : out.ending.text()),
        true,
        {}};
    if (!passed)
      refuse(r, reason::kGateFailed,
             fmt::format("{}: nothing was timed{}", r.b.gate.sentence, out.last_words.empty() ? "" : "; " + out.last_words));
  }
  if (r.b.gate.passed) r.log = measure(plan, options_.gpu.present, "A against B");
  return verdict_document("commands", std::nullopt, {r}, facts(ledger, device_));
}

namespace {

// What the arm with a plant is told; `others`: what the arms without one are.
Arguments plant_flags(const std::string& plant, bool cpu, const Arguments& others) {
  constexpr std::string_view kHost = "host:";
  const bool on_host = plant.starts_with(kHost);
  const std::string percent = on_host ? plant.substr(kHost.size()) : "";
  if (!gate::plant_spec(on_host ? "idle:" + percent : plant))
    throw InputError(fmt::format("'{}': expected tensor:PCT, dram:PCT, idle:PCT or host:PCT, PCT 0 to 100", plant));
  if (cpu && !on_host) throw InputError(fmt::format("'{}' is work on a GPU, and the reference trainer has none: expected host:PCT", plant));
  if (!on_host) return {"--plant-gpu", plant};
  Arguments flags = others;
  flags.insert(flags.end(), {"--plant-pct", percent});
  return flags;
}

}  // namespace

std::vector<RunLog> ExperimentSession::run_planted(const Arguments& flags, std::span<const std::string> plants, PairPlan plan,
                                                   const std::function<void(std::span<const RunLog>)>& round_ended) {
  refuse_without_gpu(value_of(flags, "--trainer"), options_.gpu);
  if (!options_.seed_given) plan.seed = options_.plan.seed;
  name_arms(plan);
  const auto arm = [&](const Arguments& told) {
    Arguments argv{options_.program, "arm"};
    for (const Arguments* words : {&flags, &told}) argv.insert(argv.end(), words->begin(), words->end());
    return argv;
  };
  const bool cpu = on_cpu(flags);
  // "idle:0" has an arm wait for a launch after every step, as those with work on the GPU do.
  const Arguments others = cpu ? Arguments{"--serial"} : Arguments{"--plant-gpu", "idle:0"};
  plan.a.argv = arm(others);
  std::vector<PairPlan> plans;
  for (const std::string& plant : plants) {
    plan.b.argv = arm(plant_flags(plant, cpu, others));
    plans.push_back(plan);
  }
  return measure(std::move(plans), {plants.begin(), plants.end()}, !cpu, round_ended);
}

RunLog ExperimentSession::run_identical(const Arguments& flags) {
  PairPlan plan = options_.plan;
  name_arms(plan);
  plan.a.argv = arm_command(options_.program, flags, false);
  plan.b.argv = arm_command(options_.program, flags, true);
  const std::string planted = !options_.plant_gpu.empty() ? options_.plant_gpu : fmt::format("{}%", options_.plant_pct);
  return measure(plan, !on_cpu(flags), planted != "0%" ? "planted " + planted : "A/A");
}

}  // namespace experiments

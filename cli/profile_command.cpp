// `stepscope profile`: the main job. One child process runs the trainer through warm-up, timed steps with no collector on, a step with
// counters, a step with counters per pass, and a few traced steps; what it recorded becomes the document, the tables, CSV and trace.
// A foreign program with step ranges goes through the same phases, and is run once more when it had fewer steps than they need
// (profiler/recording/step_runs.h). Any other CUDA program is run twice: once traced, once counted, joined launch by launch.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/errors.h"
#include "base/output_file.h"
#include "base/process.h"
#include "base/read_file.h"
#include "base/stderr_text.h"
#include "base/temporary_folder.h"
#include "base/text.h"
#include "base/utc.h"
#include "build_info.inc"
#include "cli/catch_interrupt.h"
#include "cli/commands.h"
#include "cli/gpu.h"
#include "cli/profile_ranks.h"
#include "cli/report_output.h"
#include "cli/say.h"
#include "cli/train_ranks.h"
#include "cli/trainer_flags.h"
#include "cli/values.h"
#include "gpt2/train_loop.h"
#include "profiler/collect/rank.h"
#include "profiler/document/build_profile.h"
#include "profiler/document/run_info.h"
#include "profiler/document/states.h"
#include "profiler/recording/collector.h"
#include "profiler/recording/recording.h"
#include "profiler/recording/step_runs.h"
#ifdef STEPSCOPE_WITH_CUDA
#include "profiler/ceilings/ceilings.h"
#endif

namespace cli {
namespace {

using profiler::Phase;
using stepscope::InputError;
using stepscope::MachineError;
using stepscope::TemporaryFolder;

struct ProfileFlags {
  TrainerFlags trainer;
  int64_t gpus = 1;
  ExchangeFlags exchange;
  std::string links;
  int64_t warmup = 10;
  int64_t traced = profiler::kTracedSteps;
  bool no_counters = false, exchange_nothing = false;
  bool measure_ceilings = false;
  bool sustained = false;
  std::string out = "profile.json";
  std::string keep_recording, raw_trace, step_range;
  int64_t max_launches = 200000;
  std::vector<std::string> metrics;
  std::vector<std::string> program;
  ReportFlags report;
  // What says nothing without something else: flags of a trainer, of steps, of several ranks, of another program, of a document.
  std::vector<const Argument*> of_a_trainer, of_steps, of_ranks, of_a_program, of_a_document;
  // This process, where mpirun, torchrun or srun started one of it for each rank. What is profiled inherits their variables: the collector
  // there sees the same rank and writes a file of its own for it. No process then has the recordings of all, so none makes a document.
  std::optional<profiler::RankRecord> rank;

  bool several_ranks() const { return gpus > 1 || rank; }
  // One process does it for all, as rank 0's is the run.json of the run.
  bool keeps_run_json() const { return !keep_recording.empty() && program.empty() && (rank ? rank->rank == 0 : gpus > 1); }
  std::string recorded(const std::string& output) const { return rank ? profiler::file_of_rank(output, rank->rank) : output; }
};

profiler::Ceilings ceilings([[maybe_unused]] bool measure_again) {
  profiler::Ceilings c;
#ifdef STEPSCOPE_WITH_CUDA
  const profiler::MeasuredCeilings m = profiler::ceilings_of_device(measure_again);
  c.copy_bytes_per_s = m.copy_bytes_per_s;
  c.read_bytes_per_s = m.read_bytes_per_s;
  c.write_bytes_per_s = m.write_bytes_per_s;
  c.matmul_flops_per_s = {{"fp32", m.fp32_flops_per_s}, {"tf32", m.tf32_flops_per_s}, {"bf16", m.bf16_flops_per_s}};
  c.device = m.device;
  c.uuid = m.uuid;
  c.driver = m.driver;
  c.measured_at = m.measured_at;
#endif
  return c;
}

struct Interrupted {};

void end_if_interrupted() {
  if (CatchInterrupt::interrupted()) throw Interrupted();
}

// Runs it under the collector's `environment` until its end or until ctrl-C.
stepscope::ChildResult run_profiled(const std::vector<std::string>& argv, const std::map<std::string, std::string>& environment) {
  end_if_interrupted();  // while ceilings were measured, say
  const stepscope::ChildResult child = stepscope::run_child(argv, environment, true, &CatchInterrupt::interrupted());
  end_if_interrupted();
  return child;
}

void check_child(const stepscope::ChildResult& child, const std::string& what) {
  if (child.exited && child.exit_code == 0) return;
  if (!child.exited) throw std::runtime_error(fmt::format("{} was killed by signal {}", what, child.signal));
  // The child has already said what was wrong; keep its kind of failure.
  if (child.exit_code == 2) throw InputError(fmt::format("{} refused its input (its message is above)", what));
  if (child.exit_code == 3) throw MachineError(fmt::format("{} cannot run here (its message is above)", what));
  throw std::runtime_error(fmt::format("{} ended with exit code {}", what, child.exit_code));
}

std::string library_or_throw() {
  const auto library = profiler::collector_library();
  if (!library)
    throw MachineError("the collector lib/libstepscope_collect.so is not beside the program: build the target stepscope_collect");
  return *library;
}

// A process of its own that does nothing but steps: how long it takes to settle is not known before, so it has room for that and for 3 s
// behind it, and no fewer steps than two windows and a figure need.
constexpr double kSustained_ns = 10e9;
constexpr int64_t kSustainedSteps = 24;
constexpr int64_t kEverySteps = 1'000'000'000;

// Steps for that long; none where the profile has no step time to go by.
std::optional<int64_t> sustained_steps(const profiler::ProfileDocument& d) {
  const auto step_ns = d.timing.step_time_ns.median;
  if (!step_ns || !(*step_ns > 0)) return std::nullopt;
  return std::max(kSustainedSteps, static_cast<int64_t>(std::ceil(kSustained_ns / *step_ns)));
}

void measure_sustained(profiler::ProfileDocument& d, const ProfileFlags& f, TrainerFlags flags, const CommandLine& line,
                       const TemporaryFolder& folder, const profiler::ProfileOptions& of_profile) {
  const auto steps = sustained_steps(d);
  if (flags.trainer == "reference" || !steps) {
    profiler::sustained_not_measured(d, steps ? "a CPU has no clock and power that this program reads" : "no step was timed");
    return;
  }
  profiler::CollectPlan plan;
  plan.output = folder.file("sustained.jsonl");
  plan.phases = {{Phase::warmup, f.warmup}, {Phase::timed, *steps}};
  const std::string run_json = folder.file("sustained.run.json");
  std::vector<std::string> argv{line.program()};
  const auto train = as_arguments(flags, f.warmup + *steps);
  argv.insert(argv.end(), train.begin(), train.end());
  argv.insert(argv.end(), {"--run-json", run_json, "--quiet"});
  check_child(run_profiled(argv, collector_environment(plan, folder.file("sustained.plan.json"), library_or_throw())),
              "the trainer in its sustained run");
  profiler::ProfileOptions options = of_profile;
  options.timed_steps = *steps;
  profiler::add_sustained(d, profiler::load_recording(plan.output), profiler::load_run_info(run_json), options);
}

// What the user left out is no lack of the machine's.
void say_what_was_left_out(profiler::Recording& recording, const ProfileFlags& f) {
  if (f.no_counters) recording.missing.push_back({"counters_not_asked", 1, ""});
}

// What the collector of a rank on a GPU cannot know. `counted`: how the ranks were counted, or that they were not.
void say_how_it_was_counted(profiler::Recording& recording, const ProfileFlags& f, const profiler::MissingRecord& counted) {
  say_what_was_left_out(recording, f);
  if (!f.no_counters) recording.missing.push_back(counted);
}

// The recording that this rank keeps tells `join` what the document of `--gpus N` tells. One that is not there is missed later.
void complete_kept_recording(const ProfileFlags& f, const profiler::MissingRecord& counted) {
  const std::string file = f.recorded(f.keep_recording);
  if (!std::filesystem::exists(file)) return;
  profiler::Recording recording = profiler::load_recording(file);
  say_how_it_was_counted(recording, f, counted);
  profiler::save_recording(recording, file);
}

profiler::ProfileDocument joined(const ProfileFlags& f, const profiler::CollectPlan& plan, const profiler::RunInfo& run,
                                 const profiler::Ceilings& ceilings, const profiler::ProfileOptions& options, bool cpu,
                                 const profiler::MissingRecord& counted) {
  std::vector<profiler::RankRecording> recordings = load_ranks(plan, f.gpus);
  if (!cpu)
    for (profiler::RankRecording& r : recordings) say_how_it_was_counted(r.recording, f, counted);
  profiler::JoinOptions join;
  join.links = links_for("--link-ceilings", f.links, recordings);
  profiler::ProfileDocument document = profiler::join_ranks(recordings, run, ceilings, options, join);
  if (f.sustained) profiler::sustained_not_measured(document, "a run of several ranks has only its own timed steps");
  return document;
}

// The trainer under the collector, and what both are told.
struct ProfiledRun {
  profiler::CollectPlan plan;
  std::string run_json, plan_file;
  std::vector<std::string> argv;
  bool cpu;

  ProfiledRun(const ProfileFlags& f, TrainerFlags flags, const CommandLine& line, const TemporaryFolder& folder, bool counted)
      : run_json(folder.file("run.json")), plan_file(folder.file("plan.json")), argv{line.program()}, cpu(flags.trainer == "reference") {
    plan.output = f.keep_recording.empty() ? folder.file("recording.jsonl") : f.keep_recording;
    plan.raw_trace = f.raw_trace;
    plan.metrics = f.metrics;
    plan.phases = {{Phase::warmup, f.warmup}, {Phase::timed, flags.steps}};
    // The collector takes a file that exists for another process's. A rank writes beside --keep-recording, whose own name is not its to remove.
    if (f.rank)
      std::filesystem::remove(f.recorded(plan.output));
    else
      remove_recordings(plan, f.gpus);
    if (f.gpus > 1) plan.job = new_job();
    if (counted) {
      // Kernels inside a CUDA graph cannot be counted one by one: these steps launch them directly.
      flags.direct_from = f.warmup + flags.steps + 1;
      plan.phases.push_back({Phase::counters, 1});
      if (!f.several_ranks()) plan.phases.push_back({Phase::pass_counters, 1});
      flags.direct_steps = profiler::planned_steps(plan.phases) - f.warmup - flags.steps;
    }
    plan.phases.push_back({Phase::activity, f.traced + (cpu ? 0 : profiler::kDiscardedSteps)});
    const int64_t steps = profiler::planned_steps(plan.phases);
    const auto add = [&](const std::vector<std::string>& words) { argv.insert(argv.end(), words.begin(), words.end()); };
    add(as_arguments(flags, steps));
    add({"--run-json", run_json, "--quiet"});
    if (f.gpus > 1) add({"--gpus", std::to_string(f.gpus)});
    if (f.gpus > 1) add(as_arguments(f.exchange));
    if (f.exchange_nothing) add({"--exchange-nothing"});
    // Counted kernels take a millisecond each, and one rank may be done with them long before another.
    if (f.several_ranks() && counted) add({"--direct-in-silence", "--stall-timeout", "60"});
    if (cpu) add({"--cpu-recording", plan_file});
  }

  stepscope::ChildResult start() const {
    std::map<std::string, std::string> environment;
    if (cpu)
      profiler::write_plan(plan, plan_file);
    else
      environment = profiler::collector_environment(plan, plan_file, library_or_throw());
    return run_profiled(argv, environment);
  }
};

// Ranks that are counted exchange nothing (cli/silent_steps.h), and have no counters of whole passes: in the step that counts those a rank was
// killed by signal 11 on each of two hosts (two H200s, while NCCL ran on 2026-11-22, in silence on 2026-11-30; the cause is not known). Should one
// be killed in spite of that, a profile of times is worth more than none. Where a starter made the ranks, each process of `profile` comes to this
// by itself: a run of ranks ends as a whole, so all see it fail. (But for one whose collector ends it behind the run: that one tries alone, and
// waits at the rendezvous until its deadline.)
//
// Gives no document where this process is a rank: its recording is all that it has.
std::optional<profiler::ProfileDocument> profile_trainer(const ProfileFlags& f, const CommandLine& line, const TemporaryFolder& folder) {
  TrainerFlags flags = f.trainer;
  if (const auto notice = settle(flags)) say(*notice);
  // Wrong flags are refused before anything asks for a GPU.
  gpt2::check_run(trainer_options(flags), loop_options(flags));
  if (f.gpus > 1) check_exchange(f.exchange, flags.trainer);
  const bool cpu = flags.trainer == "reference";
  if (cpu && !f.raw_trace.empty())
    throw InputError(fmt::format("--raw-trace {}: the CPU reference writes none; leave it out", f.raw_trace));
  if (!flags.val_data.empty()) {
    say("--val-data: left out, because the steps of a profile have no validation loss");
    flags.val_data.clear();
  }
  if (cpu && (!f.metrics.empty() || f.measure_ceilings))
    say(fmt::format("{}{}{}: left out, because the CPU reference has neither hardware counters nor ceilings",
                    f.metrics.empty() ? "" : "--metric", !f.metrics.empty() && f.measure_ceilings ? ", " : "",
                    f.measure_ceilings ? "--measure-ceilings" : ""));

  profiler::ProfileOptions options;
  options.first_timed_step = f.warmup;
  options.timed_steps = flags.steps;
  options.metrics = f.metrics;
  options.git_revision = kGitRevision;
  options.build_type = kBuildType;
  options.profiled_at = stepscope::now_utc();

  profiler::Ceilings measured;
  if (!cpu) {
    if (const GpuStatus gpu = gpu_status(); !gpu.present)
      throw MachineError(fmt::format("--trainer {} needs a GPU: {}", flags.trainer, gpu.why_not));
    library_or_throw();
    if (!f.rank) measured = ceilings(f.measure_ceilings);
  }
  bool counted = !f.no_counters && !cpu;
  ProfiledRun run(f, flags, line, folder, counted);
  stepscope::ChildResult ended = run.start();
  profiler::MissingRecord how{"ranks_counted_in_silence", 1, ""};
  const auto is_final = [](int exit_code) { return exit_code == 0 || exit_code == 2 || exit_code == kInterrupted; };
  if (f.several_ranks() && counted && !(ended.exited && is_final(ended.exit_code))) {
    how = {"ranks_not_counted", 1, ended.exited ? fmt::format("exit code {}", ended.exit_code) : fmt::format("signal {}", ended.signal)};
    say(fmt::format("the ranks ended with {} in a run with counters; once more without", how.detail));
    counted = false;
    run = ProfiledRun(f, flags, line, folder, counted);
    ended = run.start();
  }
  check_child(ended, "the profiled trainer");
  if (f.keeps_run_json()) stepscope::write_output(run_json_beside(f.keep_recording), stepscope::read_file(run.run_json));
  if (f.rank) {
    if (!cpu) complete_kept_recording(f, how);
    return std::nullopt;
  }

  profiler::RunInfo info = profiler::load_run_info(run.run_json);
  info.command = line.text();
  if (f.gpus > 1) return joined(f, run.plan, info, measured, options, cpu, how);
  profiler::Recording recording = profiler::load_recording(run.plan.output);
  if (!cpu) say_what_was_left_out(recording, f);
  profiler::ProfileDocument document = profiler::build_profile(recording, info, measured, options);
  if (f.sustained) measure_sustained(document, f, flags, line, folder, options);
  return document;
}

std::optional<profiler::ProfileDocument> profile_program(const ProfileFlags& f, const CommandLine& line, const TemporaryFolder& folder) {
  if (f.program[0].find('/') != std::string::npos && access(f.program[0].c_str(), X_OK) != 0)
    throw InputError(fmt::format("cannot start '{}': {}", f.program[0], std::strerror(errno)));
  if (const GpuStatus gpu = gpu_status(); !gpu.present) throw MachineError(fmt::format("profiling a program needs a GPU: {}", gpu.why_not));
  const std::string library = library_or_throw();
  const profiler::Ceilings measured = f.rank ? profiler::Ceilings{} : ceilings(f.measure_ceilings);
  const bool counted = !f.no_counters && !f.rank;
  if (f.rank && !f.no_counters)
    say("hardware counters: left out, because a kernel that is counted runs alone, and a collective waits for one of "
        "another rank");
  profiler::CollectPlan plan;
  plan.metrics = f.metrics;
  plan.max_launches = f.max_launches;
  plan.raw_trace = f.raw_trace;

  profiler::ProfileOptions options;
  options.profiled_at = stepscope::now_utc();

  auto run = [&](const std::string& mode, const std::string& output) {
    plan.mode = mode;
    plan.output = output;
    // The collector takes a file that exists for another process's, and writes beside it.
    std::filesystem::remove(f.recorded(output));
    check_child(run_profiled(f.program, profiler::collector_environment(plan, folder.file(mode + ".plan.json"), library)),
                fmt::format("'{}'", f.program[0]));
    return profiler::load_recording(f.recorded(output));
  };
  const std::string kept = f.keep_recording.empty() ? folder.file("recording.jsonl") : f.keep_recording;
  profiler::Recording recording;
  if (!f.step_range.empty()) {
    // A program with its own step ranges: the same phases as our trainers.
    plan.step_range = f.step_range;
    std::vector<profiler::PhasePlan> wanted{{Phase::warmup, f.warmup}, {Phase::timed, f.trainer.steps}};
    if (counted) wanted.insert(wanted.end(), {{Phase::counters, 1}, {Phase::pass_counters, 1}});
    wanted.push_back({Phase::activity, f.traced + profiler::kDiscardedSteps});
    recording = profiler::record_steps(wanted, {[&](const std::vector<profiler::PhasePlan>& phases) {
                                                  plan.phases = phases;
                                                  return run("steps", kept);
                                                },
                                                say});
  } else {
    recording = run("program_activity", kept);
    if (counted) recording = profiler::join_program_runs(std::move(recording), run("program_counters", folder.file("counters.jsonl")));
  }
  if (f.rank) return std::nullopt;
  say_what_was_left_out(recording, f);
  profiler::ProfileDocument document = profiler::build_profile(recording, std::nullopt, measured, options);
  document.run.command = line.text();
  if (f.sustained && f.step_range.empty()) {
    profiler::sustained_not_measured(document, "a program without --step-range has no steps that could be timed");
  } else if (f.sustained) {
    // How many steps the program has is its own affair: all of them are timed.
    plan.phases = {{Phase::warmup, f.warmup}, {Phase::timed, kEverySteps}};
    plan.raw_trace.clear();  // is there already, and this run traces nothing
    profiler::add_sustained(document, run("steps", folder.file("sustained.jsonl")), std::nullopt, options);
  }
  return document;
}

// Flags that would do nothing are refused, so that nobody takes the answer for one to them.
void check_flags_have_a_use(const ProfileFlags& f) {
  if (f.program.empty()) {
    only_these(f.of_a_program, {}, "expected a program behind --; of a trainer every launch is kept");
  } else {
    only_these(f.of_a_trainer, {}, "expected a trainer; another program takes its own flags, behind its name");
    if (f.step_range.empty())
      only_these(f.of_steps, {}, "expected --step-range with it; without one all of the program is profiled as one step");
    else
      only_these(f.of_a_program, {}, "expected a program without --step-range; of steps every launch is kept");
  }
  if (f.gpus == 1) only_these(f.of_ranks, {}, "expected --gpus N with it");
  if (f.no_counters && !f.metrics.empty()) throw InputError("--metric: --no-counters reads none; leave one of the two out");
  if (!f.rank) return;
  const std::string who = this_process_is(f.rank->rank, f.rank->size);
  if (f.keep_recording.empty())
    throw InputError(
        fmt::format("--keep-recording: expected a file, because {}; `join` makes one document of the recordings that all ranks keep", who));
  only_these(f.of_a_document, {}, who + ", which only keeps its recording; `join` makes the document of all ranks");
  if (!f.program.empty() && !f.metrics.empty())
    throw InputError(fmt::format("--metric: {}, and kernels of another program's ranks are not counted", who));
}

void say_where_it_is(const ProfileFlags& f) {
  const std::string file = f.recorded(f.keep_recording);
  if (!std::filesystem::exists(file)) fail_without_recording({static_cast<int>(f.rank->rank)}, f.rank->size);
  stepscope::put_on_stderr(fmt::format("recording: {} (rank {} of {}; `stepscope join` makes one document of those of all ranks)\n",
                                       stepscope::printable(file), f.rank->rank, f.rank->size));
}

void say_where_run_json_is(const ProfileFlags& f) {
  if (f.keeps_run_json())
    stepscope::put_on_stderr(fmt::format("run.json: {0} (`join --run-json {0} --first-timed-step {1} --timed-steps {2}`)\n",
                                         stepscope::printable(run_json_beside(f.keep_recording)), f.warmup, f.trainer.steps));
}

void run(ProfileFlags f, const CommandLine& line, int& exit_code) {
  if (f.trainer.steps < 1) throw InputError(fmt::format("--steps is {}: expected at least 1", f.trainer.steps));
  if (f.warmup < 1) throw InputError(fmt::format("--warmup is {}: expected at least 1", f.warmup));
  if (f.traced < 1) throw InputError(fmt::format("--traced-steps is {}: expected at least 1", f.traced));
  if (f.gpus > 1 && !f.program.empty())
    throw InputError("--gpus: expected a trainer; start another program's ranks with mpirun or torchrun, and `join` their recordings");
  if (f.program.empty() && !f.step_range.empty())
    throw InputError(
        fmt::format("--step-range {}: expected a program behind --, whose steps it names; a trainer's are known", f.step_range));
  if (f.gpus == 1)
    f.rank = profiler::collect::rank_of_process("");
  else
    refuse_to_start_ranks_again(f.gpus);
  check_flags_have_a_use(f);
  stepscope::NamedFiles inputs{{"--link-ceilings", f.links}, {"--model", f.trainer.model}};
  add_shards(inputs, "--data", f.trainer.data);
  add_shards(inputs, "--val-data", f.trainer.val_data);
  stepscope::NamedFiles outputs{{"--out", f.out}, {"--keep-recording", f.keep_recording}, {"--raw-trace", f.raw_trace}};
  for (int64_t rank = 0; rank < f.gpus && f.gpus > 1; ++rank) {
    if (!f.keep_recording.empty()) outputs.emplace_back("--keep-recording of a rank", profiler::file_of_rank(f.keep_recording, rank));
    if (!f.raw_trace.empty()) outputs.emplace_back("--raw-trace of a rank", profiler::file_of_rank(f.raw_trace, rank));
  }
  if (f.rank) outputs.emplace_back("--keep-recording of a rank", f.recorded(f.keep_recording));
  if (f.keeps_run_json()) {
    gpt2::refuse_to_replace("the run.json beside --keep-recording", run_json_beside(f.keep_recording));
    outputs.emplace_back("the run.json beside --keep-recording", run_json_beside(f.keep_recording));
  }
  check_document_name("--out", f.out);
  check_report_outputs(f.report, inputs, std::move(outputs));
  if (!f.links.empty()) links_for("--link-ceilings", f.links, {});  // not only after the run
  const CatchInterrupt guard;
  const TemporaryFolder folder;
  const auto document = f.program.empty() ? profile_trainer(f, line, folder) : profile_program(f, line, folder);
  if (document)
    exit_code = print_new_report(*document, f.out, f.report);
  else
    say_where_it_is(f);
  say_where_run_json_is(f);
}

}  // namespace

void add_profile_command(Command& app, const CommandLine& line, int& exit_code) {
  auto f = std::make_shared<ProfileFlags>();
  Command* c = app.add_subcommand("profile", "Show where the time of a training step goes, per pass and per kernel");
  add_trainer_flags(*c, f->trainer);
  c->for_each_argument(
      [&](const std::string&, const Argument& a) { (a.name() == "--steps" ? f->of_steps : f->of_a_trainer).push_back(&a); });
  c->add_option("--gpus", f->gpus, "train on this many GPUs of this host, one process each, and show all in one document")
      ->check(whole(1, 4096))
      ->capture_default_str();
  add_exchange_flags(*c, f->exchange);
  f->of_ranks = f->exchange.arguments;
  Argument* nothing =
      c->add_flag("--exchange-nothing", f->exchange_nothing, "ranks exchange nothing: what a profile of ranks that do is held against");
  nothing->group("");  // set by tests/device/ranks_evidence.py
  f->of_ranks.push_back(nothing);
  f->of_ranks.push_back(c->add_option("--link-ceilings", f->links,
                                      "sweep of collectives that `doctor --gpus N` wrote (default: the kept one of these GPUs)"));
  f->of_steps.push_back(c->add_option("--warmup", f->warmup, "steps to run before the timed ones")->check(whole(1))->capture_default_str());
  f->of_steps.push_back(c->add_option("--traced-steps", f->traced, "steps after the timed ones whose kernels are recorded one by one")
                            ->check(whole(1))
                            ->capture_default_str());
  f->of_a_document.push_back(
      c->add_flag("--sustained", f->sustained,
                  "run the program once more for about 10 s of steps and show its warm step time and energy beside the cool ones"));
  c->add_flag("--no-counters", f->no_counters, "measure times only, no hardware counters");
  c->add_option("--metric", f->metrics, "read these CUPTI metrics instead of the built-in set (repeatable; must fit one pass)");
  f->of_a_document.push_back(
      c->add_flag("--measure-ceilings", f->measure_ceilings, "measure this device's ceilings again instead of using the cached ones"));
  f->of_a_document.push_back(c->add_option("--out,-o", f->out, "write the profile document to this file")->capture_default_str());
  c->add_option("--keep-recording", f->keep_recording,
                "keep the collector's recording in this file, and beside those of a trainer's ranks its run.json");
  f->of_steps.push_back(
      c->add_option("--raw-trace", f->raw_trace, "write every launch of every traced step to this file, which grows with the steps"));
  c->add_option("--step-range", f->step_range,
                "name of the NVTX range that is one step of another program; a program with too few steps for the plan runs again with a "
                "shorter plan");
  f->of_a_program.push_back(
      c->add_option("--max-launches", f->max_launches, "keep this many launches of another program and count the rest")
          ->check(whole(1))
          ->capture_default_str());
  const size_t before = c->arguments().size();
  add_report_flags(*c, f->report);
  const std::vector<const Argument*> all = c->arguments();
  f->of_a_document.insert(f->of_a_document.end(), all.begin() + static_cast<std::ptrdiff_t>(before), all.end());
  c->add_option("program", f->program, "profile this CUDA program with its arguments, given after --, instead of a trainer");
  c->footer(
      "Examples:\n"
      "  stepscope profile --steps 50\n"
      "  stepscope profile --steps 50 --sustained\n"
      "  stepscope profile --gpus 2 --steps 50 --trace step.trace.json\n"
      "  stepscope profile --steps 50 --matmul tf32 --batch-size 16 --trace step.trace.json --csv kernels.csv\n"
      "  stepscope profile -- ./my_cuda_program --its-flags");
  c->callback([f, line, &exit_code] {
    try {
      run(*f, line, exit_code);
    } catch (const Interrupted&) {
      say("interrupted; no profile was written");
      exit_code = kInterrupted;
    }
  });
}

}  // namespace cli

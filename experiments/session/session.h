// Everything between experiment files and their verdict documents: gate the arms, measure, profile, decide.
// Each part is a child process of this one program, so that none shares a CUDA context with another and each
// can be killed.
#pragma once
#include <atomic>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/errors.h"
#include "experiments/plan/experiment_file.h"
#include "experiments/runner/pair_runner.h"
#include "experiments/session/built_program.h"
#include "experiments/session/device_watch.h"
#include "experiments/session/gates.h"
#include "experiments/verdict/make_document.h"
#include "experiments/verdict/stale.h"

namespace experiments {

inline constexpr int kProfiledSteps = 10, kProfileWarmup = 10;

struct SessionOptions {
  std::filesystem::path root;  // of the source tree: baselines, sources that are hashed
  std::string program;         // this executable
  std::string command;         // as typed
  std::string git_revision;    // of this program
  Gpu gpu;
  Procedure procedure = Procedure::alone;
  PairPlan plan;  // arms are filled in; everything else is the user's
  bool seed_given = false;
  double plant_pct = 0;   // the host waits after every step of B
  std::string plant_gpu;  // "KIND:PCT": work on the device after every step of B (`stepscope arm --plant-gpu`)
  bool serial = false;    // both arms without overlap of steps, as a planted run needs it
  bool profile = true;
  std::filesystem::path keep_profiles;  // folder for the arms' profile documents; "" = thrown away
  int command_steps = 40;               // of whole programs (frozen baselines, ranks, commands) per block; alone, of their first run
  bool built_here = false;              // `program` was built from `root`: its sources must not be newer than it is
  double gate_timeout_s = 900, profile_timeout_s = 600;
  std::filesystem::path gate_answers;  // where gates keep what commands after this one may use (gates.h); "" = nothing is kept
  const std::atomic<bool>* stop = nullptr;
  bool progress = false;
  std::function<BuiltProgram(const BuildOptions&, const Sources&)> build = build_program;  // of an arm with other sources
};

// Whether `left`, which a command before this one measured of `experiment`, was decided and is not measured again.
bool stands_in(const Experiment& experiment, const WorkloadSection& left);

// An arm of other sources compiles the same step: there is nothing to measure.
struct SameStep : stepscope::InputError {
  using InputError::InputError;
};

struct TwoCommands {
  std::string a, b;
  std::string step_regex;    // as ArmSpec has it
  int skip_steps = -1;       // likewise
  bool recorded = false;     // their step times were recorded elsewhere, and take longer than the commands
  std::string gate_command;  // "" = none: the verdict then says that nothing checked them
};

// What ctrl-C must not lose is returned, not thrown; the rest of the campaign is the caller's.
class ExperimentSession {
 public:
  explicit ExperimentSession(SessionOptions options);

  // Of one experiment: its document, or why there is none (stepscope::MachineError: this machine cannot run it; stepscope::InputError: the
  // trainer refuses it).
  struct Outcome {
    VerdictDocument document;
    std::exception_ptr failure;
  };
  // All of them, in their order. Workloads with the same baseline are measured together and share its processes. Those that an interrupt
  // kept from beginning are missing at the end, but for the first.
  // `done`, which may be empty, hears of each as soon as it is decided: what was measured must not wait for the rest.
  // `left_off`: what a command before this one left of an experiment (an unfinished document), or nothing. Workloads that it decided stand, and
  // rounds of processes alone count. Refused (stepscope::InputError) unless step, device, thresholds and seconds are the same.
  // `so_far`, too: after every round that does not decide it, the document that an interrupt would leave now. A process that is killed, or a
  // machine that is taken away, says nothing.
  std::vector<Outcome> run(std::span<const Experiment> experiments, const std::vector<LedgerEntry>& ledger,
                           const std::function<void(size_t, const Outcome&)>& done = {},
                           const std::function<void(size_t, const VerdictDocument&)>& so_far = {},
                           std::span<const std::optional<VerdictDocument>> left_off = {});
  // One; throws its failure.
  VerdictDocument run(const Experiment& experiment, const std::vector<LedgerEntry>& ledger);
  VerdictDocument run_commands(const TwoCommands& commands, const std::vector<LedgerEntry>& ledger);
  // The same trainer against itself, with what options plant added to B. The caller gates.
  RunLog run_identical(const std::vector<std::string>& trainer_arguments);
  // The same trainer with each of `plants` against itself without, all together and alone: "KIND:PCT" as in `stepscope arm --plant-gpu`, or
  // "host:PCT", where the host waits. `plan` without its arms; one log for each. Throws stepscope::InputError for a plant that is none, and
  // stepscope::MachineError for one on the GPU of the CPU reference.
  std::vector<RunLog> run_planted(const std::vector<std::string>& trainer_arguments, std::span<const std::string> plants, PairPlan plan,
                                  const std::function<void(std::span<const RunLog>)>& round_ended);

  const Gpu& gpu() const { return options_.gpu; }
  // In what `document`, of an earlier command, is of another measurement than this one would be: "another device: …, now …"; "": in nothing.
  // A program that was built again, or another revision, is none, where both arms' sources of the step are known and the same.
  std::string differs_from(const VerdictDocument& document, const Experiment& experiment);
  // What both arms of `experiment` run on; "": only they can say.
  std::string device_of(const Experiment& experiment) const;
  // "NVIDIA H200", or what the arms of the last run said they ran on.
  std::string device() const { return device_; }
  bool interrupted() const { return options_.stop && options_.stop->load(); }
  GateSummary gate(const std::vector<std::string>& trainer_arguments) {
    return gates_of({options_.root, options_.program, {}}).check(trainer_arguments);
  }

 private:
  // One workload of one experiment on its way.
  struct Job;
  void prepare(Job& job);
  void make_arms(Job& job);
  bool make_frozen_arms(Job& job, const std::string& b_program);
  void make_rank_arms(Job& job, const std::string& a_program, const std::string& b_program);
  void count_rounds_before(Job& job);
  void gate_arms(Job& job);
  void measure(std::span<Job* const> together, const std::function<void()>& after_round);
  void look_closer(Job& job);
  void cut_short(Job& job) const;
  void add_to(std::vector<Job>& jobs, const Experiment& experiment) const;
  void go_on(std::span<Job> jobs, const VerdictDocument& left_off);
  std::optional<bool> has_sources_of(const VerdictDocument& document, const Experiment& experiment);
  std::pair<std::string, std::string> hashed_sources(const Experiment& experiment);
  void build_arms(const Experiment& experiment);
  // This program and its tree, or those of an arm of other sources, after build_arms().
  BuiltProgram program_of(const Experiment& experiment, char arm) const;
  Gates& gates_of(const BuiltProgram& program);
  // `after` runs after everything that may have decided a job, `after_round` while logs are of rounds that go on.
  void run_jobs(std::vector<Job>& jobs, const std::function<void()>& after, const std::function<void()>& after_round);
  std::vector<std::string> arm_command(const std::string& program, const std::vector<std::string>& flags, bool planted) const;
  RunLog measure(const PairPlan& plan, bool uses_gpu, const std::string& what);
  std::vector<RunLog> measure(std::vector<PairPlan> plans, const std::vector<std::string>& names, bool uses_gpu,
                              const std::function<void(std::span<const RunLog>)>& round_ended = {});
  // What is profiled, by which stepscope: a trainer by its flags, or a program with step ranges.
  struct Profiled {
    std::string by;
    std::vector<std::string> trainer_arguments, program;
  };
  void profile_both(WorkloadResult& result, const std::string& name, const Profiled& a, const Profiled& b);
  std::optional<std::string> profile(const Profiled& what, const std::string& out);
  // Once more under the collector, timed steps and checked ones; what differs makes the run invalid.
  void compare_launches(WorkloadResult& result, const PairPlan& plan);
  RunFacts facts(const std::vector<LedgerEntry>& ledger, const std::string& device) const;
  void add_other_sources(RunFacts& facts, const Experiment& experiment) const;
  const std::string& sha256_of(const std::string& program);

  SessionOptions options_;
  // With hashes of what was built: patch and tree may change while it is measured.
  struct Built {
    BuiltProgram program;
    std::string patch_sha256;
    std::map<std::string, std::string> sources_sha256;  // by trainer
  };
  std::map<std::string, Gates> gates_;         // by program
  std::map<std::string, Built> built_;         // by patch or revision
  std::map<std::string, std::string> sha256_;  // by program
  SourceHashes sources_;
  std::string device_, driver_;
};

}  // namespace experiments

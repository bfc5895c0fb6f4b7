// Everything between an experiment file and its verdict document: gate both arms, measure, profile, decide.
// Each part is a child process of this one program, so that none shares a CUDA context with another and each
// can be killed.
#pragma once
#include <atomic>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/gpu.h"
#include "experiments/plan/experiment_file.h"
#include "experiments/runner/pair_runner.h"
#include "experiments/verdict/make_document.h"

namespace cli {

struct SessionOptions {
  std::filesystem::path root;  // of the source tree: baselines, sources that are hashed
  std::string program;         // this executable
  std::string command;         // as typed
  experiments::PairPlan plan;  // arms are filled in; everything else is the user's
  bool seed_given = false;
  double plant_pct = 0;
  bool serial = false;  // both arms without overlap of steps, as a planted run needs it
  bool profile = true;
  std::filesystem::path keep_profiles;  // folder for the arms' profile documents; "" = thrown away
  int command_steps = 40;               // of a frozen baseline, per block
  bool built_here = false;              // `program` was built from `root`: its sources must not be newer than it is
  double gate_timeout_s = 900, profile_timeout_s = 600;
  const std::atomic<bool>* stop = nullptr;
  bool progress = false;
};

// What ctrl-C must not lose is returned, not thrown; the rest of the campaign is the caller's.
class ExperimentSession {
 public:
  explicit ExperimentSession(SessionOptions options);

  // Throws stepscope::MachineError when this machine cannot run it, stepscope::InputError for what the
  // trainer refuses.
  experiments::VerdictDocument run(const experiments::Experiment& experiment, const std::vector<experiments::LedgerEntry>& ledger);
  // Two commands. `gate_command` "" = none: the verdict then says that nothing checked them.
  experiments::VerdictDocument run_commands(const std::string& a, const std::string& b, const std::string& step_regex, int skip_steps,
                                            const std::string& gate_command, const std::vector<experiments::LedgerEntry>& ledger);
  // The same trainer against itself, with options.plant_pct added to B. Gates once.
  experiments::RunLog run_identical(const std::vector<std::string>& trainer_arguments);

  const GpuStatus& gpu() const { return gpu_; }
  // "NVIDIA H200", or what the arms of the last run said they ran on.
  std::string device() const { return device_; }
  bool interrupted() const { return options_.stop && options_.stop->load(); }
  experiments::GateSummary gate(const std::vector<std::string>& trainer_arguments);

 private:
  experiments::WorkloadResult run_workload(const experiments::Experiment& experiment, const experiments::Workload& workload);
  experiments::RunLog measure(experiments::PairPlan plan, bool uses_gpu, const std::string& what);
  // What is profiled: a trainer by its flags, or a program with step ranges.
  struct Profiled {
    std::vector<std::string> trainer_arguments, program;
  };
  void profile_both(experiments::WorkloadResult& result, const std::string& name, const Profiled& a, const Profiled& b);
  std::optional<std::string> profile(const Profiled& what, const std::string& out);
  // Once more under the collector, timed steps and checked ones; what differs makes the run invalid.
  void compare_launches(experiments::WorkloadResult& result, const experiments::PairPlan& plan);
  experiments::RunFacts facts(const std::vector<experiments::LedgerEntry>& ledger) const;
  const std::string& program_sha256();

  SessionOptions options_;
  GpuStatus gpu_;
  std::string device_, driver_, program_sha256_;
  std::map<std::string, experiments::GateSummary> gates_;
};

}  // namespace cli

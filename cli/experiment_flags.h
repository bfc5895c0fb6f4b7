// What the subcommands of `experiment` share: the flags of a measurement, where results lie, and ctrl-C.
#pragma once
#include <signal.h>

#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/trainer_flags.h"
#include "experiments/runner/pair_runner.h"
#include "experiments/session/session.h"

namespace cli {

struct MeasureFlags {
  experiments::PairPlan plan;
  int pairs = 0;  // 0 = those of the procedure
  bool quick = false, no_extension = false, sequential = false, seed_given = false, serial = false;
  double settle_s = -1;                          // < 0 = by the settle rule
  double plant_pct = 0, minimum_effect_pct = 0;  // 0 = the file's, or 0.3
  std::string plant_gpu, gate_answers;
  bool plants() const { return plant_pct > 0 || !plant_gpu.empty(); }
  Argument* quads_option = nullptr;
  Argument* gate_answers_option = nullptr;
  std::vector<Argument*> of_alone;                // of processes alone
  std::vector<const Argument*> of_stepping_arms;  // without meaning for commands
  std::vector<const Argument*> of_a_verdict;      // without meaning where processes are recorded and nothing is decided
};
// What the pairs of a command are of, for the words of its help: experiments have files, whose minimum effect is the default; arms of the command
// line have none; processes alone have no --quick either; of recordings the file decides whether its pairs are in turns.
enum class PairsOf { experiments, arms, processes_alone, recordings };
void add_measure_flags(Command& command, MeasureFlags& flags, PairsOf of);
// Those of processes alone and of the pairs in turns that follow them.
void add_alone_flags(Command& command, MeasureFlags& flags, PairsOf of);
// Those of them that say how pairs decide: all that a recording, whose pairs are measured, can take.
void add_decision_flags(Command& command, MeasureFlags& flags, PairsOf of);
// Throws stepscope::InputError for plans that could never say faster or slower, before an hour is spent on them.
std::vector<experiments::Look> planned_looks(const MeasureFlags& flags);
experiments::SessionOptions session_options(const MeasureFlags& flags, const CommandLine& line);

// A trainer that is compared with itself: "mixed d12, B=4, T=1024", and its flags in an arm. Says on stderr what was settled.
std::pair<std::string, std::vector<std::string>> trainer_to_compare(TrainerFlags flags);

// "stepscope experiment run …", wherever this machine keeps the program and without --out, --gate-answers and --record: where it keeps files says
// nothing of what was measured.
std::string typed(const CommandLine& line);

// STEPSCOPE_ROOT, or the tree that the program was built from.
std::filesystem::path source_root();
// The same; throws stepscope::InputError where it holds no folder of experiments, as with a mistyped STEPSCOPE_ROOT.
std::filesystem::path root_with_studies();
std::filesystem::path studies(const std::filesystem::path& root);
// Throws stepscope::InputError where --record names a file that is there: it may hold an hour of processes.
void check_new_record(const std::string& path);
// The studies of the source tree, or `out` (--out), whose ledger goes on from the tree's. Throws when it cannot be written.
std::filesystem::path results_folder(const std::string& out, const std::filesystem::path& root);

}  // namespace cli

// An experiment file (YAML): one question, ONE change, a prediction made before the measurement.
// docs/experiments.md shows the format. Arm A is the baseline, arm B is the baseline with the change; a
// positive saving means B is faster.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace experiments {

// What an arm's program is built from where that is not this source tree as it stands: the tree with a patch, or a revision of its history.
struct Sources {
  std::filesystem::path patch;  // as `git diff` writes it
  std::string revision;         // as git names it: "HEAD", "v1.2", "c71c557"
  bool here() const { return patch.empty() && revision.empty(); }
};

// Trainer flags without the dashes ("matmul": "tf32") and op variants ("zero_grad": "memset").
struct Settings {
  std::map<std::string, std::string> flags, variants;
  size_t count() const { return flags.size() + variants.size(); }
};

struct Workload {
  std::string model;
  int64_t batch_size = 0, seq_len = 0;
  std::string matmul;  // "" = the trainer's default
  std::optional<double> predicted_saving_ms;
  int64_t gpus = 1;          // of both arms, one process each; batch_size is that of one
  std::string text() const;  // "d12 B=4 T=1024 tf32 2 GPUs"
};

struct Experiment {
  std::string name;  // of the file, without .yaml
  std::filesystem::path file;
  std::string file_sha256;
  std::string question, hypothesis, change_text;
  std::string trainer;
  std::string baseline = "defaults";  // or the name of a frozen baseline
  Settings change;                    // what B has and A has not
  std::filesystem::path patch;        // a part of the change: the file beside the experiment that arm B's sources have; "" = none
  std::string since;                  // the revision that arm A is built from (`experiment since`); "" = this tree
  std::vector<std::string> flags;     // of both arms, as typed after `experiment since`; empty: from the settings and the workload
  Settings common;                    // what both have
  std::string arithmetic;             // how the predicted saving was found
  std::vector<Workload> workloads;
  double minimum_effect_pct = 0.3;
  bool compound = false;
  bool frozen_baseline() const { return baseline != "defaults"; }
  size_t changes() const { return change.count() + !patch.empty(); }
};

// Throws stepscope::InputError naming file, line and key: an unknown or missing key, a wrong type, more than
// one change without `compound: true`, no change, a prediction without its arithmetic.
Experiment read_experiment(const std::filesystem::path& file);
Experiment parse_experiment(const std::string& yaml, const std::filesystem::path& file);

// Every *.yaml of `folder`, sorted by name; read_experiments() throws for the first that is none.
std::vector<std::filesystem::path> experiment_files(const std::filesystem::path& folder);
std::vector<Experiment> read_experiments(const std::filesystem::path& folder);
// One of them by name or by path. Throws stepscope::InputError that lists the known names.
Experiment find_experiment(const std::filesystem::path& folder, const std::string& name);

// Trainer flags of an arm ("--trainer", "fp32", …), for `stepscope arm`, `train`, `profile`; without the number
// of GPUs, which the gate does not take. Arm A has no change.
std::vector<std::string> trainer_arguments(const Experiment& experiment, const Workload& workload, char arm);
// GPUs of that arm: those of the workload, or of a flag `gpus` of the change. An arm of several is run as a whole program.
int64_t gpus_of(const Experiment& experiment, const Workload& workload, char arm);
bool on_several_gpus(const Experiment& experiment, const Workload& workload);  // either arm
// What that arm has for a trainer's flag, without the dashes; `otherwise` where the experiment does not say.
std::string flag_of(const Experiment& experiment, char arm, const std::string& name, const std::string& otherwise);
// MiB of gradients that the ranks of that arm exchange at a time: as its flags say, or as `train` takes them by itself, on GPUs that reach each
// other's memory. nullopt: one GPU.
std::optional<int64_t> bucket_mib_of(const Experiment& experiment, const Workload& workload, char arm);
// The arms run from their start to their end: those of a frozen baseline or of several GPUs. Others step on command.
bool as_whole_programs(const Experiment& experiment, const Workload& workload);
// What that arm's program is built from.
Sources sources_of(const Experiment& experiment, char arm);
// The trainer of that arm: a change of the flag `trainer` counts.
std::string trainer_of(const Experiment& experiment, char arm);

}  // namespace experiments

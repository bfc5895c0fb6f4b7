// Is a verdict still about the code, the experiment file and the device of today?
#pragma once
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "experiments/plan/experiment_file.h"
#include "experiments/verdict/document.h"

namespace experiments {

// What a trainer's step is compiled from (experiments/gate/source_scan.h), sorted, relative to `root`; empty when `root` has no such trainer.
std::vector<std::string> trainer_sources(const std::filesystem::path& root, const std::string& trainer);
// The first of them that is newer than `program`, which then may not be what it says; "" = none.
std::string newer_source(const std::filesystem::path& root, const std::string& trainer, const std::filesystem::path& program);
// SHA-256 over path and code of each of them (comments are none), and over the compiler's flags; "" without sources.
std::string hash_trainer_sources(const std::filesystem::path& root, const std::string& trainer);
// Those of one tree, each made when it is first asked for: of many experiments all ask for the same few.
class SourceHashes {
 public:
  explicit SourceHashes(std::filesystem::path root) : root_(std::move(root)) {}
  // hash_trainer_sources.
  const std::string& of(const std::string& trainer);
  // Whether `hash` is that, or of the same files byte by byte, as it was up to 2026-12-01.
  bool match(const std::string& hash, const std::string& trainer);

 private:
  std::filesystem::path root_;
  std::map<std::string, std::string> of_code_, of_bytes_;  // by trainer
};

// Where the ranks of an arm exchange gradients in other pieces than when this workload of `e` was measured: `train` chooses their size by the
// workload, outside of the sources that are hashed. "" = in the same, or another workload.
std::string other_buckets(const WorkloadSection& then, const Experiment& e);

// Why `verdict` no longer holds, one sentence each; empty = it does.
// `device` is the name of the device here, "" when there is none to run on: then the device is no reason.
std::vector<std::string> stale_reasons(const VerdictDocument& verdict, const Experiment& experiment, SourceHashes& sources,
                                       const std::string& device);

}  // namespace experiments

// Is a verdict still about the code, the experiment file and the device of today?
#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "experiments/plan/experiment_file.h"

namespace experiments {

// What a trainer's step is made of, sorted, relative to `root`: every file of its folder (fp32/, mixed/, gpt2/reference/), what these
// include, and the sources of what they include. Not profiler/ or experiments/, since how it is measured is not what is
// measured; not the rest of gpt2/, such as tokenizers.
std::vector<std::string> trainer_sources(const std::filesystem::path& root, const std::string& trainer);
// The first of them (not a build file) that is newer than `program`, which then may not be what it says; "" = none.
std::string newer_source(const std::filesystem::path& root, const std::string& trainer, const std::filesystem::path& program);
// SHA-256 over path and content of each of them.
std::string hash_trainer_sources(const std::filesystem::path& root, const std::string& trainer);

// Why `verdict` (a stepscope.verdict/1 document) no longer holds, one sentence each; empty = it does.
// `device` is the name of the device here, "" when there is none to run on: then the device is no reason.
std::vector<std::string> stale_reasons(const nlohmann::ordered_json& verdict, const Experiment& experiment,
                                       const std::filesystem::path& root, const std::string& device);

}  // namespace experiments

#include "experiments/verdict/stale.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/sha256.h"
#include "experiments/verdict/document.h"

namespace experiments {

namespace fs = std::filesystem;

namespace {

// A trainer keeps its choice of algorithms in a file, and no step passes through how that is written.
const std::set<std::string> kNoPartOfAStep{"base/atomic_file.h", "base/atomic_file.cpp"};

// The quoted includes of a source file that name a file of the tree.
std::vector<std::string> includes_of(const fs::path& file) {
  std::vector<std::string> out;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const size_t hash = line.find_first_not_of(" \t");
    if (hash == std::string::npos || line[hash] != '#') continue;
    const size_t word = line.find("include", hash), open = line.find('"', hash);
    if (word == std::string::npos || open == std::string::npos || open < word) continue;
    const size_t close = line.find('"', open + 1);
    if (close != std::string::npos) out.push_back(line.substr(open + 1, close - open - 1));
  }
  return out;
}

}  // namespace

std::vector<std::string> trainer_sources(const fs::path& root, const std::string& trainer) {
  std::set<std::string> found;
  std::vector<std::string> todo;
  std::error_code missing;
  for (auto it = fs::recursive_directory_iterator(root / (trainer == "reference" ? "gpt2/reference" : trainer), missing);
       it != fs::recursive_directory_iterator(); ++it)
    if (it->is_regular_file()) todo.push_back(it->path().lexically_relative(root).generic_string());
  while (!todo.empty()) {
    const std::string file = todo.back();
    todo.pop_back();
    if (kNoPartOfAStep.contains(file) || !fs::is_regular_file(root / file) || !found.insert(file).second) continue;
    for (const std::string& included : includes_of(root / file))
      for (const char* extension : {".h", ".cuh", ".cpp", ".cu"})  // a declaration, and what it declares
        todo.push_back(fs::path(included).replace_extension(extension).generic_string());
  }
  return {found.begin(), found.end()};
}

std::string newer_source(const fs::path& root, const std::string& trainer, const fs::path& program) {
  std::error_code missing;
  const auto built = fs::last_write_time(program, missing);
  if (missing) return "";
  for (const std::string& file : trainer_sources(root, trainer)) {
    const std::string extension = fs::path(file).extension();
    if (extension != ".h" && extension != ".cuh" && extension != ".cpp" && extension != ".cu") continue;
    if (fs::last_write_time(root / file) > built) return file;
  }
  return "";
}

std::string hash_trainer_sources(const fs::path& root, const std::string& trainer) {
  gpt2::Sha256 hash;
  for (const std::string& file : trainer_sources(root, trainer)) {
    hash.update(file + "\n");
    hash.update(gpt2::sha256_file(root / file) + "\n");
  }
  return hash.hex();
}

std::vector<std::string> stale_reasons(const nlohmann::ordered_json& verdict, const Experiment& e, const fs::path& root,
                                       const std::string& device) {
  std::vector<std::string> out;
  if (text_in(verdict, "experiment", "file_sha256") != e.file_sha256) out.emplace_back("the experiment file changed");
  // Both arms' sources: a change of the trainer may concern B alone.
  for (const char arm : {'A', 'B'}) {
    // A frozen baseline has its own manifest, and without one both arms mostly share a trainer.
    const bool hashed = arm == 'A' ? !e.frozen_baseline() : e.frozen_baseline() || trainer_of(e, 'B') != trainer_of(e, 'A');
    if (!hashed) continue;
    const std::string key = fmt::format("{}_sources_sha256", arm == 'A' ? "a" : "b");
    if (text_in(verdict, "code", key.c_str()) != hash_trainer_sources(root, trainer_of(e, arm)))
      out.push_back(fmt::format("the sources of the {} trainer changed", trainer_of(e, arm)));
  }
  if (verdict.contains("workloads"))
    for (const nlohmann::ordered_json& w : verdict["workloads"])
      if (w.value("verdict", "") == "invalid" || w.value("reason", "") == reason::kInterrupted) {
        out.push_back(fmt::format("the last run did not end in an answer ({})", w.value("reason", "")));
        break;
      }
  const std::string measured_on = text_in(verdict, "environment", "device");
  const bool on_cpu = trainer_of(e, 'B') == "reference";
  if (!on_cpu && !device.empty() && measured_on != device) out.push_back(fmt::format("measured on {}, here is {}", measured_on, device));
  return out;
}

}  // namespace experiments

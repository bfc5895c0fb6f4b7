#include "experiments/verdict/stale.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiments/statistics/decision.h"
#include "gpt2/sha256.h"

namespace experiments {

namespace fs = std::filesystem;

std::string hash_trainer_sources(const fs::path& root, const std::string& trainer) {
  std::vector<fs::path> files;
  for (const fs::path& folder : {root / "gpt2", root / trainer}) {
    std::error_code missing;
    for (auto it = fs::recursive_directory_iterator(folder, missing);
         it != fs::recursive_directory_iterator(); ++it)
      if (it->is_regular_file()) files.push_back(it->path());
  }
  std::sort(files.begin(), files.end());
  gpt2::Sha256 hash;
  for (const fs::path& file : files) {
    hash.update(file.lexically_relative(root).generic_string() + "\n");
    hash.update(gpt2::sha256_file(file) + "\n");
  }
  return hash.hex();
}

std::vector<std::string> stale_reasons(const nlohmann::ordered_json& verdict, const Experiment& e,
                                       const fs::path& root, const std::string& device) {
  std::vector<std::string> out;
  const auto text = [&](const char* section, const char* key) -> std::string {
    if (!verdict.contains(section) || !verdict[section].contains(key) || !verdict[section][key].is_string())
      return "";
    return verdict[section][key].get<std::string>();
  };
  if (text("experiment", "file_sha256") != e.file_sha256) out.emplace_back("the experiment file changed");
  // Both arms' sources: a change of the trainer may concern B alone.
  for (const char arm : {'A', 'B'}) {
    // A frozen baseline has its own manifest, and without one both arms mostly share a trainer.
    const bool hashed =
        arm == 'A' ? !e.frozen_baseline() : e.frozen_baseline() || trainer_of(e, 'B') != trainer_of(e, 'A');
    if (!hashed) continue;
    const std::string key = fmt::format("{}_sources_sha256", arm == 'A' ? "a" : "b");
    if (text("code", key.c_str()) != hash_trainer_sources(root, trainer_of(e, arm)))
      out.push_back(fmt::format("the sources of the {} trainer changed", trainer_of(e, arm)));
  }
  if (verdict.contains("workloads"))
    for (const nlohmann::ordered_json& w : verdict["workloads"])
      if (w.value("verdict", "") == "invalid" || w.value("reason", "") == reason::kInterrupted) {
        out.push_back(fmt::format("the last run did not end in an answer ({})", w.value("reason", "")));
        break;
      }
  const std::string measured_on = text("environment", "device");
  const bool on_cpu = trainer_of(e, 'B') == "reference";
  if (!on_cpu && !device.empty() && measured_on != device)
    out.push_back(fmt::format("measured on {}, here is {}", measured_on, device));
  return out;
}

}  // namespace experiments

// stepscope baseline list|verify|freeze: the frozen trainers under baselines/. Needs no GPU.
// verify exits 1 and names each file that is not as it was frozen; an unknown name exits 2.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/errors.h"
#include "base/json_text.h"
#include "base/utc.h"
#include "build_info.inc"
#include "cli/commands.h"
#include "cli/experiment_flags.h"
#include "cli/say.h"
#include "experiments/baseline/manifest.h"
#include "experiments/baseline/results.h"

namespace cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct BaselineFlags {
  std::string name;
  std::string description;
  bool json = false;
};

std::vector<std::string> chosen_names(const fs::path& root, const std::string& name) {
  if (!name.empty()) {
    experiments::baseline_folder(root, name);  // refuses an unknown one
    return {name};
  }
  std::vector<std::string> names = experiments::baseline_names(root);
  if (names.empty()) {
    throw stepscope::InputError(
        fmt::format("{}: there is no baseline; set STEPSCOPE_ROOT to the source tree", (root / "baselines").string()));
  }
  return names;
}

ordered_json results_json(const std::vector<experiments::BaselineResult>& results) {
  ordered_json list = ordered_json::array();
  for (const auto& r : results) {
    list.push_back({{"date", r.date},
                    {"device", r.device},
                    {"batch_size", r.batch_size},
                    {"seq_len", r.seq_len},
                    {"matmul", r.matmul},
                    {"step_time_ns", r.step_time_ns},
                    {"tokens_per_s", r.tokens_per_s}});
    if (!r.note.empty()) list.back()["note"] = r.note;
  }
  return list;
}

void list_one(const BaselineFlags& flags, const fs::path& root, const std::string& name, ordered_json& all) {
  const fs::path folder = experiments::baseline_folder(root, name);
  const bool frozen = fs::exists(folder / experiments::kManifestFile);
  const auto results = experiments::read_results(folder);
  if (flags.json) {
    ordered_json entry{{"name", name}, {"frozen", frozen}};
    if (frozen) entry["manifest"] = experiments::to_json(experiments::read_manifest(folder));
    if (results) entry["results"] = results_json(*results);
    all.push_back(entry);
    return;
  }
  if (!frozen) {
    fmt::print("{}\n  not frozen; `stepscope baseline freeze {}` writes its manifest\n", name, name);
  } else {
    const experiments::Manifest m = experiments::read_manifest(folder);
    fmt::print("{}\n  {}\n  frozen {}, {} files, revision {}, built with {}\n", name, m.description, m.created, m.files.size(),
               m.source_revision, m.build_flags);
  }
  if (!results) fmt::print("  no recorded results\n");
  for (const auto& r : results.value_or(std::vector<experiments::BaselineResult>{})) {
    fmt::print("  {}  B={} T={} {}: {:.2f} ms/step, {:.0f} tokens/s on {}{}\n", r.date, r.batch_size, r.seq_len, r.matmul,
               r.step_time_ns * 1e-6, r.tokens_per_s, r.device, r.note.empty() ? "" : " (" + r.note + ")");
  }
}

void list(const BaselineFlags& flags, int& exit_code) {
  const fs::path root = source_root();
  ordered_json all = ordered_json::array();
  for (const std::string& name : chosen_names(root, "")) {
    try {
      list_one(flags, root, name, all);
    } catch (const stepscope::InputError& error) {  // the others are listed all the same
      say(error.what());
      exit_code = 2;
    }
  }
  if (flags.json) fmt::print("{}\n", stepscope::json_text(all, 2));
}

void verify(const BaselineFlags& flags, int& exit_code) {
  const fs::path root = source_root();
  ordered_json all = ordered_json::array();
  for (const std::string& name : chosen_names(root, flags.name)) {
    const fs::path folder = experiments::baseline_folder(root, name);
    const std::vector<std::string> problems = experiments::verify_baseline(folder);
    if (!problems.empty()) exit_code = 1;
    if (flags.json) {
      all.push_back({{"name", name}, {"good", problems.empty()}, {"problems", problems}});
    } else if (problems.empty()) {
      fmt::print("{}: as frozen\n", name);
    } else {
      for (const std::string& problem : problems) fmt::print("{}/{}\n", name, problem);
      fmt::print("{}: NOT as frozen ({} {})\n", name, problems.size(), problems.size() == 1 ? "file" : "files");
    }
  }
  if (flags.json) fmt::print("{}\n", stepscope::json_text(all, 2));
}

void freeze(const BaselineFlags& flags) {
  experiments::FreezeOptions options;
  options.created = stepscope::today_utc();
  options.source_revision = kGitRevision;
  options.description = flags.description;
  const experiments::Manifest m = experiments::freeze_baseline(experiments::baseline_folder(source_root(), flags.name), options);
  if (flags.json)
    fmt::print("{}\n", experiments::to_json(m).dump(2));
  else
    fmt::print("{}: frozen, {} files\n", m.name, m.files.size());
}

}  // namespace

void add_baseline_command(Command& app, int& exit_code) {
  Command* command = app.add_subcommand("baseline", "List the frozen trainers, check that they are unchanged, freeze a new one");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n  stepscope baseline list\n  stepscope baseline verify\n  stepscope baseline verify "
      "fp32-v1 --json\n"
      "  stepscope baseline freeze fp32-v2");
  auto flags = std::make_shared<BaselineFlags>();
  const auto add = [&](const char* name, const char* help) {
    Command* sub = command->add_subcommand(name, help);
    sub->add_flag("--json", flags->json, "print JSON");
    return sub;
  };

  add("list", "List every baseline with its description and recorded results")->callback([flags, &exit_code] { list(*flags, exit_code); });

  Command* verify_command = add("verify", "Compare every file with the manifest; exit 1 names what changed");
  verify_command->add_option("NAME", flags->name, "baseline to check (default: all of them)");
  verify_command->footer("Example:\n  stepscope baseline verify fp32-v1");
  verify_command->callback([flags, &exit_code] { verify(*flags, exit_code); });

  Command* freeze_command = add("freeze", "Write the manifest of a folder under baselines/ that has none");
  freeze_command->add_option("NAME", flags->name, "folder under baselines/")->required();
  freeze_command->add_option("--description", flags->description,
                             "describe the baseline in one sentence (default: the first paragraph of its README.md)");
  freeze_command->footer("Example:\n  stepscope baseline freeze fp32-v2");
  freeze_command->callback([flags] { freeze(*flags); });
}

}  // namespace cli

#include "experiments/plan/experiment_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "base/encoding.h"
#include "base/errors.h"
#include "base/json_text.h"
#include "base/read_file.h"
#include "base/sha256.h"
#include "base/text.h"
#include "base/yaml_document.h"
#include "gpt2/config.h"
#include "gpt2/distributed/bucket_size.h"

namespace experiments {
namespace {

namespace fs = std::filesystem;
using stepscope::InputError;

// These belong to the workload or to the runner; as a change they would compare two different questions.
const std::set<std::string> kNotSettings{"model", "batch-size", "seq-len", "steps", "variant", "data", "seed"};

class Reader {
 public:
  explicit Reader(const fs::path& file) : file_(file) {}

  [[noreturn]] void fail(const YAML::Node& at, const std::string& text) const {
    const YAML::Mark mark = at.Mark();
    throw InputError(mark.is_null() ? fmt::format("{}: {}", file_.string(), text)
                                    : fmt::format("{}:{}: {}", file_.string(), mark.line + 1, text));
  }

  void expect_map(const YAML::Node& node, const std::string& what, const std::set<std::string>& known) const {
    if (!node.IsMap()) fail(node, fmt::format("{}: expected key: value lines", what));
    std::set<std::string> seen;
    for (const auto& entry : node) {
      const auto key = value<std::string>(entry.first, what, "keys that are words");
      if (!seen.insert(key).second) fail(entry.first, fmt::format("{}: '{}' is given twice", what, key));
      if (!known.empty() && !known.count(key))
        fail(entry.first, fmt::format("{}: unknown key '{}'; expected {}", what, key, fmt::join(known, ", ")));
      // Of nothing yaml-cpp makes the text "null", and its mark is that of whatever comes next.
      if (entry.second.IsNull()) fail(entry.first, fmt::format("'{}' is empty", key));
    }
  }

  template <class T>
  T value(const YAML::Node& node, const std::string& key, const char* expected) const {
    try {
      if (!node.IsNull()) return node.as<T>();
    } catch (const YAML::Exception&) {
    }
    fail(node, fmt::format("{}: expected {}", key, expected));
  }

  std::string text(const YAML::Node& parent, const std::string& key) const {
    const YAML::Node node = parent[key];
    if (!node) fail(parent, fmt::format("'{}' is missing", key));
    std::string t = value<std::string>(node, key, "text");
    while (!t.empty() && std::isspace(static_cast<unsigned char>(t.back()))) t.pop_back();
    if (t.empty()) fail(node, fmt::format("'{}' is empty", key));
    return t;
  }

  Settings settings(const YAML::Node& node, const std::string& what, std::set<std::string> keys = {"flags", "variant"}) const {
    Settings s;
    if (!node) return s;
    expect_map(node, what, keys);
    const auto read = [&](const char* key, std::map<std::string, std::string>& into) {
      if (!node[key]) return;
      expect_map(node[key], what + "." + key, {});
      for (const auto& entry : node[key]) {
        const std::string name = entry.first.as<std::string>();
        if (std::string(key) == "flags" && kNotSettings.count(name))
          fail(entry.first, fmt::format("{}.flags: '{}' belongs to the workloads or to the runner", what, name));
        into[name] = value<std::string>(entry.second, name, "a value");
        if (std::string(key) == "flags" && name == "trainer") check_trainer(entry.second, into[name]);
      }
    };
    read("flags", s.flags);
    read("variant", s.variants);
    return s;
  }

  // One that an arm can run: `auto` would be another trainer on another machine.
  void check_trainer(const YAML::Node& at, const std::string& trainer) const {
    if (trainer != "mixed" && trainer != "fp32" && trainer != "reference")
      fail(at, fmt::format("unknown trainer '{}': expected mixed, fp32 or reference", trainer));
  }

  std::optional<double> saving(const YAML::Node& node) const {
    if (!node) return std::nullopt;
    const double ms = value<double>(node, "saving_ms", "a number of milliseconds");
    if (!std::isfinite(ms)) fail(node, "saving_ms: expected a finite number of milliseconds");
    return ms;
  }

  Workload workload(const YAML::Node& node, const std::optional<double>& predicted) const {
    expect_map(node, "workloads", {"model", "batch_size", "seq_len", "matmul", "saving_ms", "gpus"});
    Workload w;
    w.model = text(node, "model");
    const auto size = [&](const char* key) {
      if (!node[key]) fail(node, fmt::format("workloads: '{}' is missing", key));
      const auto v = value<int64_t>(node[key], key, "a whole number");
      if (v < 1) fail(node[key], fmt::format("{} is {}: expected at least 1", key, v));
      return v;
    };
    w.batch_size = size("batch_size");
    w.seq_len = size("seq_len");
    if (node["gpus"]) w.gpus = size("gpus");
    if (node["matmul"]) w.matmul = text(node, "matmul");
    w.predicted_saving_ms = node["saving_ms"] ? saving(node["saving_ms"]) : predicted;
    return w;
  }

 private:
  fs::path file_;
};

// Its words go into verdict.json, which holds UTF-8 alone: other bytes would end the command behind the measurement.
void require_utf8(const std::string& yaml, const fs::path& file) {
  if (const std::string problem = stepscope::not_utf8(yaml, file.string()); !problem.empty())
    throw InputError(fmt::format("{}: {}", file.string(), problem));
  std::istringstream lines(yaml);
  std::string line;
  for (int n = 1; std::getline(lines, line); ++n)
    if (stepscope::as_json_holds(line) != line)
      throw InputError(fmt::format(
          "{}:{}: bytes that are no UTF-8, expected UTF-8; `iconv -f LATIN1 -t UTF-8 {} > NEW` converts letters of Western Europe",
          file.string(), n, file.string()));
}

std::string change_text(const Experiment& e) {
  std::vector<std::string> parts;
  if (!e.patch.empty()) parts.push_back(fmt::format("patch {}", e.patch.filename().string()));
  for (const auto& [key, value] : e.change.variants) parts.push_back(fmt::format("--variant {}={}", key, value));
  for (const auto& [key, value] : e.change.flags) parts.push_back(fmt::format("--{} {}", key, value));
  if (e.frozen_baseline()) parts.push_back(fmt::format("everything since {}", e.baseline));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// The file that `change.patch` names, beside the experiment file.
fs::path patch_of(const Reader& r, const YAML::Node& change, const Experiment& e) {
  if (!change || !change["patch"]) return {};
  const std::string name = r.text(change, "patch");
  if (fs::path(name).filename() != name)
    r.fail(change["patch"], fmt::format("change.patch is '{}': expected the name of a file beside this one", name));
  const fs::path file = e.file.parent_path() / name;
  if (!fs::is_regular_file(file)) r.fail(change["patch"], fmt::format("change.patch: there is no file {}", file.string()));
  if (e.frozen_baseline())
    r.fail(change["patch"],
           fmt::format("change.patch: expected `baseline: defaults`, since against the frozen {} everything changes already", e.baseline));
  if (e.change.flags.contains("trainer"))
    r.fail(change["patch"], "change.patch: expected no flag 'trainer' beside it, since a patch changes one trainer");
  return file;
}

// A frozen program has no other flags, so arm B alone would have these.
void check_common_of_frozen(const Reader& r, const YAML::Node& root, const Experiment& e) {
  if (!e.frozen_baseline()) return;
  std::vector<std::string> of_b;
  for (const auto& [key, value] : e.common.flags)
    if (key != "matmul") of_b.push_back(fmt::format("--{}", key));
  for (const auto& [key, value] : e.common.variants) of_b.push_back(fmt::format("--variant {}={}", key, value));
  if (!of_b.empty())
    r.fail(root["common"], fmt::format("common: the frozen {} takes no {}: expected them under `change`, since arm B alone would have them",
                                       e.baseline, fmt::join(of_b, ", ")));
}

// Flags that this program reads itself are whole numbers; the trainer refuses other values of its flags.
void check_whole_numbers(const Reader& r, const YAML::Node& root, const Experiment& e) {
  for (const auto& [where, settings] : {std::pair("change", &e.change), {"common", &e.common}})
    for (const auto& [flag, least, digits] :
         {std::tuple("gpus", 1, 4), {"bucket-mib", 0, 7}, {"accumulation", 1, 9}, {"grad-accumulation", 1, 9}}) {
      const auto at = settings->flags.find(flag);
      if (at == settings->flags.end()) continue;
      const std::string& text = at->second;
      if (text.empty() || text.size() > static_cast<size_t>(digits) || text.find_first_not_of("0123456789") != std::string::npos ||
          std::stoll(text) < least)
        r.fail(root[where], fmt::format("{}.flags: {} is '{}': expected a whole number, at least {}", where, flag, text, least));
    }
}

// Frozen baselines know one GPU; a number of GPUs in `change` makes those of the workloads arm A's.
void check_gpus(const Reader& r, const YAML::Node& root, const Experiment& e) {
  if (e.common.flags.contains("gpus")) r.fail(root["common"], "common.flags: 'gpus' belongs to the workloads");
  check_whole_numbers(r, root, e);
  for (const Workload& w : e.workloads)
    if (e.frozen_baseline() && (gpus_of(e, w, 'A') > 1 || gpus_of(e, w, 'B') > 1))
      r.fail(root["workloads"], fmt::format("the frozen baseline {} trains on one GPU: expected no gpus", e.baseline));
}

}  // namespace

int64_t gpus_of(const Experiment& e, const Workload& w, char arm) {
  if (arm == 'B')
    if (const auto changed = e.change.flags.find("gpus"); changed != e.change.flags.end()) return std::stoll(changed->second);
  return w.gpus;
}

std::string flag_of(const Experiment& e, char arm, const std::string& name, const std::string& otherwise) {
  if (const auto changed = e.change.flags.find(name); arm == 'B' && changed != e.change.flags.end()) return changed->second;
  const auto common = e.common.flags.find(name);
  return common != e.common.flags.end() ? common->second : otherwise;
}

std::optional<int64_t> bucket_mib_of(const Experiment& e, const Workload& w, char arm) {
  const int64_t gpus = gpus_of(e, w, arm);
  if (gpus == 1) return std::nullopt;
  if (const int64_t given = std::stoll(flag_of(e, arm, "bucket-mib", "0")); given > 0) return given;
  const std::string communicator = flag_of(e, arm, "communicator", "auto");
  const std::string accumulation = flag_of(e, arm, "accumulation", flag_of(e, arm, "grad-accumulation", "1"));
  const bool on_gpus = trainer_of(e, arm) != "reference";
  return gpt2::distributed::bucket_mib_for(gpt2::model_from_name(w.model), {w.batch_size * w.seq_len, std::stoll(accumulation), gpus},
                                           communicator == "auto" && gpus == 2 && on_gpus ? "peer" : communicator);
}

bool on_several_gpus(const Experiment& e, const Workload& w) { return gpus_of(e, w, 'A') > 1 || gpus_of(e, w, 'B') > 1; }
bool as_whole_programs(const Experiment& e, const Workload& w) { return e.frozen_baseline() || on_several_gpus(e, w); }

std::string Workload::text() const {
  if (batch_size == 0) return model;  // two commands
  return fmt::format("{} B={} T={}{}{}", model, batch_size, seq_len, matmul.empty() ? "" : " " + matmul,
                     gpus == 1 ? "" : fmt::format(" {} GPUs", gpus));
}

Experiment parse_experiment(const std::string& yaml, const fs::path& file) {
  const Reader r(file);
  require_utf8(yaml, file);
  YAML::Node root;
  try {
    root = stepscope::only_yaml_document(yaml, [&](const YAML::Node& at, const std::string& text) { r.fail(at, text); });
  } catch (const YAML::Exception& e) {
    throw InputError(fmt::format("{}:{}: {}", file.string(), e.mark.line + 1, stepscope::yaml_problem(yaml, e)));
  }
  r.expect_map(
      root, "experiment",
      {"question", "hypothesis", "trainer", "baseline", "change", "common", "predicted", "workloads", "minimum_effect_pct", "compound"});
  Experiment e;
  e.name = file.stem().string();
  e.file = file;
  e.file_sha256 = gpt2::sha256_text(yaml);
  e.question = r.text(root, "question");
  e.hypothesis = r.text(root, "hypothesis");
  e.trainer = r.text(root, "trainer");
  r.check_trainer(root["trainer"], e.trainer);
  if (root["baseline"]) e.baseline = r.text(root, "baseline");
  if (root["compound"]) e.compound = r.value<bool>(root["compound"], "compound", "true or false");
  e.change = r.settings(root["change"], "change", {"flags", "variant", "patch"});
  e.patch = patch_of(r, root["change"], e);
  e.common = r.settings(root["common"], "common");
  if (e.common.flags.contains("trainer"))
    r.fail(root["common"], "common.flags: 'trainer' belongs in a line of its own, `trainer: NAME`, or in change.flags");
  for (const auto& [key, value] : e.change.variants)
    if (const auto same = e.common.variants.find(key); same != e.common.variants.end() && same->second == value)
      r.fail(root["change"], fmt::format("change: {}={} is in `common` too: nothing would change", key, value));

  const YAML::Node predicted = root["predicted"];
  if (!predicted) r.fail(root, "'predicted' is missing: a prediction after the measurement is none");
  r.expect_map(predicted, "predicted", {"saving_ms", "arithmetic"});
  const std::optional<double> saving = r.saving(predicted["saving_ms"]);
  e.arithmetic = r.text(predicted, "arithmetic");

  const YAML::Node workloads = root["workloads"];
  if (!workloads || !workloads.IsSequence() || workloads.size() == 0)
    r.fail(workloads ? workloads : root, "workloads: expected a list with at least one {model, batch_size, seq_len}");
  for (const YAML::Node& w : workloads) {
    e.workloads.push_back(r.workload(w, saving));
    if (!e.workloads.back().predicted_saving_ms) r.fail(w, "no predicted saving_ms, neither here nor under `predicted`");
  }
  if (root["minimum_effect_pct"]) {
    e.minimum_effect_pct = r.value<double>(root["minimum_effect_pct"], "minimum_effect_pct", "a percentage");
    if (!(e.minimum_effect_pct >= 0.01 && e.minimum_effect_pct <= 50))
      r.fail(root["minimum_effect_pct"], fmt::format("minimum_effect_pct is {}: expected 0.01 to 50", e.minimum_effect_pct));
  }
  if (e.frozen_baseline() && !e.compound)
    r.fail(root["baseline"], fmt::format("against the frozen '{}' everything changes that was done since: say compound: true", e.baseline));
  check_common_of_frozen(r, root, e);
  if (!e.frozen_baseline() && e.changes() == 0) r.fail(root, "'change' names nothing: both arms would be the same");
  if (e.changes() > 1 && !e.compound)
    r.fail(root["change"],
           fmt::format("{} changes ({}): one experiment changes one thing, or says compound: true", e.changes(), change_text(e)));
  e.change_text = change_text(e);
  check_gpus(r, root, e);
  return e;
}

Experiment read_experiment(const fs::path& file) { return parse_experiment(stepscope::read_file(file), file); }

std::vector<fs::path> experiment_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(folder, missing))
    if (entry.is_regular_file() && entry.path().extension() == ".yaml") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<Experiment> read_experiments(const fs::path& folder) {
  std::vector<Experiment> out;
  for (const fs::path& file : experiment_files(folder)) out.push_back(read_experiment(file));
  return out;
}

Experiment find_experiment(const fs::path& folder, const std::string& name) {
  if (name.find('/') != std::string::npos || fs::path(name).extension() == ".yaml") return read_experiment(name);
  const fs::path file = folder / (name + ".yaml");
  if (fs::exists(file)) return read_experiment(file);
  std::vector<std::string> known;  // by their files: one that cannot be read is not what was asked for
  for (const fs::path& other : experiment_files(folder)) known.push_back(other.stem().string());
  const fs::path misnamed = folder / (fs::path(name).extension() == ".yml" ? name : name + ".yml");
  const std::string nearest = stepscope::nearest_word(name, known);
  throw InputError(fmt::format("no experiment '{}' in {}{}; known: {}", name, folder.string(),
                               fs::exists(misnamed) ? fmt::format("; {} is there, expected the ending .yaml", misnamed.filename().string())
                               : !nearest.empty()   ? "; the nearest is " + nearest
                                                    : "",
                               known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
}

Sources sources_of(const Experiment& e, char arm) { return arm == 'A' ? Sources{{}, e.since} : Sources{e.patch, {}}; }

std::string trainer_of(const Experiment& e, char arm) {
  if (arm == 'B')
    if (const auto changed = e.change.flags.find("trainer"); changed != e.change.flags.end()) return changed->second;
  return e.trainer;
}

std::vector<std::string> trainer_arguments(const Experiment& e, const Workload& w, char arm) {
  if (!e.flags.empty()) return e.flags;
  std::map<std::string, std::string> flags = e.common.flags, variants = e.common.variants;
  if (!w.matmul.empty()) flags["matmul"] = w.matmul;
  if (arm == 'B') {
    for (const auto& [key, value] : e.change.flags) flags[key] = value;
    for (const auto& [key, value] : e.change.variants) variants[key] = value;
  }
  flags.erase("trainer");
  flags.erase("gpus");
  std::vector<std::string> a{"--trainer",    trainer_of(e, arm),           "--model",   w.model,
                             "--batch-size", std::to_string(w.batch_size), "--seq-len", std::to_string(w.seq_len)};
  for (const auto& [key, value] : flags) {
    // YAML's true is a flag without a value.
    if (value == "false") continue;
    a.push_back("--" + key);
    if (value != "true") a.push_back(value);
  }
  for (const auto& [key, value] : variants) {
    a.emplace_back("--variant");
    a.push_back(key + "=" + value);
  }
  return a;
}

}  // namespace experiments

#include "experiments/session/gates.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "base/json_read.h"
#include "base/read_file.h"
#include "base/sha256.h"
#include "base/stderr_text.h"
#include "experiments/gate/receipt.h"
#include "experiments/session/child_output.h"

namespace experiments {
namespace {

using nlohmann::ordered_json;
using stepscope::InputError;
using stepscope::MachineError;
using Arguments = std::vector<std::string>;

// With a value each.
const std::set<std::string> kGated{"--trainer", "--matmul", "--variant", "--recompute", "--weight-rounding"};
const std::set<std::string> kOfTheWorkload{"--model", "--batch-size", "--seq-len"};

// The arguments of an arm that the gate needs: trainer, matrix products, variants and options. The gate must check what the
// arm runs: its own default for the mixed trainer is the deterministic variants, an arm's is not.
Arguments gate_arguments(const Arguments& trainer_arguments) {
  Arguments out;
  for (size_t i = 0; i + 1 < trainer_arguments.size(); ++i)
    if (kGated.count(trainer_arguments[i])) out.insert(out.end(), {trainer_arguments[i], trainer_arguments[i + 1]});
  const bool deterministic = std::find(trainer_arguments.begin(), trainer_arguments.end(), "--deterministic") != trainer_arguments.end();
  if (!deterministic && value_of(trainer_arguments, "--trainer") == "mixed") out.emplace_back("--not-deterministic");
  return out;
}

// "; without --clip, which the gate sets itself": flags of the arm, other than its workload, that the gate does not take.
std::string flags_not_gated(const Arguments& trainer_arguments) {
  std::vector<std::string> out;
  for (const std::string& a : trainer_arguments)
    if (a.starts_with("--") && !kGated.count(a) && !kOfTheWorkload.count(a) && a != "--deterministic") out.push_back(a);
  return out.empty() ? "" : fmt::format("; without {}, which the gate does not take", fmt::join(out, ", "));
}

}  // namespace

Gates::Gates(std::string program, double timeout_s, const std::atomic<bool>* stop, bool progress,
             std::function<std::string(const std::string& trainer)> receipt_of, const std::filesystem::path& kept)
    : program_(std::move(program)), timeout_s_(timeout_s), stop_(stop), progress_(progress), receipt_of_(std::move(receipt_of)) {
  if (kept.empty()) {
    answers_ = own_answers_.emplace().path();
    return;
  }
  // A file of answers holds structs of the program that wrote it (kept_answers.h), so each program has a folder of its own.
  answers_ = kept / gpt2::sha256_file(program_).substr(0, 16);
  gpt2::check_folder_writable(answers_, "--gate-answers");
  const std::filesystem::path seed = answers_ / "seed";
  if (const auto before = stepscope::read_file_if_there(seed)) {
    const auto [end, error] = std::from_chars(before->data(), before->data() + before->size(), seed_);
    if (error != std::errc() || end != before->data() + before->size())
      throw InputError(fmt::format("{}: expected one whole number, the seed of the gates", seed.string()));
  } else {
    gpt2::write_file_atomically(seed, std::to_string(seed_));
  }
}

std::string value_of(const std::vector<std::string>& arguments, const std::string& flag) {
  for (size_t i = 0; i + 1 < arguments.size(); ++i)
    if (arguments[i] == flag) return arguments[i + 1];
  return "";
}

std::string receipt_of_ops(const std::filesystem::path& root, const std::string& trainer, const std::string& device,
                           const std::string& driver) {
  const std::string name = "receipts/" + trainer + ".json";
  if (driver.empty() || !gate::receipt_problems(root / name, root, trainer).none()) return "";
  const auto receipt = stepscope::read_json<ordered_json>(stepscope::read_file(root / name));
  const auto text = [&](const char* field) {  // receipt_problems() looks at other fields than these
    const ordered_json::json_pointer at(field);
    return receipt.contains(at) && receipt.at(at).is_string() ? receipt.at(at).get<std::string>() : std::string();
  };
  if (text("/device/name") != device || text("/device/driver") != driver) return "";
  return fmt::format("{} of {}", name, text("/date"));
}

GateSummary Gates::check(const std::vector<std::string>& trainer_arguments) {
  Arguments argv = gate_arguments(trainer_arguments);
  const std::string trainer = value_of(argv, "--trainer"), key = fmt::format("{}", fmt::join(argv, " "));
  if (const auto known = known_.find(key); known != known_.end()) {
    GateSummary g = known->second;
    g.sentence += flags_not_gated(trainer_arguments);
    return g;
  }
  // The op checks cover every variant of the trainer: once per session, or before it.
  const std::string ops_of = receipt_of_ ? receipt_of_(trainer) : "";
  bool ops_done = !ops_of.empty();
  for (const auto& [other, summary] : known_) ops_done |= other.find("--trainer " + trainer) != std::string::npos && summary.passed;
  argv.insert(argv.begin(), {program_, "gate"});
  argv.insert(argv.end(), {"--json", "--seed", std::to_string(seed_), "--oracle-answers", answers_.string()});
  if (ops_done) argv.emplace_back("--no-ops");
  if (progress_) stepscope::put_on_stderr(fmt::format("gate: {}\n", key));
  GateSummary g;
  g.checked = true;
  const ChildOutput out = run_to_end(argv, timeout_s_, stop_, false);
  if (out.end == ChildOutput::End::interrupted) throw Interrupted();
  if (out.end == ChildOutput::End::timeout) {
    g.sentence = fmt::format("the gate did not end within {:.0f} s", timeout_s_);
    return g;
  }
  // This program says its own name before it says the gate's words.
  const std::string prefix = "stepscope: ",
                    words = out.last_words.starts_with(prefix) ? out.last_words.substr(prefix.size()) : out.last_words;
  if (out.ending.exited && out.ending.code == 3) throw MachineError(words);
  if (out.ending.exited && out.ending.code == 2) throw InputError(words);
  const ordered_json report = ordered_json::parse(out.text, nullptr, false);
  if (!report.is_object() || !report.contains("passed") || !report.contains("reports")) {
    g.sentence = fmt::format("the gate {} without a report; its last output: {}", out.ending.text(), out.last_words);
    return g;
  }
  int64_t checks = 0;
  std::string seed;
  for (const ordered_json& r : report["reports"]) {
    if (r.contains("seed")) seed = fmt::format(" (seed {})", r["seed"].get<uint64_t>());
    for (const ordered_json& c : r["checks"]) {
      ++checks;
      if (!c["passed"].get<bool>())
        g.failures.push_back(fmt::format("{} {}: error {} over budget {}", c["name"].get<std::string>(), c["tensor"].get<std::string>(),
                                         c["error"].dump(), c["budget"].dump()));
    }
  }
  g.passed = report["passed"] == true && out.ending.exited && out.ending.code == 0;
  g.sentence =
      g.passed ? fmt::format("{} checks passed{}", checks, seed) : fmt::format("{} of {} checks failed{}", g.failures.size(), checks, seed);
  if (g.passed && !ops_of.empty()) g.sentence += "; ops as in " + ops_of;
  known_[key] = g;
  g.sentence += flags_not_gated(trainer_arguments);
  return g;
}

}  // namespace experiments

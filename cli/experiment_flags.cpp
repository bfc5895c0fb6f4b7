#include "cli/experiment_flags.h"
#include "cli/values.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include "build_info.inc"
#include "experiments/verdict/document.h"
#include "gpt2/atomic_file.h"
#include "gpt2/errors.h"

namespace cli {

namespace fs = std::filesystem;
using nlohmann::ordered_json;
using stepscope::InputError;

namespace {

constexpr double kLongest_s = 1e6;  // 11 days

std::atomic<bool> interrupted{false};

std::atomic<int64_t> interrupted_at_ns{0};

void on_interrupt(int number) {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  const int64_t now = int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  if (!interrupted.exchange(true)) {
    interrupted_at_ns = now;
  } else if (now - interrupted_at_ns > 1'000'000'000) {
    signal(number, SIG_DFL);
    raise(number);
  }
}

}  // namespace

CatchInterrupt::CatchInterrupt() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &before_[i]);
}

CatchInterrupt::~CatchInterrupt() {
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

void add_measure_flags(Command& c, MeasureFlags& f) {
  c.add_option("--pairs", f.pairs, "pairs of fresh processes; extended once to twice as many if they decide nothing")
      ->check(whole(4, 26))
      ->capture_default_str();
  Argument* fixed = c.add_flag("--no-extension", f.no_extension, "only the first look");
  c.add_flag("--sequential", f.sequential,
             "look at a half, three quarters and all of the pairs (6, 9, 12) at stricter levels and stop "
             "when one decides")
      ->excludes(fixed);
  f.quads_option = c.add_option("--quads", f.plan.quads, "ABBA or BAAB quads in a pair, fewer where they would take longer than --pair-s")
                       ->check(whole(1, 1 << 20))
                       ->capture_default_str();
  f.of_stepping_arms.push_back(
      c.add_option("--solo-s", f.plan.solo_s, "where the device was at its power cap, run each arm alone for so long afterwards; 0: never")
          ->check(real(0, kLongest_s))
          ->capture_default_str());
  f.of_stepping_arms.push_back(c.add_option("--pair-s", f.plan.pair_s, "measured seconds of a pair, if 4 quads fit")
                                   ->check(real(0, kLongest_s))
                                   ->capture_default_str());
  f.of_stepping_arms.push_back(
      c.add_option("--block-s", f.plan.block_s, "a block takes so many seconds, or --block-steps if that is longer")
          ->check(real(0, kLongest_s))
          ->capture_default_str());
  f.of_stepping_arms.push_back(c.add_option("--block-steps", f.plan.block_steps)->check(whole(1, 1 << 20))->capture_default_str());
  f.of_stepping_arms.push_back(
      c.add_option("--warmup-s", f.plan.warmup_s, "interleaved, thrown away; longer until the step time has settled")
          ->check(real(0, kLongest_s))
          ->capture_default_str());
  f.of_stepping_arms.push_back(c.add_option("--start-timeout-s", f.plan.start_timeout_s, "until an arm is ready")
                                   ->check(real(0.001, kLongest_s))
                                   ->capture_default_str());
  c.add_option("--block-timeout-s", f.plan.block_timeout_s, "of one block, or 20 times its expected time")
      ->check(real(0.001, kLongest_s))
      ->capture_default_str();
  c.add_option("--minimum-effect", f.minimum_effect_pct, "percent that matter (default: the experiment file's, else 0.3)")
      ->check(real(0.01, 50));
  c.add_option("--plant", f.plant_pct, "make every step of B so many percent longer: would it be seen?")->check(real(0, 1000));
  f.of_stepping_arms.push_back(c.add_flag("--serial", f.serial, "steps do not overlap (always so with --plant)"));
  c.add_option("--order-seed", f.plan.seed, "of the order of starts and blocks; default: new each time, recorded")
      ->check(seed())
      ->each([&f](const std::string&) { f.seed_given = true; });
}

std::vector<experiments::Look> planned_looks(const MeasureFlags& f) {
  const int most = f.no_extension || f.sequential ? 26 : 13;  // the exact test enumerates 2^pairs
  if (f.pairs < 4 || f.pairs > most)
    throw InputError(fmt::format("--pairs is {}: expected 4 to {}{}", f.pairs, most, most == 13 ? " (twice that with the extension)" : ""));
  const auto looks =
      f.sequential ? experiments::sequential_looks(f.pairs) : experiments::extended_looks(f.pairs, f.no_extension ? f.pairs : 2 * f.pairs);
  if (std::ldexp(1.0, 1 - looks.back().pairs) > looks.back().sign_flip_alpha)
    throw InputError(
        fmt::format("--pairs is {}: {} signs cannot be rarer than p = {:.3g}, and {} is needed to call anything "
                    "different",
                    f.pairs, looks.back().pairs, std::ldexp(1.0, 1 - looks.back().pairs), looks.back().sign_flip_alpha));
  return looks;
}

SessionOptions session_options(const MeasureFlags& f, const CommandLine& line) {
  SessionOptions o;
  o.root = source_root();
  o.program = line.program();
  o.built_here = fs::path(o.root) == fs::path(kSourceDir);
  o.command = typed(line);
  o.plan = f.plan;
  o.plan.thresholds.looks = planned_looks(f);
  if (f.minimum_effect_pct > 0) o.plan.thresholds.minimum_effect = f.minimum_effect_pct / 100;
  o.seed_given = f.seed_given;
  o.plant_pct = f.plant_pct;
  o.serial = f.serial;
  o.stop = &interrupted;
  o.progress = isatty(STDERR_FILENO);
  return o;
}

std::string typed(const CommandLine& line) {
  const std::string text = line.text();
  const size_t space = text.find(' ');
  return "stepscope" + (space == std::string::npos ? "" : text.substr(space));
}

fs::path source_root() {
  const char* root = std::getenv("STEPSCOPE_ROOT");
  return root && *root ? fs::path(root) : fs::path(kSourceDir);
}
fs::path studies(const fs::path& root) { return root / "experiments" / "studies"; }
fs::path ledger_file(const fs::path& folder) { return folder / "aa-ledger.jsonl"; }

fs::path results_folder(const std::string& out, const fs::path& root) {
  const fs::path folder = out.empty() ? studies(root) : fs::path(out);
  gpt2::check_folder_writable(folder, "--out");
  if (!out.empty() && !fs::exists(ledger_file(folder)) && fs::exists(ledger_file(studies(root))))
    fs::copy_file(ledger_file(studies(root)), ledger_file(folder));
  return folder;
}

std::optional<ordered_json> last_verdict(const std::string& name, const fs::path& folder, const fs::path& root) {
  for (const fs::path& f : {folder / name / "verdict.json", studies(root) / name / "verdict.json"})
    if (fs::exists(f)) return experiments::load_verdict(f);
  return std::nullopt;
}

}  // namespace cli

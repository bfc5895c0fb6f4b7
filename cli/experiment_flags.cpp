#include "cli/experiment_flags.h"
#include "cli/values.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <ctime>

#include "base/atomic_file.h"
#include "base/errors.h"
#include "build_info.inc"
#include "experiments/verdict/document.h"

namespace cli {

namespace fs = std::filesystem;
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
  Argument* fixed = c.add_flag("--no-extension", f.no_extension, "decide after the first look; never add pairs");
  c.add_flag("--sequential", f.sequential,
             "look after a half, three quarters and all of the pairs (6, 9, 12) at stricter levels; stop as soon as one look decides")
      ->excludes(fixed);
  f.quads_option =
      c.add_option("--quads", f.plan.quads, "ABBA or BAAB quads in a pair; a pair takes fewer when they would last longer than --pair-s")
          ->check(whole(1, 1 << 20))
          ->capture_default_str();
  f.of_stepping_arms.push_back(
      c.add_option("--solo-s", f.plan.solo_s,
                   "if the device was at its power cap, run each arm alone for this many seconds afterwards; 0 = never")
          ->check(real(0, kLongest_s))
          ->capture_default_str());
  f.of_stepping_arms.push_back(c.add_option("--pair-s", f.plan.pair_s, "seconds to measure in a pair, unless 4 quads take longer")
                                   ->check(real(0, kLongest_s))
                                   ->capture_default_str());
  f.of_stepping_arms.push_back(c.add_option("--block-s", f.plan.block_s, "seconds of a block, or --block-steps if that takes longer")
                                   ->check(real(0, kLongest_s))
                                   ->capture_default_str());
  f.of_stepping_arms.push_back(
      c.add_option("--block-steps", f.plan.block_steps, "fewest steps of a block")->check(whole(1, 1 << 20))->capture_default_str());
  f.of_stepping_arms.push_back(
      c.add_option("--warmup-s", f.plan.warmup_s,
                   "seconds of warm-up that are not measured, both arms in turn; longer until the step time has settled")
          ->check(real(0, kLongest_s))
          ->capture_default_str());
  f.of_stepping_arms.push_back(c.add_option("--start-timeout-s", f.plan.start_timeout_s, "seconds to wait until an arm is ready")
                                   ->check(real(0.001, kLongest_s))
                                   ->capture_default_str());
  c.add_option("--block-timeout-s", f.plan.block_timeout_s, "seconds to wait for a block, or 20 times its expected time if that is longer")
      ->check(real(0.001, kLongest_s))
      ->capture_default_str();
  c.add_option("--minimum-effect", f.minimum_effect_pct,
               "smallest difference that matters, in percent (default: the experiment file's, else 0.3)")
      ->check(real(0.01, 50));
  c.add_option("--plant", f.plant_pct, "slow every step of B down by this many percent, to test whether the procedure finds it")
      ->check(real(0, 1000));
  f.of_stepping_arms.push_back(c.add_flag("--serial", f.serial, "start a step only after the one before has ended (--plant always does)"));
  c.add_option("--order-seed", f.plan.seed, "seeds the order of starts and blocks (default: a new seed each time, which is recorded)")
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

std::optional<experiments::VerdictDocument> last_verdict(const std::string& name, const fs::path& folder, const fs::path& root) {
  for (const fs::path& f : {folder / name / "verdict.json", studies(root) / name / "verdict.json"})
    if (fs::exists(f)) return experiments::load_verdict(f);
  return std::nullopt;
}

}  // namespace cli

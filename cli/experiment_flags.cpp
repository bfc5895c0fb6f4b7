#include "cli/experiment_flags.h"
#include "cli/catch_interrupt.h"
#include "cli/gpu.h"
#include "cli/say.h"
#include "cli/values.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/errors.h"
#include "base/made_folders.h"
#include "base/output_file.h"
#include "build_info.inc"
#include "experiments/gate/plant_spec.h"
#include "experiments/session/campaign_run.h"

namespace cli {

namespace fs = std::filesystem;
using stepscope::InputError;

namespace {

constexpr double kLongest_s = 1e6;  // 11 days

// As the arm reads it, but before an arm is gated and started.
Check plant() {
  return {[](const std::string& text) {
            return gate::plant_spec(text) ? "" : fmt::format("found '{}', expected tensor:PCT, dram:PCT or idle:PCT, PCT 0 to 100", text);
          },
          ""};
}

}  // namespace

void add_decision_flags(Command& c, MeasureFlags& f, PairsOf of) {
  const std::string in_turns = of == PairsOf::processes_alone ? ""
                               : of == PairsOf::recordings    ? "of a file of pairs in turns"
                                                              : "with --quick";
  Argument* pairs =
      c.add_option("--pairs", f.pairs,
                   "take at most this many pairs of fresh processes: 9 to 26 (default 24, with looks after 8, 16 and 24), 7 to 26 with "
                   "--no-extension (12), 8 to 26 with --sequential (12)" +
                       (in_turns.empty() ? "" : ", 4 to 13 " + in_turns + " (12), which takes twice as many if they decide nothing"))
          ->check(whole(4, 26));
  Argument* fixed = c.add_flag("--no-extension", f.no_extension, "look once, after all pairs (default 12)");
  Argument* sequential =
      c.add_flag("--sequential", f.sequential,
                 "look after a half, three quarters and all of the pairs (6, 9, 12) at stricter levels; stop as soon as one look decides")
          ->excludes(fixed);
  c.add_option("--minimum-effect", f.minimum_effect_pct,
               fmt::format("smallest difference that matters, in percent (default: {}0.3)",
                           of == PairsOf::experiments ? "the experiment file's, else " : ""))
      ->check(real(0.01, 50));
  f.of_a_verdict.insert(f.of_a_verdict.end(), {pairs, fixed, sequential});
}

void add_alone_flags(Command& c, MeasureFlags& f, PairsOf of) {
  add_decision_flags(c, f, of);
  Argument* settle_s =
      c.add_option(
           "--settle-s", f.settle_s,
           "seconds of every process that do not count (default: until two seconds in a row agree to 0.3%, 2 to 10, the same for all)")
          ->check(real(0, kLongest_s));
  Argument* measure_s =
      c.add_option("--measure-s", f.plan.alone.measure_s, "seconds of every process that count, or 8 steps if they take longer")
          ->check(real(0.001, kLongest_s))
          ->capture_default_str();
  Argument* turns = c.add_option("--turns", f.plan.alone.turns, "pairs in turns after the verdict, as a witness at equal clocks; 0 = none")
                        ->check(whole(0, 26))
                        ->capture_default_str();
  Argument* heat_s = c.add_option("--heat-s", f.plan.alone.heat_s, "seconds that the baseline heats the device before the first pair")
                         ->check(real(0, kLongest_s))
                         ->capture_default_str();
  f.of_stepping_arms.push_back(heat_s);
  f.of_stepping_arms.push_back(turns);
  f.of_stepping_arms.push_back(c.add_option("--start-timeout-s", f.plan.start_timeout_s, "seconds to wait until an arm is ready")
                                   ->check(real(0.001, kLongest_s))
                                   ->capture_default_str());
  c.add_option("--block-timeout-s", f.plan.block_timeout_s, "seconds to wait for a block, or 20 times its expected time if that is longer")
      ->check(real(0.001, kLongest_s))
      ->capture_default_str();
  c.add_option("--order-seed", f.plan.seed, "seeds the order of starts and blocks (default: a new seed each time, which is recorded)")
      ->check(seed())
      ->each([&f](const std::string&) { f.seed_given = true; });
  f.of_a_verdict.push_back(turns);
  f.of_alone = {settle_s, measure_s, turns, heat_s};
}

void add_measure_flags(Command& c, MeasureFlags& f, PairsOf of) {
  Argument* quick =
      c.add_flag("--quick", f.quick,
                 "let both arms take turns in short blocks at equal clocks. This answers soon, but training on a GPU at its power "
                 "cap shows another ratio (default: fresh processes, one at a time)");
  add_alone_flags(c, f, of);
  for (Argument* a : f.of_alone) a->excludes(quick);
  f.quads_option =
      c.add_option("--quads", f.plan.quads, "ABBA or BAAB quads of a pair in turns; fewer when they would last longer than --pair-s")
          ->check(whole(1, 1 << 20))
          ->capture_default_str();
  Argument* pair_s = c.add_option("--pair-s", f.plan.pair_s, "seconds to measure in a pair in turns, unless 4 quads take longer")
                         ->check(real(0, kLongest_s))
                         ->capture_default_str();
  Argument* block_s = c.add_option("--block-s", f.plan.block_s, "seconds of a turn, or --block-steps if that takes longer")
                          ->check(real(0, kLongest_s))
                          ->capture_default_str();
  Argument* block_steps =
      c.add_option("--block-steps", f.plan.block_steps, "fewest steps of a turn")->check(whole(1, 1 << 20))->capture_default_str();
  Argument* warmup_s =
      c.add_option("--warmup-s", f.plan.warmup_s, "seconds of warm-up before turns, not measured; longer until the step time has settled")
          ->check(real(0, kLongest_s))
          ->capture_default_str();
  Argument* plant_gpu =
      c.add_option("--plant-gpu", f.plant_gpu,
                   "plant work on the GPU after every step of B, to test whether the procedure finds it: tensor:PCT, dram:PCT or idle:PCT "
                   "of a step")
          ->check(plant());
  Argument* plant_host =
      c.add_option("--plant", f.plant_pct, "slow every step of B down by this many percent, to test whether the procedure finds it")
          ->check(real(0, 1000))
          ->excludes(plant_gpu);
  f.of_stepping_arms.push_back(c.add_flag("--serial", f.serial, "start a step only after the one before has ended (--plant always does)"));
  f.gate_answers_option =
      c.add_option("--gate-answers", f.gate_answers,
                   "keep the gate's seed and the oracle's answers in this folder, and take those that an earlier command of this same "
                   "program left there (default: every command draws a seed)");
  f.of_stepping_arms.insert(f.of_stepping_arms.end(), {pair_s, block_s, block_steps, warmup_s});
  f.of_a_verdict.insert(f.of_a_verdict.end(), {quick, plant_gpu, plant_host, f.quads_option, pair_s, block_s, block_steps, warmup_s});
}

std::vector<experiments::Look> planned_looks(const MeasureFlags& f) {
  const bool one_look = f.no_extension || f.sequential;
  const int pairs = f.pairs > 0 ? f.pairs : one_look || f.quick ? 12 : 24;
  // The exact test enumerates 2^pairs. At least: three looks need pairs for each, whose levels were simulated from here on; a single look
  // needs so many signs that all of them alike are rarer than its level (7: p = 0.016 of 0.02).
  const int most = f.quick && !one_look ? 13 : 26, least = f.sequential ? 8 : f.no_extension ? 7 : f.quick ? 4 : 9;
  const char* others = most == 13   ? " (twice that with the extension)"
                       : least == 9 ? " (7 to 26 with --no-extension, 8 to 26 with --sequential)"
                                    : "";
  if (pairs < least || pairs > most) throw InputError(fmt::format("--pairs is {}: expected {} to {}{}", pairs, least, most, others));
  return f.sequential     ? experiments::sequential_looks(pairs)
         : f.no_extension ? experiments::extended_looks(pairs, pairs)
         : f.quick        ? experiments::extended_looks(pairs, 2 * pairs)
                          : experiments::alone_looks(pairs);
}

experiments::SessionOptions session_options(const MeasureFlags& f, const CommandLine& line) {
  experiments::SessionOptions o;
  o.root = source_root();
  o.program = line.program();
  std::error_code no_tree;
  o.built_here = fs::equivalent(o.root, kSourceDir, no_tree);
  o.command = typed(line);
  o.git_revision = kGitRevision;
  const GpuStatus gpu = gpu_status();
  o.gpu = {gpu.present, gpu.why_not, gpu.name, gpu.pci_bus_id};
  o.procedure = f.quick ? experiments::Procedure::in_turns : experiments::Procedure::alone;
  o.plan = f.plan;
  if (f.settle_s >= 0) o.plan.alone.settle_s = f.settle_s;
  o.plan.thresholds.looks = planned_looks(f);
  if (f.minimum_effect_pct > 0) o.plan.thresholds.minimum_effect = f.minimum_effect_pct / 100;
  o.seed_given = f.seed_given;
  o.plant_pct = f.plant_pct;
  o.plant_gpu = f.plant_gpu;
  if (!f.gate_answers.empty()) stepscope::check_folder_usable(f.gate_answers, "--gate-answers");
  o.gate_answers = f.gate_answers;
  o.serial = f.serial;
  o.stop = &CatchInterrupt::interrupted();
  o.progress = isatty(STDERR_FILENO);
  return o;
}

std::pair<std::string, std::vector<std::string>> trainer_to_compare(TrainerFlags flags) {
  if (const auto notice = settle(flags)) say(*notice);
  gpt2::check_run(trainer_options(flags), loop_options(flags));
  std::vector<std::string> arguments = as_arguments(flags, flags.steps);
  arguments.erase(arguments.begin());  // "train"
  const experiments::Workload workload{flags.model, flags.batch_size, flags.seq_len, flags.matmul, std::nullopt};
  return {fmt::format("{} {}", flags.trainer, workload.text()), std::move(arguments)};
}

std::string typed(const CommandLine& line) {
  std::vector<char*> kept;
  for (int i = 0; i < line.argc; ++i) {
    const std::string_view word = line.argv[i];
    const auto names = [&](std::string_view flag) { return word == flag || (word.starts_with(flag) && word[flag.size()] == '='); };
    if (!names("--out") && !names("--gate-answers") && !names("--record"))
      kept.push_back(line.argv[i]);
    else if (word.find('=') == std::string_view::npos)
      ++i;  // its folder
  }
  const std::string text = CommandLine{kept.data(), static_cast<int>(kept.size())}.text();
  const size_t space = text.find(' ');
  return "stepscope" + (space == std::string::npos ? "" : text.substr(space));
}

fs::path source_root() {
  const char* root = std::getenv("STEPSCOPE_ROOT");
  return root && *root ? fs::path(root) : fs::path(kSourceDir);
}
fs::path root_with_studies() {
  const fs::path root = source_root(), folder = studies(root);
  std::error_code ignored;  // of a folder that nobody may read: it is as good as none
  if (!fs::is_directory(folder, ignored))
    throw InputError(fmt::format("{}: no such folder, or none that may be read; expected the tree of stepscope's sources in STEPSCOPE_ROOT",
                                 folder.string()));
  return root;
}
fs::path studies(const fs::path& root) { return root / "experiments" / "studies"; }

void check_new_record(const std::string& path) {
  stepscope::check_output(path, "--record");
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored))
    throw InputError(fmt::format("--record {}: is there already, and what it holds took its time; expected the name of a new file", path));
}

fs::path results_folder(const std::string& out, const fs::path& root) {
  const fs::path folder = out.empty() ? studies(root) : fs::path(out);
  stepscope::check_folder_usable(folder, "--out");
  const fs::path theirs = experiments::ledger_file(studies(root)), ours = experiments::ledger_file(folder);
  if (!out.empty() && !fs::exists(ours) && fs::exists(theirs)) fs::copy_file(theirs, ours);
  return folder;
}

}  // namespace cli

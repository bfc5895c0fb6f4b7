// `stepscope kernels OP`: every variant of an op at a model's shapes, right first, then timed against the
// measured ceilings.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "base/errors.h"
#include "base/json_text.h"
#include "base/stderr_text.h"
#include "base/utc.h"
#include "cli/commands.h"
#include "cli/gpu.h"
#include "cli/trainer_flags.h"
#include "cli/values.h"
#include "gpt2/config.h"
#ifdef STEPSCOPE_WITH_CUDA
#include "experiments/kernels/kernel_bench.h"
#include "profiler/ceilings/ceilings.h"
#endif

namespace cli {
namespace {

using stepscope::InputError;

struct KernelsFlags {
  std::string op, trainer = "mixed", model = "d12";
  std::string matmul;  // "" = the trainer's default
  std::string with;    // a reader's own rung
  int64_t batch_size = 4, seq_len = 1024, rounds = 50;
  uint64_t seed = 0;
  bool seed_given = false, json = false, ladder = false;
};

#ifdef STEPSCOPE_WITH_CUDA
nlohmann::ordered_json row_of(const experiments::KernelResult& r) {
  nlohmann::ordered_json row{{"op", r.op}, {"variant", r.variant}, {"shape", r.shape}, {"right", r.right}, {"refused", r.refused}};
  if (r.is_rung) {
    row["idea"] = r.idea;
    if (r.predicted_ns > 0) row["predicted_ns"] = r.predicted_ns;
  }
  if (r.right)
    row.update({{"error", r.error},
                {"budget", r.budget},
                {"time_ns", r.median_ns},
                {"p05_ns", r.p05_ns},
                {"p95_ns", r.p95_ns},
                {"bytes_per_s", r.bytes_per_s},
                {"flops_per_s", r.flops_per_s}});
  else
    row["wrong"] = r.wrong;
  return row;
}

// The rows as they come; a head before each place. A ladder has one column more, the predicted time.
struct TextTable {
  double copy_ceiling = 0, matmul_ceiling = 0;
  bool ladder = false;
  std::string place{};

  void print(const experiments::KernelResult& r) {
    if (place != r.shape) {
      place = r.shape;
      fmt::print("{} {}\n  {:<24} {}{:>9} {:>17} {:>15} {:>15} {:>19}\n", r.op, r.shape, "variant", ladder ? "predicted " : "", "us",
                 "5% to 95%", "GB/s (copy)", "TFLOP/s (max)", "error / budget");
    }
    const std::string name = (r.variant.empty() ? "(one way)" : r.variant) + (r.is_default && !r.variant.empty() ? " *" : "");
    const std::string predicted = !ladder              ? ""
                                  : r.predicted_ns > 0 ? fmt::format("{:9.2f} ", r.predicted_ns * 1e-3)
                                                       : fmt::format("{:>9} ", "-");
    if (!r.right) {
      fmt::print("  {:<24} {}{}: {}\n", name, predicted, r.refused ? "refused" : "WRONG, not timed", r.wrong);
      return;
    }
    const auto of = [](double value, double ceiling) {
      return ceiling > 0 ? fmt::format(" ({:.0f}%)", 100 * value / ceiling) : std::string();
    };
    fmt::print("  {:<24} {}{:9.2f} {:>17} {:>15} {:>15} {:>19}\n", name, predicted, r.median_ns * 1e-3,
               fmt::format("{:.2f} to {:.2f}", r.p05_ns * 1e-3, r.p95_ns * 1e-3),
               fmt::format("{:.0f}{}", r.bytes_per_s * 1e-9, of(r.bytes_per_s, copy_ceiling)),
               r.flops_per_s > 0 ? fmt::format("{:.1f}{}", r.flops_per_s * 1e-12, of(r.flops_per_s, matmul_ceiling)) : "-",
               fmt::format("{:.1e} / {:.1e}", r.error, r.budget));
  }
};

experiments::KernelBenchOptions options_of(const KernelsFlags& f) {
  experiments::KernelBenchOptions options;
  options.trainer = f.trainer;
  options.matmul = f.matmul;
  options.rounds = static_cast<int>(f.rounds);
  options.ladder = f.ladder;
  options.solution = f.with;
  return options;
}
#endif

// Fills the type of products in where it was left out.
void check_flags(KernelsFlags& f, const gpt2::ModelConfig& model) {
  if (f.trainer != "mixed" && f.trainer != "fp32") throw InputError(fmt::format("--trainer '{}': expected mixed or fp32", f.trainer));
  const bool mixed_trainer = f.trainer == "mixed";
  if (f.matmul.empty()) f.matmul = mixed_trainer ? "bf16" : "fp32";
  if (mixed_trainer ? f.matmul != "bf16" : f.matmul != "fp32" && f.matmul != "tf32")
    throw InputError(fmt::format("--matmul '{}' with --trainer {}: expected {}", f.matmul, f.trainer,
                                 mixed_trainer ? "bf16 (with --trainer fp32: fp32 or tf32)" : "fp32 or tf32"));
  if (f.seq_len > model.max_seq_len)
    throw InputError(fmt::format("--seq-len {}: {} has at most {} positions", f.seq_len, f.model, model.max_seq_len));
  if (!f.with.empty() && !f.ladder) throw InputError("--with adds a rung to a ladder: expected --ladder beside it");
#ifdef STEPSCOPE_WITH_CUDA
  experiments::check_kernel_options(f.op, options_of(f));
#endif
}

#ifdef STEPSCOPE_WITH_CUDA
int bench(const KernelsFlags& f, const gpt2::ModelConfig& model) {
  // First: it makes a context of its own and destroys it.
  const profiler::MeasuredCeilings ceilings = profiler::ceilings_of_device(false);
  const double matmul_ceiling = f.matmul == "bf16"   ? ceilings.bf16_flops_per_s
                                : f.matmul == "tf32" ? ceilings.tf32_flops_per_s
                                                     : ceilings.fp32_flops_per_s;
  experiments::KernelBenchOptions options = options_of(f);
  options.copy_bytes_per_s = ceilings.copy_bytes_per_s;
  options.fp32_flops_per_s = ceilings.fp32_flops_per_s;
  if (isatty(STDERR_FILENO))
    options.progress = [](const std::string& what) { stepscope::put_on_stderr(fmt::format("kernels: {}\n", what)); };
  const uint64_t seed = f.seed_given ? f.seed : std::random_device{}();
  const auto rows = experiments::bench_kernels(f.op, model, f.batch_size, f.seq_len, seed, options);
  nlohmann::ordered_json all{{"schema", "stepscope.kernels/1"},
                             {"at", stepscope::now_utc()},
                             {"device", ceilings.device},
                             {"driver", ceilings.driver},
                             {"trainer", f.trainer},
                             {"matmul", f.matmul},
                             {"model", f.model},
                             {"batch_size", f.batch_size},
                             {"seq_len", f.seq_len},
                             {"rounds", f.rounds},
                             {"seed", seed},
                             {"rows", nlohmann::ordered_json::array()}};
  all["ladder"] = f.ladder;
  int exit_code = 0;
  TextTable table{ceilings.copy_bytes_per_s, matmul_ceiling, f.ladder};
  for (const experiments::KernelResult& r : rows) {
    if (!r.right && !r.refused && !r.teaches_an_error) exit_code = 1;
    if (f.json)
      all["rows"].push_back(row_of(r));
    else
      table.print(r);
  }
  if (f.json)
    fmt::print("{}\n", stepscope::json_text(all, 1));
  else
    fmt::print(
        "* is the default. One process timed all of them, with operands that rotate through more memory than L2 holds: a screening. "
        "`stepscope experiment` gives verdicts. Seed {}.\n",
        seed);
  return exit_code;
}
#endif

void run(KernelsFlags f, [[maybe_unused]] int& exit_code) {
  require_preset(f.model);
  const gpt2::ModelConfig model = gpt2::model_from_name(f.model);
  check_flags(f, model);
  if (const GpuStatus gpu = gpu_status(); !gpu.present) throw stepscope::MachineError(fmt::format("kernels need a GPU: {}", gpu.why_not));
#ifdef STEPSCOPE_WITH_CUDA
  exit_code = bench(f, model);
#endif
}

}  // namespace

void add_kernels_command(Command& app, int& exit_code) {
  auto f = std::make_shared<KernelsFlags>();
  Command* c = app.add_subcommand("kernels", "Check, then time every variant of an op at a model's shapes");
  c->add_option("op", f->op, "an op of the trainer; on a GPU, an unknown name prints the list of ops")->required()->type_name("OP");
  c->add_option("--trainer", f->trainer, "trainer whose variants are timed: mixed or fp32")->capture_default_str();
  c->add_option("--model", f->model, "model that gives channels, heads and vocabulary")->capture_default_str();
  c->add_option("--batch-size,-b", f->batch_size, "sequences per micro-batch")->check(whole(1, 4096))->capture_default_str();
  c->add_option("--seq-len,-t", f->seq_len, "tokens per sequence")->check(whole(1, 1 << 20))->capture_default_str();
  c->add_option("--matmul", f->matmul, "rate of the matrix products: fp32 (default) or tf32 (fp32 trainer), bf16 (mixed trainer)");
  c->add_option("--rounds", f->rounds, "time each variant this many times, the variants in turn")
      ->check(whole(3, 100000))
      ->capture_default_str();
  c->add_option("--seed", f->seed, "seeds all inputs (default: a new seed each time)")->check(seed())->each([f](const std::string&) {
    f->seed_given = true;
  });
  c->add_flag("--ladder", f->ladder, "first the rungs of docs/learn, from the plainest kernel up, with predicted times (--trainer fp32)");
  c->add_option("--with", f->with, "with --ladder: your own rung, a CUDA source file (docs/learn says what it must hold)")
      ->type_name("FILE");
  c->add_flag("--json", f->json, "print JSON");
  c->footer(
      "Exit 1: a variant is wrong.\nExamples:\n  stepscope kernels attention_backward\n  "
      "stepscope kernels attention_forward --trainer fp32 --matmul tf32\n  "
      "stepscope kernels layernorm_backward -b 16\n  stepscope kernels layernorm_forward --trainer fp32 --ladder");
  c->callback([f, &exit_code] { run(*f, exit_code); });
}

}  // namespace cli

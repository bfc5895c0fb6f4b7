// `stepscope gate`: chooses what is checked (a model, or a state from a file; op checks where there is a
// device) and prints one report. A receipt is written only here, only after everything passed, and only for
// the defaults that CI stands for.
#include "cli/commands.h"
#include "cli/trainer_flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "build_info.inc"
#include "cli/gpu.h"
#include "experiments/gate/budgets.h"
#include "experiments/gate/model_gate.h"
#include "experiments/gate/receipt.h"
#include "experiments/gate/state_gate.h"
#include "gpt2/checkpoint.h"
#include "gpt2/errors.h"
#include "gpt2/reference/reference_trainer.h"
#ifdef STEPSCOPE_WITH_CUDA
#include "experiments/gate/device_hooks.h"
#include "experiments/gate/op_gate.h"
#include "fp32/trainer.h"
#include "mixed/trainer.h"
#endif

namespace cli {
namespace {

using stepscope::InputError;

struct GateFlags {
  std::string trainer = "fp32";
  std::string matmul;  // "" = the trainer's default
  std::vector<std::string> variants;
  std::string recompute = "none", weight_rounding = "nearest";
  bool not_deterministic = false;
  std::string model, checkpoint, state;
  int64_t batch_size = 4, seq_len = 64, steps = 20;
  uint64_t seed = 0;
  bool seed_given = false, write_receipt = false, json = false, verbose = false, no_ops = false,
       no_model = false;
  std::string receipt_folder;
  std::vector<std::string> op_sizes{"odd", "real"};
};

gate::TrainerFactory factory(const std::string& trainer) {
  if (trainer == "reference")
    return [](const gpt2::TrainerOptions& o) { return gpt2::make_reference_trainer(o); };
#ifdef STEPSCOPE_WITH_CUDA
  if (trainer == "mixed") return [](const gpt2::TrainerOptions& o) { return mixed::make_mixed_trainer(o); };
  return [](const gpt2::TrainerOptions& o) { return fp32::make_fp32_trainer(o); };
#else
  throw stepscope::MachineError("--trainer " + trainer + " needs a GPU: " + gpu_status().why_not);
#endif
}

const char* default_matmul(const std::string& trainer) { return trainer == "mixed" ? "bf16" : "fp32"; }

void check_flags(const GateFlags& f) {
  if (f.trainer != "reference" && f.trainer != "fp32" && f.trainer != "mixed")
    throw InputError(fmt::format("unknown trainer '{}': expected mixed, fp32 or reference", f.trainer));
  gate::budgets_of(f.trainer, f.matmul);
  if (f.checkpoint.empty() != f.state.empty())
    throw InputError(
        "--checkpoint and --state go together: the state is what was computed from the checkpoint");
  if (!f.checkpoint.empty() && !f.model.empty())
    throw InputError("--checkpoint and --model exclude each other");
  if (f.trainer == "reference" && !f.variants.empty())
    throw InputError("--variant: the CPU reference has no variants");
  if (f.batch_size < 1 || f.seq_len < 1 || f.steps < 1 || f.batch_size > (int64_t{1} << 20))
    throw InputError(fmt::format("--batch-size {}, --seq-len {}, --steps {}: expected at least 1 each",
                                 f.batch_size, f.seq_len, f.steps));
  if (f.write_receipt) {
    if (f.trainer == "reference")
      throw InputError("--write-receipt: a receipt is of a GPU trainer; the CPU needs none");
    if (!f.variants.empty() || !f.checkpoint.empty() || !f.model.empty() || f.matmul != default_matmul(f.trainer) || f.no_ops ||
        f.no_model || f.op_sizes.size() != 2 || f.recompute != "none" || f.weight_rounding != "nearest" || f.not_deterministic)
      throw InputError(
          "--write-receipt checks every variant and every matmul mode of the gate's own models; give only "
          "--trainer, --seed and --receipt-folder with it");
  }
}

gate::ModelGateOptions model_options(const GateFlags& f, const std::string& matmul) {
  gate::ModelGateOptions o;
#ifdef STEPSCOPE_WITH_CUDA
  if (f.trainer != "reference") {  // which must not ask for a device
    static const gate::DeviceHooks hooks = gate::cuda_device_hooks();
    o.device = &hooks;
  }
#endif
  o.trainer = f.trainer;
  o.matmul = matmul;
  o.variants = parse_variants(f.variants);
  o.recompute = f.recompute;
  o.weight_rounding = f.weight_rounding;
  o.deterministic = !f.not_deterministic;
  o.seed = f.seed;
  o.batch_size = f.batch_size;
  o.seq_len = f.seq_len;
  o.trajectory_steps = f.steps;
  if (!f.model.empty()) {
    o.model_name = f.model;
    o.config = gpt2::model_from_name(f.model);
    o.with_small_cases = false;
  }
  if (o.seq_len > o.config.max_seq_len)
    throw InputError(fmt::format("--seq-len {}: {} has at most {} positions", o.seq_len, o.model_name,
                                 o.config.max_seq_len));
  if (isatty(STDERR_FILENO))
    o.progress = [matmul](const std::string& what) { fmt::print(stderr, "gate ({}): {}\n", matmul, what); };
  return o;
}

#ifdef STEPSCOPE_WITH_CUDA
// The whole model once more with each variant that is no default, and with each option of the mixed trainer.
void add_variant_reports(const GateFlags& f, std::vector<gate::GateReport>& reports) {
  const bool mixed_trainer = f.trainer == "mixed";
  const auto check = [&](const auto& change) {
    gate::ModelGateOptions o = model_options(f, default_matmul(f.trainer));
    change(o);
    reports.push_back(gate::check_model(factory(f.trainer), o));
  };
  for (const gpt2::VariantInfo& slot : mixed_trainer ? mixed::mixed_variants() : fp32::fp32_variants())
    for (size_t i = 1; i < slot.names.size(); ++i)
      // Each of cuDNN's variants is a default, deterministic or not; by name it would refuse the small cases that it has no kernel for.
      if (!slot.names[i].starts_with("cudnn")) check([&](gate::ModelGateOptions& o) { o.variants = {{slot.slot, slot.names[i]}}; });
  if (!mixed_trainer) return;
  // The defaults that do not repeat bit for bit, and that every check above left out.
  check([](gate::ModelGateOptions& o) { o.deterministic = false; });
  check([](gate::ModelGateOptions& o) { o.recompute = "gelu"; });
  check([](gate::ModelGateOptions& o) { o.recompute = "gelu+ln"; });
  check([](gate::ModelGateOptions& o) { o.weight_rounding = "stochastic"; });
}
#endif

std::vector<gate::GateReport> reports_of(const GateFlags& f) {
  std::vector<gate::GateReport> reports;
  if (!f.checkpoint.empty()) {
    const gate::StateFiles files{f.checkpoint, f.state};
    if (f.trainer == "reference") {
      reports.push_back(gate::check_oracle_against_state(files));
    } else {
      reports.push_back(gate::check_trainer_against_state(factory(f.trainer), files, f.trainer, f.matmul,
                                                          parse_variants(f.variants)));
    }
    return reports;
  }
#ifdef STEPSCOPE_WITH_CUDA
  if ((f.trainer == "fp32" || f.trainer == "mixed") && !f.no_ops && f.model.empty()) {
    gate::OpGateOptions o;
    o.trainer = f.trainer;
    o.seed = f.seed;
    o.sizes = f.op_sizes;
    if (f.op_sizes == std::vector<std::string>{"reduced"}) {
      o.with_answers = false;
      o.repeats = 1;
    }
    if (isatty(STDERR_FILENO))
      o.progress = [](const std::string& what) { fmt::print(stderr, "gate (ops): {}\n", what); };
    reports.push_back(gate::check_ops(o));
  }
#endif
  if (!f.no_model) {
    std::vector<std::string> modes{f.matmul};
    if (f.write_receipt && f.trainer == "fp32") modes = {"fp32", "tf32"};
    for (const std::string& matmul : modes)
      reports.push_back(gate::check_model(factory(f.trainer), model_options(f, matmul)));
#ifdef STEPSCOPE_WITH_CUDA
    if (f.write_receipt) add_variant_reports(f, reports);
#endif
  }
  return reports;
}

void run(GateFlags f, int& exit_code) {
  if (f.matmul.empty()) f.matmul = default_matmul(f.trainer);
  check_flags(f);
  if (f.trainer != "reference")
    if (const GpuStatus gpu = gpu_status(); !gpu.present)
      throw stepscope::MachineError(fmt::format("--trainer {} needs a GPU: {}", f.trainer, gpu.why_not));
  if (!f.seed_given) f.seed = std::random_device{}();
  const std::vector<gate::GateReport> reports = reports_of(f);
  bool passed = !reports.empty();
  for (const gate::GateReport& r : reports) passed = passed && r.passed();
  exit_code = passed ? 0 : 1;
  std::filesystem::path written;
#ifdef STEPSCOPE_WITH_CUDA
  if (f.write_receipt && passed)
    written = gate::write_receipt(f.receipt_folder.empty() ? std::filesystem::path(kSourceDir) / "receipts"
                                                           : std::filesystem::path(f.receipt_folder),
                                  gate::make_receipt(f.trainer, reports, gate::device_facts(), kSourceDir,
                                                     "/proc/self/exe", kGitRevision));
#endif
  if (f.json) {
    nlohmann::ordered_json all{
        {"schema", "stepscope.gate/1"}, {"passed", passed}, {"reports", nlohmann::ordered_json::array()}};
    for (const gate::GateReport& r : reports) all["reports"].push_back(gate::to_json(r));
    fmt::print("{}\n", all.dump(1));
    return;
  }
  for (const gate::GateReport& r : reports)
    fmt::print("{}\n", gate::to_table(r, f.verbose || !f.checkpoint.empty()));
  if (!written.empty()) fmt::print("receipt written: {}\n", written.string());
  if (f.write_receipt && !passed) fmt::print("no receipt: the gate did not pass\n");
}

}  // namespace

void add_gate_command(CLI::App& app, int& exit_code) {
  auto f = std::make_shared<GateFlags>();
  CLI::App* c =
      app.add_subcommand("gate", "Is this trainer right? Checks it against the double-precision oracle");
  c->add_option("--trainer", f->trainer, "mixed, fp32 or reference (CPU)")->capture_default_str();
  c->add_option("--matmul", f->matmul, "matrix products: of the fp32 trainer fp32 (default) or tf32, of the mixed one bf16");
  c->add_option("--recompute", f->recompute, "of the mixed trainer: none, gelu or gelu+ln")->capture_default_str();
  c->add_option("--weight-rounding", f->weight_rounding, "of the mixed trainer: nearest or stochastic")->capture_default_str();
  c->add_flag("--not-deterministic", f->not_deterministic,
              "the mixed trainer's defaults, some of which do not repeat bit for bit (and are then not checked for it)");
  c->add_option("--variant", f->variants, "OP=NAME (repeatable), for the whole-model checks");
  c->add_option("--checkpoint", f->checkpoint,
                "with --state: check against a state that another program computed");
  c->add_option("--state", f->state, "reference state (llm.c format) of --checkpoint");
  c->add_option("--model", f->model,
                "a preset instead of the gate's small models (d12 takes minutes on a CPU)");
  c->add_option("--batch-size,-b", f->batch_size)->capture_default_str();
  c->add_option("--seq-len,-t", f->seq_len)->capture_default_str();
  c->add_option("--steps", f->steps, "steps of the loss trajectory")->capture_default_str();
  c->add_option("--seed", f->seed, "of all weights and inputs; default: new each time, printed")
      ->each([f](const std::string&) { f->seed_given = true; });
  c->add_flag("--no-ops", f->no_ops, "without the op-level checks");
  c->add_flag("--no-model", f->no_model, "without the whole-model checks");
  c->add_option("--op-sizes", f->op_sizes,
                "shapes of the op-level checks: odd, real (those of d12, 124M parameters), or reduced (for compute-sanitizer: each loop "
                "over a capped grid turns twice, nothing is compared with the oracle)")
      ->delimiter(',')
      ->check(CLI::IsMember({"odd", "real", "reduced"}))
      ->capture_default_str();
  c->add_flag("--write-receipt", f->write_receipt,
              "check every variant and matmul mode; if all pass, write receipts/TRAINER.json");
  c->add_option("--receipt-folder", f->receipt_folder,
                "where receipts go (default: receipts/ of the source tree)");
  c->add_flag("--verbose", f->verbose, "a line for every tensor");
  c->add_flag("--json", f->json);
  c->footer(
      "Exit 0: passed. 1: something is wrong. 3: no GPU.\n"
      "Examples:\n"
      "  stepscope gate --trainer fp32 --matmul tf32\n"
      "  stepscope gate --trainer reference --checkpoint tiny.bin --state tiny_debug_state.bin\n"
      "  stepscope gate --trainer fp32 --write-receipt");
  c->callback([f, &exit_code] { run(*f, exit_code); });
}

}  // namespace cli

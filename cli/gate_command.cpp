// `stepscope gate` chooses the checks (a model, or a state from a file; op checks where there is a device) and prints one report.
// Only this file writes receipts, only after everything passed, and only for the defaults that CI stands for.
#include "cli/commands.h"
#include "cli/say.h"
#include "cli/trainer_flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <tuple>

#include "base/errors.h"
#include "base/made_folders.h"
#include "base/nvml.h"
#include "base/stderr_text.h"
#include "build_info.inc"
#include "cli/catch_interrupt.h"
#include "cli/experiment_flags.h"
#include "cli/gpu.h"
#include "cli/values.h"
#include "experiments/gate/budgets.h"
#include "experiments/gate/false_alarms.h"
#include "experiments/gate/model_gate.h"
#include "experiments/gate/receipt.h"
#include "experiments/gate/state_gate.h"
#include "gpt2/checkpoint.h"
#include "gpt2/reference/reference_trainer.h"
#ifdef STEPSCOPE_WITH_CUDA
#include "experiments/gate/device_hooks.h"
#include "experiments/gate/op_case.h"
#include "experiments/gate/op_gate.h"
#include "fp32/trainer.h"
#include "mixed/attention_cudnn.h"
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
  bool trainer_given = false, seed_given = false, write_receipt = false, json = false, verbose = false, no_ops = false, no_model = false;
  std::string receipt_folder, source_root, answers;
  std::vector<std::string> op_sizes{"odd", "real", "huge"}, ops;
  bool check_receipts = false, list_checks = false, list_configurations = false, real_size = false, no_real_size = false;
  std::string seeds;
  std::vector<std::string> configurations, without;
  std::vector<const Argument*> all;
};

gate::TrainerFactory factory(const std::string& trainer) {
  if (trainer == "reference") return [](const gpt2::TrainerOptions& o) { return gpt2::make_reference_trainer(o); };
#ifdef STEPSCOPE_WITH_CUDA
  if (trainer == "mixed") return [](const gpt2::TrainerOptions& o) { return mixed::make_mixed_trainer(o); };
  return [](const gpt2::TrainerOptions& o) { return fp32::make_fp32_trainer(o); };
#else
  throw stepscope::MachineError("--trainer " + trainer + " needs a GPU: " + gpu_status().why_not);
#endif
}

const char* default_matmul(const std::string& trainer) { return trainer == "mixed" ? "bf16" : "fp32"; }

void check_flags_have_a_use(const GateFlags& f) {
  if (f.check_receipts)
    return only_these(f.all, {"--check-receipts", "--receipt-folder", "--source-root", "--json"},
                      "--check-receipts compares files and runs nothing; leave one of the two out");
  if (!f.source_root.empty()) throw InputError("--source-root: expected --check-receipts with it");
  if (!f.receipt_folder.empty() && !f.write_receipt)
    throw InputError("--receipt-folder: expected --write-receipt or --check-receipts with it");
  if (f.write_receipt)
    only_these(f.all, {"--write-receipt", "--trainer", "--seed", "--receipt-folder", "--verbose", "--json"},
               "--write-receipt checks every variant and every matmul mode of the gate's own models; give only --trainer, --seed and "
               "--receipt-folder with it");
  for (const Argument* flag : f.all)
    if (f.trainer == "reference" && flag->count() > 0) {
      if (flag->name() == "--op" || flag->name() == "--op-sizes")
        throw InputError(flag->name() + ": the CPU reference has no op checks; expected --trainer mixed or fp32");
      if (flag->name() == "--no-ops") throw InputError("--no-ops: the CPU reference has no op checks; leave it out");
      if (flag->name() == "--no-real-size" && !f.real_size)
        throw InputError("--no-real-size: the CPU reference is compared at that size with --real-size alone; leave it out");
    }
  if (!f.ops.empty()) {
    only_these(f.all, {"--op", "--op-sizes", "--trainer", "--seed", "--no-model", "--verbose", "--json"},
               "--op checks single ops and no whole model; leave it out");
  }
  if (!f.checkpoint.empty())
    only_these(f.all, {"--checkpoint", "--state", "--trainer", "--matmul", "--variant", "--verbose", "--json"},
               "--checkpoint and --state are compared as they are; leave it out");
  if (!f.seeds.empty())
    none_of_these(f.all, {"--seed", "--no-ops", "--no-model", "--op-sizes", "--real-size", "--no-real-size"},
                  "--seeds names the seeds, and runs neither ops nor the real size; leave it out");
  // The name of a configuration is all that its report says of how it ran.
  if (!f.configurations.empty())
    none_of_these(f.all, {"--matmul", "--variant", "--recompute", "--weight-rounding", "--not-deterministic"},
                  "--configurations names all that a trainer is asked with; leave one of the two out");
  if (!f.model.empty())
    none_of_these(f.all, {"--op-sizes", "--real-size", "--no-real-size"},
                  "--model checks that model alone, without ops and d12; leave one of the two out");
  if (f.no_ops) none_of_these(f.all, {"--op-sizes"}, "--no-ops skips the ops; leave one of the two out");
  if (f.no_model && (f.no_ops || f.trainer == "reference" || !f.model.empty()))
    throw InputError(fmt::format("--no-model: nothing is left to check{}", f.no_ops ? " with --no-ops"
                                                                           : f.trainer == "reference"
                                                                               ? " of the CPU reference, which has no op checks"
                                                                               : " with --model, which checks no ops"));
  if (f.no_model)
    only_these(f.all, {"--no-model", "--trainer", "--op", "--op-sizes", "--seed", "--verbose", "--json"},
               "--no-model checks single ops and no whole model; leave it out");
  if (f.real_size && f.no_real_size) throw InputError("--real-size and --no-real-size exclude each other");
}

#ifdef STEPSCOPE_WITH_CUDA
void check_ops_exist(const GateFlags& f) {
  if (f.ops.empty()) return;
  const std::vector<std::string> known = gate::op_names(gate::ops_of(f.trainer), gate::OpSizes::Ways::every);
  for (const std::string& op : f.ops)
    if (std::ranges::find(known, op) == known.end())
      throw InputError(fmt::format("--op {}: the {} trainer has no such op; expected one of {}", op, f.trainer, fmt::join(known, ", ")));
}

void check_each_had_cases(const GateFlags& f, const gate::GateReport& report) {
  for (const std::string& op : f.ops)
    if (std::ranges::find(report.part_times, op, &gate::PartTime::part) == report.part_times.end())
      throw InputError(fmt::format("--op {}: it has no shape among --op-sizes {}", op, fmt::join(f.op_sizes, ",")));
}
#endif

void check_flags(const GateFlags& f) {
  if (f.trainer != "reference" && f.trainer != "fp32" && f.trainer != "mixed")
    throw InputError(fmt::format("unknown trainer '{}': expected mixed, fp32 or reference", f.trainer));
#ifdef STEPSCOPE_WITH_CUDA
  check_ops_exist(f);
#endif
  gate::budgets_of(f.trainer, f.matmul);
  // A trainer that leaves such a flag alone would pass, and the report would say that it was checked with it.
  TrainerFlags abilities;
  abilities.trainer = f.trainer;
  abilities.recompute = f.recompute;
  abilities.weight_rounding = f.weight_rounding;
  check_abilities(abilities);
  if (f.not_deterministic && f.trainer != "mixed" && !f.list_configurations)
    throw InputError(fmt::format("--not-deterministic: the {} trainer always repeats bit for bit; leave it out", f.trainer));
  if (f.checkpoint.empty() != f.state.empty())
    throw InputError("--checkpoint and --state go together: the state is what was computed from the checkpoint");
  if (!f.checkpoint.empty() && !f.model.empty()) throw InputError("--checkpoint and --model exclude each other");
  if (f.trainer == "reference" && !f.variants.empty()) throw InputError("--variant: the CPU reference has no variants");
  if (f.batch_size < 1 || f.seq_len < 1 || f.steps < 1 || f.batch_size > (int64_t{1} << 20))
    throw InputError(fmt::format("--batch-size {}, --seq-len {}, --steps {}: expected at least 1 each", f.batch_size, f.seq_len, f.steps));
  if (f.write_receipt && f.trainer == "reference")
    throw InputError("--write-receipt: only GPU trainers have receipts; the CPU reference needs none");
}

gate::ModelGateOptions model_options(const GateFlags& f, const std::string& matmul) {
  gate::ModelGateOptions o;
#ifdef STEPSCOPE_WITH_CUDA
  if (f.trainer != "reference" && !f.list_configurations) {  // neither may ask for a device
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
    require_preset(f.model);
    o.config = gpt2::model_from_name(f.model);
    o.with_small_cases = false;
  }
  o.without = {f.without.begin(), f.without.end()};
  o.answers = f.answers;
  o.with_steps = o.with_loop = o.with_small_cases;
  // d12 at T = 1024 costs the CPU 2 TFLOP in double: beside a GPU there are the cores for it, elsewhere it is asked for.
  if (f.model.empty() && (f.real_size || (f.trainer != "reference" && !f.no_real_size))) o.real_size_batch = f.write_receipt ? 4 : 1;
  o.many_rows = o.wide = f.trainer != "reference" && o.real_size_batch > 0;
  if (o.seq_len > o.config.max_seq_len)
    throw InputError(fmt::format("--seq-len {}: {} has at most {} positions", o.seq_len, o.model_name, o.config.max_seq_len));
  if (isatty(STDERR_FILENO))
    o.progress = [matmul](const std::string& what) { stepscope::put_on_stderr(fmt::format("gate ({}): {}\n", matmul, what)); };
  return o;
}

// A way to run a trainer that answers for itself: each matmul mode, each variant that is no default, each option.
struct Configuration {
  std::string name;
  gate::ModelGateOptions options;
};

std::vector<Configuration> all_configurations(const GateFlags& f) {
  std::vector<Configuration> all;
  const auto add = [&](const std::string& trainer, const std::string& matmul, const std::string& name, const auto& change) {
    GateFlags own = f;
    own.trainer = trainer;
    gate::ModelGateOptions o = model_options(own, matmul);
    change(o);
    all.push_back({name, std::move(o)});
  };
  const auto none = [](gate::ModelGateOptions&) {};
  if (f.trainer == "reference") {
    add("reference", "fp32", "reference", none);
    return all;
  }
  add("fp32", "fp32", "fp32", none);
  add("fp32", "tf32", "tf32", none);
  add("mixed", "bf16", "mixed", none);
  // The defaults that do not repeat bit for bit.
  add("mixed", "bf16", "mixed not deterministic", [](gate::ModelGateOptions& o) { o.deterministic = false; });
  // The defaults as they train: attention for Hopper knows heads of 64 channels alone, and does not repeat either.
  add("mixed", "bf16", "mixed heads of 64", [](gate::ModelGateOptions& o) {
    o.deterministic = false;
    o.heads_of_64 = true;
  });
  add("mixed", "bf16", "mixed stochastic", [](gate::ModelGateOptions& o) { o.weight_rounding = "stochastic"; });
  add("mixed", "bf16", "mixed recompute gelu", [](gate::ModelGateOptions& o) { o.recompute = "gelu"; });
  add("mixed", "bf16", "mixed recompute gelu+ln", [](gate::ModelGateOptions& o) { o.recompute = "gelu+ln"; });
#ifdef STEPSCOPE_WITH_CUDA
  for (const auto& [trainer, matmul, facts] :
       {std::tuple{"fp32", "fp32", fp32::fp32_variant_facts()}, {"mixed", "bf16", mixed::mixed_variant_facts()}})
    for (const gpt2::VariantFacts& fact : facts) {
      // What ranks do among themselves no single process runs, so that a report of it would be of the default: tests/ranks compares it
      // with the oracle. cuDNN refuses some small cases by name, and the report says which.
      if (fact.is_default || fact.needs_ranks) continue;
      add(trainer, matmul, fmt::format("{} {}={}", trainer, fact.slot, fact.name), [&](gate::ModelGateOptions& o) {
        o.variants = fact.choice;
        o.deterministic = fact.repeats;
      });
    }
#endif
  return all;
}

// "50" or "FIRST..LAST".
std::vector<uint64_t> parse_seeds(const std::string& text) {
  const auto number = [&](const std::string& part) -> uint64_t {
    if (part.empty() || part.size() > 18 || part.find_first_not_of("0123456789") != std::string::npos)
      throw InputError(fmt::format("--seeds '{}': expected a number of seeds, or FIRST..LAST", text));
    return std::stoull(part);
  };
  const size_t dots = text.find("..");
  const uint64_t first = dots == std::string::npos ? 1 : number(text.substr(0, dots));
  const uint64_t last = number(dots == std::string::npos ? text : text.substr(dots + 2));
  if (last < first || last - first >= 100000)
    throw InputError(fmt::format("--seeds '{}': expected 1 to 100000 seeds, the first not beyond the last", text));
  std::vector<uint64_t> seeds;
  for (uint64_t s = first; s <= last; ++s) seeds.push_back(s);
  return seeds;
}

std::vector<Configuration> chosen_configurations(const GateFlags& f) {
  if (f.configurations.empty()) {
    std::string name = f.trainer + (f.matmul == "tf32" ? " tf32" : "");
    for (const std::string& v : f.variants) name += " " + v;
    if (f.recompute != "none") name += " recompute " + f.recompute;
    if (f.weight_rounding != "nearest") name += " " + f.weight_rounding;
    return {{name, model_options(f, f.matmul)}};
  }
  std::vector<Configuration> all = all_configurations(f), chosen;
  if (f.configurations == std::vector<std::string>{"all"}) return all;
  for (const std::string& name : f.configurations) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Configuration& c) { return c.name == name; });
    if (found == all.end())
      throw InputError(
          fmt::format("--configurations '{}': expected all, or names that `stepscope gate --list-configurations` prints", name));
    chosen.push_back(*found);
  }
  return chosen;
}

// Many seeds: how often is a right trainer refused?
void run_seeds(const GateFlags& f, int& exit_code) {
  const std::vector<uint64_t> seeds = parse_seeds(f.seeds);
  nlohmann::ordered_json all{{"schema", "stepscope.gate-seeds/1"},
                             {"first_seed", seeds.front()},
                             {"seeds", seeds.size()},
                             {"configurations", nlohmann::ordered_json::array()}};
  std::vector<gate::SeedsReport> reports;
  for (const Configuration& c : chosen_configurations(f)) {
    try {
      reports.push_back(gate::over_seeds(c.name, gate::check_seeds(factory(c.options.trainer), c.options, seeds)));
    } catch (const InputError& refused) {
      if (!gate::refuses_a_variant(refused)) throw;
      if (f.json)
        all["configurations"].push_back({{"configuration", c.name}, {"cannot_run", refused.what()}});
      else
        fmt::print("{}: not checked: {}\n", c.name, refused.what());
      continue;
    }
    if (f.json)
      all["configurations"].push_back(gate::to_json(reports.back()));
    else
      fmt::print("{}\n", gate::to_table(reports.back()));
    std::fflush(stdout);
  }
  if (f.json) fmt::print("{}\n", all.dump(1));
  exit_code = gate::exit_code_of(reports);
  if (reports.empty()) say("--seeds: none of the configurations could be checked");
}

std::filesystem::path receipt_folder(const GateFlags& f) {
  return f.receipt_folder.empty() ? std::filesystem::path(kSourceDir) / "receipts" : std::filesystem::path(f.receipt_folder);
}

// Needs no GPU. Exit 1 for sources that no gate has seen, 2 for a receipt that is none.
void check_receipts(const GateFlags& f, int& exit_code) {
  const std::filesystem::path root = f.source_root.empty() ? source_root() : std::filesystem::path(f.source_root);
  if (!std::filesystem::is_directory(root))
    throw InputError(fmt::format("--check-receipts: the source tree {} is not there; --source-root names another", root.string()));
  if (!std::filesystem::exists(root / "mixed" / "CMakeLists.txt"))
    throw InputError(
        fmt::format("--check-receipts: {} is no source tree of stepscope: it has no mixed/; --source-root names another", root.string()));
  const std::filesystem::path folder = f.receipt_folder.empty() ? root / "receipts" : std::filesystem::path(f.receipt_folder);
  if (!f.receipt_folder.empty() && !std::filesystem::is_directory(folder))
    throw InputError(fmt::format("--receipt-folder {}: there is no such folder", folder.string()));
  nlohmann::ordered_json all{{"schema", "stepscope.receipt-check/1"}, {"problems", nlohmann::ordered_json::array()}};
  exit_code = 0;
  for (const std::string trainer : {"fp32", "mixed"}) {
    const gate::ReceiptProblems p = gate::receipt_problems(folder / (trainer + ".json"), root, trainer);
    if (!p.changed.empty() && exit_code == 0) exit_code = 1;
    if (!p.damaged.empty()) exit_code = 2;
    for (const std::vector<std::string>* list : {&p.damaged, &p.changed})
      for (const std::string& sentence : *list) {
        all["problems"].push_back({{"trainer", trainer}, {"sentence", sentence}});
        if (!f.json) fmt::print("{}\n", sentence);
      }
    if (!f.json && p.none()) fmt::print("{}.json holds for the sources in {}\n", trainer, root.string());
  }
  if (f.json) fmt::print("{}\n", all.dump(1));
}

// Reports as they are made. A GPU trainer's gate takes a minute and a receipt several: whoever waits reads on stderr what is checked, what is
// wrong and how long it took.
class Reports {
 public:
  // verbose: the time of every part is said, and not of the dearest alone.
  Reports(bool say, bool verbose) : say_(say), parts_shown_(verbose ? std::numeric_limits<size_t>::max() : gate::kPartsShown) {}
  void add(gate::GateReport r) {
    const auto now = std::chrono::steady_clock::now();
    if (say_)
      say(fmt::format("gate: {}, {}: {} in {:.1f} s{}{}", r.workload, r.matmul, r.passed() ? "passed" : "FAILED",
                      std::chrono::duration<double>(now - last_).count(), r.part_times.empty() ? "" : ": ",
                      gate::dearest(r.part_times, parts_shown_)));
    last_ = now;
    all_.push_back(std::move(r));
  }
  std::vector<gate::GateReport> take() { return std::move(all_); }

 private:
  bool say_;
  size_t parts_shown_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::vector<gate::GateReport> all_;
};

#ifdef STEPSCOPE_WITH_CUDA
// The whole model once more in every configuration of the trainer but the first.
void add_configuration_reports(const GateFlags& f, const gate::ModelGateOptions& first, Reports& reports) {
  for (Configuration& c : all_configurations(f)) {
    if (c.options.trainer != f.trainer || c.options.matmul != default_matmul(f.trainer) || c.name == f.trainer) continue;
    c.options.with_timed_steps = false;                               // once is enough: kernels are not what they are about
    c.options.with_loop = c.options.weight_rounding == "stochastic";  // a resumed run has to draw its random bits again
    if (c.name != "mixed not deterministic" && c.name != "mixed recompute gelu+ln") c.options.real_size_batch = 0;
    c.options.real_size_batch = std::min<int64_t>(c.options.real_size_batch, 1);
    c.options.many_rows = c.options.wide = false;
    c.options.small_answers = first.small_answers;
    c.options.big_answers = first.big_answers;
    try {
      reports.add(gate::check_model(factory(f.trainer), c.options));
    } catch (const stepscope::InputError& refused) {
      if (!gate::refuses_a_variant(refused)) throw;
      // Nothing ran, so there is nothing to certify: the receipt has no report of it.
      say(fmt::format("the gate did not check it: {}", refused.what()));
    }
  }
}

gate::DeviceFacts facts_of(const std::string& trainer) {
  gate::DeviceFacts facts = gate::device_facts();
  std::string why_not;
  if (const auto device = stepscope::nvml::Device::open(why_not, gpu_status().pci_bus_id))
    facts.driver = device->driver_version().value_or("");
  if (trainer == "mixed") facts.cudnn = mixed::cudnn_version();
  return facts;
}
#endif

std::vector<gate::GateReport> reports_of(const GateFlags& f) {
  Reports reports(f.write_receipt || (!f.json && (f.verbose || f.trainer != "reference")), f.verbose);
  if (!f.checkpoint.empty()) {
    const gate::StateFiles files{f.checkpoint, f.state};
    if (f.trainer == "reference") {
      reports.add(gate::check_oracle_against_state(files));
    } else {
      reports.add(gate::check_trainer_against_state(factory(f.trainer), files, f.trainer, f.matmul, parse_variants(f.variants)));
    }
    return reports.take();
  }
  std::vector<std::string> modes{f.matmul};
  if (f.write_receipt && f.trainer == "fp32") modes = {"fp32", "tf32"};
  gate::ExpectedCache answers, big_answers(f.answers);  // most variants are asked about the same weights and tokens
  std::vector<gate::ModelGateOptions> of_modes;
  for (const std::string& matmul : modes) {
    of_modes.push_back(model_options(f, matmul));
    if (f.model.empty()) of_modes.back().big_answers = &big_answers;  // a model of the user's has many questions, each too large to keep
    if (f.write_receipt) of_modes.back().small_answers = &answers;
  }
  std::optional<gate::RealSizeAhead> ahead;
  const bool with_model = !f.no_model && f.ops.empty();
  if (with_model) ahead.emplace(of_modes.front());
#ifdef STEPSCOPE_WITH_CUDA
  if ((f.trainer == "fp32" || f.trainer == "mixed") && !f.no_ops && f.model.empty()) {
    gate::OpGateOptions o;
    o.trainer = f.trainer;
    o.seed = f.seed;
    o.sizes = f.op_sizes;
    o.only = f.ops;
    if (f.op_sizes == std::vector<std::string>{"reduced"}) {
      o.with_answers = false;
      o.repeats = 1;
    }
    if (isatty(STDERR_FILENO))
      o.progress = [](const std::string& what) { stepscope::put_on_stderr(fmt::format("gate (ops): {}\n", what)); };
    gate::GateReport report = gate::check_ops(o);
    check_each_had_cases(f, report);
    reports.add(std::move(report));
  }
#endif
  if (!with_model) return reports.take();
  for (const gate::ModelGateOptions& o : of_modes) reports.add(gate::check_model(factory(f.trainer), o));
#ifdef STEPSCOPE_WITH_CUDA
  if (f.write_receipt) add_configuration_reports(f, of_modes.front(), reports);
#endif
  return reports.take();
}

void run(GateFlags f, int& exit_code) {
  if (f.list_checks) {
    only_these(f.all, {"--list-checks"}, "--list-checks prints a list and checks nothing; leave one of the two out");
    for (const gate::ModelCheck& c : gate::model_checks()) fmt::print("{:<22} {}\n", c.name, c.what);
    return;
  }
  check_flags_have_a_use(f);
  if (f.check_receipts) return check_receipts(f, exit_code);
  if (f.matmul.empty()) f.matmul = default_matmul(f.trainer);
  check_flags(f);
  if (f.list_configurations) {
    for (const Configuration& c : all_configurations(f)) fmt::print("{}\n", c.name);
    return;
  }
  if (f.write_receipt) {  // what would refuse it is asked before minutes of checks
    gate::receipt_sources(kSourceDir, f.trainer);
    stepscope::check_folder_usable(receipt_folder(f), "--receipt-folder");
  }
  if (!f.configurations.empty() && f.seeds.empty()) throw InputError("--configurations goes with --seeds");
  if (f.trainer != "reference")
    if (const GpuStatus gpu = gpu_status(); !gpu.present)
      throw stepscope::MachineError(fmt::format("--trainer {} needs a GPU: {}{}", f.trainer, gpu.why_not,
                                                f.trainer_given ? "" : "; --trainer reference checks the CPU reference"));
  if (!f.answers.empty()) stepscope::check_folder_usable(f.answers, "--oracle-answers");
  const SayInterrupted guard;
  if (!f.seeds.empty()) return run_seeds(f, exit_code);
  if (!f.seed_given) f.seed = std::random_device{}();
  const std::vector<gate::GateReport> reports = reports_of(f);
  bool passed = !reports.empty();
  for (const gate::GateReport& r : reports) passed = passed && r.passed();
  exit_code = passed ? 0 : 1;
  std::filesystem::path written;
#ifdef STEPSCOPE_WITH_CUDA
  if (f.write_receipt && passed)
    written = gate::write_receipt(receipt_folder(f),
                                  gate::make_receipt(f.trainer, reports, facts_of(f.trainer), kSourceDir, "/proc/self/exe", kGitRevision));
#endif
  if (f.json) {
    nlohmann::ordered_json all{{"schema", "stepscope.gate/1"}, {"passed", passed}, {"reports", nlohmann::ordered_json::array()}};
    for (const gate::GateReport& r : reports) all["reports"].push_back(gate::to_json(r));
    fmt::print("{}\n", all.dump(1));
    return;
  }
  for (const gate::GateReport& r : reports) fmt::print("{}\n", gate::to_table(r, f.verbose || !f.checkpoint.empty()));
  if (!written.empty()) fmt::print("receipt written: {}\n", written.string());
  if (f.write_receipt && !passed) fmt::print("no receipt: the gate did not pass\n");
}

}  // namespace

void add_gate_command(Command& app, int& exit_code) {
  auto f = std::make_shared<GateFlags>();
  Command* c = app.add_subcommand("gate", "Check a trainer against the double-precision oracle");
  c->add_option("--trainer", f->trainer, "check this trainer: mixed, fp32 or reference (CPU)")
      ->capture_default_str()
      ->each([f](const std::string&) { f->trainer_given = true; });
  c->add_option("--matmul", f->matmul, "rate of the matrix products: fp32 (default) or tf32 (fp32 trainer), bf16 (mixed trainer)");
  c->add_option("--recompute", f->recompute, "which activations the backward pass computes again: none, gelu or gelu+ln (mixed trainer)")
      ->one_of(recomputations())
      ->capture_default_str();
  c->add_option("--weight-rounding", f->weight_rounding, "how bf16 weights are rounded from fp32: nearest or stochastic (mixed trainer)")
      ->one_of(weight_roundings())
      ->capture_default_str();
  c->add_flag("--not-deterministic", f->not_deterministic,
              "check the mixed trainer's defaults; variants that cannot repeat bit for bit are not checked for it");
  c->add_option("--variant", f->variants, "choose the variant of an op for the whole-model checks: OP=NAME (repeatable)");
  c->add_option("--checkpoint", f->checkpoint,
                "with --state: start from this checkpoint and compare with a state that another program computed");
  c->add_option("--state", f->state, "reference state (llm.c format) that belongs to --checkpoint");
  c->add_option("--model", f->model, "check this preset instead of the gate's small models (d12 takes minutes on a CPU)");
  c->add_option("--batch-size,-b", f->batch_size, "sequences per micro-batch")->check(whole(1, 1 << 20))->capture_default_str();
  c->add_option("--seq-len,-t", f->seq_len, "tokens per sequence")->check(whole(1, 1 << 20))->capture_default_str();
  c->add_option("--steps", f->steps, "steps of the loss trajectory")->check(whole(1))->capture_default_str();
  c->add_option("--seed", f->seed, "seeds all weights and inputs (default: a new seed each time, which is printed)")
      ->check(seed())
      ->each([f](const std::string&) { f->seed_given = true; });
  c->add_flag("--no-ops", f->no_ops, "skip the op-level checks");
  c->add_flag("--no-model", f->no_model, "skip the whole-model checks");
  c->add_option("--op", f->ops, "check only this op, and no whole model (repeatable); an unknown name prints the list of ops");
  c->add_list("--op-sizes", f->op_sizes,
              "check ops at these shapes: odd, real (those of d12, 124M parameters), huge (more logits or parameters than 31 bits count), "
              "or reduced (for compute-sanitizer, which needs each loop over a capped grid to turn twice and no oracle)")
      ->one_of({"odd", "real", "huge", "reduced"})
      ->capture_default_str();
  c->add_flag("--write-receipt", f->write_receipt, "check every variant and matmul mode; if all pass, write receipts/TRAINER.json");
  c->add_option("--receipt-folder", f->receipt_folder, "write or read receipts in this folder (default: receipts/ of the source tree)");
  c->add_flag("--check-receipts", f->check_receipts,
              "compare receipts/ with the sources of the steps (no GPU): exit 1 names the changed file, exit 2 a damaged receipt");
  c->add_option("--source-root", f->source_root,
                "--check-receipts reads this source tree (default: the one that this program was built from)");
  c->add_option("--seeds", f->seeds,
                "run the checks that depend on the seed for many seeds, N or FIRST..LAST, and show how near each came to its budget");
  c->add_option("--configurations", f->configurations,
                "with --seeds: all, or names that --list-configurations prints; they are of both GPU trainers unless --trainer reference");
  c->add_flag("--list-configurations", f->list_configurations, "print the names that --configurations takes, and stop");
  c->add_flag("--list-checks", f->list_checks, "print the whole-model checks with a sentence each, and stop");
  c->add_option("--without", f->without, "skip this check (repeatable), to see what it is worth");
  c->add_flag("--real-size", f->real_size, "compare d12 at T=1024 with the oracle, also for --trainer reference (minutes on a CPU)");
  c->add_flag(
      "--no-real-size", f->no_real_size,
      "skip d12 at T=1024, a layer of 1,600 channels and the 90,112 rows of `many rows`, on which the GPU trainers are checked by default");
  c->add_option("--oracle-answers", f->answers,
                "take the oracle's answers from this folder where a gate of this same program left them, and leave those that are new (1.4 "
                "GB of d12)");
  c->add_flag("--verbose", f->verbose, "print a line for every tensor, and how long each part took");
  c->add_flag("--json", f->json, "print JSON");
  f->all = c->arguments();
  c->footer(
      "Exit 0: passed. 1: something is wrong. 2: bad flags, or a damaged receipt. 3: no GPU.\n"
      "Examples:\n"
      "  stepscope gate --trainer fp32 --matmul tf32\n"
      "  stepscope gate --trainer reference --checkpoint tiny.bin --state tiny_debug_state.bin\n"
      "  stepscope gate --trainer fp32 --write-receipt\n"
      "  stepscope gate --check-receipts\n"
      "  stepscope gate --trainer reference --seeds 20");
  c->callback([f, &exit_code] { run(*f, exit_code); });
}

}  // namespace cli

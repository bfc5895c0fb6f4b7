// `stepscope energy`: joules per op of a training step, measured by the GPU's energy counter, and how far each is above its floor.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/errors.h"
#include "base/json_read.h"
#include "base/json_text.h"
#include "base/named_files.h"
#include "base/output_file.h"
#include "base/read_file.h"
#include "base/stderr_text.h"
#include "base/text.h"
#include "build_info.inc"
#include "cli/commands.h"
#include "cli/gpu.h"
#include "cli/report_output.h"
#include "cli/say.h"
#include "cli/trainer_flags.h"
#include "cli/values.h"
#include "experiments/energy/into_profile.h"
#include "experiments/energy/measure.h"
#include "experiments/energy/op_nodes.h"
#include "profiler/document/json.h"

namespace cli {
namespace {

using stepscope::InputError;
using stepscope::MachineError;

struct EnergyFlags {
  TrainerFlags trainer;
  energy::MeasureOptions measure;
  std::string from, out, profile;
  bool json = false, quiet = false;
  std::vector<const Argument*> all;
  const Argument *steps = nullptr, *most_rounds = nullptr;
};

energy::Document load(const std::string& file) {
  const std::string text = stepscope::read_file(file);
  const auto json = stepscope::read_json<nlohmann::ordered_json>(text);
  if (json.is_discarded()) throw InputError(fmt::format("{}: not an energy document: {}", file, stepscope::why_no_object(text, file)));
  return energy::from_json(json, file);
}

// `profile`: what the joules go into besides, so that another run is refused before minutes are spent.
energy::Document measured([[maybe_unused]] const EnergyFlags& f, [[maybe_unused]] const CommandLine& line,
                          [[maybe_unused]] const std::optional<profiler::ProfileDocument>& profile) {
  TrainerFlags flags = f.trainer;
  settle_for_gpu(flags);
  if (flags.trainer == "reference")
    throw InputError("--trainer reference: it runs on the CPU, and only a GPU's energy is counted; take --trainer mixed or fp32");
  // Wrong flags are refused before anything asks for a GPU.
  const gpt2::TrainerOptions options = trainer_options(flags);
  gpt2::LoopOptions loop = loop_options(flags);
  if (flags.lr_total_steps == 0) loop.learning_rate.total = int64_t{1} << 40;  // as many steps as the seconds hold
  gpt2::check_run(options, loop);
  energy::require_op_names(f.measure.only, f.measure.by_launch);
  const GpuStatus gpu = gpu_status();
  if (!gpu.present) throw MachineError(fmt::format("energy is counted by a GPU: {}", gpu.why_not));
#ifdef STEPSCOPE_WITH_CUDA
  const std::unique_ptr<gpt2::Trainer> trainer = make_trainer(flags, options);
  if (profile) energy::require_same_run(energy::settings_of(*trainer, loop), *profile);
  energy::MeasureOptions how = f.measure;
  how.pci_bus_id = gpu.pci_bus_id;
  if (!f.quiet) how.progress = [](std::string_view what) { stepscope::put_on_stderr(fmt::format("energy: {}\n", what)); };
  energy::Document document = energy::measure(*trainer, loop, how);
  document.run.git_revision = kGitRevision;
  if (!gpu.uuid.empty()) document.run.uuid = gpu.uuid;
  document.run.command = line.text();
  return document;
#else
  throw MachineError("this stepscope was built without CUDA");
#endif
}

void run(const EnergyFlags& f, const CommandLine& line) {
  if (!f.from.empty())
    only_these(f.all, {"--out", "--from", "--profile", "--quiet", "--json"}, "--from reads what was measured; leave one of the two out");
  if (f.steps->count() > 0) throw InputError("--steps: as many are taken as the seconds of --warm-s and of the windows hold; leave it out");
  refuse_flags_of_the_loop(f.trainer);
  if (f.most_rounds->count() > 0 && f.measure.most_rounds < f.measure.rounds)
    throw InputError(fmt::format("--most-rounds {}: --rounds measures every op {} times; expected as many or more", f.measure.most_rounds,
                                 f.measure.rounds));
  stepscope::NamedFiles inputs{{"--from", f.from}, {"--model", f.trainer.model}};
  add_shards(inputs, "--data", f.trainer.data);
  stepscope::check_files_differ(inputs, {{"-o/--out", f.out}, {"--profile", f.profile}});
  if (!f.out.empty()) stepscope::check_output(f.out, "-o/--out");
  std::optional<profiler::ProfileDocument> profile;
  if (!f.profile.empty()) {
    if (f.measure.by_launch) throw InputError("--profile with --by-launch: a profile has joules of ops; leave --by-launch out");
    stepscope::check_output(f.profile, "--profile");
    // It is read and then written: into a pipe, what was read would be written to nobody, and the program would wait for a reader.
    std::error_code unknown;
    if (std::filesystem::exists(f.profile, unknown) && !std::filesystem::is_regular_file(f.profile, unknown))
      throw InputError(fmt::format("--profile {}: expected a file, which then holds the joules; this is a pipe or a device", f.profile));
    profile = profiler::load_profile(f.profile);
  }
  const energy::Document document = f.from.empty() ? measured(f, line, profile) : load(f.from);
  const std::string json = stepscope::json_text(energy::to_json(document), 1) + "\n";
  WrittenFiles files;
  if (!f.out.empty()) files.write("document", f.out, json);
  if (profile) {
    stepscope::write_output(f.profile, energy::profile_with_joules(document, *profile, f.profile));
    say(fmt::format("the joules of its ops were written into {}", f.profile));
    for (const profiler::MissingRecord& notice : energy::notices(document, *profile))
      if (!notice.detail.empty()) say(fmt::format("{}: {}; its `missing` says so", f.profile, notice.detail));
  }
  fmt::print("{}", f.json ? json : stepscope::printable_lines(energy::table(document)));
}

}  // namespace

void add_energy_command(Command& app, const CommandLine& line, int&) {
  auto f = std::make_shared<EnergyFlags>();
  Command* c = app.add_subcommand("energy", "Measure the joules of every op of a training step");
  add_trainer_flags(*c, f->trainer);
  energy::MeasureOptions& m = f->measure;
  c->add_option("--out,-o", f->out, "write the energy document (JSON) to this file");
  c->add_option("--from", f->from, "measure nothing: read this energy document (without flags of a measurement)");
  c->add_option("--profile", f->profile, "add the joules to this profile document; it must be of the same device, driver and settings");
  c->add_option("--only", m.only, "measure only these ops, as the table names them (backward/attention)")->type_name("OP");
  c->add_option("--rounds", m.rounds, "measure every op this many times")->check(whole(1, 100))->capture_default_str();
  f->most_rounds = c->add_option("--most-rounds", m.most_rounds, "measure an op that is not known to 1% again, up to this many times")
                       ->check(whole(1, 100))
                       ->capture_default_str();
  c->add_option("--added-share", m.added_share, "copies of an op make a step longer by this share")
      ->check(real(0.05, 4))
      ->capture_default_str();
  c->add_option("--warm-s", m.warm_s, "train this many seconds before anything is counted")->check(real(0, 600))->capture_default_str();
  c->add_option("--settle-s", m.settle_s, "begin each window with this many seconds that do not count")
      ->check(real(0, 60))
      ->capture_default_str();
  c->add_option("--window-s", m.window_s, "count this many seconds; 0 = twelve steps in whole cycles of the clock")
      ->check(real(0, 60))
      ->capture_default_str();
  c->add_flag("--full-clock", m.full_clock, "put pauses into the steps that keep the clock at its highest");
  c->add_flag("--by-launch", m.by_launch, "measure every launch of an op by itself (not of the embedding, whose launches need each other)");
  c->add_flag("--alone", m.alone, "measure each op back to back without the step, too");
  c->add_flag("--quiet,-q", f->quiet, "do not say on stderr what is measured next");
  c->add_flag("--json", f->json, "print the document instead of the table");
  f->all = c->arguments();
  c->for_each_argument([&](const std::string&, Argument& a) {
    // Of the trainers' flags these are refused.
    if (a.name() == "--steps") f->steps = a.group("");
    for (const char* refused : {"--val-data", "--skip-loss-outliers", "--skip-grad-outliers"})
      if (a.name() == refused) a.group("");
  });
  c->footer(
      "Exit 3: no GPU, or one whose energy cannot be counted.\n"
      "Examples:\n"
      "  stepscope energy -o energy.json\n"
      "  stepscope energy --trainer fp32 --batch-size 8\n"
      "  stepscope energy --from energy.json\n"
      "  stepscope energy --from energy.json --profile mixed.json");
  c->callback([f, line] { run(*f, line); });
}

}  // namespace cli

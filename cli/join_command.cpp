// `stepscope join`: recordings of several ranks, wherever they were made, as one profile document.
#include <fmt/format.h>

#include <memory>

#include "base/errors.h"
#include "cli/commands.h"
#include "cli/profile_ranks.h"
#include "cli/report_output.h"
#include "cli/values.h"
#include "profiler/document/run_info.h"

namespace cli {
namespace {

struct JoinFlags {
  std::vector<std::string> recordings;
  std::string out = "profile.json", run_json, links;
  int64_t first_timed_step = 0, timed_steps = 0;
  bool partial = false;
  ReportFlags report;
};

// A run of another rank or another number of ranks would give step times, tokens and floors that are not of these recordings.
void check_run(const profiler::RunInfo& run, const std::string& file, const std::vector<profiler::RankRecording>& recordings,
               const JoinFlags& f) {
  const auto refuse = [&](const std::string& found, const std::string& expected) {
    throw stepscope::InputError(fmt::format("--run-json {}: {}, expected {}", file, found, expected));
  };
  const auto& of_first = recordings.front().recording.rank;
  if (of_first && run.ranks != of_first->size)
    refuse(fmt::format("a run of {} rank{}", run.ranks, run.ranks == 1 ? "" : "s"),
           fmt::format("one of {}, as the recordings are", of_first->size));
  if (run.rank != 0) refuse(fmt::format("written by rank {}", run.rank), "rank 0's");
  const auto steps = static_cast<int64_t>(run.steps.size());
  if (f.timed_steps == 0) refuse(fmt::format("a run of {} steps, of which none is said to be timed", steps), "--timed-steps N with it");
  if (f.first_timed_step > steps || f.timed_steps > steps - f.first_timed_step)
    throw stepscope::InputError(
        fmt::format("--first-timed-step {} and --timed-steps {}: {} has {} steps", f.first_timed_step, f.timed_steps, file, steps));
}

void run(const JoinFlags& f, const CommandLine& line, int& exit_code) {
  stepscope::NamedFiles inputs{{"--run-json", f.run_json}, {"--ceilings", f.links}};
  for (const std::string& file : f.recordings) inputs.emplace_back("the recording to read", file);
  check_document_name("-o/--out", f.out);
  check_report_outputs(f.report, inputs, {{"-o/--out", f.out}});
  std::vector<profiler::RankRecording> recordings;
  for (const std::string& file : f.recordings) recordings.push_back({profiler::load_recording(file), file});
  std::optional<profiler::RunInfo> info;
  if (!f.run_json.empty()) {
    info = profiler::load_run_info(f.run_json);
    check_run(*info, f.run_json, recordings, f);
  }
  profiler::ProfileOptions options;
  // Not this program's revision and build: recordings do not say from which sources their program was built.
  options.first_timed_step = f.first_timed_step;
  options.timed_steps = f.timed_steps;
  profiler::JoinOptions join;
  join.partial = f.partial;
  join.links = links_for("--ceilings", f.links, recordings);
  profiler::ProfileDocument document = profiler::join_ranks(recordings, info, {}, options, join);
  document.run.command = line.text();
  exit_code = print_new_report(document, f.out, f.report);
}

}  // namespace

void add_join_command(Command& app, const CommandLine& line, int& exit_code) {
  auto f = std::make_shared<JoinFlags>();
  Command* c = app.add_subcommand("join", "Make one profile document of the recordings of several ranks");
  c->add_option("recordings", f->recordings, "the recording of each rank (profile --gpus N --keep-recording FILE)")->required();
  c->add_flag("--partial", f->partial,
              "accept that recordings of some ranks are missing; nothing is said about who waited for whom, and the exit code is 1");
  Argument* run_json =
      c->add_option("--run-json", f->run_json, "read the model, the step times and the floors of ops from this file of rank 0's trainer");
  c->add_option("--first-timed-step", f->first_timed_step, "0-based position of the first timed step in it")
      ->check(whole(0))
      ->needs(run_json)
      ->capture_default_str();
  c->add_option("--timed-steps", f->timed_steps, "how many steps were timed")->check(whole(0))->needs(run_json)->capture_default_str();
  c->add_option("--ceilings", f->links, "sweep of collectives that `doctor --gpus N` wrote (default: the kept one of these GPUs)");
  c->add_option("--out,-o", f->out, "write the profile document to this file")->capture_default_str();
  add_report_flags(*c, f->report);
  c->footer(
      "Examples:\n"
      "  stepscope join run.rank0.jsonl run.rank1.jsonl --out both.json\n"
      "  stepscope join big.rank0.jsonl big.rank3.jsonl --partial --trace step.trace.json");
  c->callback([f, line, &exit_code] { run(*f, line, exit_code); });
}

}  // namespace cli

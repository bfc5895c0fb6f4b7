// `stepscope join`: recordings of several ranks, wherever they were made, as one profile document.
#include <fmt/format.h>

#include <memory>

#include "base/errors.h"
#include "base/output_file.h"
#include "build_info.inc"
#include "cli/commands.h"
#include "cli/profile_ranks.h"
#include "cli/report_output.h"
#include "cli/values.h"
#include "profiler/document/json.h"
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

void run(const JoinFlags& f, const CommandLine& line, int& exit_code) {
  NamedFiles inputs{{"--run-json", f.run_json}, {"--ceilings", f.links}};
  for (const std::string& file : f.recordings) inputs.emplace_back("the recording to read", file);
  check_report_outputs(f.report, inputs, {{"--out", f.out}});
  std::vector<profiler::RankRecording> recordings;
  for (const std::string& file : f.recordings) recordings.push_back({profiler::load_recording(file), file});
  std::optional<profiler::RunInfo> info;
  if (!f.run_json.empty()) info = profiler::load_run_info(f.run_json);
  profiler::ProfileOptions options;
  options.git_revision = kGitRevision;
  options.build_type = kBuildType;
  options.first_timed_step = f.first_timed_step;
  options.timed_steps = f.timed_steps;
  profiler::JoinOptions join;
  join.partial = f.partial;
  join.links = links_for(f.links, uuids_of(recordings));
  profiler::ProfileDocument document = profiler::join_ranks(recordings, info, {}, options, join);
  document.run.command = line.text();
  stepscope::write_output(f.out, profiler::to_json(document));
  print_report(document, f.report);
  fmt::print(stderr, "document: {}\n", f.out);
  if (profiler::has_severe_missing(document)) exit_code = 1;
}

}  // namespace

void add_join_command(Command& app, const CommandLine& line, int& exit_code) {
  auto f = std::make_shared<JoinFlags>();
  Command* c = app.add_subcommand("join", "Make one profile document of the recordings of several ranks");
  c->add_option("recordings", f->recordings, "the recording of each rank (profile --gpus N --keep-recording FILE)")->required();
  c->add_flag("--partial", f->partial, "accept that recordings of some ranks are missing; nothing is said about who waited for whom");
  c->add_option("--run-json", f->run_json, "what rank 0's trainer wrote, for the model, the step times and the floors of ops");
  c->add_option("--first-timed-step", f->first_timed_step, "0-based position of the first timed step in it")
      ->check(whole(0))
      ->capture_default_str();
  c->add_option("--timed-steps", f->timed_steps, "how many steps were timed")->check(whole(0))->capture_default_str();
  c->add_option("--ceilings", f->links, "sweep of collectives that `doctor --gpus N` wrote (default: the kept one of these GPUs)");
  c->add_option("--out", f->out, "write the profile document to this file")->capture_default_str();
  add_report_flags(*c, f->report);
  c->footer(
      "Examples:\n"
      "  stepscope join run.rank0.jsonl run.rank1.jsonl --out both.json\n"
      "  stepscope join big.rank0.jsonl big.rank3.jsonl --partial --trace step.trace.json");
  c->callback([f, line, &exit_code] { run(*f, line, exit_code); });
}

}  // namespace cli

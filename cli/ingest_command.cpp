// `stepscope ingest FILE`: a report of Nsight Compute (.ncu-rep or CSV) or an SQLite export of Nsight Systems as a profile document, shown
// by the same tables. Nothing of Nsight needs to be installed.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "base/errors.h"
#include "base/mapped_file.h"
#include "cli/commands.h"
#include "cli/report_output.h"
#include "cli/say.h"
#include "cli/values.h"
#include "profiler/document/build_profile.h"
#include "profiler/document/json.h"
#include "profiler/ingest/metrics_table.h"
#include "profiler/ingest/ncu_csv.h"
#include "profiler/ingest/ncu_report.h"
#include "profiler/ingest/nsys_export.h"
#include "profiler/ingest/to_recording.h"

namespace cli {
namespace {

using stepscope::InputError;

struct IngestFlags {
  std::string file, rules, ceilings, out = "ingested.json", metrics, step_range = "step";
  int64_t first = 0, count = -1, process = -1;
  bool metrics_command = false;
  ReportFlags report;
  const Argument* step_range_flag = nullptr;
  std::vector<const Argument*> all;
};

profiler::ForeignReport read_report(const IngestFlags& f) {
  const gpt2::MappedFile file{std::filesystem::path(f.file)};
  const auto bytes = file.bytes();
  if (profiler::looks_like_sqlite(bytes)) {
    profiler::ForeignReport report = profiler::read_nsys_export(f.file, f.step_range);
    if (f.step_range_flag->count() > 0 && report.steps.empty())
      throw InputError(fmt::format("{}: --step-range {}: no CUDA work was launched in a range of this name", f.file, f.step_range));
    return report;
  }
  if (f.step_range_flag->count() > 0)
    throw InputError(fmt::format("--step-range {}: expected an SQLite export of Nsight Systems; {} is none", f.step_range, f.file));
  if (profiler::looks_like_ncu_report(bytes)) return profiler::read_ncu_report(bytes, f.file);
  const std::string_view text = file.text();
  if (profiler::looks_like_ncu_csv(text)) return profiler::read_ncu_csv(text, f.file);
  if (bytes.empty()) throw InputError(f.file + ": the file is empty");
  if (text.substr(0, 200).find("\"stepscope.profile/") != std::string_view::npos)
    throw InputError(fmt::format("{}: a profile document already; `stepscope report {}` shows it", f.file, f.file));
  throw InputError(
      fmt::format("{}: neither an Nsight Compute report (.ncu-rep, begins with \"NVR\"), nor its CSV (a line begins with "
                  "\"ID\",\"Process ID\"), nor an SQLite export of Nsight Systems (`nsys export --type sqlite` makes one of a .nsys-rep)",
                  f.file));
}

profiler::Rules rules_of(const std::string& name) {
  const auto& shipped = profiler::shipped_rules();
  if (const auto at = shipped.find(name); at != shipped.end()) return profiler::parse_rules(at->second, name);
  if (!std::filesystem::exists(name)) {
    std::string known;
    for (const auto& [word, text] : shipped) known += (known.empty() ? "" : ", ") + word;
    throw InputError(fmt::format("--rules '{}': no such file, and not one of the rules that ship with stepscope ({})", name, known));
  }
  const gpt2::MappedFile file{std::filesystem::path(name)};
  return profiler::parse_rules(std::string(file.text()), name);
}

// A report holds no ceilings; a profile of the same device does.
profiler::Ceilings ceilings_of(const std::string& path) {
  if (path.empty()) return {};
  const profiler::CeilingsSection c = profiler::load_profile(path).ceilings;
  if (!c.copy_bytes_per_s) throw InputError(fmt::format("--ceilings {}: this profile holds no measured ceilings", path));
  return {c.copy_bytes_per_s,    c.read_bytes_per_s,  c.write_bytes_per_s,   c.matmul_flops_per_s,
          c.device.value_or(""), c.uuid.value_or(""), c.driver.value_or(""), c.measured_at.value_or("")};
}

// A share of another GPU's ceiling looks like any other.
void check_same_gpu(const IngestFlags& f, const profiler::Ceilings& ceilings, const std::set<std::string>& gpus,
                    profiler::Recording& recording) {
  for (const std::string& name : gpus)
    if (!ceilings.device.empty() && name != ceilings.device)
      throw InputError(fmt::format("--ceilings {}: measured on {}, the report is of {}", f.ceilings, ceilings.device, name));
  const auto gpu = recording.session.device.find("name");
  const bool named = gpu != recording.session.device.end();
  if (named && !ceilings.device.empty()) return;
  recording.missing.push_back({"ceilings_of_unknown_gpu", 1,
                               fmt::format("measured on {}; the report {}", ceilings.device.empty() ? "an unnamed GPU" : ceilings.device,
                                           named ? "is of " + gpu->second : "names no GPU")});
}

void run(const IngestFlags& f, const CommandLine& line, int& exit_code) {
  if (f.metrics_command) {
    only_these(f.all, {"--metrics-command"}, "--metrics-command prints a command line and reads nothing; leave one of the two out");
    fmt::print("{}\n", profiler::metrics_command());
    return;
  }
  if (f.file.empty()) throw InputError("ingest needs a report file (or --metrics-command)");
  check_document_name("-o/--out", f.out);
  check_report_outputs(f.report, {{"the report to read", f.file}, {"--rules", f.rules}, {"--ceilings", f.ceilings}},
                       {{"-o/--out", f.out}, {"--metrics-csv", f.metrics}});
  profiler::IngestOptions options;
  if (!f.rules.empty()) options.rules = rules_of(f.rules);
  options.first = f.first;
  options.count = f.count;
  if (f.process >= 0) options.process = f.process;
  const profiler::Ceilings ceilings = ceilings_of(f.ceilings);

  const profiler::ForeignReport report = read_report(f);
  // Steps of which some operations are left out look like steps that lost them.
  if (!report.steps.empty() && (f.first > 0 || f.count >= 0))
    throw InputError(fmt::format("{}: {}: expected a report without steps; this export has {} ranges '{}', which are whole steps", f.file,
                                 f.first > 0 ? "--first" : "--count", report.steps.size(), f.step_range));
  WrittenFiles files;
  if (!f.metrics.empty()) files.write("metrics", f.metrics, profiler::metrics_csv(report));
  profiler::Recording recording = profiler::to_recording(report, options);
  if (!f.ceilings.empty()) check_same_gpu(f, ceilings, profiler::gpus_of(report, options), recording);
  profiler::ProfileDocument document = profiler::build_profile(recording, std::nullopt, ceilings, {});
  document.run.command = line.text();
  document.collection.program = recording.session.program;
  // No export of nsys says what ran.
  if (document.collection.program.empty()) document.collection.program = std::filesystem::path(f.file).filename().string();
  exit_code = print_new_report(document, f.out, f.report);
  for (const profiler::MissingRecord& m : report.missing)
    if (m.name == "report_damaged") {
      say(fmt::format("{}: the report is damaged: {}", f.file, m.detail));
      exit_code = 2;
    }
}

}  // namespace

void add_ingest_command(Command& app, const CommandLine& line, int& exit_code) {
  auto f = std::make_shared<IngestFlags>();
  Command* c = app.add_subcommand("ingest", "Show a report of Nsight Compute or Nsight Systems in the same tables");
  c->add_option("file", f->file, "FILE.ncu-rep, the CSV of `ncu --csv` (page raw or details), or the SQLite export of nsys");
  c->add_option("--rules", f->rules, "place kernels in passes and ops by these rules: a YAML file, or llm.c");
  c->add_option("--first", f->first, "skip this many results at the beginning (of a report without steps)")
      ->check(whole(0))
      ->capture_default_str();
  c->add_option("--count", f->count, "take this many results (default: all)")->check(whole(1));
  c->add_option("--process", f->process, "take only the kernels of this process id")->check(whole(0));
  f->step_range_flag =
      c->add_option("--step-range", f->step_range, "name of the NVTX range that is one step (nsys export)")->capture_default_str();
  c->add_option("--ceilings", f->ceilings, "take the measured ceilings from this profile of the same GPU");
  c->add_option("--out,-o", f->out, "write the profile document to this file")->capture_default_str();
  c->add_option("--metrics-csv", f->metrics, "write every metric of every result to this file, in base units");
  c->add_flag("--metrics-command", f->metrics_command, "print the ncu command line that collects the metrics that are read, and stop");
  add_report_flags(*c, f->report);
  f->all = c->arguments();
  c->footer(
      "Exit 0: shown. 1: shown, but something severe is missing (kernels without a time).\n"
      "2: bad flags, no report, or a damaged one. 3: built without SQLite.\n"
      "Examples:\n"
      "  stepscope ingest report.ncu-rep\n"
      "  stepscope ingest report.ncu-rep --rules llm.c --ceilings profile.json --by op\n"
      "  stepscope ingest report.csv --first 2 --count 4\n"
      "  stepscope ingest --metrics-command");
  c->callback([f, line, &exit_code] { run(*f, line, exit_code); });
}

}  // namespace cli

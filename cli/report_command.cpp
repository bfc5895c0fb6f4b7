// `stepscope report DOC`: a profile document shown again, on any machine: tables, HTML, Markdown, CSV, trace. And the logs of runs.
#include <fmt/format.h>

#include <fstream>
#include <memory>

#include "base/errors.h"
#include "cli/commands.h"
#include "cli/log_report.h"
#include "cli/report_output.h"
#include "profiler/document/json.h"

namespace cli {
namespace {

constexpr size_t kMostLogs = 8;  // as many colours as the page has

bool names_a_log(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string first;
  return std::getline(in, first) && gpt2::is_run_log(first);
}

void report_logs(const std::vector<std::string>& paths, const ReportFlags& flags) {
  if (paths.size() > kMostLogs) throw stepscope::InputError(fmt::format("report: {} logs, expected at most {}", paths.size(), kMostLogs));
  std::vector<gpt2::RunLog> logs;
  for (const std::string& path : paths) logs.push_back(gpt2::load_run_log(path));
  const auto rows = static_cast<size_t>(flags.top);
  print_texts(flags,
              {[&] { return log_html_text(logs); }, [&] { return log_markdown_text(logs, rows); }, [&] { return log_json_text(logs); },
               [&] { return log_csv_text(logs); }, [&](size_t width, bool color) { return log_table_text(logs, rows, width, color); }});
}

}  // namespace

void add_report_command(Command& app, int& exit_code) {
  struct Flags {
    std::vector<std::string> documents;
    ReportFlags report;
  };
  auto f = std::make_shared<Flags>();
  Command* c = app.add_subcommand("report", "Show a profile document as tables, HTML, Markdown, CSV or a trace; logs of runs as curves");
  c->add_option("document", f->documents, "a profile document, or up to 8 logs that `train --log` wrote, side by side")->required();
  add_report_flags(*c, f->report);
  // Where nothing else is written, -o is what people type.
  c->add_option("-o,--out", f->report.out, "the same as --report");
  c->footer(
      "Examples:\n"
      "  stepscope report profile.json -o report.html\n"
      "  stepscope report profile.json --by op --top 20\n"
      "  stepscope report profile.json --csv launches.csv --csv-rows launch --trace step.trace.json\n"
      "  stepscope report run.jsonl -o run.html");
  c->callback([f, &exit_code] {
    const std::vector<std::string>& paths = f->documents;
    NamedFiles inputs;
    for (const std::string& path : paths) inputs.emplace_back("the document to read", path);
    check_report_outputs(f->report, inputs);
    size_t logs = 0;
    for (const std::string& path : paths) logs += names_a_log(path);
    if (logs > 0 || paths.size() > 1) {
      for (const std::string& path : paths)
        if (!names_a_log(path)) {
          throw stepscope::InputError(
              fmt::format("{}: no run's log, expected one as `train --log` writes it, or one profile document alone", path));
        }
      check_log_outputs(f->report);
      return report_logs(paths, f->report);
    }
    const profiler::ProfileDocument document = profiler::load_profile(paths.front());
    print_report(document, f->report);
    if (profiler::has_severe_missing(document)) exit_code = 1;
  });
}

}  // namespace cli

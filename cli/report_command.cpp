// `stepscope report DOC`: a profile document shown again, on any machine: tables, HTML, Markdown, CSV, trace. And the logs of runs.
#include <fmt/format.h>

#include <memory>

#include "base/errors.h"
#include "base/read_file.h"
#include "cli/commands.h"
#include "cli/log_report.h"
#include "cli/report_output.h"
#include "profiler/document/json.h"

namespace cli {
namespace {

constexpr size_t kMostLogs = 8;  // as many colours as the page has

// Read once: it may be a pipe, as in `report <(zcat profile.json.gz)`.
struct Document {
  std::string path, text;
  bool is_log() const { return gpt2::is_run_log(text.substr(0, text.find('\n'))); }
};

void report_logs(const std::vector<Document>& documents, const ReportFlags& flags) {
  std::vector<gpt2::RunLog> logs;
  for (const Document& d : documents) logs.push_back(gpt2::parse_run_log(d.text, d.path));
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
    stepscope::NamedFiles inputs;
    for (const std::string& path : paths) inputs.emplace_back("the document to read", path);
    check_report_outputs(f->report, inputs);
    if (paths.size() > kMostLogs) throw stepscope::InputError(fmt::format("report: {} logs, expected at most {}", paths.size(), kMostLogs));
    std::vector<Document> documents;
    for (const std::string& path : paths) documents.push_back({path, stepscope::read_file(path)});
    if (paths.size() > 1 || documents.front().is_log()) {
      for (const Document& d : documents)
        if (!d.is_log())
          throw stepscope::InputError(
              fmt::format("{}: no run's log, expected one as `train --log` writes it, or one profile document alone; "
                          "`stepscope diff A B` compares two documents",
                          d.path));
      check_log_outputs(f->report);
      return report_logs(documents, f->report);
    }
    const profiler::ProfileDocument document = profiler::profile_from_json(documents.front().text, paths.front());
    exit_code = print_report(document, f->report);
  });
}

}  // namespace cli

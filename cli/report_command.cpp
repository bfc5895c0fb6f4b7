// `stepscope report DOC`: a profile document shown again, on any machine: tables, HTML, Markdown, CSV, trace.
#include <memory>

#include "cli/commands.h"
#include "cli/report_output.h"
#include "profiler/document/json.h"

namespace cli {

void add_report_command(Command& app, int& exit_code) {
  struct Flags {
    std::string document;
    ReportFlags report;
  };
  auto f = std::make_shared<Flags>();
  Command* c = app.add_subcommand("report", "Show a profile document as tables, HTML, Markdown, CSV or a trace");
  c->add_option("document", f->document, "a profile document")->required();
  add_report_flags(*c, f->report);
  // Where nothing else is written, -o is what people type.
  c->add_option("-o,--out", f->report.out, "the same as --report");
  c->footer(
      "Examples:\n"
      "  stepscope report profile.json -o report.html\n"
      "  stepscope report profile.json --by op --top 20\n"
      "  stepscope report profile.json --csv launches.csv --csv-rows launch --trace step.trace.json");
  c->callback([f, &exit_code] {
    check_report_outputs(f->report);
    const profiler::ProfileDocument document = profiler::load_profile(f->document);
    print_report(document, f->report);
    if (profiler::has_severe_missing(document)) exit_code = 1;
  });
}

}  // namespace cli

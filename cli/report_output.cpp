#include "cli/report_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "base/output_file.h"
#include "base/stderr_text.h"
#include "base/text.h"
#include "cli/choose.h"
#include "cli/say.h"
#include "cli/values.h"
#include "profiler/document/json.h"
#include "profiler/document/missing_rows.h"
#include "profiler/report/csv.h"
#include "profiler/report/html.h"
#include "profiler/report/markdown.h"
#include "profiler/report/table.h"
#include "profiler/report/terminal.h"
#include "profiler/report/trace.h"

namespace cli {
namespace {

profiler::TableBy table_by(const ReportFlags& f) {
  using profiler::TableBy;
  static constexpr std::array<std::pair<std::string_view, TableBy>, 4> kWords{
      {{"pass", TableBy::pass}, {"op", TableBy::op}, {"kernel", TableBy::kernel}, {"layer", TableBy::layer}}};
  return choose(kWords, f.by, "--by");
}

profiler::CsvRows csv_rows(const ReportFlags& f) {
  using profiler::CsvRows;
  static constexpr std::array<std::pair<std::string_view, CsvRows>, 9> kWords{{{"pass", CsvRows::pass},
                                                                               {"op", CsvRows::op},
                                                                               {"layer", CsvRows::layer},
                                                                               {"kernel", CsvRows::kernel},
                                                                               {"launch", CsvRows::launch},
                                                                               {"missing", CsvRows::missing},
                                                                               {"rank", CsvRows::rank},
                                                                               {"collective", CsvRows::collective},
                                                                               {"collective_rank", CsvRows::collective_rank}}};
  return choose(kWords, f.csv_rows, "--csv-rows");
}

// Longest ending first: "x.trace.json" is a trace, "x.json" the document.
enum class Output { html, markdown, trace, json, csv };
std::optional<Output> output_of_ending(const std::string& path) {
  static constexpr std::array<std::pair<std::string_view, Output>, 5> kEndings{
      {{".trace.json", Output::trace}, {".html", Output::html}, {".md", Output::markdown}, {".json", Output::json}, {".csv", Output::csv}}};
  for (const auto& [ending, value] : kEndings)
    if (path.ends_with(ending)) return value;
  return std::nullopt;
}
Output output_of(const std::string& path, const char* flag) {
  if (const auto output = output_of_ending(path)) return *output;
  throw stepscope::InputError(fmt::format("{} '{}': expected a name that ends in .html, .md, .csv, .trace.json or .json", flag, path));
}

// Every file to be written, with the flag that named it.
stepscope::NamedFiles all_outputs(const ReportFlags& f) {
  stepscope::NamedFiles all;
  for (const std::string& path : f.outputs) all.emplace_back("--report", path);
  for (const std::string& path : f.out) all.emplace_back("-o/--out", path);
  return all;
}

std::string output_text(const profiler::ProfileDocument& d, const ReportFlags& f, Output kind) {
  switch (kind) {
    case Output::html:
      return profiler::html_text(d);
    case Output::markdown:
      return profiler::markdown_text(d, static_cast<size_t>(f.top), table_by(f));
    case Output::trace:
      return profiler::trace_text(d);
    case Output::json:
      return profiler::to_json(d);
    case Output::csv:
      break;
  }
  return profiler::csv_text(d, csv_rows(f));
}

// A header without rows, or a trace without launches, looks like a mistake of the program.
void say_if_empty(const profiler::ProfileDocument& d, const std::string& path, Output kind, const std::string& text) {
  if (kind == Output::csv && text.find('\n') + 1 == text.size())
    say(fmt::format("{} has no rows: {}", path, profiler::why_empty(d, "this document holds none of them")));
  if (kind == Output::trace && d.launches.empty() && d.lanes.empty())
    say(fmt::format("{} shows no launch: {}", path, profiler::why_empty(d, "this document holds none")));
  else if (kind == Output::trace && profiler::is_missing(d, "kernels_measured_alone"))
    say(fmt::format("{} shows no launch: each kernel was measured alone, so nobody knows when it ran in a step", path));
}

const char* word_of(Output kind) {
  switch (kind) {
    case Output::csv:
      return "rows";
    case Output::trace:
      return "trace";
    case Output::json:
      return "document";
    case Output::html:
    case Output::markdown:
      break;
  }
  return "report";
}

void write_report(WrittenFiles& files, const profiler::ProfileDocument& d, const ReportFlags& f, const std::string& path, Output kind) {
  const std::string text = output_text(d, f, kind);
  files.write(word_of(kind), path, text);
  say_if_empty(d, path, kind, text);
}

}  // namespace

void WrittenFiles::write(const char* what, const std::string& path, const std::string& text) {
  stepscope::write_output(path, text);
  files_.emplace_back(what, path);
}

WrittenFiles::~WrittenFiles() {
  std::fflush(stdout);
  for (const auto& [what, path] : files_) stepscope::put_on_stderr(fmt::format("{}: {}\n", what, stepscope::printable(path)));
}

void add_report_flags(Command& c, ReportFlags& f) {
  f.by_flag = c.add_option("--by", f.by, "rows of the second table: pass, op, kernel or layer")->capture_default_str();
  f.top_flag = c.add_option("--top", f.top, "show at most this many rows of the second table")->check(whole(1))->capture_default_str();
  c.add_flag("--json", f.json, "print the document with all its rows instead of the tables");
  c.add_option("--csv", f.csv, "write rows as CSV to this file");
  f.csv_rows_flag =
      c.add_option("--csv-rows", f.csv_rows,
                   "rows of --csv and of FILE.csv: pass, op, layer, kernel, launch, missing, rank, collective or collective_rank")
          ->capture_default_str();
  c.add_option("--trace", f.trace, "write one step to this file, as a trace for ui.perfetto.dev");
  c.add_option("--report", f.outputs, "write a report: FILE.html, FILE.md, FILE.csv, FILE.trace.json or FILE.json (repeatable)");
}

void check_report_outputs(const ReportFlags& f, const stepscope::NamedFiles& inputs, stepscope::NamedFiles outputs) {
  table_by(f);
  csv_rows(f);
  const stepscope::NamedFiles reports = all_outputs(f);
  outputs.insert(outputs.end(), {{"--csv", f.csv}, {"--trace", f.trace}});
  outputs.insert(outputs.end(), reports.begin(), reports.end());
  stepscope::check_files_differ(inputs, outputs);
  bool csv = !f.csv.empty(), tables = !f.json;
  for (const auto& [flag, path] : reports) {
    const Output kind = output_of(path, flag);
    csv |= kind == Output::csv;
    tables |= kind == Output::markdown;
    if (kind == Output::html && !profiler::has_charts())
      throw stepscope::MachineError(fmt::format(
          "'{}': this program was built without Chart.js (package libjs-chart.js), which draws HTML reports; install the package, "
          "delete the build folder and build again, or write a name that ends in .md",
          path));
  }
  for (const auto& [flag, path] : outputs)
    if (!path.empty()) stepscope::check_output(path, flag);
  if (f.csv_rows_flag->count() > 0 && !csv)
    throw stepscope::InputError(
        fmt::format("--csv-rows {}: expected --csv FILE or a report FILE.csv with it, which holds the rows", f.csv_rows));
  if (!tables) only_these({f.by_flag, f.top_flag}, {}, kNoTable);
}

void check_document_name(const char* flag, const std::string& out) {
  const auto named = output_of_ending(out);
  if (named && *named != Output::json)
    throw stepscope::InputError(
        fmt::format("{} {}: takes the document, which is JSON; `--report {}` writes what this name says", flag, out, out));
}

void check_log_outputs(const ReportFlags& f) {
  const auto refuse = [](const std::string& flag) {
    throw stepscope::InputError(fmt::format("{}: expected a profile document with it; a run's log has neither kernels nor launches", flag));
  };
  if (f.by_flag->count() > 0) refuse("--by " + f.by);
  if (f.csv_rows_flag->count() > 0) refuse("--csv-rows " + f.csv_rows);
  if (!f.trace.empty()) refuse("--trace " + f.trace);
  for (const auto& [flag, path] : all_outputs(f))
    if (output_of(path, flag) == Output::trace) refuse(fmt::format("{} {}", flag, path));
}

void print_texts(const ReportFlags& f, const ReportTexts& texts) {
  WrittenFiles files;
  if (!f.csv.empty()) files.write(word_of(Output::csv), f.csv, texts.csv());
  for (const auto& [flag, path] : all_outputs(f)) {
    const Output kind = output_of(path, flag);
    const auto& text = kind == Output::html       ? texts.html
                       : kind == Output::markdown ? texts.markdown
                       : kind == Output::json     ? texts.json
                                                  : texts.csv;
    files.write(word_of(kind), path, text());
  }
  fmt::print("{}", f.json ? texts.json() : texts.table(profiler::table_width(STDOUT_FILENO), profiler::color_wanted(STDOUT_FILENO)));
}

int print_report(const profiler::ProfileDocument& document, const ReportFlags& f) {
  WrittenFiles files;
  if (!f.csv.empty()) write_report(files, document, f, f.csv, Output::csv);
  if (!f.trace.empty()) write_report(files, document, f, f.trace, Output::trace);
  for (const auto& [flag, path] : all_outputs(f)) write_report(files, document, f, path, output_of(path, flag));
  if (f.json) {
    fmt::print("{}", profiler::to_json(document));
  } else {
    fmt::print("{}", profiler::table_text(document, {table_by(f), static_cast<size_t>(f.top), profiler::table_width(STDOUT_FILENO),
                                                     profiler::color_wanted(STDOUT_FILENO)}));
  }
  return profiler::has_severe_missing(document) ? 1 : 0;
}

int print_new_report(const profiler::ProfileDocument& document, const std::string& out, const ReportFlags& f) {
  WrittenFiles files;
  files.write("document", out, profiler::to_json(document));
  return print_report(document, f);
}

}  // namespace cli
